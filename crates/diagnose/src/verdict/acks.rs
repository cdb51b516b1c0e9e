//! Round trips that answers prove to be long, without any doubt from delayed acknowledgements.
//!
//! Every segment that the server sends acknowledges all that the server's TCP has processed. So a server can delay an
//! acknowledgement only until its next answer. Suppose that an answer arrives between a request and its
//! acknowledgement, and does not acknowledge the request. Then the answer left the server before the request got there:
//! from the request's sending to the answer's arrival, one of the two was on its way. A server's host that processes
//! packets late looks the same.

use std::cmp::Reverse;

use model::{Event, Nanos};

use super::history::{answered, round_trip};
use super::scene::{Scene, flight, with_most_of_time};

/// Fewer round trips prove nothing.
const LEAST_SAMPLES: usize = 10;
/// One long round trip in this many is no chance.
const OFTEN: usize = 3;

/// The time, in nanoseconds, that a third of the round trips provably reached while slow operations were under way. `None`
/// if there were too few.
pub(super) fn proven(scene: &Scene) -> Option<u64> {
    let slow = with_most_of_time(&scene.judged);
    let from = slow.iter().map(|event| flight(event).0).min()?;
    // The newest round trip is read between an answer's receipt and its operation's end.
    let by_end: Vec<_> = scene.during.iter().filter_map(|event| ReadAnswer::of(event)).collect();
    let mut by_receipt = by_end.clone();
    by_receipt.sort_by_key(|read| read.received);
    let (mut ended, mut last): (_, Option<ReadAnswer>) = (by_end.iter().peekable(), None);
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

/// The time, in nanoseconds, that a third of the round trips reached before slow operations began, including delays of
/// acknowledgements. `None` if there were too few.
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
struct ReadAnswer {
    /// The earliest time at which the answer can have arrived.
    arrived: Nanos,
    received: Nanos,
    end: Nanos,
    round_trip: u64,
}

impl ReadAnswer {
    fn of(event: &Event) -> Option<Self> {
        let (sent, received) = flight(event);
        // Without this record, the answer may have lain in the socket since the request was sent.
        let unread = if event.network.min_rtt_us > 0 { u64::from(event.network.unread_us) * 1_000 } else { u64::MAX };
        let arrived = received.saturating_sub(unread).max(sent);
        let round_trip = round_trip(event).filter(|_| answered(event))?;
        Some(Self { arrived, received, end: event.end(), round_trip })
    }

    /// The one of the two that arrived later.
    fn or_later(self, other: Option<Self>) -> Self {
        other.filter(|other| other.arrived > self.arrived).unwrap_or(self)
    }
}
