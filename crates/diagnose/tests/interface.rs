//! Packets that an interface of this host drops before TCP sees them: when they are why operations are slow.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{
    MS,
    connections::{happening, interface_dropped, reads, verdict},
    judge, smb,
};
use model::{Cause, Event, Layer, Verdict};

/// The verdict on reads that are slow from 1.1 s to 1.7 s, after a second of fast ones.
fn judged(drops: &[Event]) -> Verdict {
    let (fast, slow) = reads();
    common::verdict(&slow, &[&fast, &slow, drops].concat())
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
    let as_before: Vec<_> = [0, 1, 2].map(|n| interface_dropped("RX_DROPPED", 800 + 1000 * n, 20)).into();
    same(&as_before, "as many as before");
    same(&[interface_dropped("RX_DROPPED", 3000, 57)], "after the slow operations");
    let many: Vec<_> = (0..60).map(|n| smb("SMB2_READ", 1100.0 + 5.0 * f64::from(n), [0.0, 300.0, 0.0])).collect();
    let (fast, _) = reads();
    let few = [&fast[..], &many, &[interface_dropped("RX_DROPPED", 1800, 4)]].concat();
    assert_ne!(common::verdict(&many, &few).cause, Some(Cause::OwnDrops), "four packets cannot delay sixty reads");
    let (_, slow) = reads();
    let at_once = [&slow[..], &[interface_dropped("RX_DROPPED", 2100, 57)]].concat();
    assert_ne!(common::verdict(&slow, &at_once).layer, Layer::Client, "whether there were any before is not known");
}

#[test]
fn packets_that_are_told_of_for_two_mounts_of_a_server_count_once() {
    let twice = [interface_dropped("RX_DROPPED", 1800, 30), interface_dropped("RX_DROPPED", 1801, 30)];
    assert!(says(&judged(&twice), "Interface eth0 of this host dropped 30 packets"), "{:?}", judged(&twice));
}

#[test]
fn an_operation_that_does_not_return_is_this_hosts_if_the_interface_drops_again_and_again() {
    let stalled = Event { duration: 6000 * MS, ..smb("SMB2_READ", 1990.0, [0.0; 3]) };
    let before = smb("SMB2_READ", 10.0, [0.0, 1.0, 0.0]);
    let judged = |looks: &[u32]| {
        let drops = looks.iter().map(|at| interface_dropped("RX_DROPPED", *at, 2));
        judge("stalled", std::slice::from_ref(&stalled), &[vec![before.clone()], drops.collect()].concat())
    };
    let own = judged(&[3000, 4000, 6000]);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    assert_ne!(judged(&[3000, 4000]).layer, Layer::Client);
}

#[test]
fn segments_sent_again_because_an_interface_dropped_them_are_this_hosts() {
    let again: Vec<_> = (0..40).map(|n| happening("TCP_RETRANSMIT", 2100.0 + 10.0 * f64::from(n), 0)).collect();
    let (fast, _) = reads();
    let judged = |packets| verdict(&again, &[&fast[..], &[interface_dropped("TX_DROPPED", 2800, packets)]].concat());
    let own = judged(20);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    assert_ne!(judged(4).layer, Layer::Client, "most were lost elsewhere");
}
