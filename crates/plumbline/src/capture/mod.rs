//! Long captures: evidence that is taken all the time, in bounded memory, and cut at an incident.
//!
//! A capture runs on a thread of its own ([`Captures`] starts and stops them). The collector asks it for files with
//! what happened in a [`CaptureSpan`], first for the seconds before the incident, then for those after.
//!
//! ```text
//!  kernel: ring of packets, ring of trace pages ─┐
//!  the operator's program: files that rotate ────┴─> cut(span) ─> Sink ─> spool ─> NAME.pcapng, NAME.after.pcapng
//! ```

mod command;
mod packets;
mod pcapng;
mod running;
mod tracepoints;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use nix::unistd::{SysconfVar, sysconf};

pub use packets::SNAP_MOST;
pub use running::Captures;

/// A stretch of time: after `from`, up to and including `to`. Nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureSpan {
    /// Its beginning, which is no part of it.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

impl CaptureSpan {
    /// Whether something of `first` to `last` is in it.
    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        first <= self.to && last > self.from
    }

    /// Whether a moment is in it.
    pub fn holds(&self, at: u64) -> bool {
        at > self.from && at <= self.to
    }
}

/// Where a capture puts its files.
pub trait Sink {
    /// How many bytes all files together may have, before compression.
    fn limit(&self) -> u64;

    /// How much time there is for all of it.
    fn time_left(&self) -> Duration;

    /// Adds a file, named after the capture with `suffix` at its end.
    ///
    /// # Errors
    /// What `write` returns, or why the file cannot be written.
    fn file(&mut self, suffix: &str, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()>;
}

/// A capture that runs, as the collector sees it.
pub trait Capture: Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &str;

    /// What it takes, for the manifest.
    fn describe(&self) -> String;

    /// Writes what was taken in a span. Runs on a thread of the collector's, and may take as long as it must.
    ///
    /// # Errors
    /// Why there is nothing, or not all of it; for people.
    fn cut(&self, span: CaptureSpan, sink: &mut dyn Sink) -> Result<()>;
}

/// The size of the kernel's pages, bytes: those of the trace ring, and the unit of blocks of packets.
fn page_bytes() -> usize {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok()).unwrap_or(4096)
}

/// The time of day, nanoseconds since the epoch.
pub fn now() -> u64 {
    since_epoch(SystemTime::now())
}

/// A time of day as nanoseconds since the epoch; 0 before it.
fn since_epoch(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
