//! Makes an incident, and the daemon's files of its bundle, from an episode.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    io,
    io::Write,
    time::Duration,
};

use diagnose::{Episode, Ranked, Top, long_term::LongTerm};
use model::{
    Anomaly, CallLine, Event, Incident, IncidentState, Level, Losses, Mount, MountKey, RankedFile, RankedMount,
    RankedOperation, RankedProcess, Ranking, Share, Span, Verdict,
};
use probes::Recorder;

use super::{
    children::Children,
    recent::{Recent, RecentByRecord},
};
use crate::{
    evidence::{Attachment, IncidentScope, Labels, ScopedMount},
    page,
    source::EventSource,
    view::{
        below,
        clock::{Clock, nanos},
        event::{self, milliseconds},
    },
    who::Cgroup,
};

/// The input for the description of an incident.
pub struct IncidentFacts<'a> {
    pub id: &'a str,
    pub episode: &'a Episode,
    pub recorder: &'a Recorder,
    pub children: &'a Children,
    /// The latest events: they have details that the flight recorder lacks.
    pub recent: &'a Recent,
    pub long_term: &'a LongTerm,
    pub losses: Losses,
    /// What rules of higher layers observed of the incident.
    pub also: Vec<String>,
    /// The operations that a broken connection delayed; empty unless the incident is about connections.
    pub delayed: Vec<Event>,
    /// The labels that are known so far; the bundle has all of them.
    pub labels: Labels,
    /// The verdict from the data of client and server, if the server has answered. This host's own verdict is kept beside it.
    pub proven: Option<Verdict>,
    pub closed: bool,
}

/// How far before the first slow operation the verdict looks for normal operations.
const NORMAL_SPAN: Duration = Duration::from_secs(300);
/// The most recorded operations that the verdict examines; this takes a tenth of a second at most.
const JUDGED: usize = 16_384;

/// The most system calls that are listed with the operations below them.
const SLOWEST: usize = 10;

/// Judges the episode and describes it as an incident. Also returns the slow operations with all known details, followed by those that a broken
/// connection delayed.
pub fn describe(source: &dyn EventSource, facts: IncidentFacts<'_>) -> (Incident, Vec<Event>) {
    let clock = &source.clock();
    let window = &facts.episode.window;
    let begin = window.events().iter().map(|event| event.start).min().unwrap_or(window.from).min(window.from);
    let since = begin.saturating_sub(nanos(NORMAL_SPAN));
    let known = facts.recent.known();
    let kind: &str = &facts.episode.anomaly.kind;
    let are_slow = matches!(kind, diagnose::latency::KIND | diagnose::baseline::KIND);
    let recorded = facts.recorder.events_since(since, JUDGED);
    let Around { near: mut around, beside, elsewhere } = around(source, window.events(), are_slow, recorded, &known);
    // The events of some rules are records of the flight recorder, which lack details.
    let mut slow: Vec<_> = window.events().iter().cloned().map(|event| known.whole(event)).collect();
    let by_failures = kind == diagnose::error::KIND;
    let changed = diagnose::changed((begin, window.to), &slow, &around, facts.long_term, by_failures);
    around.extend(beside);
    let delayed: Vec<_> = facts.delayed.iter().cloned().map(|event| known.whole(event)).collect();
    let verdict = diagnose::judge(kind, &slow, &around, &elsewhere, facts.long_term);
    let verdict = diagnose::judge_delayed(verdict, &slow, &delayed, &around, facts.long_term);
    let (verdict, own_verdict) = match &facts.proven {
        Some(proven) => (proven.clone(), Some(verdict)),
        None => (verdict, None),
    };
    let (begin, end) = (clock.iso(begin), clock.iso(window.to));
    let incident = Incident {
        id: facts.id.to_owned(),
        detected: end.clone(),
        window: Span { from: begin.clone(), to: end.clone() },
        anomaly: facts.episode.anomaly.clone(),
        verdict,
        own_verdict,
        state: IncidentState::of(facts.closed),
        first_seen: begin,
        last_seen: end,
        changed,
        // The daemon fills this in from its samples of waiting threads.
        waited: Vec::new(),
        top: ranking(source, &Top::with(window, &delayed)),
        operations: window.count(),
        windows: facts.episode.windows,
        closed: facts.closed,
        calls: slowest_calls(source, clock, &facts),
        losses: facts.losses,
        also: facts.also,
        labels: facts.labels,
        host: source.host(),
    };
    slow.extend(delayed);
    (incident, slow)
}

/// The operations that the verdict compares with the slow ones.
#[derive(Default)]
struct Around {
    /// Operations on the same connections or mounts. For system calls and library calls, also the file system client's requests for the same mount.
    near: Vec<Event>,
    /// Requests to other daemons of the same mounts, requests on other connections of these mounts, and events such as drops of connections
    /// with the same servers.
    beside: Vec<Event>,
    /// If the slow operations are requests to one server: requests to that server for other mounts.
    elsewhere: Vec<Event>,
}

/// `are_slow`: the events are slow, not failed or in flight. `known`: the events with all details.
fn around(
    source: &dyn EventSource,
    events: &[Event],
    are_slow: bool,
    recorded: impl Iterator<Item = Event>,
    known: &RecentByRecord<'_>,
) -> Around {
    let places: HashSet<_> = events.iter().map(|event| (event.connection, event.mount)).collect();
    let device = |mount: MountKey| source.device(mount).unwrap_or(mount);
    let calls = events.iter().filter(|event| !event.operation.level().is_remote());
    let devices: HashSet<_> = calls.map(|event| device(event.mount)).collect();
    // The call of a killed process returns before its request does, so requests in flight count, too.
    let waiting = match devices.is_empty() {
        true => Vec::new(),
        false => source.in_flight(&|protocol| protocol.level.is_remote(), Duration::ZERO, diagnose::KEPT),
    };
    let mut below = HashMap::new();
    let mut is_below = |mount: MountKey| *below.entry(mount).or_insert_with(|| devices.contains(&device(mount)));
    // Requests that this host serves say nothing about requests that it sends, and vice versa.
    let are_served = events.iter().any(|event| event.operation.level() == Level::Served);
    let mut is_near = |event: &Event| {
        if (event.operation.level() == Level::Served) != are_served {
            return false;
        }
        places.iter().any(|(connection, mount)| match connection {
            0 => *mount == event.mount,
            connection => *connection == event.connection,
        }) || event.operation.level().is_of_requests() && is_below(event.mount)
    };
    let mut servers = HashMap::new();
    let mut server = |mount: MountKey| servers.entry(mount).or_insert_with(|| source.mount(mount).server).clone();
    let ours: HashSet<_> = places.iter().map(|(_, mount)| server(*mount)).filter(|server| !server.is_empty()).collect();
    let is_of_daemons =
        |event: &Event| event.operation.protocol().has_daemons && places.iter().any(|(_, mount)| *mount == event.mount);
    // Whether the event is on another connection of the same mounts.
    let is_sibling = |event: &Event| {
        let is_of = |(connection, mount): &(u64, MountKey)| *connection != 0 && *mount == event.mount;
        event.operation.level().is_of_requests() && places.iter().any(is_of)
    };
    let is_of_server = |event: &Event| {
        is_request(event)
            && !event.operation.protocol().has_daemons
            && !places.iter().any(|(connection, _)| *connection != 0 && *connection == event.connection)
    };
    let are_of_one_server = are_slow && ours.len() == 1 && events.iter().all(is_request);
    let mut around = Around::default();
    for event in recorded.chain(waiting) {
        let list = if is_near(&event) {
            &mut around.near
        } else if is_of_daemons(&event)
            || is_sibling(&event)
            || diagnose::is_of_connections(&event) && ours.contains(&server(event.mount))
        {
            &mut around.beside
        } else if are_of_one_server && is_of_server(&event) && ours.contains(&server(event.mount)) {
            &mut around.elsewhere
        } else {
            continue;
        };
        list.push(known.whole(event));
    }
    around
}

fn is_request(event: &Event) -> bool {
    event.operation.level() == Level::Request
}

/// The incident of a snapshot: nothing was detected, so nothing is judged.
pub fn describe_snapshot(source: &dyn EventSource, id: &str, by: &str) -> Incident {
    let now = source.clock().iso(source.now());
    Incident {
        id: id.to_owned(),
        detected: now.clone(),
        window: Span { from: now.clone(), to: now.clone() },
        anomaly: Anomaly {
            name: "snapshot".into(),
            kind: model::SNAPSHOT.into(),
            probe: "all".into(),
            rule: format!("asked for by {by}"),
            ..Anomaly::default()
        },
        verdict: Verdict::unknown("a snapshot on demand: nothing was detected"),
        state: IncidentState::Closed,
        first_seen: now.clone(),
        last_seen: now,
        losses: source.losses(),
        closed: true,
        host: source.host(),
        ..Incident::default()
    }
}

/// The mounts, servers and processes of an episode, to which actions limit themselves.
pub fn scope(source: &dyn EventSource, episode: &Episode) -> IncidentScope {
    let top = Top::of(&episode.window);
    let mounts: Vec<ScopedMount> =
        top.mounts.iter().map(|place| scoped(source.mount(place.key), source.device(place.key))).collect();
    let mut servers: Vec<String> = mounts.iter().map(|scoped| scoped.mount.server.clone()).collect();
    servers.retain(|server| !server.is_empty());
    servers.sort();
    servers.dedup();
    IncidentScope { mounts, servers, pids: top.processes.iter().map(|place| place.key.pid).collect() }
}

/// Copies of parts of the flight recorder, for a bundle.
#[derive(Default)]
pub struct Excerpts {
    /// The seconds before the incident was noticed.
    pub before: Option<Recorder>,
    /// The time from then until the incident was over.
    pub after: Option<Recorder>,
}

/// The files of a bundle that come from the daemon: the slow operations, which the page needs first, and every operation before and after.
pub fn attachments(
    source: &dyn EventSource,
    (events, children): (Vec<Event>, Children),
    excerpts: Excerpts,
) -> Vec<Attachment> {
    let (clock, names) = (source.clock(), MountNames::of(source, events.iter()));
    let write = move |out: &mut dyn Write| names.write(out, &clock, events.into_iter(), &children);
    let mut attachments = vec![Attachment { name: page::EVENTS, write: Box::new(write) }];
    for (name, recorder) in [("recorder.jsonl", excerpts.before), ("after.jsonl", excerpts.after)] {
        let Some(recorder) = recorder else { continue };
        let mut names = MountNames::default();
        names.add(source, recorder.events().map(|event| event.mount));
        let write = move |out: &mut dyn Write| names.write(out, &clock, recorder.events(), &Children::default());
        attachments.push(Attachment { name, write: Box::new(write) });
    }
    attachments
}

/// The names of mounts and cgroups, looked up in advance: the collector's thread, which writes the files, has no source to ask.
#[derive(Default)]
struct MountNames {
    mounts: HashMap<MountKey, Mount>,
    cgroups: HashMap<(u32, u64), Cgroup>,
}

impl MountNames {
    fn of<'a>(source: &dyn EventSource, events: impl Iterator<Item = &'a Event>) -> Self {
        let mut names = Self::default();
        for event in events {
            let (pid, id) = (event.requester.pid, event.requester.cgroup);
            names.cgroups.entry((pid, id)).or_insert_with(|| (*source.cgroup(pid, id)).clone());
            names.add(source, [event.mount].into_iter());
        }
        names
    }

    fn add(&mut self, source: &dyn EventSource, keys: impl Iterator<Item = MountKey>) {
        for key in keys {
            self.mounts.entry(key).or_insert_with(|| source.mount(key));
        }
    }

    fn write(
        &self,
        out: &mut dyn Write,
        clock: &Clock,
        events: impl Iterator<Item = Event>,
        children: &Children,
    ) -> io::Result<()> {
        let (nowhere, nobody) = (Mount::default(), Cgroup::default());
        for event in events {
            let mount = self.mounts.get(&event.mount).unwrap_or(&nowhere);
            let who = self.cgroups.get(&(event.requester.pid, event.requester.cgroup)).unwrap_or(&nobody);
            let line = below::call(event::line(&event, mount, who, clock), event.start, children.of(&event));
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// The slowest of the system calls whose operations below are known, in the form of `events.jsonl`.
fn slowest_calls(source: &dyn EventSource, clock: &Clock, facts: &IncidentFacts<'_>) -> Vec<CallLine<'static>> {
    let known = |event: &&Event| facts.children.of(event).is_some();
    let mut calls: Vec<_> = facts.episode.window.events().iter().filter(known).collect();
    calls.sort_by_key(|call| (Reverse(call.duration), call.start));
    calls.truncate(SLOWEST);
    let line = |call: &Event| {
        let who = source.cgroup(call.requester.pid, call.requester.cgroup);
        let line = event::owned_line(call, &source.mount(call.mount), &who, clock);
        below::call(line, call.start, facts.children.of(call))
    };
    calls.into_iter().map(line).collect()
}

fn ranking(source: &dyn EventSource, top: &Top) -> Ranking {
    fn share<K>(place: &Ranked<K>) -> Share {
        Share { count: place.total.count, total_ms: milliseconds(place.total.time) }
    }
    let cgroups: Vec<_> = top.processes.iter().map(|place| source.cgroup(place.key.pid, place.key.cgroup)).collect();
    Ranking {
        operations: top
            .operations
            .iter()
            .map(|place| RankedOperation { operation: place.key.name().into(), share: share(place) })
            .collect(),
        mounts: top
            .mounts
            .iter()
            .map(|place| {
                let mount = source.mount(place.key);
                let pvc = cgroups
                    .iter()
                    .find_map(|cgroup| mount.claim(&cgroup.names.namespace))
                    .unwrap_or_default()
                    .to_owned();
                RankedMount { mount, pvc, share: share(place) }
            })
            .collect(),
        processes: top
            .processes
            .iter()
            .zip(&cgroups)
            .map(|(place, cgroup)| RankedProcess {
                pid: place.key.pid,
                comm: place.key.comm.to_string(),
                cgroup: cgroup.path.clone(),
                container: cgroup.container.clone(),
                job: cgroup.job.clone(),
                names: cgroup.names.clone(),
                share: share(place),
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

/// A mount in the form that actions need.
pub fn scoped(mount: Mount, device: Option<MountKey>) -> ScopedMount {
    ScopedMount { mount, device: device.and_then(device_of) }
}

/// The major and minor number, if the key is a device number.
fn device_of(key: MountKey) -> Option<(u32, u32)> {
    let major = u32::try_from(key.0 >> 20).ok()?;
    Some((major, u32::try_from(key.0 & 0xf_ffff).ok()?))
}
