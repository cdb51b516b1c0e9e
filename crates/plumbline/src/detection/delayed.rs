//! The operations that a broken connection delayed. They come from the episodes that are part of the connection's incident.

use std::{cmp::Reverse, collections::HashSet};

use diagnose::KEPT;
use model::Event;

/// The slowest events, without duplicates from several rules. If there are requests among them, system calls and library calls are left out, since
/// they waited for these requests.
pub fn slowest(mut events: Vec<Event>) -> Vec<Event> {
    let is_request = |event: &Event| event.operation.level().is_remote();
    if events.iter().any(is_request) {
        events.retain(is_request);
    }
    // An operation may be listed twice, in flight and ended. Its ended event has the longer duration, comes first and is kept.
    events.sort_by_key(|event| (Reverse(event.duration), event.start));
    let mut known = HashSet::new();
    events.retain(|event| known.insert((event.start, event.requester.tid, event.operation)));
    events.truncate(KEPT);
    events
}
