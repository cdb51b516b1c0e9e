//! The verdict of a fleet, from what hosts say.

use std::collections::{BTreeMap, BTreeSet};

use model::{Cause, Layer, Verdict};
use plumbline_diagnose::fleet::{
    ClientHost, Fleet, FleetCause, HostGroup, HostSighting, JudgedEpisode, OperationKind, judge,
};
use proptest::prelude::*;

const MINUTE: i64 = 60_000;
const DAY: (i64, i64) = (0, 1_440 * MINUTE);

fn own(cause: Cause) -> Verdict {
    Verdict { layer: cause.layer(), cause: Some(cause), confidence: 0.95, ..Verdict::default() }
}

/// Clients c01, c02, ... of server s, all looked at that day: the first `near` of them in network a, the others in b.
fn clients(count: usize, near: usize) -> Fleet {
    let name = |number: usize| format!("c{number:02}");
    let client = |number| ClientHost {
        host: name(number),
        server: "s".into(),
        seen: vec![DAY],
        kinds: BTreeSet::from([OperationKind::Reads, OperationKind::Writes]),
        sources: BTreeSet::from(["s:/x".to_owned()]),
    };
    let group = |number| HostGroup { by: "network".into(), value: if number <= near { "a" } else { "b" }.into() };
    Fleet {
        clients: (1..=count).map(client).collect(),
        groups: (1..=count).map(|number| (name(number), BTreeSet::from([group(number)]))).collect(),
        sightings: Vec::new(),
    }
}

fn sighting(number: usize, verdict: Verdict) -> HostSighting {
    HostSighting {
        host: format!("c{number:02}"),
        server: "s".into(),
        source: "s:/x".into(),
        incident: "i".into(),
        from: 602 * MINUTE + number as i64 * 1_000,
        to: 605 * MINUTE,
        kinds: BTreeMap::from([(OperationKind::Reads, 0.4), (OperationKind::Writes, 0.6)]),
        verdict,
        slow_ms: Some(52.0),
        normal_ms: Some(12.0),
        ..HostSighting::default()
    }
}

fn only(fleet: &Fleet) -> JudgedEpisode {
    let mut judged = judge(fleet);
    assert_eq!(judged.len(), 1, "{judged:?}");
    judged.remove(0)
}

#[test]
fn most_clients_of_a_server_that_say_so_themselves_accuse_it() {
    let mut fleet = clients(19, 17);
    fleet.sightings.extend((1..=17).map(|number| sighting(number, own(Cause::SlowServer))));
    let judged = only(&fleet);
    let conclusion = &judged.conclusion;
    assert_eq!((conclusion.cause, conclusion.said.as_str()), (Some(FleetCause::Server), "the server"));
    assert_eq!((judged.scene.affected.len(), judged.scene.unaffected.len(), judged.scene.known()), (17, 2, 19));
    assert_eq!(
        conclusion.because,
        [
            "17 of 19 known clients were affected.",
            "Slow operations took 40 ms more, 52 ms instead of 12 ms (medians of the hosts' means).",
            "The slow operations were reads and writes.",
            "The hosts' own verdicts: 17 server (slow_server).",
            "The 2 others are in network b, where no host was affected.",
        ]
    );
}

#[test]
fn what_hosts_cannot_say_themselves_is_the_server_or_what_is_in_front_of_it() {
    let mut fleet = clients(19, 0);
    fleet.sightings.extend((1..=18).map(|number| sighting(number, Verdict::default())));
    let conclusion = only(&fleet).conclusion;
    assert_eq!(conclusion.cause, Some(FleetCause::ServerOrFront), "{conclusion:?}");
}

#[test]
fn hosts_of_one_network_that_blame_it_accuse_it_and_not_the_server() {
    let mut fleet = clients(30, 10);
    fleet.sightings.extend((1..=9).map(|number| sighting(number, own(Cause::Loss))));
    let conclusion = only(&fleet).conclusion;
    assert_eq!(conclusion.cause, Some(FleetCause::GroupNetwork));
    assert_eq!((conclusion.group.unwrap().value.as_str(), conclusion.said.as_str()), ("a", "the network a"));
}

#[test]
fn one_host_of_many_is_alone_whatever_it_says() {
    for cause in [Cause::NoCpu, Cause::Loss, Cause::SlowServer] {
        let mut fleet = clients(30, 10);
        fleet.sightings.push(sighting(3, own(cause)));
        let conclusion = only(&fleet).conclusion;
        assert_eq!((conclusion.cause, conclusion.said.as_str()), (Some(FleetCause::Hosts), "c03 alone"), "{cause:?}");
    }
}

#[test]
fn where_nothing_is_known_of_others_the_likeliest_two_are_told_and_what_tells_them_apart() {
    let mut fleet = Fleet::default();
    fleet.sightings.push(sighting(1, own(Cause::LongerPath)));
    let conclusion = only(&fleet).conclusion;
    assert_eq!((conclusion.cause, conclusion.confidence, conclusion.alternatives.len()), (None, 0.0, 2));
    let last = conclusion.because.last().unwrap();
    assert!(last.ends_with("To tell these apart, collect records of more clients of the server."), "{last}");
}

#[test]
fn clients_of_which_nothing_is_known_then_are_no_evidence() {
    let mut fleet = clients(30, 0);
    fleet.sightings.extend((1..=8).map(|number| sighting(number, own(Cause::SlowServer))));
    for client in fleet.clients.iter_mut().skip(8) {
        client.seen = vec![(0, 300 * MINUTE)];
    }
    let judged = only(&fleet);
    assert_eq!((judged.conclusion.cause, judged.scene.silent.len()), (Some(FleetCause::Server), 22));
    assert_eq!(judged.conclusion.because[1], "There are no records of 22 more clients for that time.");
}

#[test]
fn some_hosts_at_once_without_anything_in_common_accuse_nobody() {
    let mut fleet = clients(40, 0);
    fleet.sightings.extend([3, 9, 20, 31].map(|number| sighting(number, Verdict::default())));
    let conclusion = only(&fleet).conclusion;
    assert_eq!(conclusion.cause.map(FleetCause::name), Some("part"), "{conclusion:?}");
    let mut fleet = clients(40, 0);
    fleet.sightings.extend((1..=20).map(|number| sighting(number, Verdict::default())));
    let conclusion = only(&fleet).conclusion;
    assert_eq!(conclusion.cause, None, "{conclusion:?}");
}

#[test]
fn one_share_of_several_is_told_from_the_server() {
    let mut fleet = clients(20, 0);
    fleet.clients.iter_mut().for_each(|client| {
        client.sources.insert("s:/y".into());
    });
    fleet.sightings.extend((1..=18).map(|number| sighting(number, own(Cause::SlowServer))));
    let conclusion = only(&fleet).conclusion;
    assert_eq!((conclusion.cause, conclusion.source.as_deref()), (Some(FleetCause::ServerShare), Some("s:/x")));
}

#[test]
fn one_kind_of_operation_is_told_from_the_server() {
    let mut fleet = clients(20, 0);
    fleet.sightings.extend((1..=18).map(|number| HostSighting {
        kinds: BTreeMap::from([(OperationKind::Writes, 1.0)]),
        ..sighting(number, own(Cause::SlowOperation))
    }));
    let conclusion = only(&fleet).conclusion;
    assert_eq!((conclusion.cause, conclusion.kind), (Some(FleetCause::ServerOperation), Some(OperationKind::Writes)));
    assert_eq!(conclusion.said, "the server, with writes");
}

#[test]
fn the_same_hosts_at_two_servers_are_one_episode() {
    let mut fleet = clients(20, 0);
    let more: Vec<_> = fleet.clients.iter().map(|client| ClientHost { server: "t".into(), ..client.clone() }).collect();
    fleet.clients.extend(more);
    let at = |server: &str| HostSighting { server: server.into(), ..sighting(4, own(Cause::OwnQueue)) };
    fleet.sightings.extend([at("s"), at("t")]);
    let judged = only(&fleet);
    assert_eq!(
        (judged.conclusion.cause, judged.servers),
        (Some(FleetCause::Hosts), vec!["s".to_owned(), "t".to_owned()])
    );
}

prop_compose! {
    fn any_sighting()(
        (host, server) in ("[a-d]", "[st]"),
        (from, to) in (any::<i32>(), any::<i32>()),
        (layer, cause) in (prop::sample::select(Layer::ALL.to_vec()), prop::option::of(prop::sample::select(Cause::ALL.to_vec()))),
        confidence in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -1.0..2.0],
        ms in prop::option::of(prop_oneof![Just(f64::NAN), 0.0..1e12]),
    ) -> HostSighting {
        let verdict = Verdict { layer, cause, confidence, ..Verdict::default() };
        let kinds = BTreeMap::from([(OperationKind::Reads, confidence)]);
        HostSighting { host, server, from: from.into(), to: to.into(), verdict, kinds, slow_ms: ms, normal_ms: ms, ..HostSighting::default() }
    }
}

proptest! {
    #[test]
    fn whatever_hosts_say_each_incident_is_in_one_episode_and_the_order_does_not_matter(
        sightings in prop::collection::vec(any_sighting(), 0..30),
    ) {
        let mut fleet = Fleet { sightings, ..clients(3, 1) };
        let judged = judge(&fleet);
        let count: usize = judged.iter().flat_map(|one| &one.scene.affected).map(|host| host.incidents.len()).sum();
        prop_assert!(count <= fleet.sightings.len());
        for one in &judged {
            prop_assert!((0.0..1.0).contains(&one.conclusion.confidence));
            prop_assert_eq!(one.conclusion.cause.is_some(), one.conclusion.confidence >= 0.79);
        }
        let said = |all: &[JudgedEpisode]| all.iter().map(|one| (one.scene.from, one.scene.affected.len())).collect::<Vec<_>>();
        let before = said(&judged);
        fleet.sightings.reverse();
        let mut after = said(&judge(&fleet));
        let mut before = before;
        before.sort();
        after.sort();
        prop_assert_eq!(before, after);
    }
}
