//! Slow operations whose answer came after that to a later request.
//!
//! TCP delivers in order (RFC 9293 3.4), and clients also send and receive in order. If a later request over the same connection was answered first,
//! the server had both requests, and chose which one to answer first. So the server had the slow request at the latest when the first such answer
//! arrived, and answered it at the earliest after the last such request was sent. The time between belongs to the server. A lost segment, of a
//! request or of an answer, would have stopped the later requests as well.

use model::{Detail, Event, Nanos};

use super::scene::flight;
use crate::units::{MS, counted, span};

/// Requests sent within this time of each other may have gone in either order, nanoseconds.
const APART: Nanos = MS;

/// What later requests prove of the time on the wire of the slow operations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Overtaken {
    /// How many slow operations were overtaken.
    slow: u64,
    /// The least time for which the server had these operations, nanoseconds.
    held: u64,
    /// The time of all slow operations on the wire, nanoseconds.
    wire: u64,
}

impl Overtaken {
    /// `slow`: slow operations of one connection. `all`: the operations that were answered over this connection meanwhile.
    pub fn of<'a>(slow: &[&Event], all: impl Iterator<Item = &'a Event>) -> Self {
        let mut flights: Vec<_> = all.filter(|event| went_once(event)).map(flight).collect();
        // By the time at which they were sent.
        flights.sort_unstable();
        let mut sum = Self::default();
        for event in slow {
            sum.wire = sum.wire.saturating_add(event.phases.wire);
            let held = if went_once(event) { held(flight(event), &flights) } else { 0 };
            sum.slow += u64::from(held > 0);
            sum.held = sum.held.saturating_add(held);
        }
        sum
    }

    /// The least share of the time on the wire that is the server's, 0 to 1.
    pub fn share(self) -> f64 {
        self.held as f64 / self.wire.max(1) as f64
    }

    pub fn sentence(self) -> String {
        format!(
            "The server answered requests that were sent later over the same connection earlier than {}. So the server already had the slow operations, \
             for at least {} on average.",
            counted(self.slow, "slow operation"),
            span(self.held / self.slow.max(1))
        )
    }
}

/// Whether a request was sent once, and answered. A request that was sent again may have gone over another connection.
fn went_once(event: &Event) -> bool {
    let resent = match &event.detail {
        Detail::Nfs(nfs) => nfs.resent,
        Detail::Ceph(ceph) => ceph.resent,
        _ => 0,
    };
    event.phases.wire > 0 && resent == 0 && !event.flags.unanswered && !event.flags.in_flight
}

/// The least time for which the server had a request that was sent and answered then, nanoseconds. `flights`: those of all requests, in the order of
/// sending.
fn held((sent, answered): (Nanos, Nanos), flights: &[(Nanos, Nanos)]) -> Nanos {
    let first = flights.partition_point(|(other, _)| *other <= sent.saturating_add(APART));
    let later = flights.iter().skip(first).take_while(|(other, _)| *other < answered);
    let overtakers = later.filter(|(_, at)| at.saturating_add(APART) <= answered);
    let (earliest, latest) =
        overtakers.fold((Nanos::MAX, 0), |(earliest, latest), (other, at)| (earliest.min(*at), latest.max(*other)));
    latest.saturating_sub(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(from: u64, to: u64) -> (Nanos, Nanos) {
        (from * MS, to * MS)
    }

    #[test]
    fn the_server_had_it_from_the_first_later_answer_to_the_last_later_request() {
        let slow = ms(0, 100);
        let held = |others: &[(Nanos, Nanos)]| held(slow, others) / MS;
        assert_eq!(held(&[ms(10, 12), ms(50, 52), ms(90, 92)]), 78);
        assert_eq!(held(&[ms(10, 12)]), 0, "one alone shows that it was overtaken, and not for how long");
        assert_eq!(held(&[ms(10, 95), ms(90, 96)]), 0, "all answers were late: a lost segment may have held them up");
        assert_eq!(held(&[ms(0, 5), ms(50, 52)]), 0, "the first was sent with it, in either order");
        assert_eq!(held(&[ms(10, 12), ms(90, 100)]), 0, "the last was answered with it");
        assert_eq!(held(&[ms(10, 12), ms(90, 130)]), 0, "... and after it");
    }
}
