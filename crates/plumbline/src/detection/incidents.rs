//! What becomes of episodes: which is an incident of its own, and which is another view of one that is reported already.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
    time::Duration,
};

use diagnose::{Episode, baseline, expression, latency, stall, throughput};
use model::{Event, Incident, Level, MountKey, Nanos, Verdict};
use probes::Recorder;

use super::{
    Children, Detection, chains, describe,
    rules::{ActiveRules, ChangeExt, EpisodeChange},
};
use crate::{
    evidence::{IncidentId, Labels},
    source::EventSource,
};

/// The layers that probes see, the one that knows most first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ProbeLayer {
    /// The connection with the server.
    Connection,
    /// What goes over it.
    Protocol,
    /// What the application asked for.
    #[default]
    Local,
}

/// After so long without an anomaly, another fault may have begun.
const PAUSE: Duration = Duration::from_secs(10);

/// An episode that is not over.
#[derive(Default)]
pub struct OpenIncident {
    /// Its bundle; `None` if none could be made yet, or it has been deleted since.
    bundle: Option<IncidentId>,
    /// When the newest operation had ended that the recorder had when this was first reported.
    reported_until: Option<Nanos>,
    /// Whether that bundle has been on disk.
    written: bool,
    /// What is mounted where it was slow: `//server/share`.
    sources: BTreeSet<String>,
    /// The servers behind these.
    servers: BTreeSet<String>,
    /// How far down its probe sees.
    depth: ProbeLayer,
    /// Its probe, and what it is about.
    about: Option<(Cow<'static, str>, Cow<'static, str>)>,
    /// Only another view of an incident that a lower layer has reported already; until when such a one was open, nanoseconds of
    /// CLOCK_MONOTONIC, 0 if it is yet.
    shadow: Option<u64>,
    /// What other rules saw of it: the rule, and its last words.
    also: BTreeMap<String, String>,
    /// What its bundle has of actions of the operator's own.
    labels: Labels,
    /// The verdict of both ends that its bundle has.
    proven: Option<Box<Verdict>>,
}

/// An incident that has begun, goes on or is over.
pub struct IncidentReport<'a> {
    /// Which of these.
    pub change: &'a EpisodeChange,
    /// Its name.
    pub id: &'a IncidentId,
    /// Whether a bundle of this name was made already.
    pub known: bool,
    /// When the newest operation had ended that the recorder had when it was first reported; `None` if it is only now.
    pub reported_until: Option<Nanos>,
    /// What is said of it.
    pub described: Incident,
    /// The operations that broke the rule.
    pub events: Vec<Event>,
    /// The flight recorder.
    pub recorder: Rc<Recorder>,
    /// What ran below its system calls.
    pub children: Children,
    /// An episode that has become part of it: of a rule that its incidents arm.
    pub part: Option<&'a Episode>,
}

/// Who is told of incidents.
pub trait Reporter {
    /// The name of a new incident.
    fn next_id(&mut self, detected: jiff::Timestamp, protocol: &str, kind: &str) -> IncidentId;

    /// Takes a report. False if it could not be taken: then the next one of this incident is for a new bundle.
    fn report(&mut self, source: &dyn EventSource, rules: &super::ActiveRules, report: IncidentReport<'_>) -> bool;
}

impl OpenIncident {
    /// Whether this incident says already what another one would say.
    fn covers(&self, other: &Self) -> bool {
        let (Some((probe, told)), Some((of, kind))) = (&self.about, &other.about) else { return false };
        let waits = |kind: &str| kind == stall::KIND || tells(stall::KIND, kind);
        // A call that fails is none for being below a share that is slow. No two expressions of the operator's are alike.
        let is_alike = waits(kind) || told == kind && kind != expression::KIND;
        let below = self.depth == ProbeLayer::Protocol && other.depth == ProbeLayer::Local && is_alike;
        let same = probe == of && tells(told, kind);
        // One connection serves all mounts of a server.
        let broken = match (self.depth, other.depth) {
            (ProbeLayer::Connection, ProbeLayer::Protocol | ProbeLayer::Local) => waits(kind),
            (ProbeLayer::Protocol, ProbeLayer::Connection) => waits(told),
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

impl Detection {
    /// Has every change's incident reported, the lower layer's first: it knows more.
    pub(super) fn report_all(
        &mut self,
        source: &dyn EventSource,
        reporter: &mut dyn Reporter,
        mut changes: Vec<EpisodeChange>,
    ) {
        changes.sort_by_key(|change| depth(change.episode()));
        for change in changes {
            self.report(source, reporter, &change);
        }
    }

    fn report(&mut self, source: &dyn EventSource, reporter: &mut dyn Reporter, change: &EpisodeChange) {
        let episode = change.episode();
        let before = self.open.get(&episode.id).and_then(|open| open.shadow);
        // What a shadow belongs to may be over, and what it is about may be more by now.
        let goes_on = before.is_some_and(|until| !change.closed() && episode.window.to > until);
        if change.opened() || goes_on {
            let armed_by = self.armed_by(source, episode);
            let open = self.open_episode(source, episode, before.unwrap_or(0), &armed_by);
            let is_part = open.shadow.is_some();
            self.open.insert(episode.id, open);
            if change.opened() && is_part {
                self.add_part(source, reporter, episode, &armed_by);
            }
        }
        let is_shadow = self.open.get(&episode.id).is_some_and(|open| open.shadow.is_some());
        match (is_shadow, before) {
            (true, _) => (),
            // What was part of an incident that is over belongs to that one.
            (false, Some(_)) => {
                let own = self.rules.forget_before_pause(episode.id, PAUSE).unwrap_or_else(|| episode.clone());
                self.hand_over(source, reporter, &EpisodeChange::Opened(own), None);
            }
            (false, None) => self.hand_over(source, reporter, change, None),
        }
        if change.closed() {
            self.open.remove(&episode.id);
            if !is_shadow {
                let now = source.now();
                self.open.values_mut().filter_map(|open| open.shadow.as_mut()).for_each(|until| *until = now);
            }
        }
    }

    /// Slow system calls on a share whose slow commands are an incident already are no second one. Nor are operations
    /// that were reported as stalled, when they return at last, nor what is slower than ever, if it is reported as slow; nor
    /// what is slow or hangs while the connection with its server is broken, nor, the other way about, what happens to a
    /// connection while that is reported already; nor what a rule sees that another's incident has armed. `until`: when it was last known to be
    /// part of another; `armed_by`: the episodes that may have armed its rule.
    fn open_episode(
        &mut self,
        source: &dyn EventSource,
        episode: &Episode,
        until: Nanos,
        armed_by: &BTreeSet<u64>,
    ) -> OpenIncident {
        let keys: BTreeSet<_> = episode.window.events().iter().map(|event| event.mount).collect();
        let mounts: Vec<_> = keys.into_iter().map(|key| source.mount(key)).collect();
        let sources: BTreeSet<_> = mounts.iter().map(|mount| mount.source.clone()).collect();
        let servers: BTreeSet<_> = mounts.iter().map(|mount| mount.server.clone()).collect();
        let (probe, kind) = (episode.anomaly.probe.clone(), episode.anomaly.kind.clone());
        let opened = OpenIncident {
            sources,
            servers,
            depth: depth(episode),
            about: Some((probe, kind)),
            ..OpenIncident::default()
        };
        let mut shadow = None;
        let has_armed = |id: &u64, open: &OpenIncident| open.shadow.is_none() && armed_by.contains(id);
        let is_view = |(id, open): &(&u64, &mut OpenIncident)| open.covers(&opened) || has_armed(id, open);
        for (_, open) in self.open.iter_mut().filter(|(id, _)| **id != episode.id).filter(is_view) {
            shadow = Some(until);
            let incident = open.bundle.as_ref().map(IncidentId::as_str).unwrap_or_default();
            if open.also.insert(episode.anomaly.name.clone(), episode.anomaly.observed.clone()).is_none() {
                tracing::info!(incident, "{}: {}; part of {incident}", episode.anomaly.name, episode.anomaly.observed);
            }
        }
        OpenIncident { shadow, ..opened }
    }

    /// The episodes that are not over of rules that arm the episode's, directly or in turn, and that have with it in common what its rule asks for.
    fn armed_by(&self, source: &dyn EventSource, episode: &Episode) -> BTreeSet<u64> {
        let Some(when) = self.rules.when(&episode.anomaly.name) else { return BTreeSet::new() };
        let arms = |other: &&Episode| {
            when.origins.contains(&other.anomaly.name) && chains::share(source, other, episode, when.on)
        };
        self.rules.episodes().filter(arms).map(|other| other.id).collect()
    }

    /// Reports the incidents again that have armed the episode's rule: what this collects belongs to them.
    fn add_part(
        &mut self,
        source: &dyn EventSource,
        reporter: &mut dyn Reporter,
        episode: &Episode,
        armed_by: &BTreeSet<u64>,
    ) {
        let incidents = shown(&self.rules, &self.open).filter(|incident| armed_by.contains(&incident.id));
        for incident in incidents.cloned().collect::<Vec<_>>() {
            self.hand_over(source, reporter, &EpisodeChange::Updated(incident), Some(episode));
        }
    }

    /// Judges the incident, describes it, and reports it.
    fn hand_over(
        &mut self,
        source: &dyn EventSource,
        reporter: &mut dyn Reporter,
        change: &EpisodeChange,
        part: Option<&Episode>,
    ) {
        let episode = change.episode();
        let open = self.open.get(&episode.id);
        let known = open.and_then(|open| open.bundle.clone());
        let is_known = known.is_some();
        let id = known.unwrap_or_else(|| {
            let detected = source.clock().wall(episode.window.to);
            reporter.next_id(detected, &episode.anomaly.probe, &episode.anomaly.kind)
        });
        let reported_until = open.and_then(|open| open.reported_until);
        let recorder = source.recorder();
        self.children.find(source, episode.window.events().iter(), || &*recorder);
        let also: Vec<_> =
            open.iter().flat_map(|open| &open.also).map(|(rule, what)| format!("{rule}: {what}")).collect();
        let facts = describe::IncidentFacts {
            id: id.as_str(),
            episode,
            children: &self.children,
            recent: &self.recent,
            long_term: &self.long_term,
            recorder: &recorder,
            losses: source.losses(),
            also,
            labels: open.map(|open| open.labels.clone()).unwrap_or_default(),
            proven: open.and_then(|open| open.proven.as_deref().cloned()),
            closed: change.closed(),
        };
        let (described, events) = describe::describe(source, facts);
        let children = self.children.only(episode.window.events().iter());
        let recorder_too = recorder.clone();
        let report = IncidentReport {
            change,
            id: &id,
            known: is_known,
            reported_until,
            described,
            events,
            recorder: recorder_too,
            children,
            part,
        };
        let taken = reporter.report(source, &self.rules, report);
        if let Some(open) = self.open.get_mut(&episode.id).filter(|_| taken) {
            open.bundle = Some(id);
            open.reported_until =
                open.reported_until.or_else(|| recorder.events_since(0, 1).last().map(|newest| newest.end()));
        }
    }

    /// Of the calls of incidents that go on: the recorder may have been overwritten when these are next reported.
    pub(super) fn find_children(&mut self, source: &dyn EventSource) {
        let calls: Vec<_> = shown(&self.rules, &self.open).flat_map(|episode| episode.window.events()).collect();
        self.children = self.children.only(calls.iter().copied());
        self.children.find(source, calls.into_iter(), || source.recorder());
    }

    /// The incidents that go on, and the mounts that each is about, with those of the episodes that are part of it.
    pub fn open(&self) -> Vec<(u64, BTreeSet<MountKey>)> {
        let covers = |one: u64, other: u64| match (self.open.get(&one), self.open.get(&other)) {
            (Some(open), Some(part)) => one == other || open.covers(part),
            _ => false,
        };
        let mounts = |id: u64| {
            let parts = self.rules.episodes().filter(|episode| covers(id, episode.id));
            parts.flat_map(|episode| episode.window.events()).map(|event| event.mount).collect()
        };
        shown(&self.rules, &self.open).map(|episode| (episode.id, mounts(episode.id))).collect()
    }

    /// The bundle of this name is on disk, with these labels, and perhaps a verdict of both ends.
    pub fn written(&mut self, id: &IncidentId, labels: &Labels, proven: Option<&Verdict>) {
        if let Some(open) = self.of_bundle(id) {
            open.written = true;
            open.labels.clone_from(labels);
            open.proven = proven.cloned().map(Box::new);
        }
    }

    /// The bundle of this name was never made, or, if it is `gone`, deleted to make room: the next change makes it anew.
    pub fn lost(&mut self, id: &IncidentId, gone: bool) {
        if let Some(open) = self.of_bundle(id).filter(|open| gone || !open.written) {
            open.bundle = None;
        }
    }

    fn of_bundle(&mut self, id: &IncidentId) -> Option<&mut OpenIncident> {
        self.open.values_mut().find(|open| open.bundle.as_ref() == Some(id))
    }
}

/// The episodes that are incidents of their own.
fn shown<'a>(rules: &'a ActiveRules, open: &'a HashMap<u64, OpenIncident>) -> impl Iterator<Item = &'a Episode> {
    let is_shown = |episode: &&Episode| open.get(&episode.id).is_some_and(|open| open.shadow.is_none());
    rules.episodes().filter(is_shown)
}

/// How far down the episode's probe sees.
fn depth(episode: &Episode) -> ProbeLayer {
    match probes::protocol(&episode.anomaly.probe).map(|protocol| protocol.level) {
        Some(Level::Connection) => ProbeLayer::Connection,
        Some(level) if level.is_remote() => ProbeLayer::Protocol,
        _ => ProbeLayer::Local,
    }
}

/// Whether an open incident of the first kind says already what one of the second would say of the same operations.
fn tells(told: &str, kind: &str) -> bool {
    match kind {
        latency::KIND => told == stall::KIND,
        baseline::KIND => [stall::KIND, latency::KIND, throughput::KIND].contains(&told),
        throughput::KIND => [stall::KIND, latency::KIND, baseline::KIND].contains(&told),
        _ => false,
    }
}
