//! The resources that this program uses.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use procfs::process::Process;

/// The resources that a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessCost {
    /// CPU time since the process started, including time in the kernel.
    pub cpu: Duration,
    /// Resident memory, bytes, including memory that is shared with other processes.
    pub resident: u64,
}

impl ProcessCost {
    /// The resources of this process with all its threads. Values that cannot be read are zero.
    pub fn of_this_process() -> Self {
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map(|usage| {
            let time = usage.user_time() + usage.system_time();
            Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0))
        });
        Self { cpu: cpu.unwrap_or_default(), resident: resident().unwrap_or_default() }
    }
}

fn resident() -> Option<u64> {
    let pages = Process::myself().ok()?.statm().ok()?.resident;
    Some(pages * procfs::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something() {
        let cost = ProcessCost::of_this_process();
        assert!(cost.resident > 1 << 20, "{cost:?}");
        assert!(cost.cpu > Duration::ZERO && cost.cpu < Duration::from_secs(100_000), "{cost:?}");
    }
}
