//! What holds for every verdict.

mod common;

use common::verdict;
use common::{
    MS,
    faults::{SimulatedScene, rtt},
    smb, syscall,
};
use model::{Event, Layer, MountKey, Network, Phases, SendTiming};
use proptest::prelude::*;

/// Who was slow in [`simulated`], by how many milliseconds.
#[derive(Debug, Clone, Copy)]
struct SimulatedFault {
    layer: Layer,
    extra: f64,
    /// Only writes: servers and clients can be choosy, the network cannot.
    writes_only: bool,
}

fn any_fault() -> impl Strategy<Value = SimulatedFault> {
    let layer = prop_oneof![Just(Layer::Client), Just(Layer::Network), Just(Layer::Server)];
    (layer, 20.0..3_000.0, any::<bool>()).prop_map(|(layer, extra, choosy)| SimulatedFault {
        layer,
        extra,
        writes_only: choosy && layer != Layer::Network,
    })
}

/// Where a fault of the client's holds operations up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HeldUpIn {
    Queued,
    /// By its queueing discipline, which only stamps tell from the path.
    Local,
    Delivered,
}

/// Some threads read and write for a second on a path of `network` milliseconds to a server that takes `server`, then
/// the fault begins. The peer delays acknowledgements by up to 40 ms.
fn simulated(
    network: f64,
    server: f64,
    threads: u32,
    fault: SimulatedFault,
    held: HeldUpIn,
    stamped: bool,
) -> SimulatedScene {
    let mut scene = SimulatedScene::default();
    for thread in 0..threads {
        let mut now = f64::from(thread) * 3.0;
        for index in 0..60 {
            let name = if index % 2 == 0 { "SMB2_READ" } else { "SMB2_WRITE" };
            let broken = index >= 40 && (name == "SMB2_WRITE" || !fault.writes_only);
            let extra = |layer| if broken && fault.layer == layer { fault.extra } else { 0.0 };
            let (network, server) = (network + extra(Layer::Network), server + extra(Layer::Server));
            let client = extra(Layer::Client);
            let of = |place| if held == place { client } else { 0.0 };
            let (queue, local, deliver) = (of(HeldUpIn::Queued), of(HeldUpIn::Local), of(HeldUpIn::Delivered));
            let (wire, ack) = (local + network + server, network + server.min(40.0));
            let mut event = rtt(local + ack, smb(name, now, [queue, wire, 0.1 + deliver]));
            if stamped && broken {
                let ns = |ms: f64| (ms * MS as f64) as u64;
                let (local, held, least, most) = (ns(local), 0, ns(ack), ns(ack));
                event.send_timing = Some(SendTiming {
                    sends: 1,
                    local,
                    held,
                    least,
                    most,
                    retransmitted: 0,
                    unacknowledged: 0,
                    gap: false,
                });
            }
            now += queue + network + server + deliver + 1.0;
            if broken { scene.slow(event) } else { scene.fast(event) }
        }
    }
    scene
}

fn any_event() -> impl Strategy<Value = Event> {
    let time = || prop_oneof![0..3_000 * MS, 0..3_000_000_u64, Just(0), Just(u64::MAX / 4)];
    (
        (0_usize..5, time(), time(), time(), time(), time(), 0_u32..3),
        (any::<u32>(), any::<u32>(), 0_u32..20, any::<bool>(), 0_u64..3, 0_u64..2, any::<bool>()),
        prop::option::of((time(), time(), time(), time())),
    )
        .prop_map(
            |(
                (kind, start, duration, queue, wire, deliver, weight),
                (srtt, sample, retransmits, known, link, mount, unanswered),
                timing,
            )| {
                let name = ["SMB2_READ", "SMB2_WRITE", "SMB2_CREATE", "SMB2_CHANGE_NOTIFY", "read"][kind];
                let base = if kind == 4 { syscall(name, 0.0, 0.0) } else { smb(name, 0.0, [0.0; 3]) };
                let mut event = Event { start, duration, weight, mount: MountKey(mount), ..base };
                event.phases = Phases { queue, wire, deliver };
                event.network = Network { srtt_us: srtt, rtt_us: sample, retransmits, known, ..Network::default() };
                event.send_timing = timing.map(|(local, held, least, most)| SendTiming {
                    sends: 1,
                    local,
                    held,
                    least,
                    most,
                    retransmitted: 0,
                    unacknowledged: 0,
                    gap: false,
                });
                event.connection = link;
                event.flags.unanswered = unanswered;
                event
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn one_layer_is_never_blamed_for_another(
        network in 0.1..100.0,
        server in 0.1..30.0,
        threads in 1_u32..4,
        fault in any_fault(),
        held in prop_oneof![Just(HeldUpIn::Queued), Just(HeldUpIn::Local), Just(HeldUpIn::Delivered)],
        stamped: bool,
    ) {
        // Without stamps, what a queueing discipline holds looks like the path.
        let stamped = stamped || held == HeldUpIn::Local;
        let verdict = simulated(network, server, threads, fault, held, stamped).verdict();
        prop_assert!([fault.layer, Layer::Unknown].contains(&verdict.layer), "{:?}", verdict);
        // A delayed acknowledgement may be a longer path, in each of three round trips; and two round trips may be more than usual.
        if fault.extra > 400.0 + 5.0 * network {
            prop_assert_eq!(verdict.layer, fault.layer, "{:?}", verdict);
        }
    }

    #[test]
    fn any_events_give_a_verdict_that_holds_together(
        slow in prop::collection::vec(any_event(), 0..40),
        around in prop::collection::vec(any_event(), 0..80),
    ) {
        let verdict = verdict(&slow, &around);
        prop_assert!((0.0..=1.0).contains(&verdict.confidence), "{}", verdict.confidence);
        prop_assert_eq!(verdict.layer == Layer::Unknown, verdict.confidence == 0.0);
        prop_assert!(!verdict.because.is_empty());
        let phases = verdict.phases_ms;
        for part in [phases.queue, phases.send, phases.network, phases.server, phases.deliver].into_iter().flatten() {
            prop_assert!(part.is_finite() && part >= 0.0);
        }
        prop_assert_eq!(phases.network.is_some(), phases.server.is_some());
        prop_assert!(phases.send.is_none() || slow.iter().chain(&around).any(|event| event.send_timing.is_some()));
    }

    #[test]
    fn without_phases_nobody_is_blamed(
        mut slow in prop::collection::vec(any_event(), 1..40),
        around in prop::collection::vec(any_event(), 0..80),
    ) {
        // Slow calls are judged by the requests below them.
        slow.retain(|event| event.operation.level().is_remote());
        prop_assume!(!slow.is_empty());
        slow.iter_mut().for_each(|event| event.phases = Phases::default());
        let verdict = verdict(&slow, &around);
        prop_assert_eq!((verdict.layer, verdict.confidence), (Layer::Unknown, 0.0));
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        slow in prop::collection::vec(any_event(), 1..20),
        around in prop::collection::vec(any_event(), 0..40),
    ) {
        let backwards = |events: &[Event]| events.iter().rev().cloned().collect::<Vec<_>>();
        let (there, back) = (verdict(&slow, &around), verdict(&backwards(&slow), &backwards(&around)));
        prop_assert_eq!(there.layer, back.layer);
    }
}
