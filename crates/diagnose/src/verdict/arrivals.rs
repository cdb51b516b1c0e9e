//! A connection's operations in the order in which their answers arrived, to look up what arrived during a flight.

use std::ops::Range;

use model::{Direction, Event, Nanos};

use super::{
    history::{answered, round_trip},
    scene::flight,
};
use crate::turns::turns;

/// One operation, with what is compared for each flight of another one. Nanoseconds.
pub(super) struct Arrival<'a> {
    pub event: &'a Event,
    pub sent: Nanos,
    pub received: Nanos,
    pub answered: bool,
    pub round_trip: Option<u64>,
    /// How many round trips the operation needs at least.
    pub turns: u64,
}

/// An answer of at least this many bytes takes time to pass a narrow path.
const LARGE_ANSWER: u64 = 64 << 10;

impl Arrival<'_> {
    /// Whether this is an answer with much data.
    pub fn is_large_answer(&self) -> bool {
        self.answered && self.event.bytes >= LARGE_ANSWER && self.event.operation.direction() == Some(Direction::Read)
    }
}

/// The operations of a connection, ascending by the time of arrival.
pub(super) struct FlightsByArrival<'a>(Vec<Arrival<'a>>);

impl<'a> FlightsByArrival<'a> {
    pub fn of(events: &[&'a Event]) -> Self {
        let arrival = |event: &&'a Event| {
            let (sent, received) = flight(event);
            let (answered, round_trip, turns) = (answered(event), round_trip(event), turns(event.bytes));
            Arrival { event, sent, received, answered, round_trip, turns }
        };
        let mut arrivals: Vec<_> = events.iter().map(arrival).collect();
        arrivals.sort_by_key(|arrival| arrival.received);
        Self(arrivals)
    }

    pub fn all(&self) -> &[Arrival<'a>] {
        &self.0
    }

    /// Those during a flight, both ends included, as positions in [`Self::all`].
    pub fn during(&self, (sent, received): (Nanos, Nanos)) -> Range<usize> {
        let at = |time: Nanos| self.0.partition_point(|arrival| arrival.received < time);
        at(sent)..at(received.saturating_add(1))
    }

    /// Those during a flight.
    pub fn within(&self, flight: (Nanos, Nanos)) -> &[Arrival<'a>] {
        self.0.get(self.during(flight)).unwrap_or_default()
    }
}
