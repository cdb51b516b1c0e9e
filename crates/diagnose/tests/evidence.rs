//! Verdicts that rest on one piece of evidence: with it, the layer is named; without it, another or none is.

mod common;

use common::faults::*;
use common::{MS, smb};
use model::{Cause, CpuWait, Event, Layer, Progress, RequesterWaits, SendTiming, SocketTotals, Verdict};

/// Writes of 100 ms on connection 1. By the server's timestamps, the way back is as short as ever.
fn slow_connection() -> SimulatedScene {
    timestamped(slow_writes(100.0, 0), 0)
}

/// Meanwhile, the same mount's connections 2 and up have such writes, each of so many milliseconds.
fn with_others(mut scene: SimulatedScene, wires: &[f64]) -> SimulatedScene {
    for (wire, connection) in wires.iter().zip(2..) {
        for index in 0..8 {
            let write = smb("SMB2_WRITE", 1_005.0 + f64::from(index) * 110.0, [0.0, *wire, 0.1]);
            scene.fast(on_connection(connection, write));
        }
    }
    scene
}

#[test]
fn a_server_is_not_slow_on_one_of_several_connections() {
    let said = with_others(slow_connection(), &[1.0, 100.0, 1.0]).verdict();
    assert_eq!(said.layer, Layer::Network, "{said:?}");
    assert!(
        said.because.iter().any(|because| because.starts_with("2 other connections of the same mount had 16 such"))
    );
    for all in [&[100.0, 100.0][..], &[]] {
        let said = with_others(slow_connection(), all).verdict();
        assert_eq!(said.layer, Layer::Server, "{said:?}");
    }
    let mut elsewhere = with_others(slow_connection(), &[1.0]);
    elsewhere.around.iter_mut().filter(|event| event.connection == 2).for_each(|event| event.mount.0 += 1);
    assert_eq!(elsewhere.verdict().layer, Layer::Server, "another mount's connection may be another server's");
}

/// For this share of each slow operation, its thread was ready to run and had no CPU.
fn starving(mut scene: SimulatedScene, share: f64) -> SimulatedScene {
    for event in &mut scene.slow {
        let during_us = Some((event.duration as f64 * share / 1e3) as u32);
        let cpu = CpuWait { tid: event.requester.tid, waited_us: 1 };
        let requester = Some(RequesterWaits { cpu, during_us, ..RequesterWaits::default() });
        event.progress = Some(Box::new(Progress { requester, ..Progress::default() }));
    }
    scene
}

#[test]
fn a_thread_without_a_cpu_sends_late() {
    let said = starving(slow_connection(), 0.8).verdict();
    assert_eq!(said.layer, Layer::Client, "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("while the requester had no CPU")), "{said:?}");
    assert_eq!(starving(slow_connection(), 0.1).verdict().layer, Layer::Server);
    // It also does something else than to send and to wait.
    let mut several = starving(slow_connection(), 0.8);
    for index in 0..10 {
        several.fast(smb("SMB2_READ", 1_050.0 + f64::from(index) * 110.0, [0.0, 1.0, 0.1]));
    }
    assert_ne!(several.verdict().layer, Layer::Client);
}

/// Others take all slots of a session to a server that is 50 ms away. A kind of request that was not seen before waits for one, and is then
/// answered in so many milliseconds.
fn without_slot(wire: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::distant(50.0);
    for index in 0..12 {
        let start = 2_000.0 + f64::from(index) * 20.0;
        scene.slow(rtt(50.0, smb("SMB2_CREATE", start, [200.0, wire, 0.1])));
    }
    scene
}

#[test]
fn a_request_of_a_new_kind_takes_a_round_trip_at_least() {
    let said = without_slot(50.2).verdict();
    assert_eq!(said.layer, Layer::Client, "{said:?}");
    assert_eq!(without_slot(150.0).verdict().layer, Layer::Unknown);
}

/// Something on the way back holds large segments for 30 ms. What is answered in small ones meanwhile waits for them in the socket, and is read right after
/// them.
fn large_segments_held() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..10 {
        let start = 1_000.0 + f64::from(index) * 200.0;
        scene.slow(rtt(30.2, Event { bytes: 16 << 10, ..smb("SMB2_READ", start, [0.0, 90.0, 0.1]) }));
        scene.fast(rtt(30.2, smb("SMB2_CREATE", start + 71.0, [0.0, 19.1, 0.1])));
    }
    let mut scene = timestamped(scene, 30);
    let held = |event: &&mut Event| event.start >= 1_000 * MS;
    scene.around.iter_mut().filter(held).for_each(|event| event.network.arrival_ms = 530);
    scene
}

#[test]
fn a_clock_does_not_stand_still_for_one_late_answer() {
    let said = large_segments_held().verdict();
    assert_eq!(said.layer, Layer::Network, "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("the way back became 30 ms longer")), "{said:?}");
}

/// Reads of 1 MiB one after the other: each takes four seconds instead of 20 ms, and its last segment comes this many
/// milliseconds later than usual. Round trips take 100 ms instead of 0.3.
fn large_reads(later: [u16; 12]) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    let read = |start, ms| Event { bytes: 1 << 20, ..smb("SMB2_READ", start, [0.0, ms, 0.1]) };
    for index in 0..10 {
        scene.fast(rtt(0.3, read(100.0 + f64::from(index) * 50.0, 20.0)));
    }
    for index in 0..12 {
        scene.slow(rtt(100.0, read(1_000.0 + f64::from(index) * 4_100.0, 4_000.0)));
    }
    let mut scene = timestamped(scene, 0);
    scene.slow.iter_mut().zip(later).for_each(|(event, later)| event.network.arrival_ms = 500 + later);
    scene
}

#[test]
fn large_answers_that_are_late_by_varying_times_fill_the_path() {
    let said = large_reads([40, 150, 55, 210, 90, 120, 40, 80, 170, 60, 130, 100]).verdict();
    assert_eq!((said.layer, said.cause), (Layer::Network, Some(Cause::NarrowPath)), "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("they queue on the way back")), "{said:?}");
}

#[test]
fn a_longer_path_does_not_explain_a_slow_server() {
    let said = large_reads([40; 12]).verdict();
    assert_eq!(said.layer, Layer::Server, "{said:?}");
}

/// Reads of 128 KiB one after the other, of 400 ms each, from a server that is 20 ms away. This host offers a receive window of so many bytes.
fn reads_by_window(own_window: u32) -> SimulatedScene {
    let mut scene = SimulatedScene::distant(20.0);
    for index in 0..12 {
        let read = smb("SMB2_READ", 2_000.0 + f64::from(index) * 410.0, [0.0, 400.0, 0.1]);
        let mut read = rtt(20.0, Event { bytes: 128 << 10, ..read });
        read.network.min_rtt_us = 20_000;
        read.progress = Some(Box::new(Progress {
            socket: Some(SocketTotals { own_window, ..SocketTotals::default() }),
            ..Progress::default()
        }));
        scene.slow(read);
    }
    scene
}

#[test]
fn a_small_receive_window_of_this_host_makes_reads_slow() {
    let said = reads_by_window(8 << 10).verdict();
    assert_eq!((said.layer, said.cause), (Layer::Client, Some(Cause::OwnWindow)), "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("at most 8 KiB")), "{said:?}");
    // The answers do not fill a larger one, and nothing is known of it without a reading.
    assert_eq!(reads_by_window(64 << 10).verdict().layer, Layer::Server);
    assert_eq!(reads_by_window(0).verdict().layer, Layer::Server);
}

#[test]
fn a_small_receive_window_makes_other_requests_wait_behind_reads() {
    // Only other requests are judged, as where a rule looks at one kind of operation. They begin so many milliseconds after a read did.
    let behind = |later: f64| {
        let mut scene = reads_by_window(8 << 10);
        for read in std::mem::take(&mut scene.slow) {
            let create = smb("SMB2_CREATE", read.start as f64 / 1e6 + later, [0.0, 398.0, 0.1]);
            scene.slow(Event { network: read.network, progress: read.progress, ..create });
        }
        scene.verdict()
    };
    let said = behind(1.0);
    assert_eq!((said.layer, said.cause), (Layer::Client, Some(Cause::OwnWindow)), "{said:?}");
    // The reads are answered when these begin.
    let said = behind(405.0);
    assert_ne!(said.cause, Some(Cause::OwnWindow), "{said:?}");
}

#[test]
fn a_window_that_became_larger_at_the_end_is_not_the_usual_one() {
    let mut scene = reads_by_window(8 << 10);
    let last = scene.slow.last_mut().and_then(|read| read.progress.as_mut());
    last.and_then(|progress| progress.socket.as_mut()).unwrap().own_window = 1 << 20;
    let said = scene.verdict();
    assert_eq!((said.layer, said.cause), (Layer::Client, Some(Cause::OwnWindow)), "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("at most 8 KiB")), "{said:?}");
}

/// Twelve times, the path holds a request for 300 ms, and TCP holds the second one, in two parts, behind it.
fn behind_an_unacknowledged_request() -> Verdict {
    let ns = |ms: f64| (ms * MS as f64) as u64;
    let mut scene = SimulatedScene::healthy();
    for index in 0..12 {
        let start = 2_000.0 + f64::from(index) * 1_000.0;
        let timing = |sends, held: f64, ack: f64| SendTiming {
            sends,
            local: 0,
            held: ns(held),
            least: ns(ack),
            most: ns(ack),
            retransmitted: 0,
            unacknowledged: 0,
            gap: false,
        };
        let socket = Some(SocketTotals { segments_out: 9, ..SocketTotals::default() });
        for (start, timing) in [(start, timing(1, 0.0, 300.0)), (start + 10.0, timing(2, 285.0, 2.0))] {
            let read = smb("SMB2_READ", start, [0.0, 302.0, 0.1]);
            let progress = Some(Box::new(Progress { socket, ..Progress::default() }));
            scene.slow(rtt(0.3, Event { send_timing: Some(timing), progress, ..read }));
        }
    }
    scene.verdict()
}

#[test]
fn a_request_waits_behind_an_unacknowledged_one() {
    let network = behind_an_unacknowledged_request().phases_ms.network.unwrap();
    assert!(network > 100.0, "{network}");
}

/// Slow writes of so many bytes whose segments are so large, by a route with an MTU of so many bytes. `before`: the size of segments before; 0: not known.
fn writes_by_segments(bytes: u64, before: u16, mss: u16, route_mtu: u16) -> Verdict {
    let mut scene = timestamped(slow_writes(300.0, 0), 0);
    let since = scene.slow.iter().map(|event| event.start).min().unwrap_or(0);
    for event in scene.slow.iter_mut().chain(&mut scene.around) {
        event.bytes = bytes;
        let (mss, route_mtu) = if event.start < since { (before, 0) } else { (mss, route_mtu) };
        let socket = SocketTotals { mss, route_mtu, segments_out: 9, ..SocketTotals::default() };
        event.progress.get_or_insert_default().socket = Some(socket);
    }
    scene.verdict()
}

#[test]
fn an_mtu_of_this_hosts_route_makes_segments_small() {
    let said = writes_by_segments(16 << 10, 1448, 148, 200);
    assert_eq!((said.layer, said.cause), (Layer::Client, Some(Cause::OwnMtu)), "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("at most 148 bytes instead of 1448")), "{said:?}");
    assert_eq!(writes_by_segments(16 << 10, 0, 148, 200).cause, Some(Cause::OwnMtu), "no host needs such an MTU");
    // Segments of the usual size, segments that are small for another reason, a route without an MTU, an MTU that may have been there always, jumbo
    // frames before, and requests of one segment.
    for (bytes, before, mss, route_mtu) in [
        (16 << 10, 1448, 1448, 1500),
        (16 << 10, 1448, 148, 1500),
        (16 << 10, 1448, 148, 0),
        (16 << 10, 0, 748, 800),
        (16 << 10, 8948, 1248, 1300),
        (100, 1448, 148, 200),
    ] {
        let said = writes_by_segments(bytes, before, mss, route_mtu);
        assert_eq!(said.layer, Layer::Server, "{bytes} {before} {mss} {route_mtu}");
    }
}

#[test]
fn a_slow_service_does_not_lengthen_the_smoothed_round_trip() {
    let scene = |ms: u32| {
        let mut scene = timestamped(slow_writes(300.0, 0), 0);
        scene.slow.iter_mut().for_each(|event| event.network.srtt_us = ms * 1_000);
        scene
    };
    let smoothed = |ms: u32| scene(ms).verdict();
    assert_eq!(smoothed(50).layer, Layer::Server, "a delayed acknowledgement");
    assert_eq!(stamped(scene(90), [0.0, 0.0, 1.0], 0).verdict().layer, Layer::Server, "the stamps say more");
    let said = smoothed(90);
    assert_eq!(said.layer, Layer::Unknown, "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("smoothed round trip was 90 ms")), "{said:?}");
}

/// Slow writes of 300 ms, each of which TCP sent again after its timeout. The server had the segments all the same.
fn held_for_a_timeout(timeouts: u32) -> SimulatedScene {
    let mut scene = timestamped(slow_writes(300.0, 0), 0);
    let since = scene.slow.iter().map(|event| event.start).min().unwrap_or(0);
    for event in scene.slow.iter_mut().chain(scene.around.iter_mut().filter(|event| event.start >= since)) {
        let so_far = timeouts * u32::from(event.start > since);
        let socket = SocketTotals { timeouts: so_far, needless: so_far, segments_out: 9, ..SocketTotals::default() };
        event.progress.get_or_insert_default().socket = Some(socket);
    }
    scene
}

#[test]
fn a_slow_service_acknowledges_in_time() {
    assert_eq!(held_for_a_timeout(0).verdict().layer, Layer::Server);
    let said = held_for_a_timeout(3).verdict();
    assert_eq!(said.layer, Layer::Unknown, "{said:?}");
    assert!(said.because.iter().any(|because| because.contains("ran out 3 times")), "{said:?}");
}
