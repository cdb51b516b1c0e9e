//! Reads what hosts have left in a directory: bundles, daily summaries, and files with log records of an OpenTelemetry collector.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, ensure};
use diagnose::fleet::Millis;
use model::{Host, Incident, text::printable};

use super::{Notes, SourceData, material::millis, otlp};
use crate::{
    evidence::{IncidentId, IncidentReader, each_entry},
    state_file,
    summary::{self, KeptSummary},
};

/// The greatest depth of folders.
const DEEPEST: usize = 16;
/// The most files that are read.
const MOST_FILES: usize = 1_000_000;
/// The number of threads: a directory may be an object store, which answers slowly, but many requests at once.
const THREADS: usize = 8;

/// Files by type.
#[derive(Default)]
struct FolderFiles {
    files: Vec<(FolderFileKind, PathBuf)>,
    foreign: u64,
    notes: Notes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FolderFileKind {
    Bundle,
    /// A daily summary.
    Summary,
    /// Perhaps a collector's file.
    Lines,
}

/// The data that one thread has read.
#[derive(Default)]
struct FolderPart {
    read: SourceData,
    reader: IncidentReader,
    /// The newest bundle of each host, for its summary.
    newest: BTreeMap<String, (Millis, PathBuf)>,
    /// The host of the bundles in each output directory.
    hosts: HashMap<PathBuf, Host>,
    summaries: Vec<(PathBuf, KeptSummary)>,
}

/// Reads a directory, or one file. Skips incidents that began after `until`.
///
/// # Errors
/// When there is nothing that can be read.
pub fn read(path: &Path, until: Millis) -> Result<SourceData> {
    let about = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut found = FolderFiles::default();
    if about.is_dir() {
        fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        found.walk(path, 0, until);
    } else {
        ensure!(about.is_file(), "{} is neither a directory nor a file", path.display());
        let kind = FolderFileKind::of(path).unwrap_or(FolderFileKind::Lines);
        found.files.push((kind, path.to_owned()));
    }
    let FolderFiles { files, foreign, notes } = found;
    let mut part = in_parallel(&files, |part: &mut FolderPart, (kind, path)| part.take(*kind, path), FolderPart::merge);
    part.read.notes.merge(notes);
    let mut hosts = part.give_summaries();
    hosts.retain(|host, _| !part.read.material.has_summary(host));
    let newest: Vec<_> = part.newest.into_iter().filter(|(host, _)| hosts.contains_key(host)).collect();
    let more = in_parallel(
        &newest,
        |read: &mut SourceData, (host, (_, path))| match (hosts.get(host), summaries_of(path)) {
            (Some(host), Ok(all)) => all.iter().for_each(|kept| read.material.summary(kept, host)),
            (_, Err(error)) => read.notes.say(format!("{}: its summary cannot be read: {error:#}", shown(path))),
            _ => {}
        },
        SourceData::merge,
    );
    let mut read = part.read;
    read.merge(more);
    // The order must not depend on the threads.
    read.notes.sort();
    if foreign > 0 {
        read.notes.say(format!("{foreign} other files are none of Plumbline's, and were not looked at"));
    }
    Ok(read)
}

/// Processes items on several threads, and merges the threads' results.
fn in_parallel<T: Sync, M: Default + Send>(
    items: &[T],
    take: impl Fn(&mut M, &T) + Sync,
    mut merge: impl FnMut(&mut M, M),
) -> M {
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Vec::new());
    let work = || {
        let mut mine = M::default();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            take(&mut mine, item);
        }
        if let Ok(mut made) = made.lock() {
            made.push(mine);
        }
    };
    thread::scope(|scope| {
        // Work for which no thread can be started is done on this thread.
        for _ in 1..THREADS.min(items.len()) {
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut all = M::default();
    made.into_inner().unwrap_or_default().into_iter().for_each(|one| merge(&mut all, one));
    all
}

impl FolderFileKind {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.as_encoded_bytes();
        let is_in = |folder: &str| path.parent().and_then(Path::file_name).is_some_and(|name| name == folder);
        if name.starts_with(b".") {
            return None;
        } else if name.ends_with(b".tar.zst") {
            return Some(Self::Bundle);
        } else if name.ends_with(b".json") && is_in(summary::FOLDER) {
            return Some(Self::Summary);
        }
        let lines = [&b".jsonl"[..], b".json", b".ndjson"].iter().any(|ending| name.ends_with(ending));
        lines.then_some(Self::Lines)
    }
}

impl FolderFiles {
    fn walk(&mut self, dir: &Path, depth: usize, until: Millis) {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => return self.notes.say(format!("{}: {error}", shown(dir))),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.notes.say(format!("{}: {error}", shown(dir))),
            };
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEEPEST => self.walk(&path, depth + 1, until),
                Ok(kind) if kind.is_dir() => self.notes.say(format!("{}: folders are too deep here", shown(&path))),
                Ok(kind) if kind.is_file() => self.file(path, until),
                // Symbolic links are not followed, since they may lead anywhere.
                Ok(_) => self.foreign += 1,
                Err(error) => self.notes.say(format!("{}: {error}", shown(&path))),
            }
        }
    }

    fn file(&mut self, path: PathBuf, until: Millis) {
        let Some(kind) = FolderFileKind::of(&path) else {
            self.foreign += 1;
            return;
        };
        if kind == FolderFileKind::Bundle && began(&path).is_some_and(|began| began > until) {
            return;
        }
        if self.files.len() < MOST_FILES {
            self.files.push((kind, path));
        } else {
            self.notes.say(format!("{}: there are more than {MOST_FILES} files", shown(&path)));
        }
    }
}

/// When the incident was noticed, according to the bundle's name.
fn began(path: &Path) -> Option<Millis> {
    let id = IncidentId::of_bundle(path.file_name()?.to_str()?)?;
    let utc = id.as_str().get(..16)?;
    let at = |range: std::ops::Range<usize>| utc.get(range).unwrap_or_default();
    millis(&format!("{}-{}-{}T{}:{}:{}Z", at(0..4), at(4..6), at(6..8), at(9..11), at(11..13), at(13..15)))
}

impl FolderPart {
    fn take(&mut self, kind: FolderFileKind, path: &Path) {
        let taken = match kind {
            FolderFileKind::Bundle => self.bundle(path),
            FolderFileKind::Summary => self.summary(path),
            FolderFileKind::Lines => otlp::read(path, &mut self.read),
        };
        match taken {
            Ok(()) => self.read.understood += 1,
            Err(error) => {
                self.read.damaged += 1;
                self.read.notes.say(format!("{}: {error:#}", shown(path)));
            }
        }
    }

    fn bundle(&mut self, path: &Path) -> Result<()> {
        let incident =
            self.reader.read(File::open(path)?).context("it is no bundle of an incident, or it is damaged")?;
        ensure!(self.read.material.incident(&incident), "its incident.json does not say when and on which host it was");
        let Incident { host, last_seen, .. } = incident;
        let at = millis(&last_seen).unwrap_or(0);
        if self.newest.get(&host.name).is_none_or(|(newest, _)| *newest < at) {
            self.newest.insert(host.name.clone(), (at, path.to_owned()));
        }
        if let Some(output_dir) = path.parent().and_then(Path::parent) {
            self.hosts.entry(output_dir.to_owned()).or_insert(host);
        }
        Ok(())
    }

    fn summary(&mut self, path: &Path) -> Result<()> {
        let text = state_file::read(path)?.unwrap_or_default();
        let kept: KeptSummary = serde_json::from_str(&text).context("it is no summary of a day, or it is damaged")?;
        ensure!(millis(&kept.from).is_some() && millis(&kept.to).is_some(), "it does not say of which time it is");
        if kept.host.name.is_empty() {
            self.summaries.push((path.to_owned(), kept));
        } else {
            self.read.material.summary(&kept, &kept.host);
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.read.merge(other.read);
        for (host, newest) in other.newest {
            if self.newest.get(&host).is_none_or(|mine| mine.0 < newest.0) {
                self.newest.insert(host, newest);
            }
        }
        self.hosts.extend(other.hosts);
        self.summaries.extend(other.summaries);
    }

    /// Assigns summaries without a host (written by older versions) to the host of the bundles in the same output directory, else to a host with the
    /// directory's name. Returns the hosts of the bundles.
    fn give_summaries(&mut self) -> HashMap<String, Host> {
        for (path, kept) in std::mem::take(&mut self.summaries) {
            let Some(output_dir) = path.parent().and_then(Path::parent) else { continue };
            let host = self.hosts.get(output_dir).cloned().unwrap_or_else(|| {
                let name = output_dir.file_name().unwrap_or_default().as_encoded_bytes();
                Host { name: printable(name), ..Host::default() }
            });
            self.read.material.summary(&kept, &host);
        }
        self.hosts.drain().map(|(_, host)| (host.name.clone(), host)).collect()
    }
}

/// The summaries in a bundle.
fn summaries_of(bundle: &Path) -> Result<Vec<KeptSummary>> {
    let mut all = Vec::new();
    each_entry(File::open(bundle)?, |name, _, content| {
        if name != summary::FILE {
            return Ok(true);
        }
        let mut text = String::new();
        content.take(state_file::LARGEST).read_to_string(&mut text)?;
        all = serde_json::from_str(&text)?;
        Ok(false)
    })?;
    Ok(all)
}

/// A path that is safe to print.
pub(super) fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}
