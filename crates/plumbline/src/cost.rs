//! What this program itself uses.

use std::{fs, time::Duration};

use nix::{
    sys::resource::{UsageWho, getrusage},
    unistd::{SysconfVar, sysconf},
};

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Processor time since it was started, the kernel's share included.
    pub cpu: Duration,
    /// Memory that is resident now, bytes; with what it shares with others.
    pub resident: u64,
}

impl Cost {
    /// Of this process and all its threads. What the kernel does not say is zero.
    pub fn of_this_process() -> Self {
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map(|usage| {
            let time = usage.user_time() + usage.system_time();
            Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0))
        });
        Self { cpu: cpu.unwrap_or_default(), resident: resident().unwrap_or_default() }
    }
}

/// The second figure of /proc/self/statm, in pages (proc_pid_statm(5)).
fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten()?;
    Some(pages * u64::try_from(page).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something() {
        let cost = Cost::of_this_process();
        assert!(cost.resident > 1 << 20, "{cost:?}");
        assert!(cost.cpu > Duration::ZERO && cost.cpu < Duration::from_secs(100_000), "{cost:?}");
    }
}
