//! The libcephfs proxy: the daemon's queue is this host's, what libcephfs takes is nobody's for certain.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::judge;
use common::{MS, smb};
use model::{Event, Layer, Level, MountKey, Phases, Protocol};

static CEPHPROXY: Protocol =
    Protocol { name: "cephproxy", operations: &["read", "write"], level: Level::Proxy, ..Protocol::BY_ERRNO };

/// A read by one of several processes, each of which has a connection of its own.
fn read(start: f64, connection: u64, phases: [f64; 3]) -> Event {
    let operation = CEPHPROXY.operation("read").unwrap();
    let mut event =
        Event { operation, mount: MountKey::source(b"/run/libcephfsd.sock"), ..smb("SMB2_READ", start, phases) };
    event.connection = connection;
    event
}

fn before() -> Vec<Event> {
    (0..50_u32).map(|n| read(f64::from(n), u64::from(n) % 5, [0.01, 0.5, 0.02])).collect()
}

#[test]
fn what_libcephfs_takes_is_blamed_on_nobody() {
    let slow: Vec<_> = (0..5).map(|n| read(100.0, n, [0.01, 300.0, 0.02])).collect();
    let verdict = judge("latency", &slow, &before());
    assert_eq!(verdict.layer, Layer::Unknown);
    let because = verdict.because.join(" ");
    assert!(
        because.contains("299 ms (100 %) in libcephfs") || because.contains("300 ms (100 %) in libcephfs"),
        "{because}"
    );
    assert!(because.contains("libcephfs waited for a metadata server, an OSD"), "{because}");
    assert_eq!((verdict.phases_ms.server, verdict.phases_ms.network), (None, None));
}

#[test]
fn the_daemons_own_queue_is_this_hosts() {
    let slow: Vec<_> = (0..5).map(|n| read(100.0, n, [300.0, 0.5, 0.02])).collect();
    let verdict = judge("latency", &slow, &before());
    assert_eq!(verdict.layer, Layer::Client, "{:?}", verdict.because);
}

#[test]
fn a_queue_behind_a_cluster_that_is_late_is_not() {
    let mut slow: Vec<_> = (0..4).map(|n| read(100.0, n, [0.01, 600.0, 0.02])).collect();
    slow.extend((4..12).map(|n| read(150.0, n, [540.0, 0.5, 0.02])));
    let verdict = judge("latency", &slow, &before());
    assert_eq!(verdict.layer, Layer::Unknown, "{:?}", verdict.because);
}

#[test]
fn a_hang_is_blamed_on_nobody_and_says_whether_the_daemon_answers_others() {
    let mut stalled = read(100.0, 1, [0.0; 3]);
    stalled.duration = 6_000 * MS;
    stalled.flags.in_flight = true;
    let said = |around: &[Event]| {
        let verdict = judge("stalled", &[stalled.clone()], around);
        assert_eq!(verdict.layer, Layer::Unknown);
        verdict.because.join(" ")
    };
    assert!(said(&[]).contains("this libcephfsd has answered no other request"));
    assert!(said(&[read(3_000.0, 2, [0.0, 1.0, 0.0])]).contains("1 other was answered by the same libcephfsd"));
}

#[test]
fn failures_that_no_daemon_served_are_this_hosts() {
    let mut failed = Event { errno: 5, phases: Phases::default(), ..read(100.0, 1, [0.0; 3]) };
    failed.flags.failed = true;
    assert_eq!(judge("error", &[failed.clone()], &[]).layer, Layer::Client);
    failed.phases = Phases { queue: 1, wire: 1, deliver: 1 };
    assert_eq!(judge("error", &[failed], &[]).layer, Layer::Unknown);
}
