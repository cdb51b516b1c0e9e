//! From an episode to `incident.json` and the rest of the bundle.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    io,
    io::Write,
    time::Duration,
};

use diagnose::{Episode, Ranked, Top};
use model::{Anomaly, Event, Mount, MountKey, Verdict};
use probes::Recorder;
use serde::Serialize;
use serde_json::{Value, json};

use super::children::Children;
use crate::{
    evidence::{Attachment, Scope, ScopedMount},
    io::jobs,
    source::{EventSource, Host},
    view::{
        below::CallLine,
        clock::Clock,
        event::{EventLine, milliseconds},
        report,
    },
};

/// `incident.json`: the contract's fields, in its order.
#[derive(Serialize)]
struct Incident<'a> {
    id: &'a str,
    detected: String,
    window: Span,
    anomaly: &'a Anomaly,
    verdict: &'a Verdict,
    top: Ranking,
    losses: &'a Value,
    operations: u64,
    windows: u64,
    closed: bool,
    also: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Value>,
    host: Host,
}

#[derive(Serialize)]
struct Span {
    from: String,
    to: String,
}

#[derive(Serialize, Default)]
struct Ranking {
    operations: Vec<RankedOperation>,
    mounts: Vec<RankedMount>,
    processes: Vec<RankedProcess>,
    files: Vec<RankedFile>,
}

/// How often, and for how long altogether.
#[derive(Serialize)]
struct Share {
    count: u64,
    total_ms: f64,
}

#[derive(Serialize)]
struct RankedOperation {
    operation: &'static str,
    #[serde(flatten)]
    share: Share,
}

#[derive(Serialize)]
struct RankedMount {
    #[serde(flatten)]
    mount: Mount,
    #[serde(flatten)]
    share: Share,
}

#[derive(Serialize)]
struct RankedProcess {
    pid: u32,
    comm: String,
    cgroup: String,
    container: String,
    #[serde(flatten)]
    share: Share,
}

#[derive(Serialize)]
struct RankedFile {
    file: String,
    inode: u64,
    mountpoint: String,
    #[serde(flatten)]
    share: Share,
}

/// What is known when an incident is written.
pub struct Facts<'a> {
    pub id: &'a str,
    pub episode: &'a Episode,
    pub recorder: &'a Recorder,
    pub children: &'a Children,
    pub losses: &'a Value,
    /// What higher layers saw of it.
    pub also: &'a [String],
    pub closed: bool,
}

/// How far before the first slow operation the verdict looks for what is normal.
const NORMAL_SPAN: Duration = Duration::from_secs(300);
/// Operations around the slow ones that the verdict looks at: a tenth of a second's work at most.
const JUDGED: usize = 16_384;

/// System calls listed with what ran below them.
const SLOWEST: usize = 10;

/// Judges the episode and puts `incident.json` together.
pub fn describe(source: &dyn EventSource, facts: &Facts) -> Value {
    let clock = &source.clock();
    let window = &facts.episode.window;
    let begin = window.events().iter().map(|event| event.start).min().unwrap_or(window.from).min(window.from);
    let since = begin.saturating_sub(u64::try_from(NORMAL_SPAN.as_nanos()).unwrap_or(u64::MAX));
    // What went to the same places: the verdict looks at nothing else.
    let places: HashSet<_> = window.events().iter().map(|event| (event.link.connection, event.mount)).collect();
    let near = |event: &Event| {
        places.iter().any(|(connection, mount)| match connection {
            0 => *mount == event.mount,
            connection => *connection == event.link.connection,
        })
    };
    let around: Vec<Event> = facts.recorder.events_since(since, JUDGED).filter(near).collect();
    let verdict = diagnose::judge(facts.episode.anomaly.kind, window.events(), &around);
    let incident = Incident {
        id: facts.id,
        detected: clock.iso(window.to),
        window: Span { from: clock.iso(begin), to: clock.iso(window.to) },
        anomaly: &facts.episode.anomaly,
        verdict: &verdict,
        top: ranking(source, &Top::of(window)),
        losses: facts.losses,
        operations: window.count(),
        windows: facts.episode.windows,
        closed: facts.closed,
        also: facts.also,
        calls: slowest_calls(source, clock, facts),
        host: source.host(),
    };
    serde_json::to_value(incident).unwrap_or_else(|error| json!({"id": facts.id, "error": error.to_string()}))
}

/// `incident.json` of a snapshot: nothing was detected, so nothing is judged.
pub fn describe_snapshot(source: &dyn EventSource, id: &str, by: &str) -> Value {
    let (now, losses) = (source.clock().iso(source.now()), &source.losses());
    let anomaly = Anomaly {
        name: "snapshot".into(),
        kind: model::AnomalyKind::Snapshot,
        probe: "all",
        rule: format!("asked for by {by}"),
        observed: String::new(),
        limit: String::new(),
    };
    let incident = Incident {
        id,
        detected: now.clone(),
        window: Span { from: now.clone(), to: now },
        anomaly: &anomaly,
        verdict: &Verdict::unknown("a snapshot on demand: nothing was detected"),
        top: Ranking::default(),
        losses,
        operations: 0,
        windows: 0,
        closed: true,
        also: &[],
        calls: vec![],
        host: source.host(),
    };
    serde_json::to_value(incident).unwrap_or_else(|error| json!({"id": id, "error": error.to_string()}))
}

/// What actions limit themselves to.
pub fn scope(source: &dyn EventSource, episode: &Episode) -> Scope {
    let top = Top::of(&episode.window);
    let mounts: Vec<ScopedMount> =
        top.mounts.iter().map(|place| scoped(source.mount(place.key), source.device(place.key))).collect();
    let mut servers: Vec<String> = mounts.iter().map(|scoped| scoped.mount.server.clone()).collect();
    servers.retain(|server| !server.is_empty());
    servers.sort();
    servers.dedup();
    Scope { mounts, servers, pids: top.processes.iter().map(|place| place.key.pid).collect() }
}

/// The files of a bundle that come from the daemon: the slow operations, every operation before them, and the page.
pub fn attachments(
    source: &dyn EventSource,
    (events, children): (Vec<Event>, Children),
    excerpt: Option<Recorder>,
    incident: &Value,
) -> Vec<Attachment> {
    let (clock, mut names) = (source.clock(), Names::of(source, events.iter()));
    let page = report::page(incident);
    let mut attachments = vec![Attachment {
        name: "report.html",
        write: Box::new(move |out: &mut dyn Write| out.write_all(page.as_bytes())),
    }];
    if let Some(recorder) = excerpt {
        names.add(source, recorder.events().map(|event| event.mount));
        let names = names.clone();
        let write = move |out: &mut dyn Write| names.write(out, &clock, recorder.events(), &Children::default());
        attachments.push(Attachment { name: "recorder.jsonl", write: Box::new(write) });
    }
    let write = move |out: &mut dyn Write| names.write(out, &clock, events.into_iter(), &children);
    attachments.push(Attachment { name: "events.jsonl", write: Box::new(write) });
    attachments
}

/// Names of mounts, looked up while the watch is at hand, for a thread that has none.
#[derive(Clone)]
struct Names(HashMap<MountKey, Mount>);

impl Names {
    fn of<'a>(source: &dyn EventSource, events: impl Iterator<Item = &'a Event>) -> Self {
        let mut names = Self(HashMap::new());
        names.add(source, events.map(|event| event.mount));
        names
    }

    fn add(&mut self, source: &dyn EventSource, keys: impl Iterator<Item = MountKey>) {
        for key in keys {
            self.0.entry(key).or_insert_with(|| source.mount(key));
        }
    }

    fn write(
        &self,
        out: &mut dyn Write,
        clock: &Clock,
        events: impl Iterator<Item = Event>,
        children: &Children,
    ) -> io::Result<()> {
        let nowhere = Mount::default();
        for event in events {
            let mount = self.0.get(&event.mount).unwrap_or(&nowhere);
            let line = CallLine::new(EventLine::new(&event, mount, clock), event.start, children.of(&event));
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// The slowest system calls of which it is known what ran below them, as they are in `events.jsonl`.
fn slowest_calls(source: &dyn EventSource, clock: &Clock, facts: &Facts) -> Vec<Value> {
    let known = |event: &&Event| facts.children.of(event).is_some();
    let mut calls: Vec<_> = facts.episode.window.events().iter().filter(known).collect();
    calls.sort_by_key(|call| (Reverse(call.duration), call.start));
    calls.truncate(SLOWEST);
    let line = |call: &Event| {
        let mount = source.mount(call.mount);
        serde_json::to_value(CallLine::new(EventLine::new(call, &mount, clock), call.start, facts.children.of(call)))
    };
    calls.into_iter().filter_map(|call| line(call).ok()).collect()
}

fn ranking(source: &dyn EventSource, top: &Top) -> Ranking {
    fn share<K>(place: &Ranked<K>) -> Share {
        Share { count: place.total.count, total_ms: milliseconds(place.total.time) }
    }
    Ranking {
        operations: top
            .operations
            .iter()
            .map(|place| RankedOperation { operation: place.key.name(), share: share(place) })
            .collect(),
        mounts: top
            .mounts
            .iter()
            .map(|place| RankedMount { mount: source.mount(place.key), share: share(place) })
            .collect(),
        processes: top
            .processes
            .iter()
            .map(|place| {
                let cgroup = source.cgroup(place.key.pid, place.key.cgroup);
                RankedProcess {
                    pid: place.key.pid,
                    comm: place.key.comm.to_string(),
                    container: jobs::container_of(&cgroup).unwrap_or_default().to_owned(),
                    cgroup,
                    share: share(place),
                }
            })
            .collect(),
        files: top
            .files
            .iter()
            .map(|place| RankedFile {
                file: place.key.name.to_string(),
                inode: place.key.inode,
                mountpoint: source.mount(place.key.mount).mountpoint,
                share: share(place),
            })
            .collect(),
    }
}

/// A mount as actions want it.
pub fn scoped(mount: Mount, device: Option<MountKey>) -> ScopedMount {
    ScopedMount { mount, device: device.and_then(device_of) }
}

/// Major and minor number of a key that is a device's.
fn device_of(key: MountKey) -> Option<(u32, u32)> {
    let major = u32::try_from(key.0 >> 20).ok()?;
    Some((major, u32::try_from(key.0 & 0xf_ffff).ok()?))
}
