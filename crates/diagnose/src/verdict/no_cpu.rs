//! Whether threads of this host had no CPU while operations were slow.
//!
//! The kernel counts for how long each thread was ready to run and on no CPU, in all its life (`sched_info.run_delay`). What that grew by between two slow
//! operations passed in between. A caller may have waited while none was under way, so that time is subtracted. A thread that takes answers is ready to run
//! only when there is one, and so while an operation is under way.

use std::collections::BTreeMap;

use model::{CpuWait, Event, Nanos};

use super::scene::{JIFFY, SEEN, covered, flight, not_between, union};

/// What is known must be known of so much of the operations' time.
const KNOWN: f64 = 0.3;

/// A stretch of time: from, to.
type Stretch = (Nanos, Nanos);
/// What a thread had waited for when an operation ended, and from when to then the operation was under way.
type Seen = (CpuWait, Stretch);

/// Shares of the time of slow operations for which threads were ready to run and had no CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NoCpu {
    /// Threads that take answers off sockets.
    receivers: f64,
    /// Threads that wait for the operations.
    callers: f64,
}

impl NoCpu {
    /// What these operations tell.
    pub fn of<'e>(events: impl Iterator<Item = &'e Event>) -> Self {
        let events: Vec<_> = events.filter_map(|event| Some((event, event.progress.as_ref()?))).collect();
        let receivers = events.iter().filter_map(|(event, progress)| Some((progress.receiver?, flight(event))));
        let callers =
            events.iter().filter_map(|(event, progress)| Some((progress.requester?.cpu, (event.start, event.end()))));
        let flights = union(events.iter().map(|(event, _)| flight(event)).collect());
        let in_flight = flights.iter().map(|(from, to)| to - from).sum();
        let called = events.iter().map(|(event, _)| event.duration).sum();
        Self {
            receivers: share(receivers, in_flight, |grown, _, within| grown.min(within)),
            callers: share(callers, called, not_between),
        }
    }

    /// Whether it was so for enough of the time to be why they were slow.
    pub fn is_seen(self) -> bool {
        self.receivers.max(self.callers) >= SEEN
    }

    /// Said where it is seen.
    pub fn sentence(self) -> Option<String> {
        let told = |share: f64, who| {
            format!("{who} were ready to run and had no CPU for {:.0} % of the time of slow operations.", share * 100.0)
        };
        self.is_seen().then(|| {
            if self.receivers >= self.callers {
                told(self.receivers, "The threads that take the answers")
            } else {
                told(self.callers, "The callers")
            }
        })
    }
}

/// The share of the operations' time for which their threads waited; 0 if it is known of too little of `whole`.
///
/// `part`: the part of what a thread's wait grew by that counts; then the time in which it did, and the part of that with operations under way.
fn share(seen: impl Iterator<Item = Seen>, whole: Nanos, part: impl Fn(Nanos, Nanos, Nanos) -> Nanos) -> f64 {
    let mut by_thread = BTreeMap::<u32, Vec<Seen>>::new();
    for one in seen {
        by_thread.entry(one.0.tid).or_default().push(one);
    }
    let (mut waited, mut known) = (0, 0);
    for mut of_thread in by_thread.into_values() {
        of_thread.sort_by_key(|(_, (_, end))| *end);
        let under_way = union(of_thread.iter().map(|(_, stretch)| *stretch).collect());
        for pair in of_thread.windows(2) {
            let [(before, (_, from)), (now, (_, to))] = pair else { continue };
            // It is read a little later than the operation ends. Much more is another thread's of the same number.
            let elapsed = to - from;
            let Some(grown) = now.since(before).filter(|grown| *grown <= elapsed + JIFFY) else { continue };
            let within = covered(&under_way, (*from, *to));
            waited += part(grown.min(elapsed), elapsed, within);
            known += within;
        }
    }
    if known as f64 >= whole as f64 * KNOWN && known > 0 { waited as f64 / known as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The share of callers, if `tid(n)` did an operation of 80 ms each `every` ms, and had waited for `waited` ms more each time.
    fn callers(every: u64, waited: u32, tid: impl Fn(u32) -> u32) -> f64 {
        let seen = (0..10_u32).map(|n| {
            let from = u64::from(n) * every * MS;
            // The counter wraps.
            (CpuWait { tid: tid(n), waited_us: (n * waited * 1_000).wrapping_sub(1) }, (from, from + 80 * MS))
        });
        share(seen, 10 * 80 * MS, not_between)
    }

    fn is(share: f64, what: f64) -> bool {
        (share - what).abs() < 1e-6
    }

    #[test]
    fn what_grew_less_the_time_between_passed_during_the_operations() {
        assert!(is(callers(80, 40, |_| 7), 0.5));
        // Of the 40 ms, 20 may have passed between them.
        assert!(is(callers(100, 40, |_| 7), 0.25));
        assert!(is(callers(100, 20, |_| 7), 0.0));
    }

    #[test]
    fn what_is_known_of_little_is_nothing() {
        assert!(is(callers(80, 40, |n| n), 0.0));
        assert!(is(callers(80, 40, |n| if n < 3 { 7 } else { 7 + n }), 0.0));
        // Another thread got the same number.
        assert!(is(callers(80, 200, |_| 7), 0.0));
    }
}
