//! From an episode to an incident and the rest of the bundle.

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

/// What is known when an incident is written.
pub struct IncidentFacts<'a> {
    pub id: &'a str,
    pub episode: &'a Episode,
    pub recorder: &'a Recorder,
    pub children: &'a Children,
    /// Events of what the recorder has little of.
    pub recent: &'a Recent,
    pub long_term: &'a LongTerm,
    pub losses: Losses,
    /// What higher layers saw of it.
    pub also: Vec<String>,
    /// If it is about connections, the operations that it delayed.
    pub delayed: Vec<Event>,
    /// As far as they are known: its bundle has them all.
    pub labels: Labels,
    /// The verdict of both ends, if the server has answered; what is judged here stays beside it.
    pub proven: Option<Verdict>,
    pub closed: bool,
}

/// How far before the first slow operation the verdict looks for what is normal.
const NORMAL_SPAN: Duration = Duration::from_secs(300);
/// Operations around the slow ones that the verdict looks at: a tenth of a second's work at most.
const JUDGED: usize = 16_384;

/// System calls listed with what ran below them.
const SLOWEST: usize = 10;

/// Judges the episode and puts the incident together: that, and all that is known of its operations. Those that a broken connection
/// delayed are listed with what happened to it.
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
    // Some rules find what they report in the recorder.
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
        // For whoever samples this host's threads to fill in.
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

/// What the verdict looks at.
#[derive(Default)]
struct Around {
    /// What went to the same places. For calls above the client of a file system, also what the client asked the server for on the same mount.
    near: Vec<Event>,
    /// What other daemons of the same mounts were asked for, what went over other connections of these mounts, and what this host dropped of the
    /// connections with the same servers.
    beside: Vec<Event>,
    /// Beside slow requests to one server: what was asked of that server for other mounts.
    elsewhere: Vec<Event>,
}

/// `are_slow`: the events are slow, not failed or in flight; `known`: all that is known of some of it.
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
    // Whoever is killed returns before what was asked for does.
    let waiting = match devices.is_empty() {
        true => Vec::new(),
        false => source.in_flight(&|protocol| protocol.level.is_remote(), Duration::ZERO, diagnose::KEPT),
    };
    let mut below = HashMap::new();
    let mut is_below = |mount: MountKey| *below.entry(mount).or_insert_with(|| devices.contains(&device(mount)));
    // What this host serves tells nothing of what it asks for, nor the other way round.
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
    // Other connections of the same mounts.
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

/// What actions limit themselves to.
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
    /// From then until it was over.
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

/// MountNames of mounts, and of those who asked, looked up while the watch is at hand, for a thread that has none.
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

/// The slowest system calls of which it is known what ran below them, as they are in `events.jsonl`.
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

/// A mount as actions want it.
pub fn scoped(mount: Mount, device: Option<MountKey>) -> ScopedMount {
    ScopedMount { mount, device: device.and_then(device_of) }
}

/// Major and minor number of a key that is a device's.
fn device_of(key: MountKey) -> Option<(u32, u32)> {
    let major = u32::try_from(key.0 >> 20).ok()?;
    Some((major, u32::try_from(key.0 & 0xf_ffff).ok()?))
}
