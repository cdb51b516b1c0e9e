use model::{Cause, Layer};
use proptest::prelude::*;

use super::*;
use crate::units::MS;

const CLIENT: &str = "10.1.0.1";
const NUMBER: u32 = 0x0a01_0001;
/// By how much the server's clock is ahead, nanoseconds.
const AHEAD: WallNanos = 7_000_000_000;

/// Milliseconds of a request: the client's queue, its own part of the wire, the network, and the server's wait, execution and sending.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    queue: u64,
    held: u64,
    unread: u64,
    network: u64,
    waited: u64,
    executed: u64,
    sent: u64,
}

/// Both ends of `count` requests; `spent` returns the times of each.
fn ends(count: u32, spent: impl Fn(u32) -> Spent) -> (ClientEnd, ServerEnd) {
    let mut client = ClientEnd {
        host: "c1".into(),
        version: "1.0.0".into(),
        addresses: vec!["127.0.0.1".parse().unwrap(), CLIENT.parse().unwrap()],
        ..ClientEnd::default()
    };
    let mut server = ServerEnd { host: "s1".into(), version: "1.0.0".into(), ..ServerEnd::default() };
    for xid in 0..count {
        let one = spent(xid);
        let start = i64::from(xid) * 50 * MS as i64;
        let on_server = one.waited + one.executed + one.sent;
        let wire = one.held + one.unread + one.network + on_server;
        client.requests.push(ClientRequest {
            xid,
            operation: "WRITE".into(),
            start,
            queue: one.queue * MS,
            wire: wire * MS,
            held: one.held * MS,
            unread: one.unread * MS,
            ..ClientRequest::default()
        });
        server.requests.push(ServedRequest {
            client: NUMBER,
            xid,
            operation: "WRITE".into(),
            start: start + ((one.queue + one.held + one.network / 2) * MS) as i64 + AHEAD,
            waited: one.waited * MS,
            executed: one.executed * MS,
            sent: one.sent * MS,
        });
    }
    (client, server)
}

fn verdict(ends: &(ClientEnd, ServerEnd)) -> EndsVerdict {
    join(&ends.0, &ends.1).unwrap().verdict
}

#[test]
fn each_layer_is_named_and_proven_where_the_time_was() {
    let network = verdict(&ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() }));
    assert_eq!((network.layer, network.cause, network.proven), (Layer::Network, Some(Cause::LongerPath), true));
    let disk = verdict(&ends(20, |_| Spent { network: 1, executed: 200, ..Spent::default() }));
    assert_eq!((disk.layer, disk.cause, disk.proven), (Layer::Server, Some(Cause::SlowExecution), true));
    let threads = verdict(&ends(20, |_| Spent { network: 1, waited: 140, executed: 20, ..Spent::default() }));
    assert_eq!((threads.layer, threads.cause, threads.proven), (Layer::Server, Some(Cause::NoThread), true));
    let client = verdict(&ends(20, |_| Spent { queue: 100, network: 1, executed: 1, ..Spent::default() }));
    assert_eq!((client.layer, client.cause, client.proven), (Layer::Client, Some(Cause::Queue), true));
    let reader = verdict(&ends(20, |_| Spent { unread: 100, network: 1, executed: 1, ..Spent::default() }));
    assert_eq!((reader.layer, reader.cause), (Layer::Client, Some(Cause::Receiver)));
    assert!([network, disk, threads, client, reader].iter().all(|verdict| verdict.confidence > 0.9));
}

#[test]
fn two_halves_name_nobody() {
    let both = verdict(&ends(20, |_| Spent { network: 50, executed: 50, ..Spent::default() }));
    assert_eq!((both.layer, both.confidence, both.proven), (Layer::Unknown, 0.0, false));
}

#[test]
fn the_difference_of_the_clocks_is_found_and_changes_nothing() {
    let both = ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() });
    let story = join(&both.0, &both.1).unwrap();
    assert!((story.clock_offset - AHEAD).abs() < 40 * MS as i64, "{}", story.clock_offset);
    let mut other = both.clone();
    other.1.requests.iter_mut().for_each(|request| request.start -= 3 * AHEAD);
    assert_eq!(join(&other.0, &other.1).unwrap().verdict, story.verdict);
}

#[test]
fn what_the_client_kept_itself_is_not_the_networks_and_leaves_it_unproven() {
    let half = verdict(&ends(20, |_| Spent { held: 20, network: 60, executed: 1, ..Spent::default() }));
    assert!(!half.proven, "{half:?}");
    let mut events = ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() });
    events.0.held_events = 1;
    let some = verdict(&events);
    assert_eq!((some.layer, some.proven), (Layer::Network, false));
    events.0.held_events = 20;
    assert_eq!(verdict(&events).layer, Layer::Unknown, "all of it may be the client's");
    let mut queued = ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() });
    queued.0.requests.iter_mut().for_each(|request| request.queued_behind = true);
    assert_eq!(verdict(&queued).layer, Layer::Unknown);
    let mut server = ends(20, |_| Spent { network: 1, executed: 60, ..Spent::default() });
    server.0.held_events = 20;
    assert!(verdict(&server).proven, "what the server had itself is the server's all the same");
}

/// Requests that the server executed before, in 2 ms each.
fn served_before() -> impl Iterator<Item = ServedRequest> {
    (0..20).map(|xid| ServedRequest {
        client: NUMBER,
        xid: 1_000 + xid,
        operation: "WRITE".into(),
        start: AHEAD - 10_000_000_000,
        executed: 2 * MS,
        ..ServedRequest::default()
    })
}

#[test]
fn what_is_usual_is_left_out() {
    let (mut client, mut server) = ends(20, |_| Spent { network: 100, executed: 60, ..Spent::default() });
    assert_eq!(join(&client, &server).unwrap().verdict.layer, Layer::Network);
    // The path usually takes as long.
    client.usual_wire.insert("WRITE".into(), 102 * MS);
    server.requests.extend(served_before());
    let verdict = join(&client, &server).unwrap().verdict;
    assert_eq!((verdict.layer, verdict.cause, verdict.proven), (Layer::Server, Some(Cause::SlowExecution), true));
}

#[test]
fn threads_that_wait_for_the_disk_are_no_want_of_threads() {
    let (mut client, mut server) = ends(20, |_| Spent { network: 1, waited: 900, executed: 100, ..Spent::default() });
    client.usual_wire.insert("WRITE".into(), 3 * MS);
    server.requests.extend(served_before());
    assert_eq!(join(&client, &server).unwrap().verdict.cause, Some(Cause::SlowExecution));
}

#[test]
fn too_few_common_requests_prove_nothing() {
    let mut few = ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() });
    few.1.requests.truncate(12);
    assert!(!verdict(&few).proven);
    few.1.requests.truncate(4);
    let verdict = verdict(&few);
    assert_eq!((verdict.layer, verdict.proven), (Layer::Unknown, false));
}

#[test]
fn other_versions_prove_nothing() {
    let mut both = ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() });
    both.1.version = "0.9.0".into();
    let story = join(&both.0, &both.1).unwrap();
    assert_eq!((story.verdict.layer, story.verdict.proven, story.notes.len()), (Layer::Network, false, 1));
}

#[test]
fn ends_of_strangers_are_refused() {
    let (mut client, server) = ends(20, |_| Spent { network: 60, ..Spent::default() });
    client.addresses = vec!["10.9.0.9".parse().unwrap()];
    let refusal = join(&client, &server).unwrap_err();
    assert_eq!(refusal.word(), "strangers");
    assert!(refusal.to_string().contains(CLIENT) && refusal.to_string().contains("10.9.0.9"), "{refusal}");
    let (client, mut server) = ends(20, |_| Spent { network: 60, ..Spent::default() });
    server.requests.iter_mut().for_each(|request| {
        request.xid += 5_000;
        request.start += 3_600_000_000_000;
    });
    let refusal = join(&client, &server).unwrap_err();
    assert_eq!(refusal.word(), "nothing_common");
    assert!(refusal.to_string().contains("apart"), "{refusal}");
    let none = (ClientEnd::default(), ServerEnd::default());
    assert_eq!(join(&none.0, &server).unwrap_err(), EndsRefusal::NoRequests);
    assert_eq!(join(&client, &none.1).unwrap_err(), EndsRefusal::NothingServed);
}

#[test]
fn the_same_numbers_of_another_time_are_refused() {
    let (client, mut server) = ends(40, |_| Spent { network: 10, executed: 1, ..Spent::default() });
    // Another connection of the same client, whose numbers happen to be the same, went at another pace.
    server.requests.iter_mut().for_each(|request| request.start *= 3);
    assert_eq!(join(&client, &server).unwrap_err().word(), "other_times");
}

#[test]
fn a_server_that_had_requests_for_longer_than_they_took_is_not_believed() {
    let (client, mut server) = ends(20, |_| Spent { network: 10, executed: 20, ..Spent::default() });
    server.requests.iter_mut().for_each(|request| request.executed = 500 * MS);
    let refusal = join(&client, &server).unwrap_err();
    assert_eq!(refusal.word(), "too_long");
    let (client, mut server) = ends(20, |_| Spent { network: 1, executed: 20, ..Spent::default() });
    server.requests[0].executed = 500 * MS;
    let story = join(&client, &server).unwrap();
    assert_eq!((story.joined.len(), story.verdict.proven), (19, true), "one of twenty is left out");
    assert_eq!(story.notes.len(), 1, "{:?}", story.notes);
    server.requests[1].executed = 500 * MS;
    let story = join(&client, &server).unwrap();
    assert_eq!((story.joined.len(), story.verdict.proven), (18, false), "two of twenty leave nothing proven");
}

#[test]
fn a_servers_thread_may_be_interrupted_after_the_answer_has_left() {
    let (client, mut server) = ends(20, |_| Spent { network: 1, executed: 100, ..Spent::default() });
    server.requests.iter_mut().for_each(|request| request.sent = 300 * MS);
    let story = join(&client, &server).unwrap();
    assert_eq!((story.joined.len(), story.verdict.proven), (20, true));
    assert_eq!(story.times.all(), 101 * MS, "which makes nothing longer than the client waited");
    let (client, mut server) = ends(20, |_| Spent { network: 1, executed: 100, ..Spent::default() });
    for late in server.requests.iter_mut().take(3) {
        (late.start, late.executed, late.sent) = (late.start + 20 * MS as i64, 80 * MS, 60 * MS);
    }
    let story = join(&client, &server).unwrap();
    assert_eq!(
        (story.joined.len(), story.verdict.proven),
        (20, true),
        "nor is one of another time that is noted late, too"
    );
}

#[test]
fn two_clients_of_one_address_are_refused() {
    let (client, mut server) = ends(20, |_| Spent { network: 10, executed: 20, ..Spent::default() });
    let others: Vec<_> =
        server.requests.iter().map(|one| ServedRequest { start: one.start + 5, ..one.clone() }).collect();
    server.requests.extend(others);
    assert_eq!(join(&client, &server).unwrap_err().word(), "two_clients");
}

#[test]
fn another_operation_is_another_request() {
    let (client, mut server) = ends(20, |_| Spent { network: 10, executed: 20, ..Spent::default() });
    server.requests.iter_mut().for_each(|request| request.operation = "READ".into());
    assert_eq!(join(&client, &server).unwrap_err().word(), "nothing_common");
    let (mut client, mut server) = ends(20, |_| Spent { network: 10, executed: 200, ..Spent::default() });
    client.requests.iter_mut().for_each(|request| request.operation = "STATFS".into());
    server.requests.iter_mut().for_each(|request| request.operation = "GETATTR".into());
    assert!(join(&client, &server).unwrap().verdict.proven, "a COMPOUND does not tell these two apart");
}

#[test]
fn a_request_that_was_sent_again_counts_for_nobody() {
    let mut both = ends(20, |_| Spent { network: 60, executed: 1, ..Spent::default() });
    both.0.requests[3].resent = 1;
    both.0.requests[4].unanswered = true;
    let story = join(&both.0, &both.1).unwrap();
    assert_eq!((story.asked, story.joined.len(), story.verdict.proven), (20, 18, true));
}

fn any_request() -> impl Strategy<Value = (ClientRequest, Option<ServedRequest>)> {
    let small = 0..400_u64 * MS;
    let server = prop::option::of((0..3_u32, small.clone(), small.clone(), small.clone(), 0..i64::MAX));
    (0..64_u32, any::<i64>(), small.clone(), small.clone(), small.clone(), small, 0..3_u32, server).prop_map(
        |(xid, start, queue, wire, held, unread, resent, server)| {
            let client = ClientRequest {
                xid,
                operation: "WRITE".into(),
                start,
                queue,
                wire,
                held,
                unread,
                resent,
                ..ClientRequest::default()
            };
            let served = server.map(|(number, waited, executed, sent, start)| ServedRequest {
                client: NUMBER + number,
                xid,
                operation: "WRITE".into(),
                start,
                waited,
                executed,
                sent,
            });
            (client, served)
        },
    )
}

fn any_ends() -> impl Strategy<Value = (ClientEnd, ServerEnd)> {
    (prop::collection::vec(any_request(), 0..60), any::<bool>()).prop_map(|(requests, knows_addresses)| {
        let (client, served): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        let addresses = if knows_addresses { vec![CLIENT.parse().unwrap()] } else { Vec::new() };
        let client = ClientEnd { requests: client, addresses, ..ClientEnd::default() };
        (client, ServerEnd { requests: served.into_iter().flatten().collect(), ..ServerEnd::default() })
    })
}

fn spent() -> impl Strategy<Value = Spent> {
    let time = 0..200_u64;
    (time.clone(), time.clone(), time.clone(), time.clone(), time).prop_map(
        |(queue, network, waited, executed, sent)| Spent { queue, network, waited, executed, sent, ..Spent::default() },
    )
}

proptest! {
    #[test]
    fn no_input_breaks_it_and_no_request_is_in_two_places_at_once((client, server) in any_ends()) {
        let Ok(story) = join(&client, &server) else { return Ok(()) };
        for request in &story.joined {
            let RequestKey::Rpc { xid, .. } = request.key;
            let most = client.requests.iter().filter(|one| one.xid == xid).map(|one| one.queue + one.wire + one.deliver).max();
            prop_assert!(Some(request.times.all()) <= most);
        }
        prop_assert!((0.0..=1.0).contains(&story.verdict.confidence));
        prop_assert_eq!(story.verdict.layer == Layer::Unknown, story.verdict.confidence == 0.0);
        prop_assert!(!story.verdict.proven || story.joined.len() as f64 >= 0.8 * story.asked as f64 - client.requests.iter().filter(|one| one.resent > 0).count() as f64);
    }

    #[test]
    fn a_named_layer_has_most_of_the_time(each in prop::collection::vec(spent(), 5..30)) {
        let both = ends(each.len() as u32, |index| each[index as usize]);
        let Ok(story) = join(&both.0, &both.1) else { return Ok(()) };
        let (times, all) = (story.times, story.times.all().max(1));
        let part = match story.verdict.layer {
            Layer::Client => times.client(),
            Layer::Network => times.network,
            Layer::Server => times.server(),
            Layer::Unknown => return Ok(()),
        };
        prop_assert!(part as f64 >= 0.55 * all as f64, "{story:?}");
    }

    #[test]
    fn the_order_of_the_lines_does_not_matter(each in prop::collection::vec(spent(), 5..30)) {
        let both = ends(each.len() as u32, |index| each[index as usize]);
        let mut turned = both.clone();
        turned.0.requests.reverse();
        turned.1.requests.reverse();
        let verdict = |both: &(ClientEnd, ServerEnd)| join(&both.0, &both.1).map(|story| (story.verdict, story.operations));
        prop_assert_eq!(verdict(&both), verdict(&turned));
    }
}
