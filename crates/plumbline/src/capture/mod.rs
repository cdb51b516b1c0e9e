//! Long captures: evidence that is recorded all the time in bounded memory; a part of it is saved when an incident occurs.
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
    /// The beginning, exclusive.
    pub from: u64,
    /// The end, inclusive.
    pub to: u64,
}

impl CaptureSpan {
    /// Whether a part of `first` to `last` is in the span.
    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        first <= self.to && last > self.from
    }

    /// Whether a moment is in the span.
    pub fn holds(&self, at: u64) -> bool {
        at > self.from && at <= self.to
    }
}

/// Where a capture puts its files.
pub trait Sink {
    /// The most bytes of all files together, before compression.
    fn limit(&self) -> u64;

    /// The time that is left to write all files.
    fn time_left(&self) -> Duration;

    /// Adds a file, named after the capture with `suffix` at its end.
    ///
    /// # Errors
    /// The error of `write`, or the reason why the file cannot be written.
    fn file(&mut self, suffix: &str, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()>;
}

/// A running capture, as the collector uses it.
pub trait Capture: Send + Sync {
    /// The capture's name in the configuration.
    fn name(&self) -> &str;

    /// What the capture records, for the manifest.
    fn describe(&self) -> String;

    /// Writes the data of a span. Runs on a thread of the collector, and may take as long as needed.
    ///
    /// # Errors
    /// Why there is no file, or data are missing; the text is for people.
    fn cut(&self, span: CaptureSpan, sink: &mut dyn Sink) -> Result<()>;
}

/// The kernel's page size, bytes: the size of the trace ring's pages, and the unit of the packet ring's blocks.
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
