//! What real faults look like: most figures are those of a Samba server and netem on a loopback.

use model::{CpuWait, Event, Network, Phases, Progress, Requester, SendTiming, SocketTotals, Verdict, text::Text};

use super::{MS, smb, syscall, verdict};

/// The flight recorder and what of it was slow.
#[derive(Clone, Default)]
pub struct SimulatedScene {
    pub slow: Vec<Event>,
    pub around: Vec<Event>,
}

impl SimulatedScene {
    /// A second of alternating reads and writes with nothing wrong.
    pub fn healthy() -> Self {
        let mut scene = Self::default();
        for index in 0..100 {
            let name = if index % 2 == 0 { "SMB2_READ" } else { "SMB2_WRITE" };
            scene.fast(smb(name, f64::from(index) * 10.0, [0.0, 1.0, 0.1]));
        }
        scene
    }

    /// A second on a link whose round trip takes so many milliseconds.
    pub fn distant(round_trip: f64) -> Self {
        let mut scene = Self::healthy();
        for event in &mut scene.around {
            event.phases.wire += (round_trip * MS as f64) as u64;
            event.duration = event.phases.wire + event.phases.deliver;
            event.start = event.start.saturating_sub(event.phases.wire);
            event.network.rtt_us = (round_trip * 1e3) as u32;
        }
        scene
    }

    pub fn fast(&mut self, event: Event) {
        self.around.push(recorded(&event));
    }

    pub fn slow(&mut self, event: Event) {
        self.fast(event.clone());
        self.slow.push(event);
    }

    pub fn verdict(&self) -> Verdict {
        verdict(&self.slow, &self.around)
    }
}

/// The recorder leaves names out.
pub fn recorded(event: &Event) -> Event {
    Event { requester: Requester { comm: Text::default(), ..event.requester }, ..event.clone() }
}

pub fn rtt(ms: f64, event: Event) -> Event {
    Event { network: Network { rtt_us: (ms * 1e3) as u32, ..event.network }, ..event }
}

pub fn retransmitted(count: u32, event: Event) -> Event {
    Event { network: Network { retransmits: count, ..event.network }, ..event }
}

pub fn on_connection(connection: u64, event: Event) -> Event {
    Event { connection, ..event }
}

pub fn without_network(mut scene: SimulatedScene) -> SimulatedScene {
    scene.slow.iter_mut().chain(&mut scene.around).for_each(|event| event.network = Network::default());
    scene
}

/// The slow requests' sends were stamped: milliseconds in the queueing discipline, in TCP's queue, until the acknowledgement.
pub fn stamped(mut scene: SimulatedScene, [local, held, ack]: [f64; 3], retransmitted: u32) -> SimulatedScene {
    let ns = |ms: f64| (ms * MS as f64) as u64;
    let (local, held, most) = (ns(local), ns(held), ns(ack));
    let timing = SendTiming { sends: 1, local, held, least: most, most, retransmitted, unacknowledged: 0, gap: false };
    scene.slow.iter_mut().for_each(|event| event.send_timing = Some(timing));
    scene
}

/// The server stamps what it sends: from when the slow operations begin, its segments come this many milliseconds later.
pub fn timestamped(mut scene: SimulatedScene, later: u16) -> SimulatedScene {
    let lag = |event: &mut Event| event.network.arrival_ms = 500 + if event.duration >= 20 * MS { later } else { 0 };
    scene.slow.iter_mut().chain(&mut scene.around).for_each(lag);
    scene.slow.iter_mut().for_each(|event| event.network.min_rtt_us = 250);
    scene
}

/// The server's host stands still for so many milliseconds: what is under way then is answered late, what comes later as fast as ever.
pub fn paused(ms: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..8 {
        let start = 1_000.0 + f64::from(index);
        scene.slow(rtt(ms, smb("SMB2_WRITE", start, [0.0, ms, 0.1])));
    }
    for index in 0..20 {
        scene.fast(smb("SMB2_WRITE", 1_010.0 + ms + f64::from(index) * 5.0, [0.0, 1.0, 0.1]));
    }
    let mut scene = timestamped(scene, 0);
    let after = |event: &&mut Event| event.end() >= (1_000.0 + ms) as u64 * MS;
    scene
        .slow
        .iter_mut()
        .chain(&mut scene.around)
        .filter(after)
        .for_each(|event| event.network.arrival_ms += ms as u16);
    scene
}

/// The requests go to another program of this host, which passes them on.
pub fn passed_on(mut scene: SimulatedScene) -> SimulatedScene {
    scene.slow.iter_mut().for_each(|event| event.flags.passed_on = true);
    scene
}

/// Answers lay in the socket for so many milliseconds until they were taken.
pub fn unread(scene: SimulatedScene, ms: u32) -> SimulatedScene {
    let mut scene = timestamped(scene, 0);
    scene.slow.iter_mut().for_each(|event| event.network.unread_us = ms * 1_000);
    scene
}

/// Of each slow operation's answer, segments arrive out of order: `each` of its 40. The connection had that of so many of its segments `before`.
pub fn out_of_order(scene: SimulatedScene, each: u32, before: u32) -> SimulatedScene {
    let mut scene = scene;
    for (event, index) in scene.slow.iter_mut().zip(0_u32..) {
        event.network.min_rtt_us = 200;
        event.network.segments = 4_000 + 40 * index;
        event.network.out_of_order = before + each * index;
    }
    scene
}

/// The thread that takes answers is ready to run without a CPU for this share of the time.
pub fn starved(scene: SimulatedScene, share: f64) -> SimulatedScene {
    with_progress(scene, |progress, at| progress.receiver = Some(CpuWait { tid: 9, waited_us: (at * share) as u32 }))
}

/// What is sent is acknowledged at 250 kB/s, and something is under way all the time; what waits fits the server's window but for this share of the time.
pub fn busy(scene: SimulatedScene, window: f64) -> SimulatedScene {
    with_progress(scene, |progress, at| {
        let [busy_ms, window_ms] = [at / 1e3, at / 1e3 * window].map(|ms| ms as u32);
        progress.socket = Some(SocketTotals { busy_ms, window_ms, delivery_rate: 250_000, ..SocketTotals::default() });
    })
}

/// What slow operations send waits for 5 ms on the path.
pub fn queueing(mut scene: SimulatedScene) -> SimulatedScene {
    scene.slow.iter_mut().for_each(|event| *event = rtt(5.0, event.clone()));
    scene
}

/// What was read when each slow operation ended, by its time in microseconds.
fn with_progress(mut scene: SimulatedScene, read: impl Fn(&mut Progress, f64)) -> SimulatedScene {
    for event in &mut scene.slow {
        let at = event.end() as f64 / 1e3;
        read(event.progress.get_or_insert_default(), at);
    }
    scene
}

/// Whenever a slow operation ends, packets wait in this host's queueing discipline.
pub fn queued(scene: SimulatedScene) -> SimulatedScene {
    let mut scene = timestamped(scene, 0);
    scene.slow.iter_mut().for_each(|event| event.network.own_queue = 2);
    scene
}

/// Two writes at once, twice a second, behind a token bucket on this host's interface. When the second ends, nothing waits there any more.
pub fn shaped_writes() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..20_u32 {
        let start = 1_000.0 + f64::from(index) * 500.0;
        for (after, wire, own_queue) in [(0.0, 188.0, 4), (54.0, 202.0, 0)] {
            let mut write = rtt(3.0, smb("SMB2_WRITE", start + after, [0.0, wire, 0.1]));
            (write.bytes, write.network.own_queue, write.network.min_rtt_us) = (128 << 10, own_queue, 300);
            let busy_ms = index * 256 + if after > 0.0 { 256 } else { 188 };
            let socket = SocketTotals { busy_ms, delivery_rate: 1_800_000, ..SocketTotals::default() };
            write.progress.get_or_insert_default().socket = Some(socket);
            scene.slow(write);
        }
    }
    scene
}

/// Every third request is lost, and sent again after 200 ms; the others are as fast as ever.
pub fn losing() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..30 {
        let start = 1_000.0 + f64::from(index) * 250.0;
        let lost = index % 3 == 0;
        let event = retransmitted(
            index / 3 + u32::from(lost),
            smb("SMB2_WRITE", start, [0.0, if lost { 204.0 } else { 1.0 }, 0.1]),
        );
        if lost { scene.slow(event) } else { scene.fast(event) }
    }
    scene
}

pub fn without_past(mut scene: SimulatedScene) -> SimulatedScene {
    scene.around.retain(|event| event.start >= 1_000 * MS);
    scene
}

/// A round trip of so many milliseconds more than the loopback's, and a smoothed one that lags behind.
pub fn slow_network(delay: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..8 {
        let mut event =
            rtt(delay + 0.2, smb("SMB2_WRITE", 1_000.0 + f64::from(index) * (delay + 1.0), [0.0, delay + 1.0, 0.1]));
        event.network.srtt_us = 25_000 * (index + 1);
        scene.slow(event);
    }
    scene
}

/// A longer path: reads take one round trip of so many milliseconds, and writes, which the client sends in parts, two.
pub fn longer_path(round_trip: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..8 {
        let start = 1_000.0 + f64::from(index) * 3.0 * (round_trip + 1.0);
        scene.slow(rtt(round_trip, smb("SMB2_READ", start, [0.0, round_trip + 0.2, 0.1])));
        let write = smb("SMB2_WRITE", start + 1.0, [0.0, 2.0 * round_trip + 0.5, 0.1]);
        scene.slow(rtt(round_trip + 0.1, Event { bytes: 16 << 10, ..write }));
    }
    scene
}

/// A server that is slow with everything. It sends the acknowledgement of a small request with the answer, that of a large one at once.
pub fn slow_server(delay: f64, bytes: u64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..8 {
        let start = 1_000.0 + f64::from(index) * 3.0 * delay;
        scene.slow(rtt(delay.min(40.0), smb("SMB2_READ", start, [0.0, delay + 0.2, 0.1])));
        let write = smb("SMB2_WRITE", start + 1.0, [0.0, delay + 0.2, 0.1]);
        scene.slow(rtt(if bytes > 4_096 { 0.2 } else { delay.min(40.0) }, Event { bytes, ..write }));
    }
    scene
}

/// What applications see of it: calls that take as long as the requests below them.
pub fn seen_by_calls(mut scene: SimulatedScene) -> SimulatedScene {
    let call = |event: &Event| {
        let ms = |ns: u64| ns as f64 / MS as f64;
        Event { mount: event.mount, ..syscall("read", ms(event.start) - 0.1, ms(event.duration) + 0.2) }
    };
    scene.slow = scene.slow.iter().map(call).collect();
    scene
}

/// Calls of 900 ms; what they ask the server is answered at once, with this status, and asked again after 100 ms.
pub fn put_off(status: u32) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..10 {
        let start = 1_000.0 + f64::from(index) * 1_000.0;
        scene.slow.push(Event { mount: smb("SMB2_READ", 0.0, [0.0; 3]).mount, ..syscall("read", start, 900.0) });
        for time in 0..9 {
            scene.fast(Event { status, ..smb("SMB2_CREATE", start + f64::from(time) * 100.0, [0.0, 1.0, 0.1]) });
        }
    }
    scene
}

/// A network that turned slow just now: the first request was sent again while its acknowledgement was on the way, so that the only
/// round trip of its flight is one of the second sending; the peer called that needless, later. (Measured, Linux 6.1, netem.)
pub fn onset() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for (start, wire, sample, retransmits) in
        [(1_000.0, 219.0, 4.5, 1), (1_271.0, 206.0, 201.5, 0), (1_532.0, 209.2, 208.2, 0)]
    {
        scene.slow(retransmitted(retransmits, rtt(sample, smb("SMB2_WRITE", start, [0.0, wire, 0.1]))));
    }
    scene
}

/// Writes of 16 KiB, each 100 ms late, for so many of which it is not sent.
pub fn late_writes(queued: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..30 {
        let write = smb("SMB2_WRITE", 1_000.0 + f64::from(index) * 40.0, [queued, 101.0 - queued, 0.1]);
        scene.slow(rtt(0.4, Event { bytes: 16 << 10, ..write }));
    }
    timestamped(scene, 0)
}

/// A write of 100 ms each second, not sent for 60 of them, and all the time reads that are as fast as ever.
pub fn seldom_late_writes() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for second in 1..11 {
        let start = f64::from(second) * 1_000.0;
        for read in 0..500 {
            scene.fast(rtt(0.4, smb("SMB2_READ", start + f64::from(read) * 2.0, [0.0, 1.9, 0.0])));
        }
        scene.slow(rtt(0.4, smb("SMB2_WRITE", start, [60.0, 40.0, 0.1])));
    }
    timestamped(scene, 0)
}

/// Writes that take so many milliseconds, answered one after the other; TCP takes such a round trip meanwhile. Something is under way all the time, and never enough for TCP to know the path's
/// rate.
pub fn shared(gap: f64, round_trip: f64, wire: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    scene.around.iter_mut().zip(300..).for_each(|(event, us)| event.network.rtt_us = us);
    for index in 0..60 {
        let write = smb("SMB2_WRITE", 1_000.0 + f64::from(index) * gap, [0.0, wire, 0.1]);
        scene.slow(rtt(round_trip + f64::from(index % 7), Event { bytes: 16 << 10, ..write }));
    }
    let mut scene = busy(timestamped(scene, 0), 0.0);
    let sockets = scene.slow.iter_mut().filter_map(|event| event.progress.as_mut()?.socket.as_mut());
    sockets.for_each(|socket| socket.application_limited = true);
    scene
}

/// Every other requester wakes late: its operation ends after one that was answered later, and acknowledged sooner.
pub fn ended_late(mut scene: SimulatedScene) -> SimulatedScene {
    for event in scene.slow.iter_mut().chain(&mut scene.around).filter(|event| event.duration >= 20 * MS) {
        if (event.start / MS / 45).is_multiple_of(2) {
            event.duration += 46 * MS;
            event.phases.deliver += 46 * MS;
        } else {
            event.network.rtt_us /= 10;
        }
    }
    scene
}

/// TCP spaces what it sends.
pub fn paced(mut scene: SimulatedScene) -> SimulatedScene {
    for event in &mut scene.slow {
        let socket = event.progress.as_mut().and_then(|progress| progress.socket.as_mut());
        socket.into_iter().for_each(|socket| socket.pacing_rate = 1_000_000);
    }
    scene
}

/// smbd sleeps in every write, and acknowledges what takes longer than 40 ms with a delay.
pub fn slow_writes(delay: f64, reads: u32) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..10 {
        let start = 1_000.0 + f64::from(index) * (delay + 10.0);
        scene.slow(rtt(delay.min(40.0), smb("SMB2_WRITE", start, [0.0, delay + 1.0, 0.1])));
        if index < reads {
            scene.fast(rtt(0.4, smb("SMB2_READ", start + delay + 2.0, [0.0, 1.0, 0.1])));
        }
    }
    scene
}

/// For 280 ms of each 800 nobody is answered, wherever that is: who waited goes on with a close, and all is as fast as ever until the next time.
pub fn stalls(round_trip: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for time in 0..10 {
        let from = 1_000.0 + f64::from(time) * 800.0;
        for (name, asked) in [("SMB2_WRITE", 0.0), ("SMB2_READ", 50.0)] {
            scene.slow(rtt(round_trip, smb(name, from + asked, [0.0, 280.0 - asked, 0.1])));
            scene.fast(rtt(0.3, smb("SMB2_CLOSE", from + 281.0 + asked / 100.0, [0.0, 0.3, 0.1])));
        }
        for index in 0..10 {
            let name = if index % 2 == 0 { "SMB2_READ" } else { "SMB2_WRITE" };
            scene.fast(rtt(0.3, smb(name, from + 300.0 + f64::from(index) * 40.0, [0.0, 1.0, 0.1])));
        }
    }
    scene
}

/// Nobody is answered until the end, when all are; the peer's kernel acknowledged every request, or none.
pub fn silence(ms: f64, retransmissions: u32, round_trip: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..4 {
        let name = if index % 2 == 0 { "SMB2_READ" } else { "SMB2_WRITE" };
        let start = 1_000.0 + f64::from(index);
        scene
            .slow(retransmitted(retransmissions, rtt(round_trip, smb(name, start, [0.0, ms - f64::from(index), 0.1]))));
    }
    scene
}

/// Two commands take all credits for half a second; others wait for them.
pub fn no_credits(round_trip: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..2 {
        scene.slow(rtt(round_trip, smb("SMB2_WRITE", 1_000.0 + f64::from(index), [0.0, 500.0, 0.1])));
    }
    for index in 2..30 {
        let start = 1_000.0 + f64::from(index);
        scene.slow(rtt(round_trip, smb("SMB2_WRITE", start, [1_501.0 - start, 20.0, 0.1])));
    }
    scene
}

pub fn busy_client(phases: [f64; 3]) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..5 {
        scene.slow(smb("SMB2_READ", 1_000.0 + f64::from(index) * 20.0, phases));
    }
    scene
}

/// One segment in ten is lost: either kind of operation waits for the retransmission, others are as fast as ever.
pub fn lossy_network(retransmissions: u32) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..30_u32 {
        let (start, lost) = (1_000.0 + f64::from(index) * 250.0, (index / 10 + 1) * retransmissions);
        if index % 10 == 0 {
            scene.slow(retransmitted(lost, smb("SMB2_WRITE", start, [0.0, 215.0, 0.1])));
        } else {
            scene.fast(retransmitted(lost, smb("SMB2_CREATE", start, [0.0, 1.0, 0.1])));
        }
    }
    scene
}

/// One write hangs, and others come and go `until` so many milliseconds after it was asked; the kernel took no round-trip sample.
pub fn hung_write(until: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    scene.slow(rtt(0.0, smb("SMB2_WRITE", 1_000.0, [0.0, 2_000.0, 0.1])));
    for index in 0..5 {
        scene.fast(rtt(0.0, smb("SMB2_WRITE", 1_100.0 + f64::from(index) * (until - 100.0) / 4.0, [0.0, 1.0, 0.1])));
    }
    scene
}

/// What waits by design is no late answer.
pub fn with_notification(mut scene: SimulatedScene) -> SimulatedScene {
    scene.fast(smb("SMB2_CHANGE_NOTIFY", 500.0, [0.0, 700.0, 0.1]));
    scene
}

/// Nobody is answered, and a few requesters do not wait for long.
pub fn given_up() -> SimulatedScene {
    let mut scene = without_network(silence(2_500.0, 0, 0.0));
    for index in 0..5 {
        let mut event = smb("SMB2_CREATE", 1_500.0 + f64::from(index), [0.0, 5.0, 0.1]);
        event.network = Network::default();
        event.flags.unanswered = true;
        scene.fast(event);
    }
    scene
}

/// Each slow operation's request was sent twice, as when a loss probe overtakes a delayed acknowledgement.
pub fn probed(mut scene: SimulatedScene) -> SimulatedScene {
    for events in [&mut scene.slow, &mut scene.around] {
        let slow = events.iter_mut().filter(|event| event.start >= 1_000 * MS);
        (1..).zip(slow).for_each(|(count, event)| event.network.retransmits = count);
    }
    scene
}

/// Reads are sent after the slow operations, and answered before.
pub fn overtaken(mut scene: SimulatedScene) -> SimulatedScene {
    for event in scene.slow.clone() {
        let (start, duration) = (event.start as f64 / MS as f64, event.duration as f64 / MS as f64);
        for share in [0.1, 0.5, 0.9] {
            scene.fast(smb("SMB2_READ", start + duration * share, [0.0, 1.0, 0.1]));
        }
    }
    scene
}

/// Some packets take 45 ms, others of the same kind of operation none: the peer's delay or the path's.
pub fn jitter() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..20 {
        let start = 1_000.0 + f64::from(index) * 50.0;
        if index % 2 == 0 {
            scene.slow(rtt(45.0, smb("SMB2_READ", start, [0.0, 45.0, 0.1])));
        } else {
            scene.fast(smb("SMB2_READ", start, [0.0, 1.0, 0.1]));
        }
    }
    scene
}

/// A request is lost, and answers are; what is asked for shortly before they are sent again is answered at once.
pub fn lost_answers() -> SimulatedScene {
    let mut scene = SimulatedScene::healthy();
    for index in 0..10 {
        let start = 1_000.0 + f64::from(index) * 400.0;
        scene.slow(retransmitted(1, rtt(0.5, smb("SMB2_WRITE", start, [0.0, 354.0, 0.1]))));
        scene.fast(retransmitted(1, rtt(0.5, smb("SMB2_CREATE", start + 345.0, [0.0, 5.0, 0.1]))));
    }
    scene
}

pub fn reconnection() -> SimulatedScene {
    let mut scene = silence(6_000.0, 0, 0.3);
    scene.around.iter_mut().filter(|event| event.start < 1_000 * MS).for_each(|event| event.network.retransmits = 3);
    scene
}

pub fn distant_and_slow(delay: f64, round_trip: f64) -> SimulatedScene {
    let mut scene = SimulatedScene::distant(150.0);
    for index in 0..10 {
        let start = 1_200.0 + f64::from(index) * 10.0;
        scene.slow(rtt(round_trip, smb("SMB2_READ", start, [0.0, 150.0 + delay, 0.1])));
    }
    scene
}

/// All operations move 16 KiB, which may need one round trip of 150 ms more after idle time.
pub fn slower_large_operations(delay: f64) -> SimulatedScene {
    let mut scene = distant_and_slow(delay, 150.0);
    scene.slow.iter_mut().chain(&mut scene.around).for_each(|event| event.bytes = 16 << 10);
    scene
}

pub fn stuck_in_no_phase() -> SimulatedScene {
    let mut scene = busy_client([0.0, 1.0, 0.1]);
    scene.slow.iter_mut().chain(&mut scene.around).filter(|event| event.start >= 1_000 * MS).for_each(|event| {
        event.duration = 500 * MS;
    });
    scene
}

pub fn two_connections() -> SimulatedScene {
    let mut scene = slow_writes(100.0, 10);
    scene.slow(on_connection(2, smb("SMB2_READ", 1_000.0, [0.0, 1.0, 30.0])));
    scene
}

pub fn slow_mount_without_phases() -> SimulatedScene {
    let mut scene = slow_network(200.0);
    scene.slow.iter_mut().for_each(|event| event.phases = Phases::default());
    scene
}

pub fn slow_system_calls() -> SimulatedScene {
    let mut scene = SimulatedScene::default();
    (0..50).for_each(|index| scene.fast(syscall("read", f64::from(index), 0.2)));
    (0..5).for_each(|index| scene.slow(syscall("read", 1_000.0 + f64::from(index), 1_200.0)));
    scene
}
