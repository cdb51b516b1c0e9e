//! An index of what is known of hosts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use super::{
    ClientHost, Fleet, HostGroup, HostSighting, Millis, OperationKind,
    episodes::{GAP, ONSET, ServerEpisode},
};

/// The least and the greatest probability that a host has an incident at a server meanwhile although there is no common fault.
const RARE: f64 = 0.003;
const OFTEN: f64 = 0.3;
/// Rates of incidents are estimated over at least this time, milliseconds.
const HOUR: Millis = 3_600_000;

/// The attributes by which clients are compared.
#[derive(Debug, Default)]
pub(super) struct ClientAttributes {
    /// The kinds of operations that it sends to the server, and what it has mounted of the server; empty if not known.
    pub does: BTreeSet<OperationKind>,
    pub mounted: BTreeSet<String>,
    /// The groups that it belongs to.
    pub groups: BTreeSet<HostGroup>,
}

/// A client of a server. All episodes share its name and attributes.
pub(super) struct KnownClient<'a> {
    pub client: &'a ClientHost,
    pub name: Rc<str>,
    pub about: Rc<ClientAttributes>,
}

pub(super) struct HostIndex<'a> {
    /// By server.
    clients: HashMap<&'a str, Vec<KnownClient<'a>>>,
    /// By host.
    servers: HashMap<&'a str, Vec<&'a ClientHost>>,
    /// By host, in the order of their starts; and the longest duration of one, milliseconds.
    sightings: HashMap<&'a str, (Vec<&'a HostSighting>, Millis)>,
    groups: &'a BTreeMap<String, BTreeSet<HostGroup>>,
    all: usize,
    /// The observed time, summed over all hosts, milliseconds.
    watched: f64,
}

impl<'a> HostIndex<'a> {
    pub fn of(fleet: &'a Fleet) -> Self {
        let (mut clients, mut servers) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        let groups = |host: &str| fleet.groups.get(host).cloned().unwrap_or_default();
        for client in &fleet.clients {
            let (does, mounted) = (client.kinds.clone(), client.sources.clone());
            let about = Rc::new(ClientAttributes { does, mounted, groups: groups(&client.host) });
            let known = KnownClient { client, name: client.host.as_str().into(), about };
            clients.entry(client.server.as_str()).or_default().push(known);
            servers.entry(client.host.as_str()).or_default().push(client);
        }
        let mut sightings = HashMap::<_, (Vec<_>, Millis)>::new();
        for one in &fleet.sightings {
            let (all, longest) = sightings.entry(one.host.as_str()).or_default();
            all.push(one);
            *longest = (*longest).max(one.to.saturating_sub(one.from));
        }
        sightings.values_mut().for_each(|(all, _)| all.sort_by_key(|one| one.from));
        let hosts: BTreeSet<&str> = servers.keys().chain(sightings.keys()).copied().collect();
        let ends = fleet.sightings.iter().map(|one| (one.from, one.to));
        let ends = ends.chain(fleet.clients.iter().flat_map(|client| client.seen.iter().copied()));
        let (first, last) = ends.fold((Millis::MAX, Millis::MIN), |(from, to), end| (from.min(end.0), to.max(end.1)));
        let span = last.saturating_sub(first).max(HOUR);
        let watched = span as f64 * hosts.len().max(1) as f64;
        let (groups, all) = (&fleet.groups, fleet.sightings.len());
        Self { clients, servers, sightings, groups, all, watched }
    }

    /// The clients of a server.
    pub fn clients(&self, server: &str) -> impl Iterator<Item = &KnownClient<'a>> {
        self.clients.get(server).into_iter().flatten()
    }

    /// The attributes of a host that is not known to be a client.
    pub fn stranger(&self, host: &str) -> Rc<ClientAttributes> {
        Rc::new(ClientAttributes {
            groups: self.groups.get(host).cloned().unwrap_or_default(),
            ..ClientAttributes::default()
        })
    }

    /// The probability that one host has an incident of its own during the episode, from the number of incidents at other times.
    pub fn background(&self, episode: &ServerEpisode<'_>) -> f64 {
        let others = self.all.saturating_sub(episode.sightings.len()) as f64;
        let window = (episode.to - episode.from + ONSET) as f64;
        (others * window / self.watched).clamp(RARE, OFTEN)
    }

    /// Whether the host had incidents at other servers meanwhile; `None` if no other server of the host is known.
    pub fn elsewhere(&self, host: &str, episode: &ServerEpisode<'_>) -> Option<bool> {
        let (from, to) = (episode.from, episode.to);
        let mut others = self.servers.get(host).into_iter().flatten().filter(|client| client.server != episode.server);
        let is_known = others.any(|client| client.is_seen(from, to));
        let is_affected = self.meanwhile(host, from, to).any(|one| one.server != episode.server);
        (is_known || is_affected).then_some(is_affected)
    }

    fn meanwhile(&self, host: &str, from: Millis, to: Millis) -> impl Iterator<Item = &'a HostSighting> {
        let of_host = self.sightings.get(host);
        let (all, longest) = of_host.map_or((&[][..], 0), |(all, longest)| (all.as_slice(), *longest));
        let earliest = from.saturating_sub(longest).saturating_sub(GAP);
        let first = all.partition_point(|one| one.from < earliest);
        let started = all.get(first..).unwrap_or_default().iter().take_while(move |one| one.from <= to + GAP);
        started.copied().filter(move |one| one.to + GAP >= from)
    }
}

impl ClientHost {
    /// Whether there are records of the host from that time.
    pub(super) fn is_seen(&self, from: Millis, to: Millis) -> bool {
        self.seen.iter().any(|(first, last)| *first <= to && from <= *last)
    }
}
