//! Which rank of its job a process is, from the environment that its launcher gave it.

use std::{collections::HashMap, fs, time::Duration};

use crate::aside::aside;

/// The launchers' environment variables, most specific first: a job's own steps inherit Slurm's variables of the step
/// around them.
const VARIABLES: &[&[u8]] =
    &[b"OMPI_COMM_WORLD_RANK=", b"PMIX_RANK=", b"PMI_RANK=", b"MV2_COMM_WORLD_RANK=", b"SLURM_PROCID="];
/// Processes remembered.
const PROCESSES: usize = 4096;
/// How long an answer is valid before the probe checks again whether the process is still the same.
const STANDS: Duration = Duration::from_secs(1);

/// What is known of processes.
#[derive(Debug, Default)]
pub(crate) struct KnownRanks {
    known: HashMap<u32, KnownProcess>,
}

#[derive(Debug)]
struct KnownProcess {
    rank: Option<u32>,
    started: Option<u64>,
    looked: Duration,
}

impl KnownRanks {
    /// The rank of a process; `None`: it has none, is gone, or its memory is locked for long.
    pub fn of(&mut self, pid: u32, now: Duration) -> Option<u32> {
        if let Some(known) = self.known.get_mut(&pid) {
            if now.saturating_sub(known.looked) < STANDS {
                return known.rank;
            }
            let started = started(pid);
            // If the process is gone, the known rank holds until another process has its number.
            if started.is_none() || started == known.started {
                known.looked = now;
                return known.rank;
            }
        }
        if self.known.len() >= PROCESSES {
            self.known.clear();
        }
        let rank = rank_of_process(pid);
        self.known.insert(pid, KnownProcess { rank, started: started(pid), looked: now });
        rank
    }
}

/// The rank of a process within its job, by the environment that it was started with; `None`: it has none, is gone, or its memory is
/// locked for long.
pub fn rank_of_process(pid: u32) -> Option<u32> {
    let environment = aside(move || fs::read(format!("/proc/{pid}/environ"))).and_then(Result::ok);
    rank_in(&environment?)
}

fn rank_in(environment: &[u8]) -> Option<u32> {
    let value = |name: &&[u8]| environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(*name));
    VARIABLES.iter().find_map(value).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
}

/// When a process was started, in ticks since boot (field 22 of proc_pid_stat(5)).
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have anything in it.
    let rest = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 2..)?;
    std::str::from_utf8(rest).ok()?.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_word_goes_before_slurms() {
        assert_eq!(rank_in(b"A=1\0SLURM_PROCID=0\0OMPI_COMM_WORLD_RANK=7\0"), Some(7));
        assert_eq!(rank_in(b"PMI_RANK=3\0X_PMIX_RANK=1\0"), Some(3));
        assert_eq!([rank_in(b""), rank_in(b"PMI_RANK=x\0")], [None; 2]);
    }

    #[test]
    fn a_process_is_known_by_when_it_was_started() {
        assert!(started(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(started(u32::MAX), None);
        let mut ranks = KnownRanks::default();
        for pid in 0..10_000 {
            ranks.of(u32::MAX - pid, Duration::ZERO);
        }
        assert!(ranks.known.len() <= PROCESSES);
    }
}
