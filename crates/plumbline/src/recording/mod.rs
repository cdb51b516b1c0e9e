//! A recording: everything that detection sees, in one file, so that it can be judged again.
//!
//! A file is a prefix ([`chunk::MAGIC`] and a version) and then chunks, each compressed by itself, each either whole or
//! absent: a header first, then intervals, at the end what there was in all. A file that was cut off is good up to its last
//! whole chunk. docs/recordings.md describes every byte.
//!
//! ```text
//!  KernelSource ── Interval ──> Writer (a thread) ──> chunks ──> file, or segments of the daemon's directory
//!  file ──> Reader ── Interval ──> RecordedSource ──> detection, as if it were the kernel
//! ```

mod chunk;
mod facts;
mod reader;
mod segments;
#[cfg(test)]
mod tests;
mod writer;

pub use chunk::MAGIC;
pub use facts::{
    CgroupFacts, FinishedFacts, IntervalFacts, MountFacts, RecordedEvent, RecordedInterval, RecordingHeader,
    ReportSettings, name_of, numbering, operation_named,
};
pub use reader::{RecordingItem, RecordingReader};
pub use segments::Segments;
#[cfg(test)]
pub use tests::of_facts;
pub use writer::{Handed, Limit, RecordingWriter, Written};
