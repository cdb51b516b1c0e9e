//! Packets that an interface of this host drops before TCP sees them: when they are why operations are slow.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{
    MS,
    connections::{happening, interface_dropped, reads, verdict},
    judge, smb,
};
use model::{Cause, Event, Layer, Network, Verdict};

/// So much later, after fast reads: whether an interface dropped packets before must be known.
const BEFORE_MS: u32 = 4500;

fn later(events: &[Event]) -> Vec<Event> {
    let move_on = |event: &Event| Event { start: event.start + u64::from(BEFORE_MS) * MS, ..event.clone() };
    let before = (0..BEFORE_MS / 50).map(|n| smb("SMB2_READ", f64::from(50 * n), [0.0, 1.0, 0.0]));
    before.chain(events.iter().map(move_on)).collect()
}

/// The events of so much later, and these, among others.
fn moved(events: &[Event], others: &[Event]) -> (Vec<Event>, Vec<Event>) {
    let all = later(&[events, others].concat());
    let first = all.len() - events.len() - others.len();
    (all[first..first + events.len()].to_vec(), all)
}

/// The verdict on these slow operations, beside others.
fn judged_later(slow: &[Event], others: &[Event]) -> Verdict {
    let (slow, all) = moved(slow, others);
    common::verdict(&slow, &all)
}

fn connection_judged_later(events: &[Event], others: &[Event]) -> Verdict {
    let (events, all) = moved(events, others);
    verdict(&events, &all)
}

/// The connection retransmitted a segment during each of these.
fn retransmitted(mut slow: Vec<Event>) -> Vec<Event> {
    let all = slow.iter_mut().zip(1..);
    all.for_each(|(event, all)| event.network = Network { known: true, retransmits: all, ..event.network });
    slow
}

/// The verdict on reads that are slow for 0.6 s.
fn judged(drops: &[Event]) -> Verdict {
    let (fast, slow) = reads();
    judged_later(&retransmitted(slow), &[&fast, drops].concat())
}

fn says(verdict: &Verdict, words: &str) -> bool {
    verdict.because.iter().any(|why| why.starts_with(words))
}

#[test]
fn what_an_interface_drops_makes_slow_operations_this_hosts() {
    let own = judged(&[interface_dropped("RX_DROPPED", 1800, 57)]);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    assert!(
        says(
            &own,
            "Interface eth0 of this host dropped 57 packets that it had received (none before), before TCP saw them"
        ),
        "{own:?}"
    );
}

#[test]
fn each_counter_has_its_cause() {
    for (status, cause, words) in [
        (
            "RX_LENGTH",
            Cause::OwnDrops,
            "Interface eth0 of this host dropped 9 packets that it had received (none before): they were longer",
        ),
        ("RX_CRC", Cause::Loss, "Interface eth0 of this host received 9 packets that were damaged (none before)"),
        (
            "TX_DROPPED",
            Cause::OwnDrops,
            "Interface eth0 of this host dropped 9 packets that it had to send (none before)",
        ),
        ("TX_CARRIER", Cause::OwnInterface, "Interface eth0 of this host could not send 9 packets (none before)"),
    ] {
        let verdict = judged(&[interface_dropped(status, 1800, 9)]);
        assert_eq!(verdict.cause, Some(cause), "{status}: {verdict:?}");
        assert!(says(&verdict, words), "{status}: {verdict:?}");
    }
}

#[test]
fn an_interface_that_drops_now_and_then_as_ever_is_not_blamed() {
    let without = judged(&[]);
    let same = |drops: &[Event], why: &str| assert_eq!(judged(drops), without, "{why}");
    same(&[interface_dropped("RX_DROPPED", 1800, 2)], "two are chance");
    let (fast, slow) = reads();
    let (slow, mut all) = moved(&retransmitted(slow), &fast);
    all.extend((1..8).map(|n| interface_dropped("RX_DROPPED", 1000 * n, 20)));
    all.sort_by_key(Event::end);
    assert_ne!(common::verdict(&slow, &all).cause, Some(Cause::OwnDrops), "as many as before");
    same(&[interface_dropped("RX_DROPPED", 3000, 57)], "after the slow operations");
    let many: Vec<_> = (0..60).map(|n| smb("SMB2_READ", 1100.0 + 5.0 * f64::from(n), [0.0, 300.0, 0.0])).collect();
    let (fast, _) = reads();
    let few = [&fast[..], &[interface_dropped("RX_DROPPED", 1800, 4)]].concat();
    assert_ne!(judged_later(&many, &few).cause, Some(Cause::OwnDrops), "four packets cannot delay sixty reads");
    let (_, slow) = reads();
    let at_once = [&slow[..], &[interface_dropped("RX_DROPPED", 2100, 57)]].concat();
    assert_ne!(common::verdict(&slow, &at_once).layer, Layer::Client, "whether there were any before is not known");
}

#[test]
fn an_interface_that_drops_others_packets_is_not_blamed() {
    let (fast, slow) = reads();
    let blamed = |slow: &[Event], status| {
        let verdict = judged_later(slow, &[&fast[..], &[interface_dropped(status, 1800, 57)]].concat());
        verdict.cause == Some(Cause::OwnDrops)
    };
    assert!(!blamed(&slow, "TX_DROPPED"), "nothing was retransmitted");
    assert!(blamed(&retransmitted(slow.clone()), "TX_DROPPED"));
    let short: Vec<_> = slow.iter().map(|event| Event { duration: 150 * MS, ..event.clone() }).collect();
    assert!(
        !blamed(&short, "RX_DROPPED"),
        "no segment was out of order, and a server sends again after 200 ms at the earliest"
    );
}

#[test]
fn packets_that_are_reported_for_two_mounts_of_a_server_count_once() {
    let twice = [interface_dropped("RX_DROPPED", 1800, 30), interface_dropped("RX_DROPPED", 1801, 30)];
    assert!(says(&judged(&twice), "Interface eth0 of this host dropped 30 packets"), "{:?}", judged(&twice));
}

#[test]
fn an_operation_that_does_not_return_is_this_hosts_if_the_interface_drops_again_and_again() {
    let stalled = Event { duration: 6000 * MS, ..smb("SMB2_READ", 1990.0, [0.0; 3]) };
    let judged = |looks: &[u32]| {
        let drops: Vec<_> = looks.iter().map(|at| interface_dropped("RX_DROPPED", *at, 2)).collect();
        let around = later(&drops);
        let stalled = Event { start: stalled.start + u64::from(BEFORE_MS) * MS, ..stalled.clone() };
        judge("stalled", std::slice::from_ref(&stalled), &around)
    };
    let own = judged(&[3000, 4000, 6000]);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    assert_ne!(judged(&[3000, 4000]).layer, Layer::Client);
}

#[test]
fn segments_sent_again_because_an_interface_dropped_them_are_this_hosts() {
    let again: Vec<_> = (0..40).map(|n| happening("TCP_RETRANSMIT", 2100.0 + 10.0 * f64::from(n), 0)).collect();
    let (fast, _) = reads();
    let judged = |packets| {
        connection_judged_later(&again, &[&fast[..], &[interface_dropped("TX_DROPPED", 2800, packets)]].concat())
    };
    let own = judged(20);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    assert_ne!(judged(4).layer, Layer::Client, "most were lost elsewhere");
}
