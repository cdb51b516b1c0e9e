//! Decides which episodes are incidents of their own, and which are part of an incident that is already reported. Reports the incidents.

use std::{collections::BTreeSet, rc::Rc, time::Duration};

use diagnose::Episode;
use model::{Cause, Event, Incident, Layer, MountKey, Nanos, Verdict};
use probes::Recorder;

use super::{
    Children, Detection, chains, delayed, describe,
    open::{self, OpenIncident},
    rules::{ChangeExt, EpisodeChange},
};
use crate::{
    evidence::{IncidentId, Labels},
    source::EventSource,
};

/// After a pause of this length without an anomaly, a new anomaly may come from another fault.
const PAUSE: Duration = Duration::from_secs(10);

/// A report on an incident that has begun, goes on or is over.
pub struct IncidentReport<'a> {
    /// Whether the incident has begun, goes on or is over, with its episode.
    pub change: &'a EpisodeChange,
    /// The incident's name.
    pub id: &'a IncidentId,
    /// Whether a bundle of this name was made already.
    pub known: bool,
    /// The layer and cause of the previous report; `None` in the first report.
    pub judged_before: Option<(Layer, Option<Cause>)>,
    /// When the newest operation ended that the flight recorder had at the first report; `None` in the first report.
    pub reported_until: Option<Nanos>,
    /// The description of the incident.
    pub described: Incident,
    /// The operations that broke the rule.
    pub events: Vec<Event>,
    /// The flight recorder.
    pub recorder: Rc<Recorder>,
    /// The operations that ran below the incident's system calls.
    pub children: Children,
    /// An episode that has just become part of the incident, of a rule that the incident armed.
    pub part: Option<&'a Episode>,
}

/// Receives the reports on incidents.
pub trait Reporter {
    /// The name of a new incident.
    fn next_id(&mut self, detected: jiff::Timestamp, protocol: &str, kind: &str) -> IncidentId;

    /// Takes a report. Returns false if the report was refused: the next report of this incident is then for a new bundle.
    fn report(&mut self, source: &dyn EventSource, rules: &super::ActiveRules, report: IncidentReport<'_>) -> bool;
}

impl Detection {
    /// Reports the incident of every change. Lower layers come first, since they know more about the cause.
    pub(super) fn report_all(
        &mut self,
        source: &dyn EventSource,
        reporter: &mut dyn Reporter,
        mut changes: Vec<EpisodeChange>,
    ) {
        changes.sort_by_key(|change| open::depth(change.episode()));
        changes.iter().filter(|change| change.closed()).for_each(|change| self.keep_ended(change.episode()));
        for change in changes {
            self.report(source, reporter, &change);
        }
    }

    fn report(&mut self, source: &dyn EventSource, reporter: &mut dyn Reporter, change: &EpisodeChange) {
        let episode = change.episode();
        let before = self.open.get(&episode.id).and_then(|open| open.shadow);
        // The incident that this episode was part of may be over, and the episode may concern more mounts now.
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
            // The part of the episode before its last pause belongs to the incident that is over.
            (false, Some(_)) => {
                let own = self.rules.forget_before_pause(episode.id, PAUSE).unwrap_or_else(|| episode.clone());
                self.hand_over(source, reporter, &EpisodeChange::Opened(own), None);
            }
            (false, None) => {
                if let Some(open) = self.open.get_mut(&episode.id) {
                    open.see(source, episode, 0);
                }
                self.hand_over(source, reporter, change, None);
            }
        }
        if change.closed() {
            self.open.remove(&episode.id);
            if !is_shadow {
                let now = source.now();
                self.open.values_mut().filter_map(|open| open.shadow.as_mut()).for_each(|until| *until = now);
            }
        }
    }

    /// Decides whether an episode is an incident of its own or part of open incidents. It is part of an incident if it consists of:
    /// - slow system calls on a share whose slow requests are already an incident;
    /// - operations that return after they were reported as stalled;
    /// - operations slower than their baseline that are already reported as slow;
    /// - operations that are slow or hang while the connection with their server is broken;
    /// - events of a connection whose slow or hanging operations are already reported;
    /// - anomalies of a rule that the incident armed.
    ///
    /// `until`: when the episode was last known to be part of an incident. `armed_by`: the episodes that may have armed its rule.
    fn open_episode(
        &mut self,
        source: &dyn EventSource,
        episode: &Episode,
        until: Nanos,
        armed_by: &BTreeSet<u64>,
    ) -> OpenIncident {
        let mut opened = OpenIncident::new(source, episode, until);
        let mut views = open::views(self.open.iter().filter(|(id, _)| **id != episode.id), &opened);
        views.extend(armed_by);
        let (name, observed) = (&episode.anomaly.name, &episode.anomaly.observed);
        let is_view = |(id, open): &(&u64, &mut OpenIncident)| open.shadow.is_none() && views.contains(id);
        for (_, open) in self.open.iter_mut().filter(|(id, _)| **id != episode.id).filter(is_view) {
            opened.shadow = Some(until);
            if !open.also.contains_key(name) {
                let incident = open.bundle.as_ref().map(IncidentId::as_str).unwrap_or_default();
                tracing::info!(incident, "{name}: {observed}; part of {incident}");
            }
            open.also.entry(name.clone()).or_default().observed.clone_from(observed);
        }
        opened
    }

    /// Keeps the operations of an episode that is over if it is part of an incident about connections, which lists the operations that it delayed.
    fn keep_ended(&mut self, episode: &Episode) {
        let Some(part) = self.open.remove(&episode.id) else { return };
        for open in self.open.values_mut().filter(|open| open.is_of_connections() && part.shadow.is_some()) {
            let covered = open.covered(&part, episode);
            if let Some(also) = open.also.get_mut(&episode.anomaly.name).filter(|_| !covered.is_empty()) {
                also.observed.clone_from(&episode.anomaly.observed);
                also.ended = delayed::slowest(also.ended.drain(..).chain(covered).collect());
            }
        }
        self.open.insert(episode.id, part);
    }

    /// The operations that ended since `from` and were delayed by the incident, if it is about connections.
    fn delayed_by(&self, incident: &OpenIncident, from: Nanos) -> Vec<Event> {
        if !incident.is_of_connections() {
            return Vec::new();
        }
        let of_part = |episode: &Episode| {
            let part = self.open.get(&episode.id).filter(|part| part.shadow.is_some());
            part.into_iter().flat_map(|part| incident.covered(part, episode)).collect::<Vec<_>>()
        };
        let ended = incident.also.values().flat_map(|part| &part.ended).cloned();
        let events = ended.chain(self.rules.episodes().flat_map(of_part));
        delayed::slowest(events.filter(|event| event.end() >= from).collect())
    }

    /// The open episodes that armed this episode's rule, directly or through other rules, and that concern the same host, server, mount or job.
    fn armed_by(&self, source: &dyn EventSource, episode: &Episode) -> BTreeSet<u64> {
        let Some(when) = self.rules.when(&episode.anomaly.name) else { return BTreeSet::new() };
        let arms = |other: &&Episode| {
            when.origins.contains(&other.anomaly.name) && chains::share(source, other, episode, when.on)
        };
        self.rules.episodes().filter(arms).map(|other| other.id).collect()
    }

    /// Reports the incidents that armed the episode's rule again, so that the evidence of this rule is added to their bundles.
    fn add_part(
        &mut self,
        source: &dyn EventSource,
        reporter: &mut dyn Reporter,
        episode: &Episode,
        armed_by: &BTreeSet<u64>,
    ) {
        let incidents =
            open::shown(self.rules.episodes(), &self.open).filter(|incident| armed_by.contains(&incident.id));
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
            open.iter().flat_map(|open| &open.also).map(|(rule, part)| format!("{rule}: {}", part.observed)).collect();
        let facts = describe::IncidentFacts {
            id: id.as_str(),
            episode,
            children: &self.children,
            recent: &self.recent,
            long_term: &self.long_term,
            recorder: &recorder,
            losses: source.losses(),
            also,
            delayed: open.map(|open| self.delayed_by(open, episode.window.from)).unwrap_or_default(),
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
            judged_before: open.and_then(|open| open.accused),
            reported_until,
            described,
            events,
            recorder: recorder_too,
            children,
            part,
        };
        let accused = report.described.verdict.accused();
        let taken = reporter.report(source, &self.rules, report);
        if let Some(open) = self.open.get_mut(&episode.id).filter(|_| taken) {
            open.bundle = Some(id);
            open.accused = Some(accused);
            open.reported_until =
                open.reported_until.or_else(|| recorder.events_since(0, 1).last().map(|newest| newest.end()));
        }
    }

    /// Looks up what ran below the calls of open incidents, before the flight recorder overwrites it.
    pub(super) fn find_children(&mut self, source: &dyn EventSource) {
        let calls: Vec<_> =
            open::shown(self.rules.episodes(), &self.open).flat_map(|episode| episode.window.events()).collect();
        self.children = self.children.only(calls.iter().copied());
        self.children.find(source, calls.into_iter(), || source.recorder());
    }

    /// The open incidents, each with its mounts and the mounts of the episodes that are part of it.
    pub fn open(&self) -> Vec<(u64, BTreeSet<MountKey>)> {
        let is_about = |one: u64, other: u64, mount: MountKey| match (self.open.get(&one), self.open.get(&other)) {
            (Some(open), Some(part)) => one == other || open.covers(part, mount),
            _ => false,
        };
        let mounts = |id: u64| {
            let of =
                |episode: &Episode| episode.window.events().iter().map(|event| event.mount).collect::<BTreeSet<_>>();
            let parts = self.rules.episodes().map(|episode| (episode.id, of(episode)));
            parts
                .flat_map(|(part, mounts)| mounts.into_iter().filter(move |mount| is_about(id, part, *mount)))
                .collect()
        };
        open::shown(self.rules.episodes(), &self.open).map(|episode| (episode.id, mounts(episode.id))).collect()
    }

    /// Takes note that this bundle is on disk, with its labels and, if there is one, the verdict from the data of client and server.
    pub fn written(&mut self, id: &IncidentId, labels: &Labels, proven: Option<&Verdict>) {
        if let Some(open) = self.of_bundle(id) {
            open.written = true;
            open.labels.clone_from(labels);
            open.proven = proven.cloned().map(Box::new);
        }
    }

    /// Takes note that this bundle was not made or, if `gone`, was deleted to make room. The next report makes a new one.
    pub fn lost(&mut self, id: &IncidentId, gone: bool) {
        if let Some(open) = self.of_bundle(id).filter(|open| gone || !open.written) {
            open.bundle = None;
        }
    }

    fn of_bundle(&mut self, id: &IncidentId) -> Option<&mut OpenIncident> {
        self.open.values_mut().find(|open| open.bundle.as_ref() == Some(id))
    }
}
