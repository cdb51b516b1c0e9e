//! Finds the rank of each process in an MPI job. The launcher writes it into the environment of the process, which disappears with the process, so
//! the environment is read early.

use std::{collections::HashMap, path::Path};

/// How often a process without a rank is read: between fork and exec, it still has its parent's environment.
const TRIES: u8 = 3;
/// The most processes that are remembered; later ones have no rank.
const MOST: usize = 65_536;

/// The ranks found so far, by process.
#[derive(Debug, Default)]
pub struct RanksByProcess {
    known: HashMap<u32, (u8, Option<u32>)>,
}

impl RanksByProcess {
    /// Reads the ranks of processes that have none yet and were read fewer than [`TRIES`] times.
    pub fn look(&mut self, pids: impl Iterator<Item = u32>) {
        // A process that is gone is not read again.
        self.look_with(pids, |pid| Path::new(&format!("/proc/{pid}")).exists().then(|| probes::rank_of_process(pid)));
    }

    fn look_with(&mut self, pids: impl Iterator<Item = u32>, ask: impl Fn(u32) -> Option<Option<u32>>) {
        for pid in pids.filter(|pid| *pid != 0) {
            if self.known.len() >= MOST && !self.known.contains_key(&pid) {
                continue;
            }
            let (tries, rank) = self.known.entry(pid).or_default();
            if rank.is_none() && *tries < TRIES {
                match ask(pid) {
                    Some(answer) => (*tries, *rank) = (*tries + 1, answer),
                    None => *tries = TRIES,
                }
            }
        }
    }

    /// The rank of a process, if it is known.
    pub fn of(&self, pid: u32) -> Option<u32> {
        self.known.get(&pid).and_then(|(_, rank)| *rank)
    }

    /// The number of processes with a rank.
    pub fn count(&self) -> u32 {
        u32::try_from(self.known.values().filter(|(_, rank)| rank.is_some()).count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_rank_is_asked_again_but_not_for_ever() {
        let (mut ranks, asked) = (RanksByProcess::default(), std::cell::Cell::new(0));
        let answer = |pid| {
            asked.set(asked.get() + 1);
            (pid != 9).then(|| (pid == 7 && asked.get() > 3).then_some(3))
        };
        for _ in 0..10 {
            ranks.look_with([7, 8, 9, 0].into_iter(), answer);
        }
        assert_eq!((ranks.of(7), ranks.of(8), ranks.of(9), ranks.count()), (Some(3), None, None, 1));
        assert_eq!(asked.get(), 2 + 3 + 1, "{ranks:?}");
    }
}
