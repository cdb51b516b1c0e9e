//! The evidence room: what an incident leaves on disk, and for how long.
//!
//! The daemon hands a [`Request`] to the [`Collector`] and goes on detecting. The collector's one thread runs the
//! actions on a small bounded pool, packs their output and the attachments into `incidents/<id>.tar.zst`, makes room
//! for it by deleting the oldest bundles, and answers with a [`Done`] that the daemon's epoll loop is woken for.
//!
//! ```text
//!  Request ─> queue ─> collect ─┬─> runner ─> actions ─> spool ─┐
//!                               └─> attachments ────────────────┴─> bundle ─> rename ─> Done
//!                                         every byte is claimed from the room (retention) first
//! ```

mod actions;
mod bundle;
mod collect;
mod collector;
mod command;
mod id;
mod output;
mod retention;
mod runner;
mod store;
#[cfg(test)]
mod tests;
mod trust;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use model::Incident;

use crate::watched::Watched;

pub use actions::ACTIONS;
pub use bundle::{each_entry, read_incident};
pub use collector::{Collector, Counters};
pub use command::{exit_code, run_with_input};
pub use id::Id;
pub use retention::{Sweep, Why};
pub use store::{INCIDENTS, Store};

/// How evidence is taken and kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// OUTPUT_DIR of the contract; bundles go to `incidents` below it.
    pub output_dir: PathBuf,
    /// How long one action may take.
    pub time_limit: Duration,
    /// Bytes of output kept of one action, before compression.
    pub output_cap: u64,
    /// Actions that run at the same time, at least 1.
    pub concurrency: usize,
    /// Requests that may wait, be worked on or have an answer that nobody has read; beyond, they are refused.
    pub queue: usize,
    /// Bytes that bundles and temporary files may take on disk together.
    pub max_bytes: u64,
    /// Bundles last written longer ago than this are deleted.
    pub max_age: Duration,
}

impl Settings {
    /// Time limit and output cap of an action that has none of its own.
    fn limits(&self) -> (Duration, u64) {
        (self.time_limit, self.output_cap)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            output_dir: PathBuf::from("/var/log/plumbline"),
            time_limit: Duration::from_secs(10),
            output_cap: 1 << 20,
            concurrency: 2,
            queue: 16,
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(2 * 24 * 3600),
        }
    }
}

/// An action by the name the configuration gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionSpec {
    /// A name out of [`ACTIONS`], or any other for a command of the user's own.
    pub name: String,
    /// A built-in action: arguments added to its command, if it runs one. Otherwise the program and its arguments.
    pub args: Vec<String>,
    /// Its own time limit and output cap, where they are not those of [`Settings`].
    pub limits: Option<(Duration, u64)>,
}

/// What the incident is about; actions limit themselves to it. Empty means unknown.
#[derive(Debug, Clone, Default)]
pub struct Scope {
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
    /// Where and what it is.
    pub mount: model::Mount,
    /// As in `/proc/self/mountinfo`.
    pub device: Option<(u32, u32)>,
}

/// Writes one attachment. It streams: nothing holds an attachment whole in memory.
pub type WriteAttachment = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A file of the bundle that the daemon itself provides: `events.jsonl` before all others, `recorder.jsonl`.
pub struct Attachment {
    /// Its name in the bundle.
    pub name: &'static str,
    /// Writes it, on the collector's thread.
    pub write: WriteAttachment,
}

/// A bundle to be made.
pub struct Request {
    /// The bundle's name.
    pub id: Id,
    /// What becomes `incident.json`.
    pub incident: Incident,
    /// Files from the daemon.
    pub attachments: Vec<Attachment>,
    /// What to collect besides.
    pub actions: Vec<ActionSpec>,
    /// What it is about.
    pub scope: Scope,
}

/// The answer to one accepted request.
#[derive(Debug)]
pub struct Done {
    /// What became of it.
    pub outcome: Outcome,
    /// What retention deleted meanwhile.
    pub sweep: Sweep,
}

/// What became of one request.
#[derive(Debug)]
pub enum Outcome {
    /// The bundle is on disk, synced.
    Written {
        /// Its name.
        id: Id,
        /// Where it is.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// How long collecting and writing took.
        seconds: f64,
        /// Actions that failed, timed out or were cut; `manifest.json` has the details. 0 for an update.
        actions_failed: usize,
    },
    /// There is no new bundle. One that was to be updated is as it was before.
    Lost {
        /// The bundle's name.
        id: Id,
        /// Why, for counting.
        cause: Cause,
        /// Why, for people.
        message: String,
    },
    /// Retention ran on its own.
    Tidied,
    /// Retention could not even look; the directory's fault.
    NotTidied {
        /// Why.
        message: String,
    },
}

/// Why a bundle was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No space, or over quota.
    DiskFull,
    /// The file system is read-only.
    ReadOnly,
    /// It would not fit into the configured total, even with every other bundle deleted.
    Budget,
    /// Its directory is on a watched mount by now.
    WatchedMount,
    /// The bundle to be updated is no longer there.
    Gone,
    /// A part of the collector panicked.
    Panic,
    /// Any other error.
    Io,
}

impl Cause {
    /// The word in logs and metrics.
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
