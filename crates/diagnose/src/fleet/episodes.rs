//! Which incidents of one server belong together: those that begin together, or overlap for much of their time.

use std::collections::{BTreeMap, BTreeSet};

use super::{HostSighting, Millis};

/// Incidents that are further apart than this are unrelated. The tolerance covers differences of the hosts' clocks and
/// the length of the rules' windows.
pub(super) const GAP: Millis = 30_000;
/// Incidents that begin within this time of the first belong to its episode: a host notices a fault only when it next
/// sends a request.
pub(super) const ONSET: Millis = 90_000;
/// A later incident belongs to an episode if their overlap is at least this share of the time that both span together.
const COMMON: f64 = 0.3;

/// Incidents of one server that belong together.
#[derive(Debug)]
pub(super) struct ServerEpisode<'a> {
    pub server: &'a str,
    pub from: Millis,
    pub to: Millis,
    pub sightings: Vec<&'a HostSighting>,
    hosts: BTreeSet<&'a str>,
}

/// All episodes.
pub(super) fn of(sightings: &[HostSighting]) -> Vec<ServerEpisode<'_>> {
    let mut by_server: BTreeMap<&str, Vec<&HostSighting>> = BTreeMap::new();
    for one in sightings {
        by_server.entry(&one.server).or_default().push(one);
    }
    by_server.into_values().flat_map(of_server).collect()
}

fn of_server(mut sightings: Vec<&HostSighting>) -> Vec<ServerEpisode<'_>> {
    sightings.sort_by_key(|one| (one.from, one.to));
    let (mut over, mut going_on): (Vec<ServerEpisode<'_>>, Vec<ServerEpisode<'_>>) = (Vec::new(), Vec::new());
    for next in sightings {
        over.extend(going_on.extract_if(.., |episode| episode.to.saturating_add(GAP) < next.from));
        let closest = going_on.iter_mut().filter(|episode| episode.has(next));
        match closest.max_by_key(|episode| episode.from) {
            Some(episode) => episode.add(next),
            None => going_on.push(ServerEpisode::begin(next)),
        }
    }
    over.extend(going_on);
    over
}

impl<'a> ServerEpisode<'a> {
    fn begin(first: &'a HostSighting) -> Self {
        let hosts = BTreeSet::from([first.host.as_str()]);
        Self { server: &first.server, from: first.from, to: first.to.max(first.from), sightings: vec![first], hosts }
    }

    fn add(&mut self, next: &'a HostSighting) {
        self.to = self.to.max(next.to);
        self.hosts.insert(&next.host);
        self.sightings.push(next);
    }

    /// Whether an incident that begins later belongs to the episode.
    fn has(&self, next: &HostSighting) -> bool {
        let (end, to) = (next.to.max(next.from), self.to);
        let (common, both) = (to.min(end) - next.from, to.max(end) - self.from);
        next.from - self.from <= ONSET
            || common as f64 >= COMMON * both as f64
            // A host of the episode may report the same fault again until the fault is over.
            || (end <= to + GAP && self.hosts.contains(next.host.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(host: &str, from: Millis, to: Millis) -> HostSighting {
        let (from, to) = (from * 1_000, to * 1_000);
        HostSighting { host: host.into(), server: "s".into(), from, to, ..HostSighting::default() }
    }

    fn hosts(sightings: &[HostSighting]) -> Vec<Vec<&str>> {
        let mut all: Vec<Vec<_>> = of(sightings).into_iter().map(|one| one.hosts.into_iter().collect()).collect();
        all.sort();
        all
    }

    #[test]
    fn what_begins_together_or_goes_on_together_is_one() {
        let outage = [seen("a", 100, 300), seen("b", 120, 180), seen("c", 220, 310), seen("b", 250, 300)];
        assert_eq!(hosts(&outage), [["a", "b", "c"]]);
        let later = [seen("a", 100, 110), seen("b", 400, 410)];
        assert_eq!(hosts(&later), [["a"], ["b"]]);
    }

    #[test]
    fn a_host_that_is_slow_all_day_has_nothing_to_do_with_an_outage() {
        let day = [seen("a", 0, 86_400), seen("b", 36_000, 36_200), seen("c", 36_010, 36_200)];
        assert_eq!(hosts(&day), [vec!["a"], vec!["b", "c"]]);
    }
}
