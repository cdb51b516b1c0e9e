//! The open incidents, and which episodes are only part of them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use diagnose::{Episode, baseline, expression, latency, stall, throughput};
use model::{Cause, Event, Layer, Level, MountKey, Nanos, Verdict};

use crate::{
    evidence::{IncidentId, Labels},
    source::EventSource,
};

/// The layers that probes see, lowest first: the lowest knows most about a fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeLayer {
    /// The connection with the server.
    Connection,
    /// The requests to the server, on that connection.
    Protocol,
    /// The calls of applications.
    #[default]
    Local,
}

/// The source and server of an episode's mount; an empty name is not known.
struct MountOrigin {
    /// The source of the mount, such as `//server/share`.
    source: String,
    server: String,
}

/// What another rule observed of an incident.
#[derive(Default)]
pub struct Part {
    /// The latest observation of that rule, in words.
    pub observed: String,
    /// The slowest operations of its episode, if that is over and the incident is about connections.
    pub ended: Vec<Event>,
}

/// An episode that is not over.
#[derive(Default)]
pub struct OpenIncident {
    /// The incident's bundle; `None` if it could not be made yet, or has been deleted.
    pub bundle: Option<IncidentId>,
    /// When the newest operation ended that the flight recorder had at the first report.
    pub reported_until: Option<Nanos>,
    /// The layer and cause of the last verdict that was reported.
    pub accused: Option<(Layer, Option<Cause>)>,
    /// Whether the bundle has been written to disk.
    pub written: bool,
    /// Set if the episode is only part of other incidents: until when it was last known to be part of one (CLOCK_MONOTONIC, nanoseconds);
    /// 0 until such an incident ends.
    pub shadow: Option<u64>,
    /// What other rules observed of the incident, by rule.
    pub also: BTreeMap<String, Part>,
    /// The labels that the bundle has from the operator's own actions.
    pub labels: Labels,
    /// The bundle's verdict from the data of client and server.
    pub proven: Option<Box<Verdict>>,
    /// The mounts that the episode concerns.
    places: BTreeMap<MountKey, MountOrigin>,
    /// The layer that its probe sees.
    depth: ProbeLayer,
    /// Its probe and the type of its rule.
    about: Option<(Cow<'static, str>, Cow<'static, str>)>,
}

impl OpenIncident {
    /// An episode that has begun. Its mounts are those of operations that ended after `since`.
    pub fn new(source: &dyn EventSource, episode: &Episode, since: Nanos) -> Self {
        let (probe, kind) = (episode.anomaly.probe.clone(), episode.anomaly.kind.clone());
        let mut opened = Self { depth: depth(episode), about: Some((probe, kind)), ..Self::default() };
        opened.see(source, episode, since);
        opened
    }

    /// Adds the mounts of the episode's operations that ended after `since`.
    pub fn see(&mut self, source: &dyn EventSource, episode: &Episode, since: Nanos) {
        for event in episode.window.events().iter().filter(|event| event.end() > since) {
            self.places.entry(event.mount).or_insert_with(|| {
                let mount = source.mount(event.mount);
                MountOrigin { source: mount.source.clone(), server: mount.server.clone() }
            });
        }
    }

    /// Whether it is about connections, not operations.
    pub fn is_of_connections(&self) -> bool {
        self.depth == ProbeLayer::Connection
    }

    /// Whether it is about operations that do not return.
    fn hangs(&self) -> bool {
        self.about.as_ref().is_some_and(|(_, kind)| kind == stall::KIND)
    }

    /// Whether this incident covers `other` on some mount.
    pub fn covers_some(&self, other: &Self) -> bool {
        other.places.keys().any(|mount| self.covers(other, *mount))
    }

    /// The operations of `episode`, which belongs to `other`, on the mounts on which this incident covers `other`.
    pub fn covered(&self, other: &Self, episode: &Episode) -> Vec<Event> {
        episode.window.events().iter().filter(|event| self.covers(other, event.mount)).cloned().collect()
    }

    /// Whether this incident already reports what `other` would report of the mount. A mount whose name is not known is never covered.
    pub fn covers(&self, other: &Self, mount: MountKey) -> bool {
        let Some(place) = other.places.get(&mount) else { return false };
        let (Some((probe, told)), Some((of, kind))) = (&self.about, &other.about) else { return false };
        let waits = |kind: &str| kind == stall::KIND || tells(stall::KIND, kind);
        // A slow share does not explain a call that fails. Two expressions of the operator are never taken to mean the same.
        let is_alike = waits(kind) || told == kind && kind != expression::KIND;
        let below = self.depth == ProbeLayer::Protocol && other.depth == ProbeLayer::Local && is_alike;
        let same = probe == of && tells(told, kind);
        // One connection serves all mounts of a server.
        let broken = match (self.depth, other.depth) {
            (ProbeLayer::Connection, ProbeLayer::Protocol | ProbeLayer::Local) => waits(kind),
            (ProbeLayer::Protocol, ProbeLayer::Connection) => waits(told),
            _ => false,
        };
        let is_here = |of: fn(&MountOrigin) -> &str| {
            let name = of(place);
            !name.is_empty() && self.places.values().any(|own| of(own) == name)
        };
        self.shadow.is_none()
            && ((below || same) && is_here(|place| &place.source) || broken && is_here(|place| &place.server))
    }
}

/// The incidents that already report what `other` would report. Each of them must cover all of its mounts. If operations hang, several incidents
/// may cover the mounts together. Slow operations are excepted: on several mounts, they may show a cause that one mount does not show.
pub fn views<'a>(
    open: impl Iterator<Item = (&'a u64, &'a OpenIncident)> + Clone,
    other: &OpenIncident,
) -> BTreeSet<u64> {
    let mounts = || other.places.keys().copied();
    let covers_all =
        |incident: &OpenIncident| !other.places.is_empty() && mounts().all(|mount| incident.covers(other, mount));
    let whole = open.clone().filter(|(_, incident)| covers_all(incident));
    let whole: BTreeSet<_> = whole.map(|(id, _)| *id).collect();
    let hangs = open.filter(|(_, incident)| incident.hangs() || other.hangs());
    if whole.is_empty() && mounts().all(|mount| hangs.clone().any(|(_, incident)| incident.covers(other, mount))) {
        return hangs.filter(|(_, incident)| incident.covers_some(other)).map(|(id, _)| *id).collect();
    }
    whole
}

/// The episodes that are incidents of their own.
pub fn shown<'a>(
    episodes: impl Iterator<Item = &'a Episode>,
    open: &HashMap<u64, OpenIncident>,
) -> impl Iterator<Item = &'a Episode> {
    episodes.filter(|episode| open.get(&episode.id).is_some_and(|open| open.shadow.is_none()))
}

/// The layer that the episode's probe sees.
pub fn depth(episode: &Episode) -> ProbeLayer {
    match probes::protocol(&episode.anomaly.probe).map(|protocol| protocol.level) {
        Some(Level::Connection) => ProbeLayer::Connection,
        Some(level) if level.is_remote() => ProbeLayer::Protocol,
        _ => ProbeLayer::Local,
    }
}

/// Whether an incident of type `told` already reports what one of type `kind` would report of the same operations.
fn tells(told: &str, kind: &str) -> bool {
    match kind {
        latency::KIND => told == stall::KIND,
        baseline::KIND => [stall::KIND, latency::KIND, throughput::KIND].contains(&told),
        throughput::KIND => [stall::KIND, latency::KIND, baseline::KIND].contains(&told),
        _ => false,
    }
}
