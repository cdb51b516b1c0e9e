//! A recording: everything that detection sees, in one file, so that it can be judged again.
//!
//! A file has a prefix ([`chunk::MAGIC`] and a version), then chunks: a header, intervals, and at the end the totals. Each chunk is compressed
//! separately, and is either complete or absent. A file that was cut off can be read up to its last complete chunk. docs/recordings.md describes
//! every byte.
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
