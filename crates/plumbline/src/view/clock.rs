//! Converts the kernel's monotonic time to wall-clock time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model::Nanos;
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of a duration.
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The offset of the wall clock from CLOCK_MONOTONIC. Take a new one when the wall clock may have been set.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    boot: Timestamp,
}

impl Clock {
    /// The present offset.
    pub fn now() -> Self {
        let monotonic = SignedDuration::try_from(probes::monotonic()).unwrap_or_default();
        Self { boot: Timestamp::now().checked_sub(monotonic).unwrap_or_default() }
    }

    /// The clock for which CLOCK_MONOTONIC was zero this many nanoseconds after 1970.
    pub fn from_boot(nanoseconds: i64) -> Self {
        Self { boot: Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_default() }
    }

    /// Nanoseconds from 1970 until CLOCK_MONOTONIC was zero.
    pub fn boot(&self) -> i64 {
        i64::try_from(self.boot.as_nanosecond()).unwrap_or_default()
    }

    /// The offset from CLOCK_BOOTTIME, which the kernel uses for the start times of processes.
    pub fn since_boot() -> Self {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        let now = SignedDuration::try_from(now).unwrap_or_default();
        Self { boot: Timestamp::now().checked_sub(now).unwrap_or_default() }
    }

    /// The wall time of a kernel time.
    pub fn wall(&self, at: Nanos) -> Timestamp {
        let since_boot = SignedDuration::from_nanos(i64::try_from(at).unwrap_or(i64::MAX));
        self.boot.checked_add(since_boot).unwrap_or_default()
    }

    /// `2026-03-01T12:00:00.123456Z`
    pub fn iso(&self, at: Nanos) -> String {
        format!("{:.6}", self.wall(at))
    }

    /// `12:00:00.123456`, UTC.
    pub fn time_of_day(&self, at: Nanos) -> String {
        let iso = self.iso(at);
        iso.split_once('T').map_or("", |(_, time)| time).trim_end_matches('Z').to_owned()
    }
}
