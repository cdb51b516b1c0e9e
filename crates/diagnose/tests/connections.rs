//! Connections that break or starve: when that is an anomaly, and whose fault it is.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{
    MS,
    connections::{
        CONNECTIONS, FILTER, RECEIVED, REFUSED, ROUTE, WITH_ACK, answers, arrived, happening, held, kind, reads,
        unanswered, verdict,
    },
    judge, smb,
};
use model::{Cause, Connection, Detail, Event, Layer, MountKey, Network, Progress, SocketTotals, Verdict, text::Text};
use plumbline_diagnose::{
    Episode, EpisodeChange, Meanwhile, RuleState,
    connection::ConnectionRule,
    judge_delayed,
    long_term::LongTerm,
    rule::{Rule, Subject},
};

fn lost_in(state: u32) -> Event {
    Event { status: state, ..happening("CONNECTION_LOST", 1.0, 0) }
}

/// Each of these at 20 ms from the one before, from 1.1 s on.
fn dropped(name: &str, status: u32, count: u32) -> Vec<Event> {
    (0..count).map(|n| Event { status, ..happening(name, 1100.0 + 20.0 * f64::from(n), 0) }).collect()
}

/// A rule with these counts, at work.
fn watch(counts: &[(&str, u32)], loss_percent: f64) -> RuleState {
    let counts = counts.iter().map(|(name, count)| (kind(name), *count)).collect();
    let rule = ConnectionRule { subject: Subject { name: "r".into(), protocol: &CONNECTIONS }, counts, loss_percent };
    RuleState::new(rule.detector(), Duration::from_secs(60), 0)
}

fn changes(events: &[Event]) -> Vec<EpisodeChange> {
    let mut watch = watch(&[("CONNECTION_LOST", 1), ("TCP_RETRANSMIT", 5)], 0.5);
    events.iter().for_each(|event| watch.see(event, &LongTerm::default()));
    watch.close(1000 * MS, 0, &Meanwhile::default(), &mut 0)
}

#[test]
fn each_kind_has_a_count_of_its_own() {
    let retransmissions = |count| vec![happening("TCP_RETRANSMIT", 1.0, 0); count];
    assert!(changes(&retransmissions(4)).is_empty());
    assert!(changes(&[happening("TCP_RESET", 1.0, 0)]).is_empty(), "a kind that is not in the rule does not count");
    let [EpisodeChange::Opened(episode)] = &changes(&retransmissions(5))[..] else { panic!() };
    assert_eq!(episode.anomaly.observed, "5 TCP_RETRANSMIT");
    assert_eq!(episode.anomaly.limit, "5 TCP_RETRANSMIT");
    let mixed = [retransmissions(2), vec![happening("CONNECTION_LOST", 1.0, 0)]].concat();
    let [EpisodeChange::Opened(episode)] = &changes(&mixed)[..] else { panic!() };
    assert_eq!(episode.anomaly.observed, "1 CONNECTION_LOST, 2 TCP_RETRANSMIT");
    assert_eq!((episode.anomaly.kind.as_ref(), episode.anomaly.probe.as_ref()), ("connection", "connections"));
}

#[test]
fn what_the_server_did_itself_is_its_own() {
    let forgotten = vec![happening("TCP_RESET", 1.0, 0), happening("SESSION_LOST", 2.0, 0)];
    for events in [forgotten, vec![lost_in(8)], vec![happening("TCP_ZERO_WINDOW", 1.0, 0)]] {
        let verdict = verdict(&events, &[]);
        assert_eq!(verdict.layer, Layer::Server, "{verdict:?}");
        assert!(verdict.confidence >= 0.7 && verdict.because.iter().all(|why| why.ends_with('.')), "{verdict:?}");
    }
    let mut passed_on = lost_in(8);
    passed_on.flags.passed_on = true;
    let verdict = verdict(&[passed_on], &[]);
    assert_eq!(verdict.layer, Layer::Unknown, "the connection ends at a proxy of this host: {verdict:?}");
}

#[test]
fn a_reset_from_another_distance_than_the_servers_segments_is_the_paths() {
    let with_ack = |reset: Event| Event { status: WITH_ACK, ..reset };
    let judged = |resets: &[Event], around: &[Event]| {
        let verdict = verdict(resets, around);
        (verdict.layer, verdict.cause)
    };
    let path = (Layer::Network, Some(Cause::PathReset));
    let server = (Layer::Server, Some(Cause::Closed));
    let nobody = (Layer::Unknown, None);
    let again = |ttl| [arrived("TCP_CONNECTED", 30.0, ttl, 0)];
    let near = arrived("TCP_RESET", 1.0, 64, 63);
    assert_eq!(judged(std::slice::from_ref(&near), &[]), path, "by the connection that was reset");
    assert_eq!(judged(&[near.clone(), arrived("TCP_RESET", 2.0, 64, 0)], &again(63)), path, "by the next one");
    assert_eq!(judged(&[near.clone(), lost_in(8)], &again(63)), nobody, "the server closed one, too");
    let forgotten = happening("SESSION_LOST", 2.0, 0);
    assert_eq!(judged(&[near.clone(), forgotten], &again(63)), nobody, "the server may have been told by a reset, too");
    let refused = |at, ttl| Event { status: REFUSED, ..arrived("TCP_RESET", at, ttl, 0) };
    assert_eq!(judged(&[refused(2.0, 64)], &again(63)), nobody, "perhaps who translates the server's address");
    assert_eq!(judged(&[refused(2.0, 63)], &again(63)), nobody, "a new connection has nothing to acknowledge");
    assert_eq!(judged(&[near.clone(), refused(2.0, 63)], &again(63)), path, "refusals tell less");
    let failed_over = arrived("TCP_RESET", 1.0, 63, 63);
    assert_eq!(judged(&[with_ack(failed_over)], &again(62)), server, "the path has changed since");
    assert_eq!(judged(&[near.clone(), with_ack(arrived("TCP_RESET", 2.0, 63, 63))], &[]), nobody, "two senders");
    assert_eq!(judged(&[arrived("TCP_RESET", 1.0, 64, 0)], &[]), nobody, "the server's is not known");
    let other = Event { start: 0, ..again(63)[0].clone() };
    assert_eq!(
        judged(&[arrived("TCP_RESET", 1.0, 64, 0)], &[other]),
        nobody,
        "a connection from before may be another's"
    );
    assert_eq!(judged(&[with_ack(arrived("TCP_RESET", 1.0, 63, 63))], &[]), server);
    assert_eq!(judged(&[with_ack(near)], &again(64)), server, "the server's address has moved");
    let stranger = verdict(&[arrived("TCP_RESET", 1.0, 63, 63)], &[]);
    assert_eq!((stranger.layer, stranger.alternatives[0].cause), (Layer::Unknown, Cause::Closed), "{stranger:?}");
}

#[test]
fn what_this_host_could_not_send_is_its_own() {
    let verdict = verdict(&[happening("TCP_NOT_SENT", 1.0, 0), happening("TCP_RETRANSMIT", 0.5, 0)], &[]);
    assert_eq!((verdict.layer, verdict.cause), (Layer::Client, Some(Cause::OwnInterface)), "{verdict:?}");
}

#[test]
fn segments_that_this_host_drops_make_slow_operations_its_own() {
    let (fast, slow) = reads();
    let judged = |drops: &[Event]| common::verdict(&slow, &[&fast, &slow, drops].concat());
    let cause = |verdict: &Verdict| verdict.cause;
    assert_ne!(judged(&[]).layer, Layer::Client);
    let own = judged(&dropped("TCP_DROPPED", FILTER, 20));
    assert_eq!((own.layer, cause(&own)), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    assert!(
        own.because.iter().any(|why| why
            .starts_with("This host itself dropped 20 segments of the connection (none before): 20 by a filter")),
        "{own:?}"
    );
    assert_eq!(cause(&judged(&dropped("TCP_DROPPED", ROUTE, 20))), Some(Cause::OwnInterface));
    let damaged = judged(&dropped("TCP_DAMAGED", 0, 20));
    assert_eq!((damaged.layer, cause(&damaged)), (Layer::Network, Some(Cause::Loss)), "{damaged:?}");
}

#[test]
fn what_tcp_could_not_send_is_this_hosts_where_operations_stall() {
    let stalled = Event { duration: 6000 * MS, ..smb("SMB2_READ", 990.0, [0.0; 3]) };
    for one in [happening("TCP_NOT_SENT", 3000.0, 0), Event { status: ROUTE, ..happening("TCP_DROPPED", 3000.0, 0) }] {
        let own = judge("stalled", std::slice::from_ref(&stalled), &[one]);
        assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnInterface)), "{own:?}");
    }
}

#[test]
fn drops_that_explain_nothing_blame_nobody() {
    let (fast, slow) = reads();
    let without = common::verdict(&slow, &[&fast[..], &slow].concat());
    let judged = |drops: &[Event]| common::verdict(&slow, &[&fast, &slow, drops].concat());
    assert_eq!(judged(&dropped("TCP_DROPPED", FILTER, 2)), without, "two are chance");
    let always: Vec<_> = (0..70).map(|n| happening("TCP_DROPPED", 20.0 * f64::from(n), 0)).collect();
    assert_eq!(judged(&always), without, "as many as before");
    let later: Vec<_> = (0..9).map(|n| happening("TCP_DROPPED", 1750.0 + f64::from(n), 0)).collect();
    assert_eq!(judged(&later), without, "after the slow operations");
}

#[test]
fn segments_sent_again_because_this_host_dropped_them_are_its_own() {
    let again: Vec<_> = (0..40).map(|n| happening("TCP_RETRANSMIT", 1100.0 + 10.0 * f64::from(n), 0)).collect();
    let (fast, _) = reads();
    let drops = dropped("TCP_DROPPED", FILTER, 20);
    let own = verdict(&again, &[&fast[..], &drops].concat());
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    let few = verdict(&again, &[&fast[..], &drops[..4]].concat());
    assert_ne!(few.layer, Layer::Client, "most were lost elsewhere: {few:?}");
}

#[test]
fn operations_without_an_answer_are_this_hosts_if_it_dropped_their_segments() {
    let drops = dropped("TCP_DROPPED", FILTER, 5);
    let stalled = Event { duration: 6000 * MS, ..smb("SMB2_READ", 990.0, [0.0; 3]) };
    let own = judge("stalled", std::slice::from_ref(&stalled), &drops);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    let mut failed = Event { errno: 112, ..stalled };
    (failed.flags.failed, failed.flags.unanswered) = (true, true);
    let own = judge("error", &[failed], &drops);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
}

#[test]
fn calls_that_wait_for_a_lost_connection_name_nobody() {
    let (fast, _) = reads();
    let calls: Vec<_> = (0..5)
        .map(|n| Event { mount: fast[0].mount, ..common::syscall("read", 1200.0 + f64::from(n), 900.0) })
        .collect();
    let judged = |around: &[Event]| common::verdict(&calls, &[&fast, around].concat());
    assert_eq!(judged(&[]).cause, Some(Cause::Requester));
    let lost = happening("CONNECTION_LOST", 1100.0, 0);
    let waited = judged(std::slice::from_ref(&lost));
    assert_eq!(waited.layer, Layer::Unknown, "{waited:?}");
    assert!(waited.because[0].contains("For 100 % of that time, the client had no working connection"), "{waited:?}");
    let again = smb("SMB2_READ", 1300.0, [0.0, 1.0, 0.0]);
    assert_eq!(judged(&[lost, again]).cause, Some(Cause::Requester), "it was in use again soon");
}

#[test]
fn segments_that_this_host_holds_for_part_of_the_time_make_slow_operations_its_own() {
    let (fast, slow) = reads();
    let judged = |held: &[Event]| common::verdict(&slow, &[&fast, &slow, held].concat());
    let own = judged(&[held(1300, 90), held(1500, 90)]);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "{own:?}");
    assert!(own.because.iter().any(|why| why.contains("for up to 90 ms (seen 2 times)")), "{own:?}");
    let received = judged(&[Event { status: RECEIVED, ..held(1300, 90) }]);
    assert!(
        received.because.iter().any(|why| why.starts_with("This host held segments that it had received")),
        "{received:?}"
    );
    let twice = [held(1300, 90), held(1300, 85)];
    let without = judged(&[]);
    assert_eq!(judged(&[held(1300, 20), held(1500, 20)]), without, "for less than a quarter of the time");
    assert_eq!(judged(&[held(1000, 500)]), without, "before");
    assert_eq!(judged(&twice).cause, Some(Cause::OwnQueue));
    let short: Vec<_> = (0..4).map(|_| held(1300, 40)).collect();
    assert_eq!(judged(&short), without, "several at once are no longer than one");
}

/// The route changes at these moments, in milliseconds; meanwhile, from 1100 ms on, segments are sent again.
fn rerouted(changes: &[f64]) -> Vec<Event> {
    let again = (0..8).map(|n| happening("TCP_RETRANSMIT", 1100.0 + 40.0 * f64::from(n), 0));
    changes.iter().map(|at| happening("TCP_REROUTED", *at, 0)).chain(again).collect()
}

#[test]
fn a_new_route_that_leads_nowhere_is_this_hosts() {
    let (fast, slow) = reads();
    let own = Some(Cause::OwnRoute);
    let judged = |path: &[Event]| common::verdict(&slow, &[&fast, &slow, path].concat());
    let verdict_of_slow = judged(&rerouted(&[1000.0, 1350.0]));
    assert_eq!((verdict_of_slow.layer, verdict_of_slow.cause), (Layer::Client, own), "{verdict_of_slow:?}");
    let stalled = Event { duration: 6000 * MS, ..smb("SMB2_READ", 990.0, [0.0; 3]) };
    let verdict_of_stall = judge("stalled", &[stalled], &rerouted(&[1000.0]));
    assert_eq!(verdict_of_stall.cause, own, "{verdict_of_stall:?}");
    let again: Vec<_> = rerouted(&[]);
    let verdict_of_segments = verdict(&again, &[&fast[..], &rerouted(&[1000.0])].concat());
    assert_eq!(verdict_of_segments.cause, own, "{verdict_of_segments:?}");
}

#[test]
fn a_new_route_is_not_blamed_if_answers_come_by_it_or_nothing_was_sent_by_it() {
    let (fast, slow) = reads();
    let judged = |path: &[Event]| common::verdict(&slow, &[&fast, &slow, path].concat());
    let answer = smb("SMB2_READ", 1150.0, [0.0, 1.0, 0.0]);
    assert_ne!(judged(&[&rerouted(&[1000.0, 1350.0]), &[answer][..]].concat()).cause, Some(Cause::OwnRoute));
    assert_ne!(judged(&rerouted(&[1000.0, 1050.0])).cause, Some(Cause::OwnRoute), "it was back before");
    assert_ne!(judged(&rerouted(&[1800.0])).cause, Some(Cause::OwnRoute), "it changed afterwards");
}

#[test]
fn a_silence_after_which_the_same_connection_goes_on_is_the_paths() {
    let silence = unanswered();
    let judged = |after: Vec<Event>| verdict(&silence, &[answers(0, 20, 700), after].concat());
    let cut = judged(answers(2000, 20, 700));
    assert_eq!((cut.layer, cut.cause), (Layer::Network, Some(Cause::NoPath)), "{cut:?}");
    assert_eq!(judged(Vec::new()).layer, Layer::Unknown, "it may still be gone");
    assert_eq!(judged(answers(2000, 20, 1700)).layer, Layer::Unknown, "its clock stood still for a second");
    let another = answers(2000, 20, 700).into_iter().map(|event| Event { connection: 2, ..event }).collect();
    assert_eq!(judged(another).layer, Layer::Unknown, "a host that was started again has other connections");
}

#[test]
fn a_silence_in_which_later_segments_arrive_is_a_path_that_loses_certain_ones() {
    let mut silence = unanswered();
    silence.iter_mut().for_each(|event| event.network.sacked = 1);
    let lost = verdict(&silence, &[]);
    assert_eq!((lost.layer, lost.cause), (Layer::Network, Some(Cause::Loss)), "{lost:?}");
    assert!(lost.because[0].contains("1 segment was acknowledged"), "{lost:?}");
    assert!(lost.because[1].contains("MTU"), "{lost:?}");
}

#[test]
fn a_silence_after_which_a_new_connection_is_made_at_once_is_the_paths() {
    let judged = |made: Event| verdict(&[unanswered(), vec![lost_in(7), made]].concat(), &[]);
    let works = judged(happening("RECONNECT", 2500.0, 8));
    assert_eq!((works.layer, works.cause), (Layer::Network, Some(Cause::NoPath)), "{works:?}");
    assert!(works.because[1].contains("within 8 ms"), "{works:?}");
    assert_eq!(judged(happening("RECONNECT", 2500.0, 3020)).layer, Layer::Unknown, "its first segments were lost, too");
    assert_eq!(judged(happening("RECONNECT", 500.0, 8)).layer, Layer::Unknown, "it was made before");
    let again = [unanswered(), vec![happening("RECONNECT", 2500.0, 8), happening("SESSION_LOST", 2510.0, 0)]].concat();
    assert_eq!(verdict(&again, &[]).layer, Layer::Unknown, "the server may have been started again");
    let elsewhere = Event { mount: MountKey(77), ..happening("RECONNECT", 2500.0, 8) };
    assert_eq!(judged(elsewhere).layer, Layer::Unknown, "another server's");
}

#[test]
fn a_silence_is_nobodys() {
    for events in [
        vec![happening("TCP_NO_ANSWER", 1.0, 0), happening("TCP_RETRANSMIT", 0.5, 0)],
        vec![happening("TCP_RESET", 1.0, 0), lost_in(7)],
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
    assert!(verdict.because[0].starts_with("50 TCP segments were retransmitted"), "{verdict:?}");
    assert!(verdict.because[1].contains("20 operations were answered"), "{verdict:?}");
}

/// Fifty segments are sent again; the server had so many of them. Round trips took so many milliseconds instead of one.
fn sent_again(needless: u32, round_trip: u32) -> Verdict {
    let event = |n: u32| {
        let again = n - n.min(needless) * n / 50;
        let network =
            Network { retransmits: again, srtt_us: round_trip * 1000, min_rtt_us: 1000, ..Network::default() };
        let detail = Detail::Connection(Connection { peer: Text::new(b"10.0.0.1:445"), ..Connection::default() });
        let network = Network { known: true, ..network };
        Event { network, detail, ..happening("TCP_RETRANSMIT", 10.0 + f64::from(n), 0) }
    };
    let answered: Vec<_> = (0..20).map(|n| smb("SMB2_READ", 10.0 + f64::from(n), [0.0, 1.0, 0.0])).collect();
    verdict(&(0..=50).map(event).collect::<Vec<_>>(), &answered)
}

#[test]
fn a_path_that_delays_segments_loses_none() {
    for (needless, round_trip, cause) in
        [(50, 80, Cause::LongerPath), (50, 2, Cause::Loss), (0, 80, Cause::Loss), (20, 80, Cause::Loss)]
    {
        let said = sent_again(needless, round_trip);
        assert_eq!((said.layer, said.cause), (Layer::Network, Some(cause)), "{needless} {round_trip} {said:?}");
    }
}

/// A connection is silent, and another one is made. From then on, reads take 400 ms at a round trip of 20, and this host offers a receive window of
/// so many bytes.
fn reads_after_a_silence(own_window: u32) -> Verdict {
    let silence = [happening("TCP_NO_ANSWER", 1.0, 0)];
    let read = |n: u32| {
        let mut read = smb("SMB2_READ", 2_000.0 + f64::from(n) * 410.0, [0.0, 400.0, 0.1]);
        read.bytes = 128 << 10;
        read.network = Network { rtt_us: 20_000, min_rtt_us: 20_000, known: true, ..Network::default() };
        let socket = Some(SocketTotals { own_window, ..SocketTotals::default() });
        read.progress = Some(Box::new(Progress { socket, ..Progress::default() }));
        read
    };
    let delayed: Vec<_> = (0..12).map(read).collect();
    let unknown = verdict(&silence, &[]);
    assert_eq!(unknown.layer, Layer::Unknown);
    judge_delayed(unknown, &silence, &delayed, &delayed, &LongTerm::default())
}

#[test]
fn operations_that_stay_slow_have_a_reason_of_their_own() {
    let said = reads_after_a_silence(8 << 10);
    assert_eq!((said.layer, said.cause), (Layer::Client, Some(Cause::OwnWindow)), "{said:?}");
    // The server is not accused.
    assert_eq!(reads_after_a_silence(64 << 10).layer, Layer::Unknown);
}

#[test]
fn segments_that_a_small_mtu_makes_many_are_not_simply_lost() {
    let again: Vec<_> = (0..50).map(|n| happening("TCP_RETRANSMIT", 10.0 + f64::from(n), 0)).collect();
    let write = |n: u32, route_mtu| {
        let socket = Some(SocketTotals { mss: 148, route_mtu, ..SocketTotals::default() });
        let progress = Some(Box::new(Progress { socket, ..Progress::default() }));
        Event { bytes: 64 << 10, progress, ..smb("SMB2_WRITE", 10.0 + f64::from(n), [0.0, 100.0, 0.0]) }
    };
    let judge = |route_mtu| verdict(&again, &(0..20).map(|n| write(n, route_mtu)).collect::<Vec<_>>());
    let said = judge(200);
    let causes: Vec<_> = said.alternatives.iter().map(|other| other.cause).collect();
    assert!(
        said.layer == Layer::Unknown && causes.contains(&Cause::OwnMtu) && causes.contains(&Cause::Loss),
        "{said:?}"
    );
    assert_eq!(judge(0).cause, Some(Cause::Loss));
}

#[test]
fn a_program_of_this_host_may_end_connections() {
    // Reads that are answered until 11 ms, a reset of this host, and a socket that is closed.
    let answered: Vec<_> = (0..10).map(|n| smb("SMB2_READ", f64::from(n), [0.0, 1.0, 0.0])).collect();
    let lost = |closed_at| Event { status: 7, ..happening("CONNECTION_LOST", closed_at, 0) };
    let judge = |more: &[Event], lost: Event| verdict(&[lost], &[answered.as_slice(), more].concat());
    let reset_at = |at| happening("TCP_RESET_SENT", at, 0);
    let said = judge(&[reset_at(20.0)], lost(21.0));
    assert_eq!((said.layer, said.cause), (Layer::Client, Some(Cause::OwnReset)), "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("itself ended 1 connection by a reset")), "{said:?}");
    // No reset, one long before, one after a long silence, a socket that was open, and a reset that this host received.
    assert_eq!(judge(&[], lost(21.0)).layer, Layer::Unknown);
    assert_eq!(judge(&[reset_at(20.0)], lost(421.0)).layer, Layer::Unknown);
    assert_eq!(judge(&[reset_at(9_000.0)], lost(9_001.0)).layer, Layer::Unknown);
    assert_eq!(judge(&[reset_at(20.0)], Event { status: 1, ..lost(21.0) }).layer, Layer::Unknown);
    for other in ["TCP_RESET", "TCP_NO_ANSWER"] {
        let said = judge(&[reset_at(20.0), happening(other, 19.0, 0)], lost(21.0));
        assert_ne!(said.cause, Some(Cause::OwnReset), "{other}: {said:?}");
    }
    // A reset of another mount's connection, and a loss of which only the other half began with a reset.
    let elsewhere = Event { mount: MountKey::source(b"//server/other"), ..reset_at(20.0) };
    assert_eq!(judge(&[elsewhere], lost(21.0)).layer, Layer::Unknown);
    let both = [lost(21.0), Event { status: 1, ..lost(25.0) }];
    assert_eq!(verdict(&both, &[answered.as_slice(), &[reset_at(20.0)]].concat()).layer, Layer::Unknown);
}

#[test]
fn how_long_it_took_to_connect_again_is_said() {
    let verdict = verdict(&[lost_in(8), happening("RECONNECT", 1.0, 6200)], &[]);
    assert!(verdict.because.iter().any(|why| why.contains("6.2 s")), "{verdict:?}");
    assert_eq!(verdict.layer, Layer::Server);
}

/// A segment is sent again: the `again`th of a connection that has sent so many.
fn segment(peer: &str, second: u64, again: u32, segments: u32) -> Event {
    let mut event = happening("TCP_RETRANSMIT", (second * 1000) as f64, 0);
    event.detail =
        Detail::Connection(Connection { peer: Text::new(peer.as_bytes()), times: 1, ..Connection::default() });
    event.network = Network { retransmits: again, segments, known: true, ..Network::default() };
    event
}

/// Closes a window each second; the incident that comes of it, with the second in which it came.
fn watched(events: impl Fn(u64) -> Vec<Event>, percent: f64) -> Option<(u64, Episode)> {
    let mut watch = watch(&[("TCP_RETRANSMIT", 50)], percent);
    (1..=20).find_map(|second| {
        events(second - 1).iter().for_each(|event| watch.see(event, &LongTerm::default()));
        let changes = watch.close(second * 1000 * MS, 0, &Meanwhile::default(), &mut 0);
        let opened = changes
            .into_iter()
            .find_map(|change| if let EpisodeChange::Opened(episode) = change { Some(episode) } else { None });
        opened.map(|episode| (second, episode))
    })
}

#[test]
fn a_connection_that_sends_a_share_of_its_segments_again_loses_them() {
    // One in a hundred, each second.
    let lossy = |second: u64| vec![segment("10.0.0.1:445", second, second as u32 + 1, (second as u32 + 1) * 100)];
    let (second, episode) = watched(lossy, 0.5).unwrap();
    assert_eq!(second, 6, "five of 500 segments between the first and the sixth");
    assert_eq!(episode.anomaly.observed, "5 of 500 segments to 10.0.0.1:445 retransmitted (1.0 %)");
    assert_eq!(episode.anomaly.limit, "0.5 %");
    assert_eq!(episode.window.count(), 6, "what was sent again before is a part of it");
    let verdict = judge("connection", episode.window.events(), &[smb("SMB2_READ", 3_000.0, [0.0, 1.0, 0.0])]);
    assert_eq!((verdict.layer, verdict.cause), (Layer::Network, Some(Cause::Loss)));

    assert!(watched(lossy, 2.0).is_none(), "less than the rule asks for");
    let rare = |second: u64| match second % 3 {
        0 => vec![segment("10.0.0.1:445", second, second as u32 / 3, second as u32 * 100)],
        _ => vec![],
    };
    assert!(watched(rare, 0.5).is_none(), "fewer than five within ten seconds");
    let many = |second: u64| vec![segment(&format!("10.0.0.1:445 from port {second}"), second, 7, 700)];
    assert!(watched(many, 0.5).is_none(), "each of a connection of its own");
    let anew =
        |second: u64| vec![segment("10.0.0.1:445", second, second as u32 % 4 + 1, (second as u32 % 4 + 1) * 100)];
    assert!(watched(anew, 0.5).is_none(), "a new connection from the same port counts from zero");
}

#[test]
fn the_retransmissions_of_two_connections_that_take_turns_in_losing_most_are_counted_once() {
    let mut watch = watch(&[("TCP_RETRANSMIT", 50)], 0.5);
    let (mut again, mut segments) = ([0; 2], [0; 2]);
    for (second, numbers) in [(1, [10, 6]), (2, [2, 20]), (3, [20, 2])] {
        for (connection, peer) in ["10.0.0.1:445", "10.0.0.2:445"].into_iter().enumerate() {
            for _ in 0..numbers[connection] {
                again[connection] += 1;
                segments[connection] += 100 / numbers[connection];
                watch.see(&segment(peer, second - 1, again[connection], segments[connection]), &LongTerm::default());
            }
        }
        watch.close(second * 1000 * MS, 0, &Meanwhile::default(), &mut 0);
    }
    assert_eq!(watch.episode().map(|episode| episode.window.count()), Some(60));
}

#[test]
fn a_retransmission_that_an_incident_has_counted_is_not_counted_again() {
    let mut watch = watch(&[("TCP_RETRANSMIT", 50)], 0.5);
    let mut again = 0;
    // Too many in one second, but a small share; and then too large a share.
    let mut segments = 0;
    for (second, number, of) in [(1, 60, 210), (2, 10, 10), (3, 10, 10)] {
        for _ in 0..number {
            again += 1;
            segments += of;
            watch.see(&segment("10.0.0.1:445", second - 1, again, segments), &LongTerm::default());
        }
        watch.close(second * 1000 * MS, 0, &Meanwhile::default(), &mut 0);
    }
    assert_eq!(watch.episode().map(|episode| episode.window.count()), Some(80));
}

#[test]
fn packets_that_wait_here_when_segments_are_sent_again_are_the_own_queueing_disciplines() {
    let mut events: Vec<_> = (0..10).map(|second| segment("10.0.0.1:445", second, second as u32, 1000)).collect();
    events.iter_mut().for_each(|event| event.network.own_queue = 40);
    let answered = [smb("SMB2_READ", 3_000.0, [0.0, 1.0, 0.0])];
    let verdict = verdict(&events, &answered);
    assert_eq!((verdict.layer, verdict.cause), (Layer::Client, Some(Cause::OwnQueue)), "{verdict:?}");
}

#[test]
fn retransmissions_that_go_unanswered_are_a_loss_if_operations_are_answered_again_and_again() {
    let sent_again = |n: u32| {
        [
            happening("TCP_RETRANSMIT", f64::from(n) * 100.0, 0),
            happening("TCP_NO_ANSWER", f64::from(n) * 100.0 + 1.0, 0),
        ]
    };
    let events: Vec<_> = (0..10).flat_map(sent_again).collect();
    let answered: Vec<_> = (0..10).map(|n| smb("SMB2_READ", f64::from(n) * 100.0 + 50.0, [0.0, 1.0, 0.0])).collect();
    assert_eq!(verdict(&events, &answered).cause, Some(Cause::Loss));
    let once = verdict(&events, &answered[..1]);
    assert_eq!((once.layer, once.cause), (Layer::Unknown, None));
    let likely: Vec<_> = once.alternatives.iter().map(|alternative| alternative.cause).collect();
    assert_eq!(likely, [Cause::NoPath, Cause::HostGone]);
}
