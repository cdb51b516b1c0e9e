//! How mounts were used over a time: operations, latency, bytes and errors. The summary of a day is a file, that of a snapshot is in its bundle.

mod file;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use diagnose::Ledger;
use jiff::Timestamp;
use model::{Histogram, Host, Mount, MountKey, Operation};
use serde::Serialize;

use crate::source::EventSource;
pub use file::{FOLDER, KeptSummary, SummaryFolder, day_of};

/// The file's name in a bundle.
pub const FILE: &str = "summary.json";
/// The most pairs of mount and operation that are counted separately; further ones are counted as operations on other mounts.
const MOST: usize = 1024;
/// The name of the mount of these operations.
const OTHERS: &str = "other mounts";

/// The counts since the beginning of a period.
pub struct Period {
    from: Timestamp,
    host: Host,
    ledger: Ledger,
    counted: BTreeMap<(SummarizedMount, Operation), Histogram>,
}

/// A mount in the form in which a summary names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct SummarizedMount {
    mountpoint: String,
    source: String,
    server: String,
    fstype: String,
}

/// The counts of a period, as they are written.
#[derive(Debug, Serialize)]
pub struct PeriodSummary {
    /// When the period begins: ISO 8601, UTC.
    pub from: String,
    /// When the period ends: ISO 8601, UTC.
    pub to: String,
    /// The host; empty in files of a version that did not write it.
    pub host: Host,
    /// The mounts by name.
    pub mounts: Vec<OfMount>,
}

/// The operations on a mount.
#[derive(Debug, Serialize)]
pub struct OfMount {
    #[serde(flatten)]
    place: SummarizedMount,
    operations: Vec<OfOperation>,
}

/// Operations of one kind.
#[derive(Debug, Serialize)]
struct OfOperation {
    probe: &'static str,
    operation: &'static str,
    count: u64,
    errors: u64,
    bytes: u64,
    mean_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    /// Pairs of a bucket (docs/maps.md) and a count. Only a day's file has them, so that the daemon can continue it after a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buckets: Vec<(usize, u64)>,
}

impl Period {
    /// Begins a period. Operations that the probes have counted before do not belong to it.
    pub fn begin(source: &dyn EventSource, from: Timestamp) -> Self {
        let mut period = Self::empty(from);
        let _ = period.finished(source);
        period
    }

    fn empty(from: Timestamp) -> Self {
        Self { from, host: Host::default(), ledger: Ledger::default(), counted: BTreeMap::new() }
    }

    /// Adds the operations that finished since the last call.
    ///
    /// # Errors
    /// When the counts cannot be read now; the next call then includes them.
    pub fn add(&mut self, source: &dyn EventSource) -> anyhow::Result<()> {
        // The host may have got another name or other addresses.
        self.host = source.host();
        let mut places = BTreeMap::new();
        for (operation, mount, histogram) in self.finished(source)? {
            let place = places.entry(mount).or_insert_with(|| SummarizedMount::of(source.mount(mount))).clone();
            self.count(place, operation, &histogram);
        }
        Ok(())
    }

    fn finished(&mut self, source: &dyn EventSource) -> anyhow::Result<Vec<(Operation, MountKey, Histogram)>> {
        let histograms: Rc<Vec<_>> = source.histograms()?;
        let all: BTreeSet<Operation> = histograms.iter().map(|(operation, ..)| *operation).collect();
        let finished = self.ledger.since(histograms.iter().cloned(), &all);
        Ok(finished.into_iter().map(|one| (one.operation, one.mount, one.histogram)).collect())
    }

    fn count(&mut self, place: SummarizedMount, operation: Operation, histogram: &Histogram) {
        let key = (place, operation);
        let is_full = self.counted.len() >= MOST && !self.counted.contains_key(&key);
        let key = if is_full { (SummarizedMount::others(), operation) } else { key };
        self.counted.entry(key).or_default().merge(histogram);
    }

    /// The counts until `to`. `with_buckets`: with the distributions, which are needed to continue the period later.
    pub fn summary(&self, to: Timestamp, with_buckets: bool) -> PeriodSummary {
        let mut mounts: Vec<OfMount> = Vec::new();
        for ((place, operation), histogram) in &self.counted {
            let line = OfOperation::new(*operation, histogram, with_buckets);
            match mounts.last_mut().filter(|last| last.place == *place) {
                Some(mount) => mount.operations.push(line),
                None => mounts.push(OfMount { place: place.clone(), operations: vec![line] }),
            }
        }
        PeriodSummary { from: iso(self.from), to: iso(to), host: self.host.clone(), mounts }
    }
}

impl SummarizedMount {
    fn of(mount: Mount) -> Self {
        let Mount { mountpoint, source, server, fstype, .. } = mount;
        Self { mountpoint, source, server, fstype }
    }

    fn others() -> Self {
        Self::of(Mount { mountpoint: OTHERS.to_owned(), ..Mount::default() })
    }
}

impl OfOperation {
    fn new(operation: Operation, histogram: &Histogram, with_buckets: bool) -> Self {
        let quantile = |share: f64| milliseconds(histogram.quantile(share).unwrap_or(0) as f64);
        let used = |(_, count): &(usize, u64)| with_buckets && *count > 0;
        Self {
            probe: operation.protocol().name,
            operation: operation.name(),
            count: histogram.count,
            errors: histogram.errors,
            bytes: histogram.bytes,
            mean_ms: milliseconds(histogram.sum as f64 / histogram.count.max(1) as f64),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            buckets: histogram.buckets.iter().copied().enumerate().filter(used).collect(),
        }
    }
}

/// Nanoseconds as milliseconds, rounded to the microsecond.
fn milliseconds(nanos: f64) -> f64 {
    (nanos / 1e3).round() / 1e3
}

fn iso(at: Timestamp) -> String {
    format!("{at:.0}")
}
