//! Incidents that are not over, and which episodes are only other views of them.

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

/// The layers that probes see, the one that knows most first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeLayer {
    /// The connection with the server.
    Connection,
    /// What goes over it.
    Protocol,
    /// What the application asked for.
    #[default]
    Local,
}

/// A mount that an episode is about. An empty name is not known.
struct MountOrigin {
    /// What is mounted: `//server/share`.
    source: String,
    server: String,
}

/// What another rule saw of an incident.
#[derive(Default)]
pub struct Part {
    /// The last words of its rule.
    pub observed: String,
    /// The slowest of its operations, if it is over and the incident is about a connection.
    pub ended: Vec<Event>,
}

/// An episode that is not over.
#[derive(Default)]
pub struct OpenIncident {
    /// Its bundle; `None` if none could be made yet, or it has been deleted since.
    pub bundle: Option<IncidentId>,
    /// When the newest operation had ended that the recorder had when this was first reported.
    pub reported_until: Option<Nanos>,
    /// The layer and the cause that it names, if it was reported.
    pub accused: Option<(Layer, Option<Cause>)>,
    /// Whether that bundle has been on disk.
    pub written: bool,
    /// Only another view of incidents that are reported already; until when such a one was open, nanoseconds of
    /// CLOCK_MONOTONIC, 0 if it is yet.
    pub shadow: Option<u64>,
    /// What other rules saw of it, by rule.
    pub also: BTreeMap<String, Part>,
    /// What its bundle has of actions of the operator's own.
    pub labels: Labels,
    /// The verdict of both ends that its bundle has.
    pub proven: Option<Box<Verdict>>,
    /// The mounts that it is about.
    places: BTreeMap<MountKey, MountOrigin>,
    /// How far down its probe sees.
    depth: ProbeLayer,
    /// Its probe, and what it is about.
    about: Option<(Cow<'static, str>, Cow<'static, str>)>,
}

impl OpenIncident {
    /// An episode that has begun, as an incident of its own, by its operations that ended after `since`.
    pub fn new(source: &dyn EventSource, episode: &Episode, since: Nanos) -> Self {
        let (probe, kind) = (episode.anomaly.probe.clone(), episode.anomaly.kind.clone());
        let mut opened = Self { depth: depth(episode), about: Some((probe, kind)), ..Self::default() };
        opened.see(source, episode, since);
        opened
    }

    /// Takes the mounts that the episode's operations are on that ended after `since`.
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

    /// Whether this incident says already what another one would say of some mount.
    pub fn covers_some(&self, other: &Self) -> bool {
        other.places.keys().any(|mount| self.covers(other, *mount))
    }

    /// The operations of another one's episode of which this incident says already what that would say.
    pub fn covered(&self, other: &Self, episode: &Episode) -> Vec<Event> {
        episode.window.events().iter().filter(|event| self.covers(other, event.mount)).cloned().collect()
    }

    /// Whether this incident says already what another one would say of the mount. What is not known is covered by nothing.
    pub fn covers(&self, other: &Self, mount: MountKey) -> bool {
        let Some(place) = other.places.get(&mount) else { return false };
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
        let is_here = |of: fn(&MountOrigin) -> &str| {
            let name = of(place);
            !name.is_empty() && self.places.values().any(|own| of(own) == name)
        };
        self.shadow.is_none()
            && ((below || same) && is_here(|place| &place.source) || broken && is_here(|place| &place.server))
    }
}

/// The incidents that say already what this one would say: each of them of all its mounts, or, of operations that hang or hung, several together.
/// Operations that are slow on several mounts may show a cause that those of one mount do not.
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

/// How far down the episode's probe sees.
pub fn depth(episode: &Episode) -> ProbeLayer {
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
