//! Counters of requests by operation, of connections and of refusals. They are in memory that the front and all processes below it share, so a
//! process's counts remain when the process ends. Counting takes no lock, and rarely shares cache lines: each worker uses one of a few shards, and
//! a scrape sums up the shards.

use std::{
    cell::Cell,
    mem,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use model::{BUCKETS, Histogram};
use rustix::mm::ProtFlags;

use crate::{
    memory::{self, SharedMemory},
    wire::{Errno, OPERATIONS, errno_of},
};

/// The most mounts. Each has a process, and one more is the lobby.
pub const MOST_MOUNTS: usize = 1024;
const SHARDS: usize = 8;
const COUNT: usize = OPERATIONS.len();
/// The index of messages with an invalid operation.
const NONE: usize = 0;

/// Why a connection or a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// A connection: the user is not allowed.
    User,
    /// A connection: there are too many.
    Connections,
    /// A connection: there are too many mounts.
    Mounts,
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
    pub const ALL: [(RefusalReason, &'static str); 9] = [
        (RefusalReason::User, "user"),
        (RefusalReason::Connections, "connections"),
        (RefusalReason::Mounts, "mounts"),
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

    /// The refusal for a request's result, if the result means one.
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

/// All counters, as this process maps them.
pub struct ProxyCounters {
    /// Whether requests are counted: only if there is a metrics server.
    pub on: bool,
    memory: SharedMemory,
}

/// The contents of the memory. They are all zero at first; pages of operations that are never used take no memory.
#[repr(C)]
struct Counters {
    connections: AtomicU64,
    refused: [AtomicU64; RefusalReason::ALL.len()],
    processes: [ProcessFigures; MOST_MOUNTS + 1],
    totals: [[ProxyTotals; COUNT]; SHARDS],
    times: [[[OperationTimes; 2]; COUNT]; SHARDS],
}

/// The figures of one process. The front resets them when the process has ended.
#[repr(C)]
#[derive(Default)]
pub struct ProcessFigures {
    /// The number of clients that the front has handed over to the process.
    pub handed: AtomicU64,
    /// The number of these clients that have left, or were refused.
    pub left: AtomicU64,
    /// The number of objects that the process's clients hold.
    pub handles: AtomicU64,
    /// The number of workers.
    pub workers: AtomicU64,
    /// The number of idle workers.
    pub idle: AtomicU64,
    /// The number of mounts: 0 or 1.
    pub mounts: AtomicU64,
    /// The bytes of its cache of file data.
    pub data: AtomicU64,
}

impl ProcessFigures {
    /// The current number of clients.
    pub fn clients(&self) -> u64 {
        self.handed.load(Relaxed).saturating_sub(self.left.load(Relaxed))
    }

    /// Resets the figures of a process.
    pub fn reset(&self) {
        let ProcessFigures { handed, left, handles, workers, idle, mounts, data } = self;
        for figure in [handed, left, handles, workers, idle, mounts, data] {
            figure.store(0, Relaxed);
        }
    }
}

#[repr(C, align(64))]
struct ProxyTotals {
    good: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

#[repr(C)]
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
    /// The times from the submission until a worker took the request, where known.
    pub waiting: Histogram,
    /// The times from the taking of the request until the request was served.
    pub libcephfs: Histogram,
}

impl ProxyCounters {
    /// Counters at zero, and the descriptor by which other processes map them.
    pub fn create(on: bool) -> rustix::io::Result<(OwnedFd, ProxyCounters)> {
        let fd = memory::create("cephfs-figures", mem::size_of::<Counters>())?;
        let counters = ProxyCounters::map(&fd, on)?;
        Ok((fd, counters))
    }

    /// Maps the counters of another process.
    pub fn map(fd: impl AsFd, on: bool) -> rustix::io::Result<ProxyCounters> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        Ok(ProxyCounters { on, memory: SharedMemory::map(fd, mem::size_of::<Counters>(), access)? })
    }

    fn counters(&self) -> &Counters {
        // SAFETY: the memory is mapped, as large, and aligned to a page; all of it is atomics, for which all bytes are valid.
        unsafe { self.memory.base().cast::<Counters>().as_ref() }
    }

    /// The state of a process, by its slot.
    pub fn process(&self, slot: usize) -> &ProcessFigures {
        &self.counters().processes[slot % (MOST_MOUNTS + 1)]
    }

    /// The sum of a figure over all processes.
    pub fn over_all(&self, figure: impl Fn(&ProcessFigures) -> u64) -> u64 {
        self.counters().processes.iter().map(figure).sum()
    }

    /// Counts a client that was let in.
    pub fn accept(&self) {
        self.counters().connections.fetch_add(1, Relaxed);
    }

    /// The number of clients that were let in.
    pub fn accepted(&self) -> u64 {
        self.counters().connections.load(Relaxed)
    }

    /// Counts a refusal.
    pub fn refuse(&self, why: RefusalReason) {
        self.counters().refused[why as usize].fetch_add(1, Relaxed);
    }

    /// The number of refusals of this kind.
    pub fn refused(&self, why: RefusalReason) -> u64 {
        self.counters().refused[why as usize].load(Relaxed)
    }

    /// Counts a finished request. `waited` and `served` are nanoseconds; `waited` 0: not known.
    pub fn count(&self, operation: u16, result: i64, bytes: u64, waited: u64, served: u64) {
        let known = OPERATIONS.get(usize::from(operation)).is_some_and(|name| !name.is_empty());
        let (place, shard) = (if known { usize::from(operation) } else { NONE }, shard());
        let counters = self.counters();
        let (totals, [waiting, libcephfs]) = (&counters.totals[shard][place], &counters.times[shard][place]);
        let outcome = if result < 0 { &totals.failed } else { &totals.good };
        outcome.fetch_add(1, Relaxed);
        if bytes > 0 {
            totals.bytes.fetch_add(bytes, Relaxed);
        }
        if waited > 0 {
            waiting.add(waited);
        }
        libcephfs.add(served);
        if let Some(why) = RefusalReason::of(result) {
            self.refuse(why);
        }
    }

    /// The sums of all operations that were used, with their names.
    pub fn sums(&self) -> Vec<(&'static str, Sum)> {
        let named = |place: usize| if place == NONE { "unknown" } else { OPERATIONS[place] };
        let all = (0..COUNT).filter_map(|place| Some((named(place), self.sum(place)?)));
        all.collect()
    }

    fn sum(&self, place: usize) -> Option<Sum> {
        let counters = self.counters();
        let mut sum = Sum::default();
        for (totals, times) in counters.totals.iter().zip(&counters.times) {
            let (totals, [waiting, libcephfs]) = (&totals[place], &times[place]);
            let (good, failed) = (totals.good.load(Relaxed), totals.failed.load(Relaxed));
            // Reading a page that was never written would make the kernel allocate the page.
            if good + failed > 0 {
                sum.good += good;
                sum.failed += failed;
                sum.bytes += totals.bytes.load(Relaxed);
                waiting.add_to(&mut sum.waiting);
                libcephfs.add_to(&mut sum.libcephfs);
            }
        }
        (sum.good + sum.failed > 0).then_some(sum)
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
    fn what_all_processes_count_is_summed_up() {
        let (fd, other) = ProxyCounters::create(true).unwrap();
        let figures = ProxyCounters::map(&fd, true).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    figures.count(Read::CODE, 4096, 4096, 2_000, 5_000);
                    figures.count(Read::CODE, result_of(Errno::BADF), 0, 0, 1_000);
                    figures.count(999, result_of(Errno::BADMSG), 0, 0, 0);
                });
            }
        });
        let sums = other.sums();
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
