//! One episode as all known clients of the server saw it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use model::{Alternative, Cause, Layer, Verdict};

use super::{
    HostSighting, Millis, OperationKind,
    episodes::ServerEpisode,
    hosts::{ClientAttributes, HostIndex},
};

/// The least weight of a host's verdict, as of one that names nothing. Otherwise the weight is the verdict's
/// confidence.
const UNNAMED: f64 = 0.3;

/// Who was affected, who was not, and who said nothing.
#[derive(Debug, Default)]
pub struct FleetScene {
    /// When the first incident began.
    pub from: Millis,
    /// When the last incident was last seen.
    pub to: Millis,
    /// Whether one is open.
    pub is_open: bool,
    /// The hosts with incidents, by name.
    pub affected: Vec<Affected>,
    /// The clients of the server that had none, by name.
    pub unaffected: Vec<Unaffected>,
    /// The clients of the server of which there are no records of that time, by name.
    pub silent: Vec<Rc<str>>,
    /// The probability that a host has an incident of its own in a time of this length.
    pub(super) background: f64,
}

/// A host with incidents.
#[derive(Debug, Default)]
pub struct Affected {
    /// Its name.
    pub name: String,
    /// When its first incident began.
    pub from: Millis,
    /// When its last incident was last seen.
    pub to: Millis,
    /// The incidents' names.
    pub incidents: Vec<String>,
    /// The surest of its own verdicts.
    pub verdict: Verdict,
    /// The kinds of its slow operations, and each one's share of their time, 0 to 1.
    pub kinds: BTreeMap<OperationKind, f64>,
    /// The mean time of its slow operations, milliseconds.
    pub slow_ms: Option<f64>,
    /// The normal time of these operations, milliseconds.
    pub normal_ms: Option<f64>,
    /// The server's shares or exports that were slow.
    pub sources: BTreeSet<String>,
    /// How likely each layer is, by its own verdicts.
    pub(super) belief: Belief,
    pub(super) about: Rc<ClientAttributes>,
    /// Whether it had incidents at other servers, too; `None` if no other server of the host is known.
    pub(super) elsewhere: Option<bool>,
}

/// A client without an incident.
#[derive(Debug)]
pub struct Unaffected {
    /// Its name.
    pub name: Rc<str>,
    pub(super) about: Rc<ClientAttributes>,
}

/// Probabilities of the layers; they add up to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Belief {
    pub client: f64,
    pub network: f64,
    pub server: f64,
}

impl FleetScene {
    pub(super) fn of(episode: &ServerEpisode<'_>, index: &HostIndex<'_>) -> Self {
        let mut by_host: BTreeMap<&str, Vec<&HostSighting>> = BTreeMap::new();
        for one in &episode.sightings {
            by_host.entry(&one.host).or_default().push(one);
        }
        let mut affected: BTreeMap<&str, Affected> =
            by_host.into_iter().map(|(host, all)| (host, Affected::of(host, &all))).collect();
        for (name, host) in &mut affected {
            host.about = index.stranger(name);
            host.elsewhere = index.elsewhere(name, episode);
        }
        let (mut unaffected, mut silent) = (BTreeMap::new(), BTreeSet::new());
        for known in index.clients(episode.server) {
            if let Some(host) = affected.get_mut(&*known.name) {
                host.about = known.about.clone();
            } else if known.client.is_seen(episode.from, episode.to) {
                unaffected.insert(known.name.clone(), known.about.clone());
            } else {
                silent.insert(known.name.clone());
            }
        }
        silent.retain(|name| !unaffected.contains_key(name));
        Self {
            from: episode.from,
            to: episode.to,
            is_open: episode.sightings.iter().any(|one| one.is_open),
            affected: affected.into_values().collect(),
            unaffected: unaffected.into_iter().map(|(name, about)| Unaffected { name, about }).collect(),
            silent: silent.into_iter().collect(),
            background: index.background(episode),
        }
    }

    /// Number of clients of which it is known whether they were affected.
    pub fn known(&self) -> usize {
        self.affected.len() + self.unaffected.len()
    }

    /// The median of a figure of the affected hosts; `None` if no host has it.
    pub fn median(&self, figure: impl Fn(&Affected) -> Option<f64>) -> Option<f64> {
        let mut all: Vec<f64> = self.affected.iter().filter_map(figure).filter(|ms| ms.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// The kinds of operations that have at least a tenth of the slow time on average.
    pub fn kinds(&self) -> Vec<OperationKind> {
        let share = |kind| self.affected.iter().filter_map(|host| host.kinds.get(&kind)).sum::<f64>();
        let enough = 0.1 * self.affected.len() as f64;
        [OperationKind::Reads, OperationKind::Writes, OperationKind::Others]
            .into_iter()
            .filter(|kind| share(*kind) >= enough)
            .collect()
    }

    /// Adds what the same fault did at another server.
    pub(super) fn take_in(&mut self, other: Self) {
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        self.is_open |= other.is_open;
        for host in other.affected {
            match self.affected.iter_mut().find(|mine| mine.name == host.name) {
                Some(mine) => mine.take_in(host),
                None => self.affected.push(host),
            }
        }
        self.affected.sort_by(|one, another| one.name.cmp(&another.name));
        let is_affected = |name: &str| self.affected.iter().any(|host| host.name == *name);
        self.unaffected.retain(|host| !is_affected(&host.name));
        for host in other.unaffected {
            if !is_affected(&host.name) && !self.unaffected.iter().any(|mine| mine.name == host.name) {
                self.unaffected.push(host);
            }
        }
        self.unaffected.sort_by(|one, another| one.name.cmp(&another.name));
        let is_known = |name: &str| is_affected(name) || self.unaffected.iter().any(|host| *host.name == *name);
        let silent: BTreeSet<Rc<str>> = self.silent.drain(..).chain(other.silent).collect();
        let silent = silent.into_iter().filter(|name| !is_known(name)).collect();
        self.silent = silent;
    }
}

impl Affected {
    fn of(name: &str, sightings: &[&HostSighting]) -> Self {
        let mut host = Self { name: name.to_owned(), from: Millis::MAX, to: Millis::MIN, ..Self::default() };
        let (mut belief, mut weight) = (Belief::default(), 0.0);
        for one in sightings {
            (host.from, host.to) = (host.from.min(one.from), host.to.max(one.to));
            host.incidents.push(one.incident.clone());
            host.sources.extend(Some(one.source.clone()).filter(|source| !source.is_empty()));
            let counts = one.verdict.confidence.clamp(UNNAMED, 1.0);
            belief = belief.plus(Belief::of(&one.verdict), counts);
            weight += counts;
            one.kinds.iter().for_each(|(kind, share)| *host.kinds.entry(*kind).or_default() += share);
            // The slowest incident gives the host's times.
            if one.slow_ms > host.slow_ms {
                (host.slow_ms, host.normal_ms) = (one.slow_ms, one.normal_ms);
            }
        }
        let all: f64 = host.kinds.values().sum();
        host.kinds.values_mut().for_each(|share| *share /= all.max(f64::MIN_POSITIVE));
        host.belief = belief.scaled(weight);
        let sure = |one: &&&HostSighting| (one.verdict.layer != Layer::Unknown, one.verdict.confidence);
        let surest = sightings.iter().max_by(|one, other| {
            let (one, other) = (sure(one), sure(other));
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        });
        host.verdict = surest.map(|one| one.verdict.clone()).unwrap_or_default();
        host
    }

    /// By how much its slow operations exceed their normal time, milliseconds.
    pub fn more_ms(&self) -> Option<f64> {
        Some(self.slow_ms? - self.normal_ms?).filter(|more| *more > 0.0)
    }

    /// The kind that has nearly all of the slow time.
    pub(super) fn only_kind(&self) -> Option<OperationKind> {
        self.kinds.iter().find(|(_, share)| **share >= 0.8).map(|(kind, _)| *kind)
    }

    /// Whether its verdict names a server that is slow with some kinds of operations only; `None` if it does not name a
    /// slow server.
    pub(super) fn spares_a_kind(&self) -> Option<bool> {
        match self.verdict.cause? {
            Cause::SlowOperation => Some(true),
            Cause::SlowServer | Cause::Frozen | Cause::Paused | Cause::HostGone => Some(false),
            _ => None,
        }
    }

    fn take_in(&mut self, other: Self) {
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        self.incidents.extend(other.incidents);
        self.sources.extend(other.sources);
        self.incidents.sort();
        self.incidents.dedup();
        if other.verdict.confidence > self.verdict.confidence {
            self.verdict = other.verdict;
        }
    }
}

impl Belief {
    /// The probability that a verdict leaves open is divided equally among the layers.
    fn of(verdict: &Verdict) -> Self {
        let named = verdict.cause.map(|cause| Alternative::from((cause, verdict.confidence)));
        let named = named.filter(|_| verdict.layer != Layer::Unknown).or_else(|| {
            // Metrics may name a layer without a cause.
            let cause = match verdict.layer {
                Layer::Client => Cause::Requester,
                Layer::Network => Cause::LongerPath,
                Layer::Server => Cause::SlowServer,
                Layer::Unknown => return None,
            };
            Some((cause, verdict.confidence).into())
        });
        let mut belief = Self::default();
        let mut left = 1.0;
        for Alternative { layer, confidence, .. } in named.iter().chain(&verdict.alternatives) {
            let likely = if confidence.is_finite() { confidence.clamp(0.0, left) } else { 0.0 };
            left -= likely;
            match layer {
                Layer::Client => belief.client += likely,
                Layer::Network => belief.network += likely,
                Layer::Server => belief.server += likely,
                Layer::Unknown => left += likely,
            }
        }
        let each = Self { client: left / 3.0, network: left / 3.0, server: left / 3.0 };
        belief.plus(each, 1.0)
    }

    fn plus(self, other: Self, weight: f64) -> Self {
        Self {
            client: self.client + other.client * weight,
            network: self.network + other.network * weight,
            server: self.server + other.server * weight,
        }
    }

    fn scaled(self, by: f64) -> Self {
        Self::default().plus(self, 1.0 / by.max(f64::MIN_POSITIVE))
    }
}
