//! Requests to the daemons of a Ceph cluster: the verdict names the daemon, and what is known of it.
#![allow(clippy::expect_used, reason = "only tests use it")]

mod common;

use common::{MS, judge, smb, verdict};
use model::{
    Cause, CephDaemon, CephRequest, CephState, Detail, Event, Flags, Layer, Level, MountKey, Network, Protocol,
    SendTiming,
};
use plumbline_diagnose::{error, stall};

static CEPH: Protocol = Protocol {
    name: "ceph",
    operations: &["CAPS_WAIT", "MDS_CREATE", "OSD_WRITE"],
    level: Level::Request,
    ..Protocol::BY_ERRNO
};

const MDS: u64 = 1 << 20 | 1 << 19 | 1;
const OSD: u64 = 1 << 20 | 4;

/// A request that took so many milliseconds, of an event (not the flight recorder).
fn request(name: &str, start: u64, took: f64) -> Event {
    let daemon = if name.starts_with("OSD_") { CephDaemon::Osd(3) } else { CephDaemon::Mds(0) };
    let address = "10.0.0.1:6801".parse().ok();
    Event {
        operation: CEPH.operation(name).expect("an operation of the test protocol"),
        mount: MountKey::device(0, 52),
        connection: if name.starts_with("OSD_") { OSD } else { MDS },
        detail: Detail::Ceph(CephRequest { tid: start, daemon, address, ..CephRequest::default() }),
        network: Network { srtt_us: 300, rtt_us: 300, min_rtt_us: 250, known: true, ..Network::default() },
        ..smb("SMB2_READ", start as f64, [0.0, took, 0.0])
    }
}

/// As the flight recorder has it.
fn recorded(name: &str, start: u64, took: f64) -> Event {
    Event { detail: Detail::Ceph(CephRequest::default()), ..request(name, start, took) }
}

#[test]
fn a_slow_metadata_server_is_named_with_what_the_osds_answered_meanwhile() {
    let before = (0..100).flat_map(|n| [recorded("MDS_CREATE", n * 50, 2.0), recorded("OSD_WRITE", n * 50 + 20, 1.0)]);
    let slow: Vec<_> = (0..20).map(|n| request("MDS_CREATE", 6_000 + n * 300, 250.0)).collect();
    let meanwhile = (0..50).map(|n| recorded("OSD_WRITE", 6_010 + n * 100, 1.0));
    let around: Vec<_> = before.chain(meanwhile).chain(slow.iter().cloned()).collect();
    let judged = verdict(&slow, &around);
    assert_eq!((judged.layer, judged.cause), (Layer::Server, Some(Cause::SlowServer)));
    let because = judged.because.join(" ");
    assert!(because.contains("The slow requests went to mds.0 (10.0.0.1:6801)."), "{because}");
    assert!(because.contains("Meanwhile osd.3 answered 50 requests in 1 ms on average."), "{because}");
}

#[test]
fn waits_for_capabilities_say_that_another_client_may_be_why() {
    let before: Vec<_> = (0..100).map(|n| recorded("CAPS_WAIT", n * 50, 2.0)).collect();
    let slow: Vec<_> = (0..20).map(|n| request("CAPS_WAIT", 6_000 + n * 300, 250.0)).collect();
    let around: Vec<_> = before.into_iter().chain(slow.iter().cloned()).collect();
    let because = verdict(&slow, &around).because.join(" ");
    assert!(because.contains("a client that holds one may be the reason"), "{because}");
}

/// A request in flight for ten seconds.
fn hangs(daemon: CephDaemon, state: Option<CephState>, send_timing: Option<SendTiming>) -> Event {
    Event {
        duration: 10_000 * MS,
        detail: Detail::Ceph(CephRequest { tid: 5, daemon, state, ..CephRequest::default() }),
        connection: if daemon == CephDaemon::Unknown { 0 } else { MDS },
        flags: Flags { in_flight: true, ..Flags::default() },
        send_timing,
        ..request("MDS_CREATE", 1_000, 0.0)
    }
}

#[test]
fn a_metadata_server_that_is_stopped_is_frozen_and_named() {
    let state = CephState { connected: true, sent: true, mds: 13, ..CephState::default() };
    let stalled = [hangs(CephDaemon::Mds(0), Some(state), Some(SendTiming::default()))];
    let judged = judge(stall::KIND, &stalled, &[]);
    assert_eq!((judged.layer, judged.cause), (Layer::Server, Some(Cause::Frozen)));
    assert!(judged.because.join(" ").contains("The oldest request went to mds.0."), "{:?}", judged.because);
}

#[test]
fn what_the_clusters_map_says_of_a_metadata_server_counts() {
    let of = |state| judge(stall::KIND, &[hangs(CephDaemon::Mds(0), Some(state), None)], &[]);
    let up = CephState { connected: true, sent: true, mds: 13, ..CephState::default() };
    let replays = of(CephState { mds: 8, ..up });
    assert_eq!(replays.cause, Some(Cause::Frozen));
    assert!(replays.because.join(" ").contains("mds.0 is not active yet (up:replay)"), "{:?}", replays.because);
    assert_eq!(of(CephState { laggy: true, ..up }).cause, Some(Cause::Frozen));
    assert_eq!(of(CephState { blocklisted: true, ..up }).cause, Some(Cause::SessionLost));
    assert_eq!(of(CephState { laggy: true, unacknowledged_ms: 9_000, ..up }).cause, None, "its host may be gone");
    let gone = of(CephState { connected: false, ..up });
    assert_eq!(gone.layer, Layer::Unknown);
    assert!(gone.because.join(" ").contains("There is no connection to mds.0 now"), "{:?}", gone.because);
}

#[test]
fn an_osd_that_refuses_a_client_says_that_the_cluster_has_shut_it_out() {
    let failed = |status, flags| {
        let event = Event { status, errno: status, flags, ..request("OSD_WRITE", 1_000, 1.0) };
        judge(error::KIND, &[event], &[])
    };
    let flags = Flags { failed: true, ..Flags::default() };
    let refused = failed(108, flags);
    assert_eq!((refused.layer, refused.cause), (Layer::Server, Some(Cause::SessionLost)));
    assert!(refused.because.join(" ").contains("The cluster has blocklisted this client"), "{:?}", refused.because);
    assert_eq!(failed(28, flags).cause, Some(Cause::Refused), "a pool that is full is another matter");
}

#[test]
fn a_request_that_was_sent_to_nobody_says_so() {
    let judged = judge(stall::KIND, &[hangs(CephDaemon::Unknown, None, None)], &[]);
    assert_eq!(judged.layer, Layer::Unknown);
    assert!(
        judged.because.join(" ").contains("The client has not sent the oldest request to a metadata server yet"),
        "{:?}",
        judged.because
    );
}
