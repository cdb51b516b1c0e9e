//! Slow system calls, and the requests of their mount meanwhile.

mod common;

use common::{MS, smb, syscall};
use model::{Cause, Event, Layer, Verdict};

/// Calls of 400 ms, ten at a time, beside requests one after the other that take `wire` ms. Before, requests took 10 ms.
fn among_requests_of(wire: f64) -> Verdict {
    let requests = |from: f64, to: f64, wire: f64| {
        let count = ((to - from) / wire) as u32;
        (0..count).map(move |n| smb("SMB2_CREATE", from + f64::from(n) * wire, [0.0, wire, 0.0]))
    };
    let before = requests(0.0, 2_000.0, 10.0).collect::<Vec<_>>();
    let meanwhile = requests(2_000.0, 3_000.0, wire).collect::<Vec<_>>();
    let calls: Vec<_> = (0..20)
        .map(|n| Event {
            mount: before[0].mount,
            ..syscall("write", 2_000.0 + 400.0 * f64::from(n / 10) + f64::from(n), 400.0)
        })
        .collect();
    common::verdict(&calls, &[before, meanwhile].concat())
}

#[test]
fn calls_that_wait_for_each_other_are_the_clients() {
    let judged = among_requests_of(10.0);
    assert_eq!((judged.layer, judged.cause), (Layer::Client, Some(Cause::Requester)), "{judged:?}");
    assert!(judged.confidence >= 0.8, "{judged:?}");
    assert!(judged.because[1].contains("as fast as before"), "{judged:?}");
}

#[test]
fn calls_that_wait_for_each_others_slow_requests_name_nobody() {
    let judged = among_requests_of(50.0);
    assert_eq!(judged.layer, Layer::Unknown, "{judged:?}");
}

#[test]
fn calls_beside_requests_without_a_normal_name_nobody() {
    let requests = (0..100).map(|n| smb("SMB2_CREATE", 2_000.0 + 10.0 * f64::from(n), [0.0, 10.0, 0.0]));
    let requests: Vec<_> = requests.collect();
    let calls: Vec<_> = (0..10)
        .map(|n| Event {
            mount: requests[0].mount,
            duration: 400 * MS,
            ..syscall("write", 2_000.0 + f64::from(n), 400.0)
        })
        .collect();
    assert_eq!(common::verdict(&calls, &requests).layer, Layer::Unknown);
}
