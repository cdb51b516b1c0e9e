//! What it means that an interface of this host has dropped packets (`INTERFACE_DROPPED`, docs/connections.md). The interface's counters include
//! packets of all connections, and show how many were dropped between two looks.

use std::ops::RangeInclusive;

use model::{Cause, Event, Nanos, Network};

use super::{
    drops::named,
    history::{LEAST_RTO, has_risen},
};
use crate::units::SECOND;

/// The probability that the drops of an interface are the cause.
pub(super) const SURE: f64 = 0.86;
/// One dropped packet can delay several operations, since TCP keeps the order, but at most this many.
const DELAYED_BY_ONE: u64 = 4;
/// TCP retransmits ever more seldom for an operation that does not return. An interface that drops these segments shows drops at this many looks or
/// more.
const LEAST_LOOKS: usize = 3;
/// Two looks are further apart than this, nanoseconds.
const BETWEEN_LOOKS: u64 = SECOND / 2;

/// These events without those that report the same packets for another mount of the server.
pub(super) fn once(mut events: Vec<&Event>) -> Vec<&Event> {
    events.sort_by_key(|event| event.start);
    let mut kept: Vec<&Event> = Vec::with_capacity(events.len());
    for event in events {
        let mut of_this_look =
            kept.iter().rev().take_while(|other| event.start < other.start.saturating_add(BETWEEN_LOOKS));
        if !of_this_look.any(|other| other.status == event.status && named(other) == named(event)) {
            kept.push(event);
        }
    }
    kept
}

/// Whether this many dropped packets can explain this many slow operations.
pub(super) fn are_enough(packets: u64, operations: u64) -> bool {
    packets * DELAYED_BY_ONE >= operations
}

/// Whether the connection of slow operations may have lost segments by the drops that an interface counted with this status: the packets may all be
/// of other connections. A segment that was not sent is retransmitted. A segment that was not received comes late or out of order.
pub(super) fn has_lost(status: &str, slow: &[&Event], around: &[Event]) -> bool {
    let is_sending = status.starts_with("TX");
    slow.iter().any(|event| {
        let lost =
            |network: &Network| network.retransmits.saturating_add(if is_sending { 0 } else { network.out_of_order });
        let shows_loss = has_risen(event, event.start, around.iter(), lost);
        let was_retransmitted = event.stamped().is_some_and(|timing| timing.retransmitted > 0);
        shows_loss || was_retransmitted || (!is_sending && event.duration >= LEAST_RTO)
    })
}

/// Whether packets were dropped again and again. `times`: for each event, the time between two looks.
pub(super) fn are_lasting(times: &[RangeInclusive<Nanos>]) -> bool {
    let mut begins: Vec<_> = times.iter().map(|time| *time.start()).collect();
    begins.sort_unstable();
    begins.dedup_by(|later, first| *later < first.saturating_add(BETWEEN_LOOKS));
    begins.len() >= LEAST_LOOKS
}

/// The cause, by the event's status.
pub(super) fn cause(status: &str) -> Cause {
    match status {
        "RX_CRC" => Cause::Loss,
        "TX_CARRIER" => Cause::OwnInterface,
        _ => Cause::OwnDrops,
    }
}

/// `name`: the interface's name, if known. `packets`: their number, in words. `before`: whether there were drops before.
pub(super) fn sentence(status: &str, name: Option<&str>, packets: &str, before: &str) -> String {
    let name = name.map_or("An interface".to_owned(), |name| format!("Interface {name}"));
    match status {
        "RX_CRC" => format!(
            "{name} of this host received {packets} that were damaged{before}: by its cable, or at the other end."
        ),
        "RX_LENGTH" => format!(
            "{name} of this host dropped {packets} that it had received{before}: they were longer than the interface accepts, for example because \
             its MTU is smaller than the network's."
        ),
        "TX_DROPPED" => format!("{name} of this host dropped {packets} that it had to send{before}."),
        "TX_CARRIER" => format!("{name} of this host could not send {packets}{before}: it had no carrier, or gave up."),
        _ => format!(
            "{name} of this host dropped {packets} that it had received{before}, before TCP saw them: it had no free buffer, or they were longer \
             than its MTU."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_three_looks_are_lasting_however_many_each_reports() {
        let look = |n: u64| n * SECOND..=(n + 1) * SECOND;
        assert!(are_lasting(&[look(1), look(4), look(2)]));
        assert!(!are_lasting(&[look(1), look(1), look(2), look(2)]));
        assert!(!are_lasting(&[]));
    }

    #[test]
    fn one_packet_explains_few_operations() {
        assert!(are_enough(5, 20) && !are_enough(5, 21));
    }
}
