//! A tree as a trace: a span for each operation, and for each phase of a request. Names follow OpenTelemetry's semantic conventions where
//! these have one.

use std::{fs::File, io::Read};

use diagnose::OperationTree;
use model::{Event, EventLine, Nanos};

use super::{cut, names::TreeNames, phases};
use crate::publish::SpanRecord;

/// The spans of a tree, those above first.
pub fn spans(tree: &OperationTree, names: &TreeNames, ids: &mut RandomIds) -> Vec<SpanRecord> {
    let mut all = Vec::with_capacity(tree.below() + 1);
    let trace = ids.take();
    add(tree, None, (tree.event.start, tree.event.end()), trace, ids, names, &mut all);
    all
}

/// Adds the spans of a tree, limited to the time of the operation above.
fn add(
    tree: &OperationTree,
    parent: Option<[u8; 8]>,
    within: (Nanos, Nanos),
    trace: [u8; 16],
    ids: &mut RandomIds,
    names: &TreeNames,
    all: &mut Vec<SpanRecord>,
) {
    let within = cut((tree.event.start, tree.event.end()), within);
    let wall = |(start, end)| (unix(names, start), unix(names, end));
    let mut span = of_event(&tree.event, trace, parent, ids, names);
    span.times = wall(within);
    span.numbers.push(("plumbline.own_time_ns", i64::try_from(tree.own()).unwrap_or(i64::MAX)));
    let id = span.id;
    all.push(span);
    for (name, start, end) in phases(&tree.event) {
        let times = wall(cut((start, end), within));
        let id_of_phase = ids.take();
        all.push(SpanRecord {
            trace,
            id: id_of_phase,
            parent: Some(id),
            name: name.into(),
            times,
            ..SpanRecord::default()
        });
    }
    for child in &tree.children {
        add(child, Some(id), within, trace, ids, names, all);
    }
    for event in &tree.meanwhile {
        let mut span = of_event(event, trace, Some(id), ids, names);
        span.texts.push(("plumbline.meanwhile", "true".into()));
        all.push(span);
    }
}

fn of_event(
    event: &Event,
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    ids: &mut RandomIds,
    names: &TreeNames,
) -> SpanRecord {
    let line = names.line(event);
    let error = event.flags.failed.then(|| line.errno.clone().or_else(|| line.status.clone())).flatten();
    let EventLine { probe, operation, mountpoint, source, server, fstype, comm, file, .. } = &line;
    let known = |key, value: &str| (!value.is_empty()).then(|| (key, value.to_owned()));
    let optional =
        |key, value: &Option<std::borrow::Cow<'_, str>>| value.as_deref().and_then(|value| known(key, value));
    let texts = [
        known("plumbline.protocol", probe),
        known("plumbline.operation", operation),
        known("system.filesystem.mountpoint", mountpoint),
        known("system.device", source),
        known("server.address", server),
        known("system.filesystem.type", fstype),
        known("thread.name", comm),
        known("file.name", file),
        optional("plumbline.caller", &line.caller),
        line.status.as_deref().and_then(|status| known("plumbline.status", status)),
        error.as_deref().and_then(|error| known("error.type", error)),
        optional("container.id", &line.container),
        optional("plumbline.job", &line.job),
        optional("k8s.namespace.name", &line.namespace),
        optional("k8s.pod.name", &line.pod),
    ];
    let number = |key, value: u64| (value != 0).then(|| (key, i64::try_from(value).unwrap_or(i64::MAX)));
    let numbers = [
        number("process.pid", line.pid.into()),
        number("thread.id", line.tid.into()),
        number("plumbline.bytes", line.bytes),
        number("plumbline.sends", line.sends.unwrap_or_default().into()),
    ];
    SpanRecord {
        trace,
        id: ids.take(),
        parent,
        name: event.operation.name().to_owned(),
        times: (unix(names, event.start), unix(names, event.end())),
        is_request: event.operation.level().is_remote(),
        error,
        texts: texts.into_iter().flatten().collect(),
        numbers: numbers.into_iter().flatten().collect(),
    }
}

/// Nanoseconds since 1970.
fn unix(names: &TreeNames, at: Nanos) -> u64 {
    u64::try_from(names.clock.wall(at).as_nanosecond()).unwrap_or_default()
}

/// A buffer of the kernel's random numbers.
#[derive(Default)]
pub struct RandomIds(Vec<u8>);

impl RandomIds {
    /// The next id, which is never all zero: that means no id.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut id = [1; N];
        if self.0.len() < N {
            self.0.resize(1024, 1);
            // Without /dev/urandom, ids repeat. The collector then shows several trees as one, but no data are lost.
            let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut self.0));
            if let Err(error) = read {
                tracing::warn!(%error, "cannot read /dev/urandom: traces have no ids of their own");
            }
        }
        let rest = self.0.len() - N;
        id.copy_from_slice(self.0.get(rest..).unwrap_or(&[1; N]));
        self.0.truncate(rest);
        if id.iter().all(|byte| *byte == 0) { [1; N] } else { id }
    }
}
