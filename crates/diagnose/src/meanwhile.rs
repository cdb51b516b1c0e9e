//! The data of an interval that a rule can use beside the events over its threshold.

use std::collections::{BTreeSet, HashMap};

use model::{Event, Histogram, MountKey, Nanos, Operation};

use crate::long_term::Sketch;

/// The operations of one kind on one mount that finished in an interval.
#[derive(Debug, Clone)]
pub struct FinishedOperations {
    /// The operation.
    pub operation: Operation,
    /// The mount; `MountKey::NONE` for operations that belong to none.
    pub mount: MountKey,
    /// The operations of the interval; never empty.
    pub histogram: Histogram,
}

/// An interval, as the probes saw it.
#[derive(Clone, Copy)]
pub struct Meanwhile<'a> {
    /// All operations that finished, however fast; at least those that a [`crate::Detector::histograms_needed`] names.
    pub finished: &'a [FinishedOperations],
    /// Returns the flight recorder's operations that have ended since a time. It takes milliseconds: call it only for
    /// an anomaly.
    pub recorded: &'a dyn Fn(Nanos) -> Vec<Event>,
    /// Returns the name of a mount to show.
    pub label: &'a dyn Fn(MountKey) -> String,
    /// Returns the normal round-trip time to a mount's server, nanoseconds; `None` if it is not known.
    pub round_trip: &'a dyn Fn(MountKey) -> Option<u64>,
    /// Returns how long such operations take normally, see [`crate::long_term::LongTerm::usual`].
    pub usual: &'a dyn Fn(&[&FinishedOperations]) -> Option<Sketch>,
}

impl Default for Meanwhile<'_> {
    fn default() -> Self {
        Self {
            finished: &[],
            recorded: &|_| Vec::new(),
            label: &|_| "-".to_owned(),
            round_trip: &|_| None,
            usual: &|_| None,
        }
    }
}

/// Turns histograms since the probes were loaded into those of an interval. Holds one of 1 KB for each operation and
/// mount that was requested, no more than the kernel side has (4096).
#[derive(Debug, Default)]
pub struct Ledger {
    before: HashMap<(Operation, MountKey), Histogram>,
}

impl Ledger {
    /// The operations that have finished since the last call, or, at the first call, since the probes were loaded. They
    /// are in the order of operations and mounts, whatever the order of `now`.
    pub fn since(
        &mut self,
        now: impl IntoIterator<Item = (Operation, MountKey, Histogram)>,
        wanted: &BTreeSet<Operation>,
    ) -> Vec<FinishedOperations> {
        let mut before = std::mem::take(&mut self.before);
        let mut finished = Vec::new();
        for (operation, mount, histogram) in now.into_iter().filter(|(operation, ..)| wanted.contains(operation)) {
            // A count that fell: the kernel side deleted the histogram and began a new one.
            let earlier = before.remove(&(operation, mount)).filter(|earlier| earlier.count <= histogram.count);
            let delta = histogram.since(&earlier.unwrap_or_default());
            self.before.insert((operation, mount), histogram);
            if delta.count > 0 {
                finished.push(FinishedOperations { operation, mount, histogram: delta });
            }
        }
        finished.sort_unstable_by_key(|one| (one.operation, one.mount));
        finished
    }
}
