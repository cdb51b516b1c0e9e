//! The operations that a broken connection delayed: those of the episodes that are part of its incident.

use std::{cmp::Reverse, collections::HashSet};

use diagnose::KEPT;
use model::Event;

/// The slowest of these, each once, whichever rules counted it. If some are requests, calls of programs are left out: they waited for these requests.
pub fn slowest(mut events: Vec<Event>) -> Vec<Event> {
    let is_request = |event: &Event| event.operation.level().is_remote();
    if events.iter().any(is_request) {
        events.retain(is_request);
    }
    // What has ended meanwhile is slower than it was while in flight.
    events.sort_by_key(|event| (Reverse(event.duration), event.start));
    let mut known = HashSet::new();
    events.retain(|event| known.insert((event.start, event.requester.tid, event.operation)));
    events.truncate(KEPT);
    events
}
