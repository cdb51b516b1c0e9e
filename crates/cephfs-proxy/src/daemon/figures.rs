//! Counters of requests by operation, of connections and of refusals. Counting takes no lock, and hardly shares cache
//! lines: each worker uses one of a few shards, which are summed up for a scrape.

use std::{
    array,
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use model::{BUCKETS, Histogram};

use crate::wire::{Errno, OPERATIONS, errno_of};

const SHARDS: usize = 8;
/// The place of messages with an invalid operation.
const NONE: usize = 0;

/// Why a connection or a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// A connection: the user is not allowed.
    User,
    /// A connection: there are too many.
    Connections,
    /// A connection: another version of the protocol, or no valid hello.
    Protocol,
    /// A connection: out of memory or descriptors.
    Resources,
    /// A request: it cannot be decoded.
    Malformed,
    /// A request: the client has no such object.
    Handle,
    /// A request: the client has too many objects.
    Handles,
    /// A request: the client's objects take too much memory.
    Memory,
}

impl RefusalReason {
    /// All refusals, in order, with their names in the metrics.
    pub const ALL: [(RefusalReason, &'static str); 8] = [
        (RefusalReason::User, "user"),
        (RefusalReason::Connections, "connections"),
        (RefusalReason::Protocol, "protocol"),
        (RefusalReason::Resources, "resources"),
        (RefusalReason::Malformed, "malformed"),
        (RefusalReason::Handle, "handle"),
        (RefusalReason::Handles, "handles"),
        (RefusalReason::Memory, "memory"),
    ];

    /// Whether a connection is refused, not a request.
    pub fn is_of_connection(self) -> bool {
        (self as usize) < RefusalReason::Malformed as usize
    }

    /// The refusal that a request's result means, if any.
    fn of(result: i64) -> Option<RefusalReason> {
        match errno_of(result) {
            Errno::BADMSG => Some(RefusalReason::Malformed),
            Errno::BADF => Some(RefusalReason::Handle),
            Errno::MFILE => Some(RefusalReason::Handles),
            Errno::NOMEM => Some(RefusalReason::Memory),
            _ => None,
        }
    }
}

/// All counters.
pub struct ProxyCounters {
    /// Whether requests are counted: only if there is a metrics server.
    pub on: bool,
    /// The number of connections so far.
    pub connections: AtomicU64,
    refused: [AtomicU64; RefusalReason::ALL.len()],
    shards: [Shard; SHARDS],
}

/// The counters by operation; operations that are never used take no memory.
#[repr(align(64))]
struct Shard([OnceLock<Box<OperationCounters>>; OPERATIONS.len()]);

struct OperationCounters {
    good: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    waiting: OperationTimes,
    libcephfs: OperationTimes,
}

struct OperationTimes {
    sum: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// The sums of one operation over all shards.
#[derive(Default)]
pub struct Sum {
    /// The number of successful requests.
    pub good: u64,
    /// The number of failed requests.
    pub failed: u64,
    /// The bytes that they moved.
    pub bytes: u64,
    /// The times from submission until a worker took the request, where known.
    pub waiting: Histogram,
    /// The times from then until the request was served.
    pub libcephfs: Histogram,
}

impl ProxyCounters {
    /// Counters at zero.
    pub fn new(on: bool) -> ProxyCounters {
        ProxyCounters {
            on,
            connections: AtomicU64::new(0),
            refused: array::from_fn(|_| AtomicU64::new(0)),
            shards: array::from_fn(|_| Shard(array::from_fn(|_| OnceLock::new()))),
        }
    }

    /// Counts a refusal.
    pub fn refuse(&self, why: RefusalReason) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }

    /// The number of refusals of this kind.
    pub fn refused(&self, why: RefusalReason) -> u64 {
        self.refused[why as usize].load(Relaxed)
    }

    /// Counts a finished request. `waited` and `served` are nanoseconds; `waited` 0: not known.
    pub fn count(&self, operation: u16, result: i64, bytes: u64, waited: u64, served: u64) {
        let known = OPERATIONS.get(usize::from(operation)).is_some_and(|name| !name.is_empty());
        let place = if known { usize::from(operation) } else { NONE };
        let figure = self.shards[shard()].0[place].get_or_init(Box::default);
        let outcome = if result < 0 { &figure.failed } else { &figure.good };
        outcome.fetch_add(1, Relaxed);
        if bytes > 0 {
            figure.bytes.fetch_add(bytes, Relaxed);
        }
        if waited > 0 {
            figure.waiting.add(waited);
        }
        figure.libcephfs.add(served);
        if let Some(why) = RefusalReason::of(result) {
            self.refuse(why);
        }
    }

    /// The sums of all operations that were used, with their names.
    pub fn sums(&self) -> Vec<(&'static str, Sum)> {
        let named = |place: usize| if place == NONE { "unknown" } else { OPERATIONS[place] };
        let all = (0..OPERATIONS.len()).filter_map(|place| Some((named(place), self.sum(place)?)));
        all.collect()
    }

    fn sum(&self, place: usize) -> Option<Sum> {
        let mut shards = self.shards.iter().filter_map(|shard| shard.0[place].get()).peekable();
        shards.peek()?;
        Some(shards.fold(Sum::default(), |mut sum, figure| {
            sum.good += figure.good.load(Relaxed);
            sum.failed += figure.failed.load(Relaxed);
            sum.bytes += figure.bytes.load(Relaxed);
            figure.waiting.add_to(&mut sum.waiting);
            figure.libcephfs.add_to(&mut sum.libcephfs);
            sum
        }))
    }
}

/// The calling thread's shard.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = const { Cell::new(usize::MAX) });
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Relaxed) % SHARDS);
        }
        own.get()
    })
}

impl Default for OperationCounters {
    fn default() -> OperationCounters {
        let [good, failed, bytes] = [const { AtomicU64::new(0) }; 3];
        OperationCounters {
            good,
            failed,
            bytes,
            waiting: OperationTimes::default(),
            libcephfs: OperationTimes::default(),
        }
    }
}

impl Default for OperationTimes {
    fn default() -> OperationTimes {
        OperationTimes { sum: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl OperationTimes {
    fn add(&self, nanoseconds: u64) {
        self.buckets[Histogram::bucket_of(nanoseconds)].fetch_add(1, Relaxed);
        self.sum.fetch_add(nanoseconds, Relaxed);
    }

    fn add_to(&self, histogram: &mut Histogram) {
        for (to, from) in histogram.buckets.iter_mut().zip(&self.buckets) {
            let count = from.load(Relaxed);
            *to += count;
            histogram.count += count;
        }
        histogram.sum += self.sum.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ProxyOperation, Read, result_of};

    #[test]
    fn what_all_threads_count_is_summed_up() {
        let figures = ProxyCounters::new(true);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    figures.count(Read::CODE, 4096, 4096, 2_000, 5_000);
                    figures.count(Read::CODE, result_of(Errno::BADF), 0, 0, 1_000);
                    figures.count(999, result_of(Errno::BADMSG), 0, 0, 0);
                });
            }
        });
        let sums = figures.sums();
        assert_eq!(sums.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["unknown", "read"]);
        let read = &sums[1].1;
        assert_eq!([read.good, read.failed, read.bytes], [20, 20, 20 * 4096]);
        assert_eq!([read.waiting.count, read.waiting.sum], [20, 40_000]);
        assert_eq!([read.libcephfs.count, read.libcephfs.sum], [40, 120_000]);
        assert_eq!(
            [RefusalReason::Handle, RefusalReason::Malformed, RefusalReason::User].map(|why| figures.refused(why)),
            [20, 20, 0]
        );
    }

    #[test]
    fn refusals_are_told_apart_by_what_they_are_of() {
        for (index, (why, _)) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, index);
        }
        assert!(RefusalReason::Resources.is_of_connection() && !RefusalReason::Malformed.is_of_connection());
    }
}
