//! What changed: who the time beyond normal belongs to, and what would have been without them.

mod common;

use common::{
    MS,
    faults::{self, SimulatedScene},
    smb,
};
use model::{Cause, Changed, Event, Layer, MountKey, Requester, text::Text};
use plumbline_diagnose::{changed, long_term::LongTerm};

fn of(pid: u32, comm: &str, bytes: u64, event: Event) -> Event {
    let requester = Requester { pid, tid: pid, comm: Text::new(comm.as_bytes()), ..event.requester };
    Event { requester, bytes, ..event }
}

fn attributed(scene: &SimulatedScene, from: u64, to: u64) -> Vec<Changed> {
    changed((from, to), &scene.slow, &scene.around, &LongTerm::default(), false)
}

/// Ten seconds of a hundred operations each of `mail`; in the last of them a backup reads with 64 KiB, ten times `each` of 200 ms.
fn backup(each: u32) -> SimulatedScene {
    let mut scene = SimulatedScene::default();
    for index in 0..1_000 {
        scene.fast(of(10, "mail", 4096, smb("SMB2_READ", f64::from(index) * 10.0, [0.0, 1.0, 0.0])));
    }
    for index in 0..10 * each {
        let read = smb("SMB2_READ", 9_000.0 + f64::from(index % 10) * 80.0, [0.0, 200.0, 0.0]);
        let mut read = of(4711, "backup", 65_536, read);
        read.requester.tid += index / 10;
        scene.slow(read);
    }
    scene
}

#[test]
fn the_time_beyond_normal_belongs_to_somebody_without_whom_all_would_be_well() {
    let listed = attributed(&backup(1), 9_000 * MS, 10_000 * MS);
    let names: Vec<_> = listed.iter().map(|one| (one.by.as_str(), one.name.as_str())).collect();
    let wanted = [("process", "backup (4711): SMB2_READ of 64 KiB"), ("operation", "SMB2_READ of 64 KiB")];
    assert_eq!(names, wanted, "the only connection is what all others say");
    let process = &listed[0];
    assert_eq!((process.share, process.per_second, process.normally_per_second), (1.0, 10.0, Some(0.0)));
    assert_eq!((process.p99_ms, process.p99_without_ms), (Some(200.0), Some(1.0)));
    assert_eq!(
        process.said,
        "backup (4711): SMB2_READ of 64 KiB: 100 % of the time beyond normal, 10 a second (normally none). \
         Without them, the 99th percentile would have been 1 ms instead of 200 ms."
    );
}

#[test]
fn processes_of_one_name_are_one_and_where_all_are_slow_nothing_is_said_of_others() {
    let mut scene = backup(1);
    for (index, event) in scene.slow.iter_mut().enumerate() {
        event.requester.pid = 4711 + index as u32 % 3;
    }
    scene.around = scene.slow.clone();
    let listed = attributed(&scene, 9_000 * MS, 10_000 * MS);
    assert_eq!(listed[0].name, "backup (3 processes): SMB2_READ of 64 KiB");
    assert_eq!((listed[0].normally_per_second, listed[0].p99_without_ms), (None, None));
}

#[test]
fn failures_count_alike_and_nothing_anomalous_is_no_change() {
    let mut scene = backup(1);
    scene.slow.truncate(4);
    scene.slow.iter_mut().for_each(|event| event.flags.failed = true);
    scene.around.clone_from(&scene.slow);
    let listed = changed((9_000 * MS, 10_000 * MS), &scene.slow, &scene.around, &LongTerm::default(), true);
    assert_eq!((listed[0].share, listed[0].p99_ms), (1.0, None));
    assert!(listed[0].said.contains("100 % of the failures"), "{}", listed[0].said);
    assert_eq!(attributed(&SimulatedScene::default(), 0, 1), []);
}

#[test]
fn a_burst_of_somebodys_own_making_is_no_slow_server() {
    let burst = backup(8).verdict();
    assert_eq!((burst.layer, burst.cause), (Layer::Client, Some(Cause::Burst)), "{burst:?}");
    assert!(burst.because.join(" ").contains("came from backup (4711)"), "{burst:?}");
    // As many operations as ever, and a server that is slow with some.
    let slow = faults::slow_writes(100.0, 10).verdict();
    assert_eq!(slow.layer, Layer::Server, "{slow:?}");
}

#[test]
fn a_burst_on_another_mount_of_the_same_server_is_no_slow_server_either() {
    let elsewhere = |event: Event| Event { mount: MountKey(77), connection: 77, ..event };
    let judged = |each: u32| {
        let mut scene = SimulatedScene::default();
        let busy: Vec<_> = backup(each).around.into_iter().map(elsewhere).collect();
        for index in 0..1_000 {
            let read = |wire| of(10, "mail", 4096, smb("SMB2_READ", f64::from(index) * 10.0, [0.0, wire, 0.0]));
            if index < 900 { scene.fast(read(1.0)) } else { scene.slow(read(80.0)) }
        }
        plumbline_diagnose::judge("latency", &scene.slow, &scene.around, &busy, &LongTerm::default())
    };
    let burst = judged(8);
    assert_eq!((burst.layer, burst.cause), (Layer::Client, Some(Cause::Burst)), "{burst:?}");
    assert!(burst.because.join(" ").contains("load on another mount of the same server was much higher"), "{burst:?}");
    assert_eq!(judged(0).layer, Layer::Server, "the other mount is as busy as ever");
}

#[test]
fn a_few_large_writes_are_a_burst_unless_each_takes_too_long() {
    let flush = |each_ms: f64| {
        let mut scene = SimulatedScene::default();
        for index in 0..900 {
            scene.fast(of(10, "mail", 4096, smb("SMB2_WRITE", f64::from(index) * 10.0, [0.0, 1.0, 0.0])));
        }
        for index in 0..4 {
            let write = smb("SMB2_WRITE", 9_000.0 + f64::from(index) * 10.0, [0.0, each_ms, 0.0]);
            scene.slow(of(4711, "dd", 4 << 20, write));
        }
        scene.verdict()
    };
    let healthy = flush(150.0);
    assert_eq!((healthy.layer, healthy.cause), (Layer::Client, Some(Cause::Burst)), "100 MB/s: {healthy:?}");
    let slow = flush(3_000.0);
    assert_ne!(slow.layer, Layer::Client, "6 MB/s: {slow:?}");
}

/// Sixteen threads ask for attributes all the time: of a server that takes 1 ms for each, and then `slower` times as much.
fn metadata(slower: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::default();
    let ask =
        |thread: u32, start: f64, wire: f64| of(10 + thread, "find", 0, smb("SMB2_CREATE", start, [0.0, wire, 0.0]));
    for thread in 0..16 {
        (0..9_000).step_by(2).for_each(|ms| scene.fast(ask(thread, f64::from(ms), 1.3)));
        (0..20).for_each(|turn| {
            scene.slow(ask(thread, 9_000.0 + f64::from(turn) * 1.3 * slower, 1.3 * slower));
        });
    }
    scene
}

#[test]
fn a_server_that_is_slow_under_the_same_load_is_not_excused_by_a_burst() {
    let slow = metadata(20.0).verdict();
    assert_eq!(slow.layer, Layer::Server, "nobody asked for more: {slow:?}");
    // An idle while, and then a load.
    let mut scene = backup(8);
    scene.around.retain(|event| event.start >= 9_000 * MS || event.start < MS);
    let first = scene.around.iter().map(|event| event.start).min();
    assert_eq!(first, Some(0));
    let judged = scene.verdict();
    assert_ne!(judged.cause, Some(Cause::Burst), "{judged:?}");
}

#[test]
fn what_ended_after_an_incident_is_none_of_it() {
    let mut scene = backup(1);
    (0..6_000).for_each(|index| {
        scene.fast(of(10, "mail", 4096, smb("SMB2_READ", 10_100.0 + f64::from(index) * 10.0, [0.0, 1.0, 0.0])));
    });
    let listed = attributed(&scene, 9_000 * MS, 10_000 * MS);
    assert_eq!(listed, attributed(&backup(1), 9_000 * MS, 10_000 * MS));
}

#[test]
fn attributing_many_operations_takes_no_time_to_speak_of() {
    let mut scene = SimulatedScene::default();
    for index in 0..16_384_u32 {
        let event = smb("SMB2_READ", 1_000.0 + f64::from(index) * 0.1, [0.0, 30.0, 0.0]);
        let names = ["mail", "backup", "find"];
        let event = of(10 + index % 3, names[index as usize % 3], 4096 << (index % 3), event);
        scene.slow(Event { connection: u64::from(index % 3) + 1, ..event });
    }
    let began = std::time::Instant::now();
    let listed = attributed(&scene, 1_000 * MS, 4_000 * MS);
    println!("{} groups of {} operations in {:?}", listed.len(), scene.slow.len(), began.elapsed());
    assert_eq!(listed.len(), 9);
}
