//! Requests to a FUSE daemon, by what was seen of its threads and connections while they were under way.
#![allow(clippy::expect_used, reason = "only tests use it")]

mod common;

use std::sync::Arc;

use common::{MS, judge, smb, verdict};
use model::{
    Cause, DaemonConnection, DaemonLook, Detail, Event, Fuse, Layer, Level, MountKey, Network, Phases, Protocol,
    Verdict,
};
use plumbline_diagnose::stall;

static FUSE: Protocol =
    Protocol { name: "fuse", operations: &["READ", "WRITE"], level: Level::Daemon, ..Protocol::BY_ERRNO };

/// A request that took so many milliseconds. `look`: what was seen when it ended, of those that were under way then.
fn request(start: u64, took: u64, look: Option<DaemonLook>) -> Event {
    let look = look.map(|look| Arc::new(DaemonLook { at: (start + took) * MS, ..look }));
    Event {
        operation: FUSE.operation("READ").expect("an operation of the test protocol"),
        phases: Phases { queue: 0, wire: took * MS, deliver: 0 },
        mount: MountKey::source(b"sshfs"),
        detail: Detail::Fuse(Fuse { unique: start, daemon: 7, look, ..Fuse::default() }),
        connection: 0,
        network: Network::default(),
        ..smb("SMB2_READ", start as f64, [0.0, took as f64, 0.0])
    }
}

/// Pairs of requests of 200 ms; when the first of a pair ends, the second has been under way for 100 ms and is looked at.
fn looked_at(count: u64, look: impl Fn(u64) -> DaemonLook) -> Vec<Event> {
    let pair = |index: u64| [request(index * 1_000, 200, Some(look(index))), request(index * 1_000 + 100, 200, None)];
    (1..=count).flat_map(pair).collect()
}

/// An idle connection of a path of 0.3 ms.
const IDLE: DaemonConnection = DaemonConnection {
    pid: 8,
    peer: None,
    rtt_us: 300,
    min_rtt_us: 250,
    unacknowledged: 0,
    resending: 0,
    unsent: 0,
    unread: 0,
    resent: 0,
    needless: 0,
    out_of_order: 0,
    acks: None,
    received: 0,
    sent_ms: 60_000,
    received_ms: 60_000,
    acknowledged_ms: 60_000,
    own_queue: 0,
};

/// The request was sent 100 ms ago, and acknowledged 40 ms later.
const AWAITED: DaemonConnection =
    DaemonConnection { sent_ms: 100, acknowledged_ms: 60, received_ms: 2_000, received: 4_000, ..IDLE };

/// The request was sent 95 ms ago over a path of 200 ms.
const ON_ITS_WAY: DaemonConnection = DaemonConnection {
    rtt_us: 200_000,
    unacknowledged: 1,
    sent_ms: 95,
    acknowledged_ms: 101,
    received_ms: 101,
    ..IDLE
};

fn look(tcp: &[DaemonConnection]) -> DaemonLook {
    DaemonLook {
        since: 1_000 * MS,
        threads: 2,
        free: 1,
        helpers: 1,
        connections: tcp.len() as u32,
        other_sockets: 1,
        tcp: tcp.to_vec(),
        ..DaemonLook::default()
    }
}

fn of(events: &[Event]) -> Verdict {
    verdict(events, &[])
}

#[track_caller]
fn is(verdict: &Verdict, cause: Cause) {
    assert_eq!((verdict.cause, verdict.layer), (Some(cause), cause.layer()), "{verdict:#?}");
}

#[track_caller]
fn is_unknown(verdict: &Verdict) {
    assert_eq!((verdict.cause, verdict.layer), (None, Layer::Unknown), "{verdict:#?}");
}

#[test]
fn an_answer_that_does_not_come_though_all_is_acknowledged_is_the_server() {
    let verdict = of(&looked_at(5, |_| look(&[IDLE, AWAITED])));
    is(&verdict, Cause::SlowServer);
    assert!(
        verdict.because.iter().any(|said| said.contains("Of 5 looks") && said.contains(": in 5, ")),
        "{verdict:#?}"
    );
}

#[test]
fn a_lone_look_is_worth_less_than_several() {
    is_unknown(&of(&looked_at(1, |_| look(&[AWAITED]))));
    let confidence = |count| of(&looked_at(count, |_| look(&[AWAITED]))).confidence;
    assert!(confidence(2) >= 0.8 && confidence(3) > confidence(2) && confidence(6) > confidence(3));
}

#[test]
fn a_look_after_the_requests_says_nothing_of_their_server() {
    let events: Vec<_> = (1..6).map(|index| request(index * 1_000, 200, Some(look(&[AWAITED])))).collect();
    is_unknown(&of(&events));
}

#[test]
fn what_was_sent_before_the_request_is_not_what_it_waits_for() {
    let earlier = DaemonConnection { sent_ms: 700, acknowledged_ms: 660, received_ms: 2_000, ..IDLE };
    is_unknown(&of(&looked_at(5, |_| look(&[earlier]))));
}

#[test]
fn an_answer_of_the_same_tick_may_be_that_of_the_request() {
    let answered = DaemonConnection { sent_ms: 100, received_ms: 100, acknowledged_ms: 100, ..IDLE };
    let verdict = of(&looked_at(5, |_| look(&[answered])));
    is_unknown(&verdict);
    let causes: Vec<_> = verdict.alternatives.iter().map(|one| one.cause).collect();
    assert_eq!(causes, [Cause::SlowServer, Cause::FuseDaemon], "{verdict:#?}");
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { received_ms: 96, acknowledged_ms: 96, ..answered }]))));
    // Others that leave no doubt speak for them.
    let seldom = |index: u64| look(&[if index <= 3 { AWAITED } else { answered }]);
    is(&of(&looked_at(30, seldom)), Cause::SlowServer);
    let once = |index: u64| look(&[if index == 1 { AWAITED } else { answered }]);
    is_unknown(&of(&looked_at(30, once)));
    // A tick apart, it is older than what was sent.
    is(&of(&looked_at(5, |_| look(&[DaemonConnection { received_ms: 101, ..answered }]))), Cause::SlowServer);
    // An acknowledgement that came by itself is of a request that was not answered with it.
    let asked_again = DaemonConnection { acknowledged_ms: 56, ..answered };
    // An answer that this host did not acknowledge by itself was acknowledged by the request after it.
    let follows = DaemonConnection { acks: Some(0), ..answered };
    is(&of(&looked_at(5, |_| look(&[follows]))), Cause::SlowServer);
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { acks: Some(1), ..follows }]))));
    is(&of(&looked_at(5, |_| look(&[asked_again]))), Cause::SlowServer);
}

#[test]
fn the_answer_to_one_request_is_not_that_to_another_sent_with_it() {
    // The first of each pair ends at the look.
    let to_the_first = |ms| DaemonConnection { sent_ms: 100, received_ms: ms, acknowledged_ms: ms, ..IDLE };
    is(&of(&looked_at(5, |_| look(&[to_the_first(4)]))), Cause::SlowServer);
    // The daemon passes it on late: it may have that to the second, too.
    is_unknown(&of(&looked_at(5, |_| look(&[to_the_first(60)]))));
}

#[test]
fn what_requests_of_an_earlier_incident_waited_for_does_not_count() {
    let events = looked_at(10, |index| look(&[if index <= 5 { ON_ITS_WAY } else { AWAITED }]));
    let (earlier, slow) = events.split_at(10);
    let verdict = verdict(slow, earlier);
    is(&verdict, Cause::SlowServer);
    assert!(
        verdict.because.iter().any(|said| said.contains("Of 5 looks") && said.contains(": in 5, ")),
        "{verdict:#?}"
    );
}

#[test]
fn a_server_is_not_accused_over_a_path_that_became_longer() {
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { rtt_us: 90_000, ..AWAITED }]))));
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { rtt_us: 0, min_rtt_us: 0, ..AWAITED }]))));
}

#[test]
fn a_program_of_this_host_may_only_pass_requests_on() {
    let here = DaemonConnection { peer: "127.0.0.1:8080".parse().ok(), ..AWAITED };
    let verdict = of(&looked_at(5, |_| look(&[here])));
    is_unknown(&verdict);
    assert!(verdict.alternatives.iter().any(|one| one.cause == Cause::OwnProxy), "{verdict:#?}");
    let there = DaemonConnection { peer: "10.0.0.1:22".parse().ok(), ..AWAITED };
    is(&of(&looked_at(5, |_| look(&[here, there]))), Cause::SlowServer);
}

#[test]
fn a_round_trip_much_longer_than_the_least_is_the_network() {
    is(&of(&looked_at(5, |_| look(&[ON_ITS_WAY]))), Cause::LongerPath);
    is_unknown(&of(&looked_at(1, |_| look(&[ON_ITS_WAY]))));
}

#[test]
fn what_is_sent_again_before_tcp_knows_the_longer_path_is_no_loss() {
    let again = DaemonConnection { resending: 1, ..ON_ITS_WAY };
    is(&of(&looked_at(6, |index| look(&[if index == 1 { again } else { ON_ITS_WAY }]))), Cause::LongerPath);
    is_unknown(&of(&looked_at(6, |index| look(&[if index <= 2 { again } else { ON_ITS_WAY }]))));
}

#[test]
fn a_path_that_may_always_have_been_long_is_no_longer_path() {
    let verdict = of(&looked_at(5, |_| look(&[DaemonConnection { min_rtt_us: 199_000, ..ON_ITS_WAY }])));
    is_unknown(&verdict);
    assert_eq!(verdict.alternatives[0].cause, Cause::LongerPath);
    // Nor does a short one explain what is not acknowledged.
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { rtt_us: 300, ..ON_ITS_WAY }]))));
}

#[test]
fn what_waits_in_a_queue_of_this_host_is_no_longer_path() {
    let held = DaemonConnection { own_queue: 7, ..ON_ITS_WAY };
    let verdict = of(&looked_at(5, |_| look(&[IDLE, held])));
    is(&verdict, Cause::OwnQueue);
    assert!(verdict.because.iter().any(|said| said.contains("At 5 of these looks")), "{verdict:#?}");
    let seldom = |index| if index % 2 == 0 { held } else { ON_ITS_WAY };
    is(&of(&looked_at(5, |index| look(&[seldom(index)]))), Cause::LongerPath);
}

#[test]
fn segments_sent_again_with_answers_between_are_loss() {
    let lost = DaemonConnection { resending: 1, unacknowledged: 1, resent: 2, received: 9_000, ..AWAITED };
    is(&of(&looked_at(5, |_| look(&[lost]))), Cause::Loss);
    is_unknown(&of(&looked_at(2, |_| look(&[lost]))));
    // The peer had them already: perhaps it is the answer that gets lost.
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { needless: 2, ..lost }]))));
    is_unknown(&of(&looked_at(5, |_| look(&[DaemonConnection { resent: 1, needless: 1, ..AWAITED }]))));
    let silent = DaemonConnection { received: 0, acknowledged_ms: 4_000, ..lost };
    let verdict = of(&looked_at(5, |_| look(&[silent])));
    is_unknown(&verdict);
    let causes: Vec<_> = verdict.alternatives.iter().map(|one| one.cause).collect();
    assert!(causes.contains(&Cause::NoPath) && causes.contains(&Cause::HostGone), "{verdict:#?}");
}

#[test]
fn a_path_that_loses_answers_is_no_slow_server() {
    // Segments out of order show it; few of them do not.
    is(&of(&looked_at(5, |_| look(&[DaemonConnection { out_of_order: 2, ..AWAITED }]))), Cause::Loss);
    let once = |index: u64| look(&[DaemonConnection { out_of_order: u32::from(index == 1) * 2, ..AWAITED }]);
    is_unknown(&of(&looked_at(5, once)));
    // If no segment follows the one that is lost, nothing shows it, but requests that are as fast as ever.
    let fast: Vec<_> = (1_000..7_000).step_by(100).map(|start| request(start, 1, None)).collect();
    is_unknown(&verdict(&looked_at(5, |_| look(&[AWAITED])), &fast));
}

#[test]
fn an_answer_that_lies_in_the_socket_is_the_daemon() {
    let unread = DaemonConnection { unread: 4_096, received_ms: 50, acknowledged_ms: 50, ..AWAITED };
    is(&of(&looked_at(5, |_| look(&[unread]))), Cause::FuseDaemon);
    is_unknown(&of(&looked_at(1, |_| look(&[unread]))));
    // Another connection waits for its server.
    is(&of(&looked_at(5, |_| look(&[unread, AWAITED]))), Cause::SlowServer);
    let starved = DaemonLook { no_cpu: 800 * MS, ..look(&[unread]) };
    is(&of(&looked_at(5, |_| starved.clone())), Cause::NoCpu);
    // It also stops in the middle of sending a request.
    let cut_short = DaemonLook { no_cpu: 800 * MS, ..look(&[AWAITED]) };
    is(&of(&looked_at(6, |index| if index % 2 == 0 { starved.clone() } else { cut_short.clone() })), Cause::NoCpu);
    is_unknown(&of(&looked_at(6, |index| look(&[if index % 2 == 0 { unread } else { AWAITED }]))));
}

#[test]
fn a_daemon_that_has_sent_nothing_is_to_blame_if_it_runs() {
    is_unknown(&of(&looked_at(5, |_| look(&[IDLE]))));
    is(&of(&looked_at(5, |_| DaemonLook { running: 1, ..look(&[IDLE]) })), Cause::FuseDaemon);
    is(&of(&looked_at(5, |_| DaemonLook { no_cpu: 800 * MS, ..look(&[IDLE]) })), Cause::NoCpu);
}

#[test]
fn a_daemon_or_helper_that_is_stopped_is_the_cause() {
    is(&of(&looked_at(5, |_| DaemonLook { stopped: 2, ..look(&[AWAITED]) })), Cause::FuseDaemon);
    is(&of(&looked_at(5, |_| DaemonLook { stopped_helpers: 1, ..look(&[AWAITED]) })), Cause::FuseDaemon);
    let sometimes = |index: u64| DaemonLook { stopped_helpers: (index % 2) as u32, ..look(&[IDLE]) };
    is_unknown(&of(&looked_at(6, sometimes)));
}

#[test]
fn what_a_daemon_did_before_the_request_does_not_count() {
    let stopped = || DaemonLook { stopped: 2, ..look(&[IDLE]) };
    let mut hung = request(5_000, 3_000, Some(stopped()));
    hung.flags.in_flight = true;
    let before = looked_at(3, |_| look(&[IDLE]));
    is(&judge(stall::KIND, std::slice::from_ref(&hung), &before), Cause::FuseDaemon);
    // It had gone on, and the request returned, before the next look.
    let returned = [request(5_500, 2_690, Some(look(&[AWAITED])))];
    is(&judge(stall::KIND, std::slice::from_ref(&hung), &returned), Cause::FuseDaemon);
    let meanwhile = [request(6_000, 100, Some(look(&[IDLE])))];
    is_unknown(&judge(stall::KIND, &[hung], &meanwhile));
}

#[test]
fn a_daemon_between_two_connections_is_not_one_without() {
    let without = DaemonLook { threads: 1, ..DaemonLook::default() };
    let mut hung = request(5_000, 3_000, Some(without));
    hung.flags.in_flight = true;
    is(&judge(stall::KIND, std::slice::from_ref(&hung), &[]), Cause::FuseDaemon);
    is_unknown(&judge(stall::KIND, &[hung], &looked_at(3, |_| look(&[IDLE]))));
}

#[test]
fn looks_that_do_not_agree_accuse_nobody() {
    let either = |index: u64| look(&[if index.is_multiple_of(2) { AWAITED } else { ON_ITS_WAY }]);
    is_unknown(&of(&looked_at(6, either)));
}

#[test]
fn looks_of_old_recordings_tell_nothing_of_connections() {
    is_unknown(&of(&looked_at(5, |_| DaemonLook { tcp: Vec::new(), ..look(&[AWAITED]) })));
    let without = DaemonLook { threads: 1, ..DaemonLook::default() };
    is(&of(&looked_at(5, |_| without.clone())), Cause::FuseDaemon);
}

#[test]
fn a_request_that_has_not_returned_is_judged_by_one_look_at_a_long_wait() {
    let waits = |ms: u32| {
        let one = DaemonConnection { sent_ms: ms, acknowledged_ms: ms - 40, received_ms: ms + 900, ..IDLE };
        let mut event = request(1_000, u64::from(ms) + 1, Some(look(&[one])));
        event.flags.in_flight = true;
        event
    };
    is(&judge(stall::KIND, &[waits(3_000)], &[]), Cause::Frozen);
    is_unknown(&judge(stall::KIND, &[waits(500)], &[]));
    // Others are answered.
    is_unknown(&judge(stall::KIND, &[waits(3_000)], &[request(2_000, 10, None)]));
}
