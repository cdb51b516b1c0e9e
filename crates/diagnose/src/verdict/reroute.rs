//! Whether this host changed its route to the server, and operations have been slow since. The host then sends by
//! another interface (`TCP_REROUTED`), for example a VPN's, and has itself chosen the way that is longer.

use model::Event;

use super::{drops::named, scene::Scene};
use crate::units::{SECOND, span};

/// The event of a new route.
const REROUTED: &str = "TCP_REROUTED";
/// The route changed at most this long before the first slow operation, nanoseconds.
const JUST_BEFORE: u64 = 30 * SECOND;
/// At least this many operations must have been answered by the old route; else nothing is known of it.
const LEAST_BEFORE: usize = 5;
/// At least this share of the operations that began since the change is late.
const SLOW_SINCE: f64 = 0.6;
/// At least this share of the slow time belongs to operations that began before the route changed again.
const MOST: f64 = 0.8;

/// A change of route since which operations are slow.
#[derive(Debug)]
pub(super) struct NewRoute {
    /// The interface by which segments leave since, if that is known.
    interface: Option<String>,
    /// For how long segments left by it until the route changed again or the last slow operation ended, nanoseconds.
    lasted: u64,
}

impl NewRoute {
    /// `around`: all recorded events.
    pub fn of(scene: &Scene, around: &[Event]) -> Option<Self> {
        let first = scene.judged.iter().map(|event| event.end()).min()?;
        let last = scene.judged.iter().map(|event| event.end()).max()?;
        let changes = || around.iter().filter(|event| event.operation.name() == REROUTED);
        let changed = changes().filter(|event| event.start <= first).max_by_key(|event| event.start)?;
        let at = changed.start;
        // Other connections to the server may follow by the same interface later, when they have something to send.
        let interface = named(changed);
        let is_other = |event: &&Event| event.start > at && (interface.is_none() || named(event) != interface);
        let until = changes().filter(is_other).map(|event| event.start).min().unwrap_or(last).min(last);
        let known: Vec<_> = scene.before.iter().chain(&scene.during).filter(|event| !event.flags.unanswered).collect();
        let before = known.iter().filter(|event| event.end() <= at).count();
        let begun = known.iter().filter(|event| (at..until).contains(&event.start));
        let (all, late) =
            begun.fold((0_u32, 0_u32), |(all, late), event| (all + 1, late + u32::from(scene.is_late(event))));
        let time = |event: &&&Event| event.duration as f64;
        let slow: f64 = scene.judged.iter().map(|event| time(&event)).sum();
        let slow_then: f64 = scene.judged.iter().filter(|event| event.start < until).map(|event| time(&event)).sum();
        let is_why = scene.from.saturating_sub(at) <= JUST_BEFORE
            && before >= LEAST_BEFORE
            && all > 0
            && f64::from(late) >= f64::from(all) * SLOW_SINCE
            && slow_then >= slow * MOST;
        is_why.then(|| Self { interface, lasted: until.saturating_sub(at) })
    }

    pub fn sentence(&self) -> String {
        let by = self.interface.as_deref().unwrap_or("another interface");
        format!(
            "This host changed its route to the server: for {}, the connection's segments have left through {by}, and operations have been slow. \
             `ip route get SERVER` shows the route.",
            span(self.lasted)
        )
    }
}
