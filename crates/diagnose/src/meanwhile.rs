//! What a rule may know of an interval beside the events over its threshold.

use std::collections::{BTreeSet, HashMap};

use model::{Event, Histogram, MountKey, Nanos, Operation};

/// What finished of one operation on one mount in an interval.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The operation.
    pub operation: Operation,
    /// The mount; `MountKey::NONE` for what belongs to none.
    pub mount: MountKey,
    /// Only the interval's; never empty.
    pub histogram: Histogram,
}

/// An interval, as the probes saw it.
#[derive(Clone, Copy)]
pub struct Meanwhile<'a> {
    /// Everything that finished, however fast: at least of the operations that a [`crate::Detector::histograms_needed`] names.
    pub finished: &'a [Finished],
    /// The flight recorder's operations that have ended since then. Costs milliseconds: for what is an anomaly already.
    pub recorded: &'a dyn Fn(Nanos) -> Vec<Event>,
    /// What a person calls a mount.
    pub label: &'a dyn Fn(MountKey) -> String,
    /// What a round trip to its server takes normally, nanoseconds; `None` where that is not known.
    pub round_trip: &'a dyn Fn(MountKey) -> Option<u64>,
}

impl Default for Meanwhile<'_> {
    fn default() -> Self {
        Self { finished: &[], recorded: &|_| Vec::new(), label: &|_| "-".to_owned(), round_trip: &|_| None }
    }
}

/// Turns histograms since the probes were loaded into those of an interval. Holds one for each operation and mount that
/// was asked for, 1 KB each, no more than the kernel side has (4096).
#[derive(Debug, Default)]
pub struct Ledger {
    before: HashMap<(Operation, MountKey), Histogram>,
}

impl Ledger {
    /// What has finished since this was last called; at first, since the probes were loaded. In the order of operations and mounts, whatever that of `now` is.
    pub fn since(
        &mut self,
        now: impl IntoIterator<Item = (Operation, MountKey, Histogram)>,
        wanted: &BTreeSet<Operation>,
    ) -> Vec<Finished> {
        let mut before = std::mem::take(&mut self.before);
        let mut finished = Vec::new();
        for (operation, mount, histogram) in now.into_iter().filter(|(operation, ..)| wanted.contains(operation)) {
            // Fewer than before: it was given up meanwhile, and began again.
            let earlier = before.remove(&(operation, mount)).filter(|earlier| earlier.count <= histogram.count);
            let delta = histogram.since(&earlier.unwrap_or_default());
            self.before.insert((operation, mount), histogram);
            if delta.count > 0 {
                finished.push(Finished { operation, mount, histogram: delta });
            }
        }
        finished.sort_unstable_by_key(|one| (one.operation, one.mount));
        finished
    }
}
