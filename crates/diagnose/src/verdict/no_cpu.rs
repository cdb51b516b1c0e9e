//! Whether threads of this host had no CPU while operations were slow.
//!
//! The kernel counts how long each thread was ready to run without a CPU, over its whole life (`sched_info.run_delay`). The probes read the count
//! when an operation of 10 ms or more ends. Newer recordings contain the growth of the count during each operation. In older ones, the growth from
//! one end to the next, less the time between the operations, is a lower bound of the wait during the operations. A caller, or a kernel worker that
//! has other work too, may wait for a CPU between operations. A thread that only reads answers is ready to run only while an operation is under way.

use std::collections::BTreeMap;

use model::{CpuWait, Event, Nanos, Progress};

use super::scene::{JIFFY, covered, flight, not_between, stretch, union};

/// Waiting for a CPU is why operations were slow if it took at least this share of their time.
const STARVED: f64 = 0.3;
/// The counts must cover at least this share of the operations' time; else they say nothing.
pub(super) const KNOWN: f64 = 0.3;

/// A stretch of time: its beginning and its end.
type TimeStretch = (Nanos, Nanos);
/// A thread's count at the end of an operation, and the time during which the operation was under way.
type CpuWaitDuring = (CpuWait, TimeStretch);

/// Shares of the time of slow operations during which threads were ready to run but had no CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NoCpu {
    /// Threads that read answers from sockets.
    receivers: f64,
    /// Threads that wait for the operations.
    callers: f64,
}

impl NoCpu {
    /// Computes the shares. `events`: all operations, fast and slow; only those of 10 ms and more carry counts.
    pub fn of(events: &[&Event]) -> Self {
        let known: Vec<_> = events.iter().filter_map(|event| Some((*event, event.progress.as_deref()?))).collect();
        let receivers: Vec<_> =
            known.iter().filter_map(|(event, progress)| Some((progress.receiver?, flight(event)))).collect();
        let callers: Vec<_> =
            known.iter().filter_map(|(event, progress)| Some((progress.requester?.cpu, stretch(event)))).collect();
        let slow = union(known.iter().map(|(event, _)| flight(event)).collect());
        let all = union(events.iter().map(|event| flight(event)).collect());
        let takes_all = receivers.windows(2).all(|pair| matches!(pair, [(one, _), (other, _)] if one.tid == other.tid));
        let may_wait = |between| if takes_all { covered(&all, between) } else { length(between) };
        let slow_time = known.iter().map(|(event, _)| event.duration).sum();
        Self {
            receivers: share(receivers, slow.iter().copied().map(length).sum(), may_wait),
            callers: during(&known, slow_time).unwrap_or_else(|| share(callers, slow_time, length)),
        }
    }

    /// Whether the threads that read answers lacked a CPU for long enough to explain the slowness.
    pub fn of_receivers(self) -> bool {
        self.receivers >= STARVED
    }

    /// The part of the extra time, 0 to 1, for which the threads that read answers had no CPU. `extra`: the share of the
    /// time between sending and receiving that is extra.
    pub fn receivers_part(self, extra: f64) -> f64 {
        if extra > 0.0 { (self.receivers / extra).min(1.0) } else { 0.0 }
    }

    /// Whether any of the threads lacked a CPU for long enough to explain the slowness.
    pub fn is_seen(self) -> bool {
        self.receivers.max(self.callers) >= STARVED
    }

    /// A sentence if [`NoCpu::is_seen`].
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

/// The share of the operations' time for which their callers waited for a CPU, if the probe reports the wait for each operation; `None` if these
/// operations cover too little of `whole` (nanoseconds).
fn during(known: &[(&Event, &Progress)], whole: Nanos) -> Option<f64> {
    let (mut waited, mut covered) = (0, 0);
    for (event, progress) in known {
        let Some(during) = progress.requester.and_then(|requester| requester.during_us) else { continue };
        waited += (u64::from(during) * 1_000).min(event.duration);
        covered += event.duration;
    }
    (covered > 0 && covered as f64 >= whole as f64 * KNOWN).then(|| waited as f64 / covered as f64)
}

fn length((from, to): TimeStretch) -> Nanos {
    to - from
}

/// The least share of the operations' time for which their threads waited for a CPU; 0 if too little of `whole`
/// (nanoseconds) is covered.
///
/// `may_wait`: for how long a thread may have waited for a CPU between two times, whether or not slow operations were under way.
fn share(seen: Vec<CpuWaitDuring>, whole: Nanos, may_wait: impl Fn(TimeStretch) -> Nanos) -> f64 {
    let mut by_thread = BTreeMap::<u32, Vec<CpuWaitDuring>>::new();
    for one in seen {
        by_thread.entry(one.0.tid).or_default().push(one);
    }
    let (mut waited, mut known) = (0, 0);
    for mut of_thread in by_thread.into_values() {
        of_thread.sort_by_key(|(_, (_, end))| *end);
        let under_way = union(of_thread.iter().map(|(_, stretch)| *stretch).collect());
        for pair in of_thread.windows(2) {
            let [(before, (_, from)), (now, (_, to))] = pair else { continue };
            let between = (*from, *to);
            // The count is read shortly after the end. Much more growth means another thread with the same id.
            let elapsed = length(between);
            let Some(grown) = now.since(before).filter(|grown| *grown <= elapsed + JIFFY) else { continue };
            let within = covered(&under_way, between);
            waited += not_between(grown.min(elapsed), may_wait(between).max(within), within);
            known += within;
        }
    }
    if known as f64 >= whole as f64 * KNOWN && known > 0 { waited as f64 / known as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The share of callers, if the thread `tid(n)` does an operation of 80 ms every `every` ms, and waits for a CPU for `waited` ms more each time.
    fn callers(every: u64, waited: u32, tid: impl Fn(u32) -> u32) -> f64 {
        let seen = (0..10_u32).map(|n| {
            let from = u64::from(n) * every * MS;
            // The counter wraps.
            (CpuWait { tid: tid(n), waited_us: (n * waited * 1_000).wrapping_sub(1) }, (from, from + 80 * MS))
        });
        share(seen.collect(), 10 * 80 * MS, length)
    }

    fn is(share: f64, what: f64) -> bool {
        (share - what).abs() < 1e-6
    }

    #[test]
    fn what_grew_less_the_time_between_passed_during_the_operations() {
        assert!(is(callers(80, 40, |_| 7), 0.5));
        // Of the 40 ms, 20 may have passed between the operations.
        assert!(is(callers(100, 40, |_| 7), 0.25));
        assert!(is(callers(100, 20, |_| 7), 0.0));
    }

    #[test]
    fn what_is_known_of_little_is_nothing() {
        assert!(is(callers(80, 40, |n| n), 0.0));
        assert!(is(callers(80, 40, |n| if n < 3 { 7 } else { 7 + n }), 0.0));
        // Another thread got the same thread id.
        assert!(is(callers(80, 200, |_| 7), 0.0));
    }
}
