//! The verdict of a fleet: one cause for what many hosts saw of one server.
//!
//! [`episodes`] joins incidents of one server that belong together. [`scene`] says for each known client whether it was affected, was not affected,
//! or left no records. [`causes`] weighs the possible causes by the hosts that each would affect and by these hosts' own verdicts; [`conclude`] names
//! a cause with a probability of at least 0.8. All of these are pure functions over what hosts have written down already.

mod causes;
mod conclude;
mod episodes;
mod hosts;
mod scene;

use std::collections::{BTreeMap, BTreeSet};

use model::Verdict;

pub use conclude::Conclusion;
use hosts::HostIndex;
pub use scene::{Affected, FleetScene};

/// Milliseconds since 1970.
pub type Millis = i64;

/// What a fleet verdict can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FleetCause {
    /// The server is slow, or fails, for all of its clients.
    Server,
    /// The server is slow, or fails, with one kind of operation only: reads, writes or others.
    ServerOperation,
    /// The server is slow, or fails, with one of its shares or exports only.
    ServerShare,
    /// The network that all of its clients share.
    Front,
    /// One of the four causes above; which one is not known.
    ServerOrFront,
    /// The network of a group of hosts.
    GroupNetwork,
    /// The hosts of a group themselves.
    GroupHosts,
    /// The network or the hosts of a group; which of the two is not known.
    Group,
    /// Something that only the affected hosts have in common, and that no known group describes.
    Part,
    /// All clients themselves.
    AllHosts,
    /// Each affected host, or its own link, independently of the others.
    Hosts,
}

/// The kinds of operations that are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// Operations that move data to the application.
    Reads,
    /// Operations that move data from the application.
    Writes,
    /// Operations that move no data.
    Others,
}

/// A property that hosts can have in common: `network` is `10.1.0.0/24`, `rack` is `r3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostGroup {
    /// The property's name.
    pub by: String,
    /// Its value.
    pub value: String,
}

/// What one host's incident says of one server.
#[derive(Debug, Clone, Default)]
pub struct HostSighting {
    /// The host.
    pub host: String,
    /// The server; not empty.
    pub server: String,
    /// What is mounted: a share or an export; empty if not known.
    pub source: String,
    /// The incident's name.
    pub incident: String,
    /// When the first of its operations began.
    pub from: Millis,
    /// When the incident was last seen.
    pub to: Millis,
    /// Whether the incident was open when it was recorded.
    pub is_open: bool,
    /// Its slow or failed operations, and each kind's share of their time, 0 to 1.
    pub kinds: BTreeMap<OperationKind, f64>,
    /// The host's own verdict; its sentences are ignored.
    pub verdict: Verdict,
    /// The mean time of its slow operations, milliseconds; `None` if not known.
    pub slow_ms: Option<f64>,
    /// The normal time of these operations, milliseconds; `None` if not known.
    pub normal_ms: Option<f64>,
}

/// A host that uses a server.
#[derive(Debug, Clone, Default)]
pub struct ClientHost {
    /// The host.
    pub host: String,
    /// The server.
    pub server: String,
    /// The periods that the host's records cover.
    pub seen: Vec<(Millis, Millis)>,
    /// The kinds of operations that it sends to the server; empty if not known.
    pub kinds: BTreeSet<OperationKind>,
    /// What it has mounted of the server; empty if not known.
    pub sources: BTreeSet<String>,
}

/// The input of a fleet's verdict.
#[derive(Debug, Default)]
pub struct Fleet {
    /// The hosts' incidents.
    pub sightings: Vec<HostSighting>,
    /// Which hosts use which servers.
    pub clients: Vec<ClientHost>,
    /// The groups of each host.
    pub groups: BTreeMap<String, BTreeSet<HostGroup>>,
}

/// Incidents that belong together, and their cause.
#[derive(Debug)]
pub struct JudgedEpisode {
    /// The servers concerned: several if the cause is the hosts' own, or their network's.
    pub servers: Vec<String>,
    /// Who was affected and who was not.
    pub scene: FleetScene,
    /// The cause.
    pub conclusion: Conclusion,
}

impl FleetCause {
    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::ServerOperation => "server_operation",
            Self::ServerShare => "server_share",
            Self::Front => "network_in_front",
            Self::ServerOrFront => "server_or_front",
            Self::GroupNetwork => "network_of_group",
            Self::GroupHosts => "hosts_of_group",
            Self::Group => "group",
            Self::Part => "part",
            Self::AllHosts => "all_hosts",
            Self::Hosts => "hosts",
        }
    }

    /// Whether the same fault can show at several servers.
    fn is_of_hosts(self) -> bool {
        matches!(self, Self::GroupNetwork | Self::GroupHosts | Self::Group | Self::AllHosts | Self::Hosts)
    }
}

impl OperationKind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Others => "other operations",
        }
    }
}

/// Judges all incidents: the episodes with the most hosts first, then the newest.
pub fn judge(fleet: &Fleet) -> Vec<JudgedEpisode> {
    let index = HostIndex::of(fleet);
    let episodes = episodes::of(&fleet.sightings);
    let judged = episodes.into_iter().map(|episode| {
        let scene = FleetScene::of(&episode, &index);
        let conclusion = conclude::conclude(&scene, causes::weigh(&scene));
        JudgedEpisode { servers: vec![episode.server.to_owned()], scene, conclusion }
    });
    let mut judged = merged(judged.collect());
    for one in &mut judged {
        one.conclusion.because = conclude::because(&one.scene, &one.conclusion);
    }
    judged.sort_by(|one, other| {
        let order = |of: &JudgedEpisode| (of.scene.affected.len(), of.scene.from);
        order(other).cmp(&order(one)).then_with(|| one.servers.cmp(&other.servers))
    });
    judged
}

/// Joins episodes of several servers at once if they are the same fault of hosts or of their network.
fn merged(mut all: Vec<JudgedEpisode>) -> Vec<JudgedEpisode> {
    all.sort_by_key(|one| one.scene.from);
    let mut kept: Vec<JudgedEpisode> = Vec::new();
    // The episodes that a later one can overlap with.
    let mut going_on: Vec<usize> = Vec::new();
    for next in all {
        going_on.retain(|index| kept.get(*index).is_some_and(|one| one.scene.to + episodes::GAP >= next.scene.from));
        let same = going_on.iter().copied().find(|index| kept.get(*index).is_some_and(|one| is_same(one, &next)));
        match same.and_then(|index| kept.get_mut(index)) {
            Some(one) => one.take_in(next),
            None => {
                going_on.push(kept.len());
                kept.push(next);
            }
        }
    }
    kept
}

fn is_same(one: &JudgedEpisode, other: &JudgedEpisode) -> bool {
    let (mine, its) = (&one.conclusion, &other.conclusion);
    let is_alike = mine.cause.is_some_and(FleetCause::is_of_hosts)
        && mine.cause == its.cause
        && mine.group == its.group
        && (mine.group.is_some() || one.hosts() == other.hosts());
    !other.servers.iter().any(|server| one.servers.contains(server))
        && (is_alike || one.explains(other) || other.explains(one))
}

impl JudgedEpisode {
    fn hosts(&self) -> BTreeSet<&str> {
        self.scene.affected.iter().map(|host| host.name.as_str()).collect()
    }

    /// Whether this is a fault of many hosts, and the other episode is only what some of these hosts saw of another server.
    fn explains(&self, other: &Self) -> bool {
        let is_wide = |cause: FleetCause| cause.is_of_hosts() && cause != FleetCause::Hosts;
        self.conclusion.cause.is_some_and(is_wide)
            && other.conclusion.cause.is_none_or(|cause| cause == FleetCause::Hosts)
            && other.hosts().is_subset(&self.hosts())
    }

    fn take_in(&mut self, other: Self) {
        let is_better = if self.explains(&other) || other.explains(self) {
            other.explains(self)
        } else {
            other.conclusion.confidence > self.conclusion.confidence
        };
        if is_better {
            self.conclusion = other.conclusion;
        }
        self.servers.extend(other.servers);
        self.servers.sort();
        self.scene.take_in(other.scene);
    }
}
