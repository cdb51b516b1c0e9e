//! Connections that break or starve: when that is an anomaly, and whose fault it is.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{MS, smb};
use model::{Connection, Detail, Event, Layer, Level, Operation, Protocol, Verdict};
use plumbline_diagnose::{
    Change, Meanwhile, Watch,
    connection::ConnectionRule,
    judge,
    rule::{Rule, Subject},
};

static CONNECTIONS: Protocol = Protocol {
    name: "connections",
    operations: &[
        "CONNECTION_LOST",
        "RECONNECT",
        "SESSION_LOST",
        "RPC_TIMEOUT",
        "TCP_RESET",
        "TCP_RETRANSMIT",
        "TCP_NO_ANSWER",
        "TCP_ZERO_WINDOW",
        "SLOT_STARVATION",
    ],
    level: Level::Connection,
    ..Protocol::BY_ERRNO
};

fn kind(name: &str) -> Operation {
    CONNECTIONS.operation(name).unwrap()
}

fn happening(name: &str, at_ms: f64, lasted_ms: u64) -> Event {
    let event = smb("SMB2_READ", at_ms, [0.0; 3]);
    Event {
        operation: kind(name),
        duration: lasted_ms * MS,
        detail: Detail::Connection(Connection { times: 3, ..Connection::default() }),
        ..event
    }
}

fn lost_in(state: u32) -> Event {
    Event { status: state, ..happening("CONNECTION_LOST", 1.0, 0) }
}

fn verdict(events: &[Event], around: &[Event]) -> Verdict {
    judge("connection", events, around)
}

fn changes(events: &[Event]) -> Vec<Change> {
    let counts = [("CONNECTION_LOST", 1), ("TCP_RETRANSMIT", 5)].map(|(name, count)| (kind(name), count));
    let rule = ConnectionRule { subject: Subject { name: "r".into(), protocol: &CONNECTIONS }, counts: counts.into() };
    let mut watch = Watch::new(rule.detector(), Duration::from_secs(60), 0);
    events.iter().for_each(|event| watch.see(event));
    watch.close(1000 * MS, 0, &Meanwhile::default(), &mut 0)
}

#[test]
fn each_kind_has_a_count_of_its_own() {
    let retransmissions = |count| vec![happening("TCP_RETRANSMIT", 1.0, 0); count];
    assert!(changes(&retransmissions(4)).is_empty());
    assert!(changes(&[happening("TCP_RESET", 1.0, 0)]).is_empty(), "a kind that is not in the rule does not count");
    let [Change::Opened(episode)] = &changes(&retransmissions(5))[..] else { panic!() };
    assert_eq!(episode.anomaly.observed, "5 TCP_RETRANSMIT");
    assert_eq!(episode.anomaly.limit, "5 TCP_RETRANSMIT");
    let mixed = [retransmissions(2), vec![happening("CONNECTION_LOST", 1.0, 0)]].concat();
    let [Change::Opened(episode)] = &changes(&mixed)[..] else { panic!() };
    assert_eq!(episode.anomaly.observed, "1 CONNECTION_LOST, 2 TCP_RETRANSMIT");
    assert_eq!((episode.anomaly.kind.as_ref(), episode.anomaly.probe.as_ref()), ("connection", "connections"));
}

#[test]
fn what_the_server_did_itself_is_its_own() {
    for events in [vec![happening("TCP_RESET", 1.0, 0)], vec![lost_in(8)], vec![happening("TCP_ZERO_WINDOW", 1.0, 0)]] {
        let verdict = verdict(&events, &[]);
        assert_eq!(verdict.layer, Layer::Server, "{verdict:?}");
        assert!(verdict.confidence >= 0.7 && verdict.because.iter().all(|why| why.ends_with('.')), "{verdict:?}");
    }
}

#[test]
fn a_silence_is_nobodys() {
    for events in [
        vec![happening("TCP_NO_ANSWER", 1.0, 0), happening("TCP_RETRANSMIT", 0.5, 0)],
        vec![lost_in(1), happening("RPC_TIMEOUT", 0.5, 60_000)],
        vec![happening("SLOT_STARVATION", 1.0, 2000)],
        vec![happening("TCP_RETRANSMIT", 1.0, 0)],
    ] {
        let verdict = verdict(&events, &[]);
        assert_eq!((verdict.layer, verdict.confidence), (Layer::Unknown, 0.0), "{verdict:?}");
        assert!(!verdict.because.is_empty());
    }
}

#[test]
fn segments_that_get_lost_while_others_are_answered_are_the_networks() {
    let sent_again: Vec<_> = (0..50).map(|n| happening("TCP_RETRANSMIT", 10.0 + f64::from(n), 0)).collect();
    let answered: Vec<_> = (0..20).map(|n| smb("SMB2_READ", 10.0 + f64::from(n), [0.0, 1.0, 0.0])).collect();
    let verdict = verdict(&sent_again, &answered);
    assert_eq!(verdict.layer, Layer::Network, "{verdict:?}");
    assert!(verdict.because[0].starts_with("50 TCP segments were sent again"), "{verdict:?}");
    assert!(verdict.because[1].contains("20 operations were answered"), "{verdict:?}");
}

#[test]
fn how_long_it_took_to_connect_again_is_said() {
    let verdict = verdict(&[lost_in(8), happening("RECONNECT", 1.0, 6200)], &[]);
    assert!(verdict.because.iter().any(|why| why.contains("6.2 s")), "{verdict:?}");
    assert_eq!(verdict.layer, Layer::Server);
}
