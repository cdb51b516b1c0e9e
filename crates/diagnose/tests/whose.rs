//! Faults that look like the path's, and of which the kernel knows who made them: programs of this host, firewalls, neighbours, routes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{
    MS,
    connections::{RECEIVED, answers, happening, held, reads, unanswered, verdict},
};
use model::{Cause, Event, Layer};

#[test]
fn segments_sent_again_while_this_host_holds_others_are_its_own() {
    let (fast, _) = reads();
    let again: Vec<_> = (0..6).map(|n| happening("TCP_RETRANSMIT", 1200.0 + 400.0 * f64::from(n), 0)).collect();
    let silence: Vec<_> = (0..3).map(|n| happening("TCP_NO_ANSWER", 1400.0 + 400.0 * f64::from(n), 0)).collect();
    let received = |left, held_ms| Event { status: RECEIVED, ..held(left, held_ms) };
    let inspected: Vec<_> = (0..6).map(|n| received(1310 + 400 * n, 350)).collect();
    let own = verdict(&again, &[&fast[..], &inspected].concat());
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "{own:?}");
    assert!(own.because[0].contains("a program that inspects them (NFQUEUE)"), "{own:?}");
    let long = [&answers(0, 20, 700)[..], &[received(2800, 1700)], &answers(2900, 20, 700)].concat();
    let own = verdict(&silence, &long);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "not a path that was cut: {own:?}");
    let shortly: Vec<_> = (0..6).map(|n| received(1210 + 400 * n, 90)).collect();
    let sent: Vec<_> = (0..6).map(|n| held(1310 + 400 * n, 350)).collect();
    assert_ne!(verdict(&again, &sent).layer, Layer::Client, "a cable that is out makes the interface hold segments");
    assert_ne!(verdict(&again, &shortly).layer, Layer::Client, "TCP waits for longer before it sends again");
    assert_ne!(verdict(&again, &inspected[..2]).layer, Layer::Client, "most were lost elsewhere");
}

#[test]
fn a_longer_round_trip_is_no_longer_path_where_this_host_holds_what_it_receives() {
    let mut scene = common::faults::longer_path(28.0);
    assert_eq!(scene.verdict().cause, Some(Cause::LongerPath), "{:?}", scene.verdict());
    let held: Vec<_> = scene
        .slow
        .iter()
        .map(|slow| Event { status: RECEIVED, start: slow.end() - 22 * MS, ..happening("TCP_HELD", 0.0, 20) })
        .collect();
    scene.around.extend(held);
    let own = scene.verdict();
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "{own:?}");
}
