//! What this host serves to others: its own verdicts, and no part of the verdicts about what this host asks for.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{judge, smb, syscall};
use model::{Cause, Detail, Event, Layer, Level, MountKey, Protocol, Served};
use plumbline_diagnose::{changed, long_term::LongTerm};

static SERVER: Protocol =
    Protocol { name: "server", operations: &["READ", "WRITE"], level: Level::Served, ..Protocol::BY_ERRNO };

/// A write of one of several clients; waiting for a thread, execution, sending.
fn served(start: f64, client: u32, phases: [f64; 3]) -> Event {
    let detail = Detail::Served(Served { xid: start as u32, client: Served::address(client) });
    let mut event = Event { operation: SERVER.operation("WRITE").unwrap(), detail, ..smb("SMB2_WRITE", start, phases) };
    (event.mount, event.connection) = (MountKey::device(8, 1), client.into());
    event
}

fn before() -> Vec<Event> {
    (0..40_u32).map(|n| served(f64::from(n) * 2.0, n % 3, [0.01, 1.0, 0.02])).collect()
}

#[test]
fn a_slow_disk_and_too_few_threads_are_told_apart() {
    let slow = |phases| (0..6).map(|n| served(200.0, n, phases)).collect::<Vec<_>>();
    let disk = judge("latency", &slow([0.1, 150.0, 0.1]), &before());
    assert_eq!((disk.layer, disk.cause), (Layer::Server, Some(Cause::SlowExecution)), "{:?}", disk.because);
    assert!(disk.because.join(" ").contains("of 6 clients"), "{:?}", disk.because);
    let threads = judge("latency", &slow([150.0, 1.0, 0.1]), &before());
    assert_eq!((threads.layer, threads.cause), (Layer::Server, Some(Cause::NoThread)), "{:?}", threads.because);
    let taken_late = judge("latency", &slow([0.1, 1.0, 150.0]), &before());
    assert_eq!(taken_late.layer, Layer::Unknown, "neither the path nor a client is accused from here");
}

#[test]
fn failures_that_this_host_answered_accuse_nobody() {
    let mut failed = served(100.0, 1, [0.0, 1.0, 0.0]);
    (failed.flags.failed, failed.errno) = (true, 28);
    let verdict = judge("error", &[failed], &[]);
    assert_eq!(verdict.layer, Layer::Unknown);
    assert!(verdict.because.join(" ").contains("answered 1 request"), "{:?}", verdict.because);
}

#[test]
fn what_is_served_changes_no_verdict_about_what_is_asked_for() {
    let fast: Vec<_> = (0..50_u32).map(|n| smb("SMB2_WRITE", f64::from(n) * 2.0, [0.0, 1.0, 0.0])).collect();
    let slow: Vec<_> = (0..8_u32).map(|n| smb("SMB2_WRITE", 200.0 + f64::from(n), [0.0, 400.0, 0.0])).collect();
    let with: Vec<_> =
        fast.iter().cloned().chain((0..50).map(|n| served(150.0 + f64::from(n), 1, [300.0, 300.0, 0.0]))).collect();
    assert_eq!(judge("latency", &slow, &fast), judge("latency", &slow, &with));
    let calls: Vec<_> = (0..8_u32).map(|n| syscall("write", 200.0 + f64::from(n), 400.0)).collect();
    assert_eq!(judge("latency", &calls, &fast), judge("latency", &calls, &with));
}

#[test]
fn what_changed_is_told_by_client_not_by_thread() {
    let slow: Vec<_> = (0..6).map(|n| served(200.0 + f64::from(n), 0x0a01_0001, [0.1, 150.0, 0.1])).collect();
    let between = (slow.first().unwrap().start, slow.last().unwrap().end());
    let listed = changed(between, &slow, &before(), &LongTerm::default(), false);
    assert_eq!(listed.iter().map(|group| &*group.by).collect::<Vec<_>>(), ["client", "operation"]);
    assert!(listed.first().is_some_and(|client| client.name.starts_with("10.1.0.1: WRITE")), "{listed:?}");
}
