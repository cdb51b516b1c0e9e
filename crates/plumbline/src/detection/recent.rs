//! The latest events. The flight recorder has every operation, but few details of each; the event of a slow operation has all details.

use std::collections::{HashMap, VecDeque};

use model::{Event, Nanos, Operation};

/// The most events that are kept: half a megabyte.
const KEPT: usize = 1024;

/// The latest events, oldest first.
#[derive(Default)]
pub struct Recent(VecDeque<Event>);

/// The latest events, by the fields that identify an operation in the flight recorder.
pub struct RecentByRecord<'a>(HashMap<(Nanos, Operation, u32), &'a Event>);

impl Recent {
    /// Keeps an event, and drops the oldest if there are too many.
    pub fn keep(&mut self, event: &Event) {
        if event.flags.in_flight {
            return;
        }
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(event.clone());
    }

    /// The events, ready to be looked up.
    pub fn known(&self) -> RecentByRecord<'_> {
        RecentByRecord(self.0.iter().map(|event| (event.identity(), event)).collect())
    }
}

impl RecentByRecord<'_> {
    /// The event of the same operation, with all details; `record` itself if there is none.
    pub fn whole(&self, record: Event) -> Event {
        self.0.get(&record.identity()).map_or(record, |event| (*event).clone())
    }
}

#[cfg(test)]
mod tests {
    use model::{Network, Requester};

    use super::*;
    use crate::recording::RecordedEvent;

    fn ended(at: Nanos, own_queue: u32) -> Event {
        let network = Network { own_queue, ..Network::default() };
        let operation = "smb:SMB2_WRITE".to_owned();
        RecordedEvent { operation, start: at - 5, duration: 5, network, ..RecordedEvent::default() }.event().unwrap()
    }

    #[test]
    fn a_record_becomes_the_event_of_its_operation() {
        let mut recent = Recent::default();
        (10..10 + 2 * KEPT as u64).for_each(|at| recent.keep(&ended(at, 3)));
        let known = recent.known();
        let own_queue = |at| known.whole(ended(at, 0)).network.own_queue;
        assert_eq!(
            [own_queue(10), own_queue(9 + KEPT as u64), own_queue(10 + KEPT as u64)],
            [0, 0, 3],
            "the latest are kept"
        );
        let other = Event { requester: Requester { tid: 7, ..Requester::default() }, ..ended(10 + KEPT as u64, 0) };
        assert_eq!(known.whole(other).network.own_queue, 0, "another thread's");
    }
}
