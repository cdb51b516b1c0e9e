//! What becomes of episodes and requests: bundles, made and renewed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    os::unix::net::UnixStream,
};

use diagnose::Episode;
use jiff::Timestamp;
use model::{AnomalyKind, Losses, ProbeLosses, Protocol};
use probes::{Counters, Recorder, Runs};

use super::{
    Daemon, control,
    incident::{self, nanos},
    monotonic, release_free_memory,
    rules::{Change, ChangeExt},
    tell,
};
use crate::{
    evidence::{Cause, Collector, Done, INCIDENTS, Id, Outcome, Request, Scope},
    view::clock::Clock,
};

/// Snapshots under way at the same time: each holds a copy of the flight recorder.
const MAX_SNAPSHOTS: usize = 2;

/// The layers that probes see, the one that knows most first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    /// The connection with the server.
    Connection,
    /// What goes over it.
    Protocol,
    /// What the application asked for.
    #[default]
    Local,
}

/// An episode that is not over.
#[derive(Default)]
pub struct Open {
    /// Its bundle; `None` if none could be made yet, or it has been deleted since.
    bundle: Option<Id>,
    /// Whether that bundle has been on disk.
    written: bool,
    /// What is mounted where it was slow: `//server/share`.
    sources: BTreeSet<String>,
    /// The servers behind these.
    servers: BTreeSet<String>,
    /// How far down its probe sees.
    depth: Depth,
    /// Its probe, and what it is about.
    about: Option<(Cow<'static, str>, AnomalyKind)>,
    /// Only another view of an incident that a lower layer has reported already; until when such a one was open, nanoseconds of
    /// CLOCK_MONOTONIC, 0 if it is yet.
    shadow: Option<u64>,
    /// What other rules saw of it: the rule, and its last words.
    also: BTreeMap<String, String>,
}

impl Open {
    /// Whether this incident says already what another one would say.
    fn covers(&self, other: &Self) -> bool {
        let (Some((probe, told)), Some((of, kind))) = (&self.about, &other.about) else { return false };
        let (told, kind) = (*told, *kind);
        let waits = |kind| kind == AnomalyKind::Stalled || tells(AnomalyKind::Stalled, kind);
        // A call that fails is none for being below a share that is slow.
        let below = self.depth == Depth::Protocol && other.depth == Depth::Local && (waits(kind) || told == kind);
        let same = probe == of && tells(told, kind);
        // One connection serves all mounts of a server.
        let broken = match (self.depth, other.depth) {
            (Depth::Connection, Depth::Protocol | Depth::Local) => waits(kind),
            (Depth::Protocol, Depth::Connection) => waits(told),
            _ => false,
        };
        self.shadow.is_none()
            && (((below || same) && is_part(&other.sources, &self.sources))
                || (broken && is_part(&other.servers, &self.servers)))
    }
}

/// What is not known is part of nothing.
fn is_part(names: &BTreeSet<String>, of: &BTreeSet<String>) -> bool {
    !names.is_empty() && names.iter().all(|name| !name.is_empty() && of.contains(name))
}

impl Daemon {
    /// Has every change's incident written, the lower layer's first: it knows more.
    pub(super) fn report_all(&mut self, mut changes: Vec<Change>) {
        changes.sort_by_key(|change| depth(change.episode()));
        for change in changes {
            self.report(&change);
        }
    }

    fn report(&mut self, change: &Change) {
        let episode = change.episode();
        let before = self.open.get(&episode.id).and_then(|open| open.shadow);
        // What a shadow belongs to may be over, and what it is about may be more by now.
        let goes_on = before.is_some_and(|until| !change.closed() && episode.window.to > until);
        if change.opened() || goes_on {
            let open = self.open_episode(episode, before.unwrap_or(0));
            self.open.insert(episode.id, open);
        }
        let is_shadow = self.open.get(&episode.id).is_some_and(|open| open.shadow.is_some());
        match (is_shadow, before) {
            (true, _) => (),
            (false, Some(_)) => self.write_incident(&Change::Opened(episode.clone())),
            (false, None) => self.write_incident(change),
        }
        if change.closed() {
            self.open.remove(&episode.id);
            self.rules.forget_verdict(episode.id);
            if !is_shadow {
                let now = monotonic();
                self.open.values_mut().filter_map(|open| open.shadow.as_mut()).for_each(|until| *until = now);
            }
        }
    }

    /// Slow system calls on a share whose slow commands are an incident already are no second one. Nor are operations
    /// that were reported as stalled, when they return at last, nor what is slower than ever, if it is reported as slow; nor
    /// what is slow or hangs while the connection with its server is broken, nor, the other way about, what happens to a
    /// connection while that is reported already. `until`: when it was last known to be part of another.
    fn open_episode(&mut self, episode: &Episode, until: u64) -> Open {
        let keys: BTreeSet<_> = episode.window.events().iter().map(|event| event.mount).collect();
        let mounts: Vec<_> = keys.into_iter().map(|key| self.watch.mount(key)).collect();
        let sources: BTreeSet<_> = mounts.iter().map(|mount| mount.source.clone()).collect();
        let servers: BTreeSet<_> = mounts.iter().map(|mount| mount.server.clone()).collect();
        let (probe, kind) = (episode.anomaly.probe.clone(), episode.anomaly.kind);
        let opened = Open { sources, servers, depth: depth(episode), about: Some((probe, kind)), ..Open::default() };
        let mut shadow = None;
        for (_, open) in self.open.iter_mut().filter(|(id, open)| **id != episode.id && open.covers(&opened)) {
            shadow = Some(until);
            let incident = open.bundle.as_ref().map(Id::as_str).unwrap_or_default();
            if open.also.insert(episode.anomaly.name.clone(), episode.anomaly.observed.clone()).is_none() {
                tracing::info!(incident, "{}: {}; part of {incident}", episode.anomaly.name, episode.anomaly.observed);
            }
        }
        Open { shadow, ..opened }
    }

    /// Makes the bundle, or, if there is one, renews it.
    fn write_incident(&mut self, change: &Change) {
        let episode = change.episode();
        let Some(collector) = &self.collector else { return };
        let open = self.open.get(&episode.id);
        let known = open.and_then(|open| open.bundle.clone());
        let id = known.clone().unwrap_or_else(|| {
            let detected = self.clock.wall(episode.window.to);
            collector.next_id(detected, &episode.anomaly.probe, episode.anomaly.kind.name())
        });
        let recorder = self.watch.recorder().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the flight recorder");
            Recorder::default()
        });
        self.children.find(&self.watch, episode.window.events().iter(), || &recorder);
        let also: Vec<_> =
            open.iter().flat_map(|open| &open.also).map(|(rule, what)| format!("{rule}: {what}")).collect();
        let facts = incident::Facts {
            id: id.as_str(),
            episode,
            children: &self.children,
            recorder: &recorder,
            losses: self.losses(),
            also,
            closed: change.closed(),
        };
        let mut described = incident::describe(&self.watch, &self.clock, facts);
        self.rules.keep_better_verdict(episode.id, &mut described);
        if change.opened() {
            self.incidents += 1;
            tell::incident(&described, self.setup.config.audit);
        }
        let bundle = self.setup.config.output_dir.join(INCIDENTS).join(id.bundle());
        self.publish.incident(&described, &bundle, change);
        if change.closed() {
            tell::audit(self.setup.config.audit, "incident", || format!("{} is over", id.as_str()));
        }
        let events = episode.window.events().to_vec();
        let children = self.children.only(events.iter());
        let result = if known.is_some() {
            let attachments = incident::attachments(&self.watch, self.clock, (events, children), None, &described);
            collector.update(id.clone(), described, attachments)
        } else {
            let excerpt = self.excerpt(&recorder, episode.window.from);
            collector.submit(Request {
                id: id.clone(),
                attachments: incident::attachments(&self.watch, self.clock, (events, children), excerpt, &described),
                incident: described,
                actions: self.setup.config.resolve(self.rules.actions_of(&episode.anomaly.name)),
                scope: incident::scope(&self.watch, episode),
            })
        };
        match result {
            Ok(()) => drop(self.open.get_mut(&episode.id).map(|open| open.bundle = Some(id))),
            Err(refused) => self.lost(&id, "busy", &refused.to_string()),
        }
        release_free_memory();
    }

    /// Of the calls of incidents that go on: the recorder may have been overwritten when these are next written.
    pub(super) fn find_children(&mut self) {
        let shown = |episode: &&Episode| self.open.get(&episode.id).is_some_and(|open| open.shadow.is_none());
        let calls: Vec<_> = self.rules.episodes().filter(shown).flat_map(|episode| episode.window.events()).collect();
        self.children = self.children.only(calls.iter().copied());
        self.children.find(&self.watch, calls.into_iter(), || self.watch.recorder().unwrap_or_default());
    }

    fn lost(&mut self, id: &Id, cause: &str, message: &str) {
        self.bundles_lost += 1;
        tell::lost(id.as_str(), cause, message, self.setup.config.audit);
    }

    /// The seconds before `from`, and no more of them than an eighth of the disk limit holds: 32 bytes each, compressed.
    fn excerpt(&self, recorder: &Recorder, from: u64) -> Option<Recorder> {
        let span = nanos(self.setup.config.evidence.recorder);
        let limit = (self.setup.config.cleanup.max_bytes / 8 / 32).clamp(100, 20_000) as usize;
        (span > 0).then(|| recorder.excerpt(from.saturating_sub(span), limit))
    }

    /// What each probe has lost since it was loaded, by cause; and what was left out on purpose.
    pub(super) fn losses(&self) -> Losses {
        let (consumed, not_understood) = self.watch.consumed();
        let of = |((protocol, counters), (_, runs)): ((&Protocol, Counters), (_, Runs))| {
            let losses = ProbeLosses {
                ring_full: counters.lost_ring,
                inflight_full: counters.lost_inflight,
                histograms_full: counters.lost_histogram,
                runs_missed: runs.missed,
                swept: counters.swept,
                never_sent: counters.never_sent,
                sampled_out: counters.sampled_out,
                produced: counters.produced,
                started: counters.started,
                unfinished: counters.unfinished(),
            };
            (protocol.name.to_owned(), losses)
        };
        let probes = self.watch.counters().into_iter().zip(self.watch.runs()).map(of).collect();
        Losses { probes, consumed, not_understood, sampling_one_in: 1 << self.sample_shift }
    }

    /// Has a bundle made now, and tells `asker` when it is there.
    pub(super) fn snapshot(&mut self, by: &str, asker: Option<UnixStream>) {
        let Some(collector) = &self.collector else { return };
        if self.snapshots.len() >= MAX_SNAPSHOTS {
            tracing::warn!("no snapshot for {by}: {MAX_SNAPSHOTS} are under way");
            return refuse(asker, "other snapshots are under way; try again in a moment");
        }
        let clock = Clock::now();
        let id = collector.next_id(Timestamp::now(), "all", "snapshot");
        let described = incident::describe_snapshot(&clock, id.as_str(), by, self.losses());
        let excerpt = self.watch.recorder().ok().and_then(|recorder| self.excerpt(&recorder, monotonic()));
        let remote: Vec<_> = self.watch.mounts().iter().filter(|point| point.remote).collect();
        let mounts = remote.iter().map(|point| incident::scoped(point.mount.clone(), Some(point.device))).collect();
        let servers: BTreeSet<_> = remote.iter().map(|point| point.mount.server.clone()).collect();
        let servers = servers.into_iter().filter(|server| !server.is_empty()).collect();
        let request = Request {
            id: id.clone(),
            attachments: incident::attachments(&self.watch, clock, Default::default(), excerpt, &described),
            incident: described,
            actions: self.setup.config.resolve(&self.setup.config.snapshot),
            scope: Scope { mounts, servers, pids: vec![] },
        };
        tell::audit(self.setup.config.audit, "snapshot", || format!("{} asked for by {by}", id.as_str()));
        match collector.submit(request) {
            Ok(()) => self.snapshots.push((id, asker)),
            Err(refused) => {
                self.lost(&id, "busy", &refused.to_string());
                refuse(asker, "the collector is busy; try again in a moment");
            }
        }
    }

    pub(super) fn take_requests(&mut self) {
        for stream in self.control.snapshot_requests() {
            self.snapshot("plumbline snapshot", Some(stream));
        }
    }

    pub(super) fn take_completions(&mut self) {
        let done = self.collector.as_ref().map(Collector::completions).unwrap_or_default();
        for done in done {
            self.completed(&done);
        }
        release_free_memory();
    }

    pub(super) fn completed(&mut self, done: &Done) {
        let audited = self.setup.config.audit;
        tell::deletions(&done.sweep, audited);
        let (id, line) = match &done.outcome {
            Outcome::Written { id, path, .. } => {
                tell::written(&done.outcome, audited);
                if let Some(open) = self.open.values_mut().find(|open| open.bundle.as_ref() == Some(id)) {
                    open.written = true;
                }
                (id, format!("bundle {}", path.display()))
            }
            Outcome::Lost { id, cause, message } => {
                self.lost(id, cause.name(), message);
                // Never made, or deleted to make room: the next change makes it anew.
                let open = self.open.values_mut().find(|open| open.bundle.as_ref() == Some(id));
                if let Some(open) = open.filter(|open| *cause == Cause::Gone || !open.written) {
                    open.bundle = None;
                }
                (id, format!("error the bundle was lost: {message}"))
            }
            Outcome::NotTidied { message } => return tracing::error!("old bundles cannot be looked at: {message}"),
            Outcome::Tidied => return,
        };
        let index = self.snapshots.iter().position(|(waits_for, _)| waits_for == id);
        if let Some((_, Some(stream))) = index.map(|index| self.snapshots.swap_remove(index)) {
            control::answer(stream, &line);
        }
    }
}

fn refuse(asker: Option<UnixStream>, why: &str) {
    if let Some(stream) = asker {
        control::answer(stream, &format!("error {why}"));
    }
}

/// How far down the episode's probe sees.
fn depth(episode: &Episode) -> Depth {
    match probes::protocol(&episode.anomaly.probe) {
        Some(protocol) if protocol.name == probes::connections::PROTOCOL.name => Depth::Connection,
        Some(protocol) if protocol.remote => Depth::Protocol,
        _ => Depth::Local,
    }
}

/// Whether an open incident of the first kind says already what one of the second would say of the same operations.
fn tells(told: AnomalyKind, kind: AnomalyKind) -> bool {
    use AnomalyKind::{Baseline, Latency, Stalled, Throughput};
    matches!(
        (told, kind),
        (Stalled, Latency) | (Stalled | Latency | Throughput, Baseline) | (Stalled | Latency | Baseline, Throughput)
    )
}
