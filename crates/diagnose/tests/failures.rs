//! Failures and operations that do not return: what counts, when it is an anomaly, and who is to blame.

mod common;

use std::time::Duration;

use common::{MS, REPEATED, judge, operation, smb, syscall};
use model::{Alternative, Cause, Code, Event, Layer, MountKey, SendTiming};
use plumbline_diagnose::{
    Detector, EpisodeChange, Meanwhile, RuleState, Window,
    error::{Codes, ErrorRule},
    long_term::LongTerm,
    rule::Subject,
    stall::StallRule,
};

const SECOND: u64 = 1_000 * MS;
const DISK_FULL: u32 = 0xC000_007F;
const EIO: u32 = 5;

fn failed(status: u32, errno: u32) -> Event {
    let mut event = Event { status, errno, ..smb("SMB2_WRITE", 0.0, [0.0, 1.0, 0.0]) };
    event.flags.failed = true;
    event
}

fn rule(codes: Codes, percent: Option<f64>) -> ErrorRule {
    ErrorRule {
        subject: Subject { name: "smb_errors".into(), protocol: operation("SMB2_WRITE").protocol() },
        operations: [operation("SMB2_WRITE")].into(),
        codes,
        acceptable_count: 3,
        acceptable_percent: percent,
    }
}

fn window(events: &[Event]) -> Window {
    let mut window = Window::new(0);
    events.iter().for_each(|event| window.push(event));
    window
}

#[test]
fn only_failures_with_a_code_that_is_asked_for_count() {
    let any = rule(Codes::AllBut([Code::Errno(EIO)].into()), None);
    let one = rule(Codes::Only([Code::Status(DISK_FULL)].into()), None);
    let cases = [(failed(DISK_FULL, 28), true, true), (failed(1, EIO), false, false), (failed(1, 13), true, false)];
    for (event, by_any, by_one) in cases {
        assert_eq!(
            (any.counts(&event, &LongTerm::default()), one.counts(&event, &LongTerm::default())),
            (by_any, by_one),
            "{event:?}"
        );
    }
    let none = LongTerm::default();
    assert!(!any.counts(&smb("SMB2_WRITE", 0.0, [0.0, 1.0, 0.0]), &none), "no failure");
    assert!(!any.counts(&Event { operation: operation("SMB2_READ"), ..failed(1, 13) }, &none), "another operation");
}

#[test]
fn three_failures_are_an_anomaly_and_two_are_none() {
    let rule = rule(Codes::AllBut([].into()), None);
    let failures = vec![failed(DISK_FULL, 28); 3];
    assert_eq!(rule.detect(&window(&failures[..2])), None);
    let anomaly = rule.detect(&window(&failures)).unwrap();
    assert_eq!((anomaly.kind.as_ref(), anomaly.limit.as_str()), ("error", "3 failures"));
    assert_eq!(anomaly.observed, "3 failures (3 SMB2_WRITE 0xc000007f (ENOSPC))");
}

#[test]
fn a_share_of_all_operations_is_asked_for_beside_the_number() {
    let rule = rule(Codes::AllBut([].into()), Some(10.0));
    assert_eq!(rule.histograms_needed().map(|all| all.len()), Some(1));
    let mut window = window(&vec![failed(DISK_FULL, 28); 3]);
    window.finished = 31;
    assert_eq!(rule.detect(&window), None, "less than a tenth");
    window.finished = 30;
    assert_eq!(
        rule.detect(&window).unwrap().observed,
        "3 failures of 30 operations (3 SMB2_WRITE 0xc000007f (ENOSPC))"
    );
}

#[test]
fn what_the_server_has_answered_is_its_own_and_what_it_has_not_is_nobodys() {
    let mut lost = failed(0, 0);
    lost.flags.unanswered = true;
    let answered = judge("error", &[failed(DISK_FULL, 28), failed(DISK_FULL, 28), lost.clone()], &[]);
    assert_eq!(answered.layer, Layer::Unknown);
    let [Alternative { cause: Cause::Refused, confidence, .. }, _] = answered.alternatives[..] else {
        panic!("{answered:?}")
    };
    assert_eq!(confidence, 0.63);
    let all = judge("error", &[failed(DISK_FULL, 28), failed(DISK_FULL, 28)], &[]);
    assert_eq!((all.layer, all.cause, all.confidence), (Layer::Server, Some(Cause::Refused), 0.95));
    assert_eq!(judge("error", &[failed(DISK_FULL, 28), lost], &[]).layer, Layer::Unknown);
}

#[test]
fn a_server_does_not_refuse_what_was_sent_again_for_want_of_a_connection() {
    let repeated = judge("error", &[failed(REPEATED, EIO), failed(REPEATED, EIO), failed(REPEATED, EIO)], &[]);
    assert_eq!((repeated.layer, repeated.cause), (Layer::Unknown, None), "{repeated:?}");
    let most = judge("error", &[failed(DISK_FULL, 28), failed(DISK_FULL, 28), failed(REPEATED, EIO)], &[]);
    assert_eq!(most.cause, Some(Cause::Refused));
}

#[test]
fn calls_are_judged_by_the_requests_that_ended_if_these_took_longer_than_those_in_flight() {
    let calls: Vec<_> = (1..6).map(|n| syscall("read", f64::from(n) * 1_000.0, 500.0)).collect();
    let before = (0..20).map(|n| smb("SMB2_READ", 40.0 * f64::from(n), [0.0, 1.0, 0.0]));
    let ended = (1..6).map(|n| smb("SMB2_READ", f64::from(n) * 1_000.0, [0.0, 499.0, 0.0]));
    let mut waiting = in_flight(5_000 * MS, 5_400 * MS);
    waiting.send_timing = Some(SendTiming { sends: 1, most: MS, ..SendTiming::default() });
    let around: Vec<_> = before.chain(ended).chain([waiting.clone()]).collect();
    let judged = judge("latency", &calls, &around);
    assert_ne!(judged.cause, Some(Cause::Frozen), "{judged:?}");
    let alone = judge("latency", &calls[4..], &[waiting]);
    assert_eq!(alone.cause, Some(Cause::Frozen), "{alone:?}");
}

#[test]
fn failed_calls_are_judged_by_the_requests_that_failed_before() {
    let call = |start: f64, errno| {
        let mut call = Event { errno, ..syscall("write", start, 2.0) };
        call.flags.failed = true;
        call
    };
    let request = |start: f64, errno| {
        let mut request = Event { errno, status: DISK_FULL, ..smb("SMB2_WRITE", start, [0.0, 1.0, 0.0]) };
        request.flags.failed = true;
        request
    };
    let calls = [call(100.0, 28), call(200.0, 28), call(300.0, 28)];
    // The third call is told what the client remembers.
    let refused = judge("error", &calls, &[request(100.5, 28), request(200.5, 28)]);
    assert_eq!((refused.layer, refused.cause, refused.confidence), (Layer::Server, Some(Cause::Refused), 0.95));
    let cases: [(&str, Vec<Event>); 5] = [
        ("nothing failed", vec![smb("SMB2_WRITE", 100.5, [0.0, 1.0, 0.0])]),
        ("with another error", vec![request(100.5, 13)]),
        ("only afterwards", vec![request(303.0, 28)]),
        ("before one of three", vec![request(300.5, 28)]),
        ("long ago", vec![request(0.0, 28)]),
    ];
    for (what, around) in cases {
        let late = |call: &Event| Event {
            start: call.start + if what == "long ago" { 120 * SECOND } else { 0 },
            ..call.clone()
        };
        let calls: Vec<_> = calls.iter().map(late).collect();
        assert_eq!(judge("error", &calls, &around).layer, Layer::Unknown, "{what}");
    }
}

fn stalls() -> StallRule {
    StallRule {
        subject: Subject { name: "smb_stalled".into(), protocol: operation("SMB2_WRITE").protocol() },
        operations: [operation("SMB2_WRITE")].into(),
        limit: Duration::from_secs(5),
    }
}

fn in_flight(start: u64, now: u64) -> Event {
    let mut event = Event { start, duration: now - start, ..smb("SMB2_WRITE", 0.0, [0.0, 0.0, 0.0]) };
    event.flags.in_flight = true;
    event
}

#[test]
fn one_operation_that_is_seen_again_and_again_is_one_incident_that_grows() {
    let mut watch = RuleState::new(Box::new(stalls()), Duration::from_secs(10), 0);
    let (mut sequence, mut seen) = (0, Vec::new());
    for second in 1..=30 {
        if second < 20 {
            watch.see(&in_flight(SECOND, second * SECOND), &LongTerm::default());
        }
        for change in watch.close(second * SECOND, 0, &Meanwhile::default(), &mut sequence) {
            let word = match &change {
                EpisodeChange::Opened(_) => "opened",
                EpisodeChange::Updated(_) => "updated",
                EpisodeChange::Closed(_) => "closed",
            };
            let episode = change.episode();
            seen.push((second, word, episode.window.count(), episode.anomaly.observed.clone()));
        }
    }
    let words = |age: u64| format!("1 operation in flight, the oldest for {age} s (SMB2_WRITE)");
    assert_eq!(seen.first(), Some(&(6, "opened", 1, words(5))));
    assert_eq!(seen.last(), Some(&(29, "closed", 1, words(18))));
    assert!(seen.iter().all(|(_, _, count, _)| *count == 1) && seen.len() > 3, "{seen:?}");
}

#[test]
fn of_a_silent_server_the_stamps_say_whether_it_has_the_request() {
    let stamped = |unacknowledged| {
        let mut event = in_flight(SECOND, 10 * SECOND);
        event.send_timing = Some(SendTiming { sends: 1, most: MS, unacknowledged, ..SendTiming::default() });
        judge("stalled", &[event], &[])
    };
    let (arrived, lost) = (stamped(0), stamped(9 * SECOND));
    assert_eq!((arrived.layer, lost.layer), (Layer::Server, Layer::Unknown));
    assert!(arrived.because.join(" ").contains("acknowledged, the last after 1 ms"), "{:?}", arrived.because);
    let mut event = in_flight(SECOND, 10 * SECOND);
    event.send_timing = Some(SendTiming { sends: 1, most: MS, ..SendTiming::default() });
    event.flags.passed_on = true;
    let verdict = judge("stalled", &[event], &[]);
    assert_eq!(verdict.layer, Layer::Unknown, "a proxy of this host has the request, or the server");
    assert!(verdict.alternatives.iter().any(|other| other.cause == Cause::OwnProxy), "{verdict:?}");
    assert!(lost.because.join(" ").contains("not been acknowledged for 9 s"), "{:?}", lost.because);
}

#[test]
fn where_nothing_is_stamped_tcp_says_whether_a_silent_server_has_the_request_and_whether_its_answer_was_lost() {
    let judged = |unacknowledged, gap| {
        let mut event = in_flight(SECOND, 10 * SECOND);
        event.send_timing = Some(SendTiming { unacknowledged, gap, ..SendTiming::default() });
        judge("stalled", &[event], &[])
    };
    let (arrived, lost, answered) = (judged(0, false), judged(9 * SECOND, false), judged(0, true));
    assert_eq!((arrived.layer, lost.layer, answered.layer), (Layer::Server, Layer::Unknown, Layer::Network));
    assert!(arrived.because.join(" ").contains("was acknowledged: the server's host"), "{:?}", arrived.because);
    assert!(answered.because.join(" ").contains("an earlier part is missing"), "{:?}", answered.because);
}

#[test]
fn a_call_that_was_killed_is_judged_by_the_request_that_still_waits() {
    let mut request = in_flight(SECOND, 10 * SECOND);
    request.send_timing = Some(SendTiming::default());
    let call = Event { mount: request.mount, ..syscall("write", 1_000.0, 8_900.0) };
    let judged = judge("latency", std::slice::from_ref(&call), &[request]);
    assert_eq!((judged.layer, judged.cause), (Layer::Server, Some(Cause::Frozen)), "{:?}", judged.because);
    assert_ne!(judge("latency", &[call], &[]).layer, Layer::Server);
}

#[test]
fn a_server_that_answers_others_meanwhile_is_to_blame_and_a_silent_one_may_be() {
    let stalled = [in_flight(SECOND, 10 * SECOND)];
    assert_eq!(judge("stalled", &stalled, &[]).layer, Layer::Unknown);
    let other = |start: u64| Event { start, duration: MS, ..smb("SMB2_READ", 0.0, [0.0, 1.0, 0.0]) };
    assert_eq!(judge("stalled", &stalled, &[other(9 * SECOND)]).layer, Layer::Server);
    assert_eq!(judge("stalled", &stalled, &[other(2 * SECOND)]).layer, Layer::Unknown, "silent since");
    assert_eq!(judge("stalled", &stalled, &[other(0)]).layer, Layer::Unknown, "asked before");
    let late = Event { duration: 2 * SECOND, ..smb("SMB2_READ", 9_000.0, [0.0, 2_000.0, 0.0]) };
    assert_eq!(judge("stalled", &stalled, &[late]).layer, Layer::Unknown, "answered after the look");
    // Which connection it will be answered over is not known: its mount is.
    let mut unknown = stalled.clone();
    unknown[0].connection = 0;
    assert_eq!(judge("stalled", &unknown, &[other(9 * SECOND)]).layer, Layer::Server);
    let elsewhere = Event { mount: MountKey(99), ..other(9 * SECOND) };
    assert_eq!(judge("stalled", &unknown, &[elsewhere]).layer, Layer::Unknown, "another mount");
}

#[test]
fn what_does_not_return_while_answers_are_delivered_late_is_not_held_against_the_server() {
    let stalled = [in_flight(SECOND, 10 * SECOND)];
    let healthy = (0..100).map(|index| smb("SMB2_READ", f64::from(index) * 10.0, [0.0, 1.0, 0.1]));
    let late = |[wire, deliver]: [f64; 2]| {
        let others = (0..10).map(|index| smb("SMB2_READ", 1_100.0 + f64::from(index) * 800.0, [0.0, wire, deliver]));
        judge("stalled", &stalled, &healthy.clone().chain(others).collect::<Vec<_>>())
    };
    let (here, there) = (late([1.0, 400.0]), late([400.0, 0.1]));
    assert_eq!((here.layer, here.cause), (Layer::Client, Some(Cause::Delivery)), "{:?}", here.because);
    assert!(here.because.join(" ").contains("10 others that were answered meanwhile took 100 ms or more"));
    assert_eq!((there.layer, there.cause), (Layer::Server, Some(Cause::SlowOperation)), "{:?}", there.because);
}

#[test]
fn a_permission_that_only_some_processes_lack_accuses_nobody() {
    let of = |pid, event: Event| Event { requester: model::Requester { pid, ..event.requester }, ..event };
    let denied: Vec<_> = (0..6).map(|_| of(9, failed(1, 13))).collect();
    let others: Vec<_> = (0..6).map(|_| of(8, smb("SMB2_READ", 0.5, [0.0, 1.0, 0.0]))).collect();
    let verdict = judge("error", &denied, &others);
    assert_eq!(verdict.layer, Layer::Unknown, "{:?}", verdict.because);
    // Those who were allowed to before have lost a permission; and so has everybody if nobody is served.
    let before = [others.clone(), vec![of(9, smb("SMB2_WRITE", 0.0, [0.0, 0.1, 0.0]))]].concat();
    for around in [before, denied.clone(), Vec::new()] {
        let verdict = judge("error", &denied, &around);
        assert_eq!((verdict.layer, verdict.cause), (Layer::Server, Some(Cause::Refused)), "{:?}", verdict.because);
    }
    let full: Vec<_> = (0..6).map(|_| of(9, failed(DISK_FULL, 28))).collect();
    assert_eq!(judge("error", &full, &others).layer, Layer::Server);
}
