//! Verdicts over the faults of [`common::faults`].

mod common;

use common::faults::*;
use common::{LATER, smb, verdict};
use model::{Event, Layer};

#[test]
fn each_fault_is_blamed_on_its_layer_or_on_none() {
    use Layer::{Client, Network, Server, Unknown};
    let cases = [
        ("200 ms of network delay", slow_network(200.0), Network, 0.6),
        ("200 ms of network delay since the recorder began", without_past(slow_network(200.0)), Network, 0.4),
        ("100 ms of network delay, half of it provable", slow_network(102.0), Network, 0.4),
        ("the network turned slow just now", onset(), Unknown, 0.0),
        ("the same, and the server's timestamps say so", timestamped(onset(), 100), Network, 0.8),
        ("a path that is 60 ms longer, in one and in two round trips", longer_path(60.0), Network, 0.75),
        ("a path that is 20 ms longer", longer_path(20.0), Network, 0.75),
        ("a path that is 200 ms longer, since the recorder began", without_past(longer_path(200.0)), Network, 0.5),
        ("a path that is 20 ms longer, stamped", stamped(longer_path(20.0), [0.0, 0.0, 20.0], 0), Network, 0.9),
        ("a longer path, as calls see it", seen_by_calls(longer_path(60.0)), Network, 0.7),
        ("a server that takes 30 ms longer for everything", slow_server(30.0, 16 << 10), Server, 0.5),
        ("a server that does, and acknowledges with the answer", slow_server(30.0, 4_096), Unknown, 0.0),
        ("a server that asks to be asked again later, as calls see it", put_off(LATER), Server, 0.9),
        ("callers that wait for themselves", put_off(0), Client, 0.8),
        ("a slow server, as calls see it", seen_by_calls(slow_server(100.0, 16 << 10)), Server, 0.5),
        ("slow writes, fast reads", slow_writes(100.0, 10), Server, 0.9),
        ("slow writes only", slow_writes(100.0, 0), Unknown, 0.0),
        ("slow writes only, and timestamps as ever", timestamped(slow_writes(100.0, 0), 0), Server, 0.9),
        (
            "writes of 400 ms since the recorder began",
            without_past(timestamped(slow_writes(400.0, 10), 0)),
            Server,
            0.8,
        ),
        ("writes of 60 ms beside fast reads", without_past(timestamped(slow_writes(60.0, 10), 0)), Server, 0.8),
        ("writes of 25 ms, as ever perhaps", without_past(timestamped(slow_writes(25.0, 10), 0)), Unknown, 0.0),
        ("acknowledgements of 45 ms, and timestamps as ever", timestamped(slow_writes(45.0, 0), 0), Server, 0.8),
        ("a path of 45 ms, half of it back", timestamped(slow_network(45.0), 22), Network, 0.9),
        ("a server's host that stood still, and its clock", paused(800.0), Server, 0.9),
        ("answers that nobody reads", unread(slow_writes(100.0, 0), 95), Client, 0.9),
        ("packets in the own queueing discipline", queued(longer_path(60.0)), Client, 0.8),
        ("a path that loses segments here and there", losing(), Network, 0.9),
        ("answers out of order, as they never were", out_of_order(slow_writes(100.0, 0), 4, 0), Network, 0.8),
        ("answers out of order, as they always are", out_of_order(slow_writes(100.0, 0), 4, 400), Unknown, 0.0),
        ("slow writes, and one answer out of order", out_of_order(slow_writes(100.0, 10), 0, 3), Server, 0.8),
        ("slow writes, fast reads, through a proxy of this host", passed_on(slow_writes(100.0, 10)), Unknown, 0.0),
        (
            "a proxy of this host, and answers that nobody reads",
            passed_on(unread(slow_writes(100.0, 0), 95)),
            Client,
            0.9,
        ),
        (
            "a slow server behind a proxy of this host, as calls see it",
            passed_on(seen_by_calls(slow_server(100.0, 16 << 10))),
            Unknown,
            0.0,
        ),
        ("slow writes of 40 ms, fast reads", slow_writes(40.0, 10), Server, 0.9),
        ("slow writes, fast reads, socket unreadable", without_network(slow_writes(100.0, 10)), Server, 0.5),
        ("slow writes, loss probes that were not needed", probed(slow_writes(100.0, 0)), Unknown, 0.0),
        (
            "the same, and reads that were sent later are answered before",
            probed(overtaken(slow_writes(100.0, 0))),
            Server,
            0.9,
        ),
        ("one hung write, others answered meanwhile", hung_write(1_900.0), Server, 0.4),
        ("the same, at first: its answer may have been lost since", hung_write(105.0), Unknown, 0.0),
        ("frozen smbd", silence(2_500.0, 0, 40.0), Server, 0.8),
        ("frozen smbd and one segment lost", silence(2_500.0, 1, 40.0), Server, 0.5),
        ("outage: every segment lost", silence(3_000.0, 4, 0.3), Unknown, 0.0),
        ("segments lost here and there", lossy_network(2), Network, 0.5),
        ("answers delivered late", busy_client([0.0, 1.0, 300.0]), Client, 0.7),
        ("sent late", busy_client([300.0, 1.0, 0.1]), Client, 0.7),
        ("sent late while a notification waited", with_notification(busy_client([300.0, 1.0, 0.1])), Client, 0.7),
        ("no credits behind a slow server", no_credits(40.0), Server, 0.5),
        ("no credits behind a slow network", no_credits(480.0), Network, 0.7),
        ("late writes", late_writes(0.0), Server, 0.9),
        ("late writes on a path that carries no more", busy(queueing(late_writes(0.0)), 0.0), Network, 0.8),
        (
            "late writes that TCP had to keep, though nothing queues on the path",
            busy(late_writes(0.0), 0.0),
            Unknown,
            0.0,
        ),
        (
            "late writes that do not fit the server's window, which something may have made small",
            busy(late_writes(0.0), 0.9),
            Unknown,
            0.0,
        ),
        ("answers that came since a request was sent did not acknowledge it", shared(10.0, 45.0, 150.0), Network, 0.8),
        ("each answer acknowledges what was sent since the last", shared(45.0, 38.0, 350.0), Server, 0.8),
        ("the same, and some end late", ended_late(shared(45.0, 38.0, 350.0)), Server, 0.8),
        ("a path that is 14 ms longer, and a slow server that is asked often", shared(5.0, 15.0, 300.0), Server, 0.8),
        ("a path that is 40 ms longer, and a server that is much slower", shared(5.0, 40.0, 600.0), Server, 0.8),
        (
            "late writes, data on its way all the time, and packets in the own queueing discipline",
            queued(busy(late_writes(0.0), 0.0)),
            Client,
            0.9,
        ),
        ("bursts of two writes, and packets wait until the second is sent", shaped_writes(), Client, 0.8),
        ("the same, and TCP spaces what it sends", paced(queued(busy(late_writes(0.0), 0.0))), Unknown, 0.0),
        ("late writes, and packets in the own queueing discipline", queued(busy(late_writes(0.0), 0.9)), Server, 0.9),
        ("writes sent late behind late answers", late_writes(60.0), Server, 0.8),
        ("the same, and the thread that takes answers has no CPU", starved(late_writes(60.0), 0.7), Client, 0.8),
        ("the same, and it has one for most of the time", starved(late_writes(60.0), 0.2), Server, 0.8),
        (
            "nothing but slow writes, and the thread that takes answers has no CPU",
            starved(slow_writes(100.0, 0), 0.7),
            Client,
            0.8,
        ),
        (
            "slow writes beside fast reads, and the thread that takes answers has no CPU",
            starved(slow_writes(100.0, 10), 0.7),
            Unknown,
            0.0,
        ),
        // 300 ms are two round trips; but not each operation takes more of them on a path that is as it was.
        ("distant server as slow as two round trips", distant_and_slow(300.0, 150.0), Server, 0.5),
        ("distant server turns slow", distant_and_slow(1_500.0, 150.0), Server, 0.5),
        ("a window and 75 ms more from a distant server", slower_large_operations(225.0), Server, 0.5),
        ("a window and 15 ms more from a distant server", slower_large_operations(165.0), Unknown, 0.0),
        ("distant network turns slow", distant_and_slow(300.0, 450.0), Network, 0.5),
        ("two connections, the server's the worse", two_connections(), Server, 0.8),
        ("within a delayed acknowledgement", slow_network(45.0), Unknown, 0.0),
        ("slow writes within a delayed acknowledgement", slow_writes(30.0, 0), Unknown, 0.0),
        ("every other answer late", jitter(), Unknown, 0.0),
        ("all slow, socket unreadable", without_network(silence(2_500.0, 0, 0.0)), Unknown, 0.0),
        ("a loss, or a slower server and a loss probe", probed(slow_writes(220.0, 0)), Unknown, 0.0),
        ("a request lost, and answers", lost_answers(), Unknown, 0.0),
        ("requests lost, and answers perhaps", silence(3_500.0, 2, 0.3), Unknown, 0.0),
        ("frozen smbd or outage", silence(2_500.0, 3, 0.3), Unknown, 0.0),
        ("all slow or given up, socket unreadable", given_up(), Unknown, 0.0),
        ("reconnection", reconnection(), Unknown, 0.0),
        ("distant server or network", distant_and_slow(100.0, 200.0), Unknown, 0.0),
        ("a queue of one jiffy", busy_client([10.0, 4.0, 4.0]), Unknown, 0.0),
        ("late answers, delivered late", busy_client([0.0, 70.0, 30.0]), Unknown, 0.0),
        ("time in no phase", stuck_in_no_phase(), Unknown, 0.0),
        ("phases not known", slow_mount_without_phases(), Unknown, 0.0),
        ("system calls", slow_system_calls(), Unknown, 0.0),
        (
            "frozen smbd, requests acknowledged",
            stamped(without_network(silence(2_500.0, 0, 0.0)), [0.0, 0.0, 40.0], 0),
            Server,
            0.5,
        ),
        (
            "a request that arrived, and perhaps a lost answer",
            stamped(probed(slow_writes(220.0, 0)), [0.0, 0.0, 1.0], 0),
            Unknown,
            0.0,
        ),
        ("a loss, stamped", stamped(probed(slow_writes(220.0, 0)), [0.0, 0.0, 215.0], 1), Network, 0.5),
        ("requests lost and sent again", stamped(silence(3_500.0, 2, 0.3), [0.0, 0.0, 3_400.0], 2), Network, 0.5),
        ("a slow queueing discipline", stamped(slow_network(100.0), [98.0, 0.0, 1.0], 0), Client, 0.7),
        (
            "a closed window, or a slow path",
            stamped(without_network(slow_writes(100.0, 0)), [0.0, 90.0, 1.0], 0),
            Unknown,
            0.0,
        ),
        (
            "a window that is open, and nothing sent",
            busy(stamped(without_network(slow_writes(100.0, 0)), [0.0, 90.0, 1.0], 0), 0.0),
            Client,
            0.8,
        ),
        ("all stands still now and then, and what follows is fast", stalls(150.0), Unknown, 0.0),
        ("stamped within a delayed acknowledgement", stamped(slow_network(45.0), [0.0, 0.0, 45.0], 0), Unknown, 0.0),
    ];
    let mut wrong = Vec::new();
    for (name, scene, layer, confidence) in cases {
        let verdict = scene.verdict();
        println!("{name}: {:?} {}\n  {}", verdict.layer, verdict.confidence, verdict.because.join("\n  "));
        if verdict.layer != layer || verdict.confidence < confidence {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_phases_are_means_and_the_wire_is_split_only_when_decided() {
    let decided = slow_writes(100.0, 10).verdict().phases_ms;
    assert_eq!((decided.queue, decided.send, decided.deliver), (Some(0.0), None, Some(0.1)));
    let (network, server) = (decided.network.unwrap(), decided.server.unwrap());
    assert!(network < 1.5 && (network + server - 101.0).abs() < 0.01, "{network} + {server}");

    let held_back = stamped(slow_network(100.0), [98.0, 0.0, 1.0], 0).verdict().phases_ms;
    assert_eq!((held_back.send, held_back.network), (Some(98.0), Some(0.5)));

    let open = jitter().verdict().phases_ms;
    assert_eq!((open.queue, open.network, open.server), (Some(0.0), None, None));
    assert_eq!(slow_system_calls().verdict().phases_ms, model::PhasesMs::default());
}

#[test]
fn the_reasons_carry_the_figures() {
    let because = two_connections().verdict().because.join(" ");
    for part in [
        "10 slow operations took 101 ms on average instead of 1.1 ms (median of 50 before).",
        "100 ms (100 %) between sending and receiving",
        "round trip was 40 ms (300 us before)",
        "Nothing was retransmitted meanwhile.",
        "SMB2_READ took only 1 ms on the same connection meanwhile.",
        "The verdict is about the connection with 97 % of the slow operations' time; slow operations were on 1 connection more.",
    ] {
        assert!(because.contains(part), "{part:?} is not in: {because}");
    }
    let stamps = stamped(slow_network(200.0), [0.0, 2.0, 199.0], 1).verdict().because.join(" ");
    let part = "The kernel timestamped 8 requests: up to 2 ms in TCP's queue, up to 0 ms in this host's queueing discipline, then acknowledged after 199 ms, retransmitted 8 times.";
    assert!(stamps.contains(part), "{stamps}");
    let calls = slow_system_calls().verdict().because.join(" ");
    assert!(calls.contains("5 slow operations took 1.2 s on average instead of 200 us"), "{calls}");
}

#[test]
fn a_longer_path_without_stamps_may_be_the_own_queueing_discipline() {
    let unstamped = longer_path(60.0).verdict();
    let because = unstamped.because.join(" ");
    assert_eq!(unstamped.confidence, 0.85);
    assert!(because.contains("round trips took 60 ms or more, 300 us before"), "{because}");
    assert!(because.contains("Linux 6.14"), "{because}");
    let held = stamped(longer_path(60.0), [59.0, 0.0, 1.0], 0).verdict();
    assert_eq!(held.layer, Layer::Client, "{held:?}");
}

#[test]
fn few_operations_without_a_normal_are_less_sure() {
    let sure = busy_client([0.0, 1.0, 300.0]);
    let mut one = sure.clone();
    one.slow.truncate(1);
    let (sure, one, new) = (sure.verdict(), one.verdict(), without_past(sure.clone()).verdict());
    assert!(one.confidence < sure.confidence && new.confidence < sure.confidence);
    assert_eq!((one.layer, new.layer), (Layer::Client, Layer::Client));
}

#[test]
fn larger_operations_take_longer_without_a_fault() {
    let of = |bytes: u64, ms: f64| {
        let mut scene = SimulatedScene::healthy();
        for index in 0..10 {
            let write = smb("SMB2_WRITE", 1_000.0 + f64::from(index) * 100.0, [0.0, ms, 0.1]);
            scene.slow(Event { bytes, ..write });
        }
        scene.verdict()
    };
    assert_eq!((of(4 << 10, 60.0).layer, of(16 << 10, 60.0).layer), (Layer::Server, Layer::Server));
    assert_eq!(of(1 << 20, 60.0).layer, Layer::Unknown, "20 MB a second is no server's fault");
    assert_eq!(of(1 << 20, 1_000.0).layer, Layer::Server);
}

#[test]
fn a_thread_that_takes_fast_answers_too_may_wait_for_its_cpu_with_them() {
    let no_cpu = |scene: SimulatedScene| scene.verdict().because.iter().any(|why| why.contains("no CPU"));
    assert!(no_cpu(starved(late_writes(0.0), 0.7)));
    assert!(!no_cpu(starved(seldom_late_writes(), 0.1)));
}

#[test]
fn nothing_slow_is_no_verdict() {
    assert_eq!(verdict(&[], &SimulatedScene::healthy().around).layer, Layer::Unknown);
}

/// Forty requests of a kind that is not known, sent at once and answered after 180 ms, while reads are as fast as ever.
fn many_at_once(bytes: u64) -> model::Verdict {
    let mut scene = SimulatedScene::healthy();
    for index in 0..40 {
        let start = 1_000.0 + f64::from(index) * 0.5;
        scene.slow(rtt(0.4, Event { bytes, ..smb("SMB2_CREATE", start, [0.0, 180.0, 0.1]) }));
        scene.fast(rtt(0.4, smb("SMB2_READ", start + 80.0, [0.0, 1.0, 0.1])));
    }
    timestamped(scene, 0).verdict()
}

#[test]
fn a_server_is_not_slow_for_the_bytes_of_all_that_it_answers_at_once() {
    let small = many_at_once(4 << 10);
    assert_eq!(small.layer, Layer::Server, "{small:?}");
    let large = many_at_once(1 << 20);
    assert_eq!(large.layer, Layer::Unknown, "{large:?}");
}

#[test]
fn tcp_holds_requests_back_after_a_loss_too() {
    let held = |retransmitted: u32| {
        let mut scene = busy(stamped(slow_writes(100.0, 0), [0.0, 90.0, 1.0], 0), 0.0);
        let slow = scene.slow.iter_mut().zip(1..);
        slow.for_each(|(event, all)| event.network.retransmits = all * retransmitted);
        scene.verdict()
    };
    assert_eq!(held(0).layer, Layer::Client, "{:?}", held(0));
    assert_ne!(held(1).layer, Layer::Client, "{:?}", held(1));
}
