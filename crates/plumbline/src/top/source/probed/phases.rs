//! Where the time of requests goes, from the operations that the flight recorder has, mount by mount.

use std::collections::BTreeMap;

use model::{Event, MountKey};

use crate::top::model::{PhaseTimes, TopOperations};

/// Sums over the operations whose phases are known, nanoseconds.
#[derive(Default)]
struct Sums {
    count: u64,
    queue: u64,
    deliver: u64,
    /// Of those whose round trip is known.
    with_round_trip: u64,
    wire: u64,
    round_trip: u64,
}

/// Means by mount. What goes by phases is what the probes of requests see: of a mount without them there is nothing.
///
/// `send` is what TCP's sends waited for on this host, where the tcp probe times them. The network's part is a round trip of the connection, the
/// server's what is left of the time on the wire. A verdict weighs more than that: this is how things look.
pub fn of(events: &[Event], operations: &[TopOperations], label: impl Fn(MountKey) -> String) -> Vec<PhaseTimes> {
    let mut by_key: BTreeMap<MountKey, Sums> = BTreeMap::new();
    for event in events.iter().filter(|event| event.phases.known() && !event.operation.only_by_name()) {
        by_key.entry(event.mount).or_default().add(event);
    }
    let mut mounts: BTreeMap<String, Sums> = BTreeMap::new();
    for (key, sums) in by_key {
        mounts.entry(label(key)).or_default().merge(&sums);
    }
    let times = |(mount, sums): (String, Sums)| {
        let send = send(operations, &mount);
        PhaseTimes { means: sums.means(send), mount }
    };
    mounts.into_iter().map(times).collect()
}

/// What a send of the mount's connections waited for on this host: in TCP's own queue, then in the queueing discipline.
fn send(operations: &[TopOperations], mount: &str) -> Option<u64> {
    let mean = |stage: &str| {
        let of_stage = |one: &&TopOperations| one.layer == "tcp" && one.operation == stage && one.mount == mount;
        operations.iter().find(of_stage).and_then(|one| one.amounts.sum.checked_div(one.amounts.count))
    };
    let (queue, scheduler) = (mean("QUEUE"), mean("SCHEDULER"));
    (queue.is_some() || scheduler.is_some()).then(|| queue.unwrap_or(0) + scheduler.unwrap_or(0))
}

impl Sums {
    fn add(&mut self, event: &Event) {
        self.count += 1;
        self.queue = self.queue.saturating_add(event.phases.queue);
        self.deliver = self.deliver.saturating_add(event.phases.deliver);
        if event.network.known && event.network.rtt_us > 0 {
            self.with_round_trip += 1;
            self.wire = self.wire.saturating_add(event.phases.wire);
            self.round_trip = self.round_trip.saturating_add(u64::from(event.network.rtt_us) * 1_000);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.queue = self.queue.saturating_add(other.queue);
        self.deliver = self.deliver.saturating_add(other.deliver);
        self.with_round_trip += other.with_round_trip;
        self.wire = self.wire.saturating_add(other.wire);
        self.round_trip = self.round_trip.saturating_add(other.round_trip);
    }

    fn means(&self, send: Option<u64>) -> [Option<u64>; 5] {
        let wire = self.wire.checked_div(self.with_round_trip);
        let wire = wire.map(|wire| wire.saturating_sub(send.unwrap_or(0)));
        let network = self.round_trip.checked_div(self.with_round_trip).zip(wire).map(|(rtt, wire)| rtt.min(wire));
        let server = wire.zip(network).map(|(wire, network)| wire - network);
        [self.queue.checked_div(self.count), send, network, server, self.deliver.checked_div(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::RecordedEvent;
    use model::{Histogram, Network, Phases};

    fn event(wire: u64, rtt_us: u32) -> Event {
        let recorded = RecordedEvent {
            operation: "smb:SMB2_READ".into(),
            duration: wire + 120_000,
            phases: Phases { queue: 100_000, wire, deliver: 20_000 },
            network: Network { rtt_us, known: rtt_us > 0, ..Network::default() },
            mount: MountKey(7),
            ..RecordedEvent::default()
        };
        recorded.event().unwrap()
    }

    fn means(events: &[Event], operations: &[TopOperations]) -> [Option<u64>; 5] {
        of(events, operations, |key| format!("/mnt/{}", key.0)).remove(0).means
    }

    #[test]
    fn the_wire_is_a_round_trip_and_the_server() {
        let events = [event(5_000_000, 1_000), event(7_000_000, 3_000)];
        let expected = [Some(100_000), None, Some(2_000_000), Some(4_000_000), Some(20_000)];
        assert_eq!(means(&events, &[]), expected);
    }

    #[test]
    fn a_round_trip_that_is_longer_than_the_wire_leaves_the_server_nothing() {
        assert_eq!(means(&[event(1_000_000, 40_000)], &[])[2..4], [Some(1_000_000), Some(0)]);
    }

    #[test]
    fn without_a_round_trip_network_and_server_cannot_be_told_apart() {
        assert_eq!(means(&[event(1_000_000, 0)], &[]), [Some(100_000), None, None, None, Some(20_000)]);
    }

    #[test]
    fn what_sends_waited_for_here_is_none_of_the_servers_time() {
        let mut amounts = Histogram::default();
        amounts.add(300_000, 0, false);
        let stage = |operation: &str| TopOperations {
            mount: "/mnt/7".into(),
            layer: "tcp".into(),
            operation: operation.into(),
            amounts: amounts.clone(),
        };
        let sends = [stage("QUEUE"), stage("SCHEDULER"), stage("NETWORK")];
        let means = means(&[event(5_000_000, 1_000)], &sends);
        assert_eq!(means[1..4], [Some(600_000), Some(1_000_000), Some(3_400_000)]);
    }
}
