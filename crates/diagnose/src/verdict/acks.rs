//! What answers prove of round trips.
//!
//! Every segment that the server sends acknowledges all that it has received. So who delays an acknowledgement delays it until its next answer at most. If
//! an answer came between a request and its acknowledgement and did not acknowledge it, then the request was on its way there, or that answer on its way back.

use std::cmp::Reverse;

use model::{Event, Nanos};

use super::history::{ACK_DELAY, answered, round_trip};
use super::scene::{Scene, flight, with_most_of_time};
use crate::order::median;

/// Fewer round trips prove nothing.
const LEAST_SAMPLES: usize = 5;
/// One round trip in so many is not chance.
const OFTEN: usize = 3;

/// Round trips that the path took for certain, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proven {
    /// What every third reaches, whatever the server delays acknowledgements by.
    pub often: u64,
    /// What every second reaches, if the server delays them by no more than usual.
    pub mostly: u64,
}

impl Proven {
    /// Of the requests that were sent while slow operations were under way.
    pub fn of(scene: &Scene) -> Option<Self> {
        let slow = with_most_of_time(&scene.judged);
        let from = slow.iter().map(|event| flight(event).0).min()?;
        let [mut strictly, mut proven] = [vec![], vec![]];
        let mut last: Option<Read> = None;
        for event in scene.during.iter().filter(|event| answered(event)) {
            let Some(round_trip) = round_trip(event) else { continue };
            if let Some(last) = last.filter(|last| last.round_trip != round_trip)
                && flight(event).0 >= from
            {
                let gap = event.end().saturating_sub(last.arrived);
                strictly.push(round_trip.saturating_sub(gap));
                proven.push(round_trip.saturating_sub(gap.min(ACK_DELAY)));
            }
            last = Some(Read { arrived: arrival(event), round_trip });
        }
        strictly.sort_unstable_by_key(|time| Reverse(*time));
        let often = *strictly.get(strictly.len() / OFTEN)?;
        (strictly.len() >= LEAST_SAMPLES).then_some(Self { often, mostly: median(proven)? })
    }
}

/// The newest round trip when an operation ended.
#[derive(Clone, Copy)]
struct Read {
    /// When its answer arrived.
    arrived: Nanos,
    round_trip: u64,
}

/// When an answer arrived: at the earliest.
fn arrival(event: &Event) -> Nanos {
    let (sent, received) = flight(event);
    let unread = u64::from(event.network.unread_us) * 1_000;
    received.saturating_sub(unread).max(sent)
}
