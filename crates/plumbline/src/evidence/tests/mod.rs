//! Tests of the collector, used as the daemon uses it.

mod bundles;
mod commands;
mod cuts;
mod disk;
mod hanging;
mod keeping;
mod own;
mod server_side;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::TempDir;

use super::*;

/// Longer than any step of these tests takes, unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

fn settings(dir: &Path) -> Settings {
    Settings { output_dir: dir.to_owned(), ..Settings::default() }
}

fn start(dir: &TempDir) -> Collector {
    Collector::start(settings(dir.path())).unwrap()
}

fn action(name: &str, argv: &[&str]) -> ActionSpec {
    let args = argv.iter().map(|arg| (*arg).to_owned()).collect();
    ActionSpec { name: name.to_owned(), args, limits: None, memory: 256 << 20 }
}

fn shell(name: &str, script: &str) -> ActionSpec {
    action(name, &["sh", "-c", script])
}

fn text(name: &'static str, content: impl Into<String>) -> Attachment {
    let content = content.into();
    Attachment { name, write: Box::new(move |to| to.write_all(content.as_bytes())) }
}

/// Content that does not compress, so that sizes are known.
fn noise(name: &'static str, bytes: usize) -> Attachment {
    let write = move |to: &mut dyn Write| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
        (0..bytes / 8).try_for_each(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            to.write_all(&state.to_ne_bytes())
        })
    };
    Attachment { name, write: Box::new(write) }
}

fn request(id: &IncidentId, attachments: Vec<Attachment>, actions: Vec<ActionSpec>) -> BundleRequest {
    let incident = Incident { id: id.as_str().into(), ..Incident::default() };
    BundleRequest { id: id.clone(), incident, attachments, actions, cuts: vec![], scope: IncidentScope::default() }
}

fn id(sequence: u64) -> IncidentId {
    IncidentId::new(jiff::Timestamp::UNIX_EPOCH, "smb", "latency", sequence)
}

/// Waits for this many answers as the daemon does: for the descriptor, then for the answers.
fn answers(collector: &Collector, count: usize) -> Vec<Done> {
    let (mut done, until) = (Vec::new(), Instant::now() + TIMEOUT);
    while done.len() < count {
        assert!(Instant::now() < until, "{} of {count} answers", done.len());
        let mut fds = [PollFd::new(collector.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(200_u8)).unwrap() > 0 {
            done.extend(collector.completions());
        }
    }
    done
}

fn one(collector: &Collector, request: BundleRequest) -> Done {
    collector.submit(request).unwrap();
    answers(collector, 1).remove(0)
}

fn written(done: &Done) -> &Path {
    match &done.outcome {
        BundleOutcome::Written { path, .. } => path,
        other => panic!("{other:?}"),
    }
}

fn lost(done: &Done) -> LossReason {
    match &done.outcome {
        BundleOutcome::Lost { cause, .. } => *cause,
        other => panic!("{other:?}"),
    }
}

/// Every part of a bundle, by name.
fn unpack(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut parts = BTreeMap::new();
    bundle::each_entry(File::open(path).unwrap(), |name, bytes, content| {
        let mut part = Vec::new();
        content.read_to_end(&mut part)?;
        assert_eq!(part.len() as u64, bytes);
        assert!(parts.insert(name.to_owned(), part).is_none(), "{name} is there twice");
        Ok(true)
    })
    .unwrap();
    parts
}

fn manifest(path: &Path) -> Vec<serde_json::Value> {
    serde_json::from_slice(&unpack(path)["manifest.json"]).unwrap()
}

fn record(path: &Path, action: &str) -> serde_json::Value {
    manifest(path).into_iter().find(|record| record["action"] == action).unwrap()
}

/// File names in OUTPUT_DIR/incidents, sorted, hidden ones too.
fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir.join("incidents"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn incidents(dir: &TempDir) -> PathBuf {
    dir.path().join("incidents")
}

fn is_root() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        eprintln!("SKIPPED: this test needs root");
    }
    root
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
