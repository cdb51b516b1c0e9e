//! A trace file for ui.perfetto.dev and chrome://tracing: the object form of Chrome's trace event format, with a complete event (`X`) for each
//! operation, and for each phase of a request.
//!
//! The file is complete JSON after each [`PerfettoFile::flush`]: new events overwrite the closing brackets.

use std::{
    collections::{HashSet, VecDeque},
    fs::File,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use diagnose::{OperationTree, counted};
use model::{Caller, Event, Nanos, Operation, errno_name};
use serde_json::{Map, Value, json};

use super::{cut, lanes::ThreadLanes, names::TreeNames, new_file, phases};
use crate::{
    source::this_host,
    view::{
        clock::{Clock, nanos},
        event::{caller_of, milliseconds, status_of},
    },
};

/// Ends the list and the object.
const CLOSING: &str = "\n]}\n";
/// Thread ids are below this (PID_MAX_LIMIT); larger numbers are rows of our own.
const NO_THREAD: u64 = 1 << 22;
/// The process under which kernel threads are shown: kthreadd.
const KERNEL: u32 = 2;
/// The most kernel operations that are remembered. Each is written once, even if several calls waited during it.
const REMEMBERED: usize = 4096;

/// The file.
pub struct PerfettoFile {
    path: PathBuf,
    file: File,
    /// Text that is not written yet.
    text: String,
    written: u64,
    limit: u64,
    lanes: ThreadLanes,
    named: HashSet<u32>,
    seen: VecDeque<(Nanos, Operation, u32)>,
    count: u64,
    left_out: u64,
}

/// A row of the trace.
#[derive(Clone, Copy)]
struct TraceRow {
    pid: u32,
    tid: u32,
    lane: usize,
}

impl PerfettoFile {
    /// Creates a file of at most `limit` bytes. An existing file is not replaced.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn create(path: &Path, limit: u64, clock: &Clock) -> Result<Self> {
        let file = new_file(path)?;
        let host = this_host();
        let about = json!({
            "host": host.name, "kernel": host.kernel, "plumbline": host.plumbline,
            "clock": "CLOCK_MONOTONIC", "started": clock.iso(nanos(probes::monotonic())), "zero": clock.iso(0),
        });
        // Each event but the first begins with the comma after the previous one.
        let kernel = json!({ "ph": "M", "name": "process_name", "pid": KERNEL, "args": { "name": "kernel threads" } });
        let mut new = Self {
            path: path.to_owned(),
            file,
            text: format!("{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[\n{kernel}"),
            written: 0,
            limit,
            lanes: ThreadLanes::default(),
            named: HashSet::from([KERNEL]),
            seen: VecDeque::new(),
            count: 0,
            left_out: 0,
        };
        new.flush()?;
        Ok(new)
    }

    /// Adds the slices of a tree if there is room for all of them.
    ///
    /// # Errors
    ///
    /// When the slices cannot be written.
    pub fn add(&mut self, tree: &OperationTree, names: &TreeNames) -> Result<()> {
        let before = (self.text.len(), self.count);
        let row = self.row(&tree.event);
        let (start, end) = (tree.event.start, tree.event.end());
        self.tree(tree, row, (start, end), names);
        if self.written + (self.text.len() + CLOSING.len()) as u64 > self.limit {
            self.text.truncate(before.0);
            self.count = before.1;
            self.left_out += 1 + tree.below() as u64;
        }
        if self.text.len() > 1 << 20 { self.flush() } else { Ok(()) }
    }

    /// Writes everything to the file, which is then complete.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(());
        }
        let closed = format!("{text}{CLOSING}");
        let written =
            self.file.seek(SeekFrom::Start(self.written)).and_then(|_| self.file.write_all(closed.as_bytes()));
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.written += text.len() as u64;
        Ok(())
    }

    /// Ends the file. Returns remarks for the user.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<String> {
        self.flush()?;
        let left_out = match self.left_out {
            0 => String::new(),
            some => format!("; {} found no room: --max-size allows more", counted(some, "operation")),
        };
        let shown = self.path.display();
        Ok(format!("{shown}: {}{left_out}; open it in https://ui.perfetto.dev", counted(self.count, "operation")))
    }

    /// A row that is free during the operation.
    fn row(&mut self, event: &Event) -> TraceRow {
        let (pid, tid) = match event.caller {
            Caller::Kernel => (KERNEL, KERNEL),
            _ => (event.requester.pid, event.requester.tid),
        };
        let (lane, is_new) = self.lanes.take((pid, tid), event.start, event.end());
        let row = TraceRow { pid, tid, lane };
        if is_new {
            self.name(row, event);
        }
        row
    }

    /// Names a row, and its process.
    fn name(&mut self, row: TraceRow, event: &Event) {
        let comm = match row.pid {
            KERNEL => "kernel threads".to_owned(),
            _ => event.requester.comm.to_string(),
        };
        let lane = if row.lane == 0 { String::new() } else { format!(" +{}", row.lane) };
        let tid = row.number();
        if self.named.insert(row.pid) {
            self.put(
                &json!({ "ph": "M", "name": "process_name", "pid": row.pid, "tid": tid, "args": { "name": comm } }),
            );
        }
        let name = format!("{comm}{lane}");
        self.put(&json!({ "ph": "M", "name": "thread_name", "pid": row.pid, "tid": tid, "args": { "name": name } }));
    }

    fn put(&mut self, event: &Value) {
        self.text.push_str(",\n");
        self.text.push_str(&event.to_string());
    }

    /// The slices of a tree in its row, limited to the time of the operation above.
    fn tree(&mut self, tree: &OperationTree, row: TraceRow, within: (Nanos, Nanos), names: &TreeNames) {
        let (start, end) = cut((tree.event.start, tree.event.end()), within);
        let mut args = arguments(&tree.event, names);
        args.insert("own_ms".into(), milliseconds(tree.own()).into());
        self.slice(tree.event.operation.name(), tree.event.operation.protocol().name, row, (start, end), args);
        self.count += 1;
        // A child that overlaps the previous one gets a row of its own.
        let mut free = start;
        if tree.children.is_empty() {
            for (name, from, until) in phases(&tree.event) {
                self.slice(name, "phase", row, cut((from, until), (start, end)), Map::new());
            }
        }
        for child in &tree.children {
            let row = if child.event.start >= free { row } else { self.row(&child.event) };
            free = free.max(child.event.end());
            self.tree(child, row, (start, end), names);
        }
        for event in &tree.meanwhile {
            self.meanwhile(event, names);
        }
    }

    /// An operation for which no thread waited has a row of its own, and is written once.
    fn meanwhile(&mut self, event: &Event, names: &TreeNames) {
        let identity = event.identity();
        if self.seen.contains(&identity) {
            return;
        }
        self.seen.push_back(identity);
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
        let row = self.row(event);
        let mut args = arguments(event, names);
        args.insert("meanwhile".into(), true.into());
        let times = (event.start, event.end());
        self.slice(event.operation.name(), event.operation.protocol().name, row, times, args);
        self.count += 1;
    }

    fn slice(&mut self, name: &str, category: &str, row: TraceRow, times: (Nanos, Nanos), args: Map<String, Value>) {
        let (start, end) = times;
        self.put(&json!({
            "ph": "X", "name": name, "cat": category, "ts": microseconds(start), "dur": microseconds(end.saturating_sub(start)),
            "pid": row.pid, "tid": row.number(), "args": args,
        }));
    }
}

impl TraceRow {
    /// The thread's id; for further rows, a number that no thread has.
    fn number(self) -> u64 {
        u64::from(self.tid) + self.lane as u64 * NO_THREAD
    }
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// What is known of an operation.
fn arguments(event: &Event, names: &TreeNames) -> Map<String, Value> {
    let text = |value: String| (!value.is_empty()).then_some(Value::String(value));
    let file = event.detail.file().map(|file| file.name.to_string()).unwrap_or_default();
    let known = [
        ("file", text(file)),
        ("mount", text(names.mount_label(event).to_owned())),
        ("bytes", (event.bytes > 0).then_some(event.bytes.into())),
        ("status", status_of(event.operation, event.status, event.flags).map(Value::String)),
        ("errno", errno_name(event.errno).map(Value::String)),
        ("failed", event.flags.failed.then_some(true.into())),
        ("in_flight", event.flags.in_flight.then_some(true.into())),
        ("caller", caller_of(event).map(Value::from)),
        ("comm", text(event.requester.comm.to_string())),
        ("sends", event.stamped().map(|timing| timing.sends.into())),
        ("ack_most_ms", event.stamped().map(|timing| milliseconds(timing.most).into())),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
