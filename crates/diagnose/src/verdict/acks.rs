//! What answers prove of round trips.
//!
//! Every segment that the server sends acknowledges all that its TCP has processed. So who delays an acknowledgement delays it until its next answer at most. If
//! an answer came between a request and its acknowledgement and did not acknowledge it, then the request was on its way there, or that answer on its way back.
//! A server's host that takes packets late looks the same.

use std::cmp::Reverse;

use model::{Event, Nanos};

use super::history::{answered, round_trip};
use super::scene::{Scene, flight, with_most_of_time};

/// Fewer round trips prove nothing.
const LEAST_SAMPLES: usize = 10;
/// One round trip in so many is not chance.
const OFTEN: usize = 3;

/// What every third round trip took for certain while slow operations were under way, nanoseconds.
pub(super) fn proven(scene: &Scene) -> Option<u64> {
    let slow = with_most_of_time(&scene.judged);
    let from = slow.iter().map(|event| flight(event).0).min()?;
    // The newest round trip is read between an answer's receipt and its operation's end.
    let by_end: Vec<_> = scene.during.iter().filter_map(|event| Read::of(event)).collect();
    let mut by_receipt = by_end.clone();
    by_receipt.sort_by_key(|read| read.received);
    let (mut ended, mut last): (_, Option<Read>) = (by_end.iter().peekable(), None);
    let (mut proven, mut counted) = (Vec::new(), 0);
    for read in by_receipt {
        while let Some(earlier) = ended.next_if(|earlier| earlier.end <= read.received) {
            last = Some(earlier.or_later(last));
        }
        if let Some(last) = last.filter(|last| last.round_trip != read.round_trip && last.end >= from)
            && read.round_trip != counted
        {
            counted = read.round_trip;
            proven.push(read.round_trip.saturating_sub(read.end.saturating_sub(last.arrived)));
        }
    }
    every_third(proven)
}

/// What every third round trip took before slow operations began, delays of acknowledgements included.
pub(super) fn before(scene: &Scene) -> Option<u64> {
    let mut samples: Vec<_> = scene.before.iter().filter_map(|event| round_trip(event)).collect();
    samples.dedup();
    every_third(samples)
}

fn every_third(mut times: Vec<u64>) -> Option<u64> {
    times.sort_unstable_by_key(|time| Reverse(*time));
    times.get(times.len() / OFTEN).copied().filter(|_| times.len() >= LEAST_SAMPLES)
}

/// An answer, and the newest round trip when it was read.
#[derive(Clone, Copy)]
struct Read {
    /// When the answer arrived: at the earliest.
    arrived: Nanos,
    received: Nanos,
    end: Nanos,
    round_trip: u64,
}

impl Read {
    fn of(event: &Event) -> Option<Self> {
        let (sent, received) = flight(event);
        // Where that was not recorded, it may have lain in the socket all the time.
        let unread = if event.network.min_rtt_us > 0 { u64::from(event.network.unread_us) * 1_000 } else { u64::MAX };
        let arrived = received.saturating_sub(unread).max(sent);
        let round_trip = round_trip(event).filter(|_| answered(event))?;
        Some(Self { arrived, received, end: event.end(), round_trip })
    }

    /// Of two, the one that arrived later.
    fn or_later(self, other: Option<Self>) -> Self {
        other.filter(|other| other.arrived > self.arrived).unwrap_or(self)
    }
}
