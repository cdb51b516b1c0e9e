//! Evidence: the bundles that incidents leave on disk, and how long they are kept.
//!
//! The daemon hands a [`BundleRequest`] to the [`Collector`] and goes on detecting. The collector's thread runs the actions,
//! a limited number at a time. It packs their output and the attachments into `incidents/<id>.tar.zst`, and deletes the
//! oldest bundles to make room. Then it answers with a [`Done`], which wakes the daemon's epoll loop.
//!
//! ```text
//!  BundleRequest ─> queue ─> collect ─┬─> runner ─> actions ─> spool ─┐
//!                                     └─> attachments ────────────────┴─> bundle ─> rename ─> Done
//!                                              every byte is claimed from the quota (retention) first
//! ```

mod actions;
mod bundle;
mod collect;
mod collector;
mod command;
mod cut;
mod id;
mod labels;
mod output;
mod own;
mod retention;
mod runner;
mod server_side;
mod store;
#[cfg(test)]
mod tests;
mod trust;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::{Incident, Verdict};

use crate::capture::{Capture, CaptureSpan};
use crate::watched::Watched;

pub use actions::ACTIONS;
pub use bundle::{IncidentReader, each_entry, in_memory, read_incident};
pub use collector::{Collector, CollectorCounters};
pub use command::{ProcessGroup, command, exit_code, run_with_input, shown};
pub use id::IncidentId;
pub use labels::Labels;
pub use retention::{Sweep, Why};
pub use server_side::{MAX_ANSWER, MAX_ANSWERS};
pub use store::{INCIDENTS, OBSERVATIONS, Store};
pub use trust::trusted;

/// Limits on collecting and keeping evidence.
#[derive(Debug, Clone)]
pub struct Settings {
    /// OUTPUT_DIR of the contract.
    pub output_dir: PathBuf,
    /// The folder below it to which bundles go.
    pub folder: &'static str,
    /// How long one action may take.
    pub time_limit: Duration,
    /// Bytes of output kept of one action, before compression.
    pub output_cap: u64,
    /// Actions that run at the same time, at least 1.
    pub concurrency: usize,
    /// The most requests that may wait, be worked on, or have an answer not yet read. Further ones are refused.
    pub queue: usize,
    /// Bytes that bundles and temporary files may take on disk together.
    pub max_bytes: u64,
    /// Bundles last written longer ago than this are deleted.
    pub max_age: Duration,
    /// The same limit for bundles of one kind, by the kind's name.
    pub max_age_of_kind: Vec<(String, Duration)>,
}

impl Settings {
    /// The time limit and output cap of actions without their own.
    fn limits(&self) -> (Duration, u64) {
        (self.time_limit, self.output_cap)
    }

    fn max_age_of(&self, id: &IncidentId) -> Duration {
        let own = self.max_age_of_kind.iter().find(|(kind, _)| id.kind() == kind);
        own.map_or(self.max_age, |(_, age)| *age)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            output_dir: PathBuf::from("/var/log/plumbline"),
            folder: INCIDENTS,
            time_limit: Duration::from_secs(10),
            output_cap: 1 << 20,
            concurrency: 2,
            queue: 16,
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(2 * 24 * 3600),
            max_age_of_kind: Vec::new(),
        }
    }
}

/// An action of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionSpec {
    /// The name of a built-in action in [`ACTIONS`], or any other name for a user's command.
    pub name: String,
    /// For a built-in action, arguments to add to its command, if it runs one. For a user's command, the program and
    /// its arguments.
    pub args: Vec<String>,
    /// Its own time limit and output cap; `None`: those of [`Settings`].
    pub limits: Option<(Duration, u64)>,
    /// The memory that each process of a user's command may take, bytes.
    pub memory: u64,
}

/// The mounts, servers and processes that an incident concerns. Actions limit themselves to them; empty: not known.
#[derive(Debug, Clone, Default)]
pub struct IncidentScope {
    /// The affected mounts.
    pub mounts: Vec<ScopedMount>,
    /// Names or addresses of their servers.
    pub servers: Vec<String>,
    /// Processes whose operations were slow or failed.
    pub pids: Vec<u32>,
}

/// An affected mount, and its superblock's device (major, minor) where it is known.
#[derive(Debug, Clone)]
pub struct ScopedMount {
    /// The mount.
    pub mount: model::Mount,
    /// The device's numbers as in `/proc/self/mountinfo`.
    pub device: Option<(u32, u32)>,
}

/// Writes one attachment as a stream, so that no attachment is in memory as a whole.
pub type WriteAttachment = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A file of the bundle that the daemon itself provides: `events.jsonl` before all others, `recorder.jsonl`.
pub struct Attachment {
    /// Its name in the bundle.
    pub name: &'static str,
    /// Writes it, on the collector's thread.
    pub write: WriteAttachment,
}

/// The data of a capture for a bundle.
#[derive(Clone)]
pub struct Cut {
    /// The capture that has the data.
    pub capture: Arc<dyn Capture>,
    /// The time that the data cover.
    pub span: CaptureSpan,
    /// Whether the span is after the incident was noticed. The files' names then contain `.after`.
    pub is_after: bool,
}

/// A bundle to be made.
pub struct BundleRequest {
    /// The bundle's name.
    pub id: IncidentId,
    /// The content of `incident.json`.
    pub incident: Incident,
    /// Files from the daemon.
    pub attachments: Vec<Attachment>,
    /// The actions to run.
    pub actions: Vec<ActionSpec>,
    /// The captures' data of the time before.
    pub cuts: Vec<Cut>,
    /// What actions limit themselves to.
    pub scope: IncidentScope,
}

/// An addition to an existing bundle.
pub struct BundleAddition {
    /// The rule that collects the addition; the names of the files begin with the rule's.
    pub rule: String,
    /// The actions to run.
    pub actions: Vec<ActionSpec>,
    /// The captures' data.
    pub cuts: Vec<Cut>,
    /// What actions limit themselves to.
    pub scope: IncidentScope,
}

/// The answer to one accepted request.
#[derive(Debug)]
pub struct Done {
    /// The result.
    pub outcome: BundleOutcome,
    /// The bundles that retention deleted meanwhile.
    pub sweep: Sweep,
}

/// The result of one request.
#[derive(Debug)]
pub enum BundleOutcome {
    /// The bundle is on disk and synced.
    Written {
        /// The bundle's name.
        id: IncidentId,
        /// The bundle's path.
        path: PathBuf,
        /// The bundle's size.
        bytes: u64,
        /// How long collecting and writing took.
        seconds: f64,
        /// How many actions and captures failed, timed out or were truncated; `manifest.json` has the details. 0 for an update.
        actions_failed: usize,
        /// The incident's labels.
        labels: Labels,
        /// The verdict from the data of client and server, if the incident has one.
        proven: Option<Box<Verdict>>,
    },
    /// The bundle could not be written. A bundle that was to be updated is unchanged.
    Lost {
        /// The bundle's name.
        id: IncidentId,
        /// The kind of error, for counting.
        cause: LossReason,
        /// The error, for people.
        message: String,
    },
    /// Retention ran without a bundle.
    Tidied,
    /// Retention could not open or read the directory.
    NotTidied {
        /// The error, for people.
        message: String,
    },
}

/// Why a bundle was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// No space, or over quota.
    DiskFull,
    /// The file system is read-only.
    ReadOnly,
    /// The bundle would exceed the configured total, even with all other bundles deleted.
    Budget,
    /// The output directory is now on a watched mount.
    WatchedMount,
    /// The bundle to be updated is no longer there.
    Gone,
    /// A part of the collector panicked.
    Panic,
    /// Any other error.
    Io,
}

impl LossReason {
    /// The cause's name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::ReadOnly => "read_only",
            Self::Budget => "budget",
            Self::WatchedMount => "watched_mount",
            Self::Gone => "gone",
            Self::Panic => "panic",
            Self::Io => "io",
        }
    }

    /// The cause behind an error.
    fn of(error: &anyhow::Error) -> Self {
        if error.is::<collect::Gone>() {
            return Self::Gone;
        }
        if error.is::<Watched>() {
            return Self::WatchedMount;
        }
        let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
        match io_error {
            Some(error) if retention::is_over_budget(error) => Self::Budget,
            Some(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
                io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
                _ => Self::Io,
            },
            None => Self::Io,
        }
    }
}
