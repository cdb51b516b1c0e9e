//! `plumbline follow`: each operation of some processes through all layers, as one tree. `diagnose` joins the trees; this module selects the
//! processes, and shows the trees.

mod lanes;
mod lines;
mod names;
mod perfetto;
mod processes;
mod spans;
mod tree_table;

pub use lines::tree_line;
pub use names::{NameSource, TreeNames};
pub use perfetto::PerfettoFile;
pub use processes::{FollowedProcesses, is_of_job};
pub use spans::{RandomIds, spans};
pub use tree_table::TreeTable;

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result};
use model::{Event, Nanos};

/// Creates a file that only this user can access. An existing file is not replaced.
///
/// # Errors
///
/// When the file cannot be created.
pub fn new_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// The known phases of a request, with their begin and end.
fn phases(event: &Event) -> impl Iterator<Item = (&'static str, Nanos, Nanos)> {
    let model::Phases { queue, wire, deliver } = event.phases;
    let all = [("queue", queue), ("wire", wire), ("deliver", deliver)];
    let mut begin = event.start;
    all.into_iter().filter_map(move |(name, took)| {
        let start = begin;
        begin = begin.saturating_add(took);
        (took > 0).then_some((name, start, begin))
    })
}

/// Limits a begin and end to another one: a request that was answered in time may be cleaned up after the operation above it has ended.
fn cut(times: (Nanos, Nanos), within: (Nanos, Nanos)) -> (Nanos, Nanos) {
    let start = times.0.clamp(within.0, within.1);
    (start, times.1.clamp(start, within.1))
}
