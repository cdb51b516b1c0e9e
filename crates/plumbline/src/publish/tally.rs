//! Operations by kind and mount over the daemon's life.
//!
//! The BPF programs count by a mount's key. A key is a device number, which the kernel reuses for another mount once
//! this one is gone. So [`Tally::settle`] adds new counts to the series of the mount that the key means now, before the
//! key can mean another mount. Counts stay in their series: a series does not fall when its mount is gone, nor when the
//! kernel's histograms restart at zero.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use diagnose::{FinishedOperations, Ledger};
use model::{Histogram, MountKey, Operation};

/// The `mount` label of operations for which there was no room for another series. No mount point or share has this
/// name.
pub const OTHER: &str = "other";

/// The longest name of a mount, bytes. A longer one is cut at its beginning, which says least.
const LONGEST_LABEL: usize = 200;
/// The most keys whose names are remembered: more than the kernel's histograms hold.
const MAX_NAMES: usize = 8192;

/// One operation on one mount.
#[derive(Debug, Clone)]
pub struct OperationSeries {
    /// The operation.
    pub operation: Operation,
    /// The `mount` label.
    pub mount: Arc<str>,
    /// All such operations since the daemon's start.
    pub histogram: Histogram,
}

/// Looks up the current names of mount keys.
pub struct MountLookup<'a> {
    /// The mount that a key means, if it is mounted in a known mount namespace.
    pub mounted: &'a dyn Fn(MountKey) -> Option<String>,
    /// The best other name for a key: a server, or the share that it meant before.
    pub known: &'a dyn Fn(MountKey) -> String,
}

/// Counts operations by kind and mount; see the top of the file.
pub struct Tally {
    operations: BTreeSet<Operation>,
    ledger: Ledger,
    series: BTreeMap<(Operation, Arc<str>), Histogram>,
    /// The last name of each key, which is kept when the mount is gone, and whether the name is that of a mount.
    names: HashMap<MountKey, (Arc<str>, bool)>,
    /// The number of `series` that do not belong to [`OTHER`], which has at most one for each operation.
    own: usize,
    max_series: usize,
    folded: u64,
    retired: u64,
}

impl Tally {
    /// An empty tally for these operations.
    pub fn new(operations: impl Iterator<Item = Operation>, max_series: usize) -> Self {
        Self {
            operations: operations.collect(),
            ledger: Ledger::default(),
            series: BTreeMap::new(),
            names: HashMap::new(),
            own: 0,
            max_series,
            folded: 0,
            retired: 0,
        }
    }

    /// Adds what the kernel has counted since the last call.
    pub fn settle(&mut self, histograms: Vec<(Operation, MountKey, Histogram)>, names: &MountLookup<'_>) {
        let counted = self.since(histograms);
        self.add(counted, names);
    }

    /// Does the same just before the table of mounts is read again; `names` are from the old table. Returns the counts
    /// of keys that are not mounted by the old table. They may belong to a mount in the new one: pass them to
    /// [`Self::add`] then.
    pub fn settle_mounted(
        &mut self,
        histograms: Vec<(Operation, MountKey, Histogram)>,
        names: &MountLookup<'_>,
    ) -> Vec<FinishedOperations> {
        let is_mounted = |one: &FinishedOperations| (names.mounted)(one.mount).is_some();
        let (mounted, others) = self.since(histograms).into_iter().partition(is_mounted);
        self.add(mounted, names);
        others
    }

    /// Adds counts to the series of their mounts, by these names.
    pub fn add(&mut self, counted: Vec<FinishedOperations>, names: &MountLookup<'_>) {
        // At most once for all counts, since it goes through all names.
        let mut retire_gone = Some(());
        for finished in counted {
            let mount = self.name(finished.mount, names);
            let key = (finished.operation, mount);
            if let Some(series) = self.series.get_mut(&key) {
                series.merge(&finished.histogram);
                continue;
            }
            if self.own >= self.max_series && retire_gone.take().is_some() {
                self.retire_gone(&key.1, names);
            }
            let key = if self.own < self.max_series {
                self.own += 1;
                key
            } else {
                self.folded += finished.histogram.count;
                (finished.operation, OTHER.into())
            };
            self.series.entry(key).or_default().merge(&finished.histogram);
        }
    }

    fn since(&mut self, histograms: Vec<(Operation, MountKey, Histogram)>) -> Vec<FinishedOperations> {
        if self.names.len() > MAX_NAMES {
            let counted: HashSet<_> = histograms.iter().map(|(_, key, _)| *key).collect();
            self.names.retain(|key, _| counted.contains(key));
        }
        self.ledger.since(histograms, &self.operations)
    }

    /// Declares that the kernel's histograms restart at zero: the probes were replaced, and see these operations.
    pub fn begin_again(&mut self, operations: impl Iterator<Item = Operation>) {
        self.operations = operations.collect();
        self.ledger = Ledger::default();
    }

    /// Changes the limit of series for the future; existing series stay.
    pub fn set_max_series(&mut self, max_series: usize) {
        self.max_series = max_series;
    }

    /// All series, sorted by operation and mount.
    pub fn series(&self) -> impl Iterator<Item = OperationSeries> {
        self.series.iter().map(|((operation, mount), histogram)| OperationSeries {
            operation: *operation,
            mount: Arc::clone(mount),
            histogram: histogram.clone(),
        })
    }

    /// The keys whose names are remembered.
    pub fn keys(&self) -> impl Iterator<Item = MountKey> {
        self.names.keys().copied()
    }

    /// How many operations were counted under [`OTHER`], and how many series were removed to make room.
    pub fn folded_and_retired(&self) -> (u64, u64) {
        (self.folded, self.retired)
    }

    fn name(&mut self, key: MountKey, names: &MountLookup<'_>) -> Arc<str> {
        let mounted = (names.mounted)(key);
        let is_mount = mounted.is_some();
        let now = match (mounted, self.names.get(&key)) {
            (None, Some((last, _))) => return Arc::clone(last),
            (mounted, _) => label(&mounted.unwrap_or_else(|| (names.known)(key))),
        };
        match self.names.get(&key) {
            Some((last, _)) if **last == *now => Arc::clone(last),
            _ => {
                let name: Arc<str> = now.into();
                self.names.insert(key, (Arc::clone(&name), is_mount));
                name
            }
        }
    }

    /// Removes the series of mounts that are no longer mounted, except the mount `kept`. Collectors have stored them.
    fn retire_gone(&mut self, kept: &str, names: &MountLookup<'_>) {
        let stays =
            |(key, (_, was_mount)): &(&MountKey, &(Arc<str>, bool))| !was_mount || (names.mounted)(**key).is_some();
        let staying: HashSet<_> = self.names.iter().filter(stays).map(|(_, (name, _))| Arc::clone(name)).collect();
        let before = self.series.len();
        self.series.retain(|(_, mount), _| staying.contains(mount) || [OTHER, kept].contains(&&**mount));
        let retired = before - self.series.len();
        self.own -= retired;
        self.retired += retired as u64;
    }
}

/// A mount's name as a label, cut at its beginning to [`LONGEST_LABEL`] bytes.
pub fn label(name: &str) -> String {
    let Some(cut) = name.len().checked_sub(LONGEST_LABEL).filter(|cut| *cut > 0) else { return name.to_owned() };
    let begin = (cut + 3..name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(name.len());
    format!("...{}", name.get(begin..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [MountKey; 3] = [MountKey(49), MountKey(50), MountKey(51)];

    fn read() -> Operation {
        probes::protocol("syscalls").unwrap().operation("read").unwrap()
    }

    fn counted(key: MountKey, count: u64) -> (Operation, MountKey, Histogram) {
        let mut histogram = Histogram::default();
        (0..count).for_each(|_| histogram.add(1 << 20, 4096, false));
        (read(), key, histogram)
    }

    /// The tally's counts by mount; `table` has the mounts of the moment.
    fn settle(tally: &mut Tally, table: &[(MountKey, &str)], now: &[(MountKey, u64)]) -> Vec<(String, u64)> {
        let mounted = |key| table.iter().find(|(other, _)| *other == key).map(|(_, name)| (*name).to_owned());
        let names = MountLookup { mounted: &mounted, known: &|_| "-".into() };
        tally.settle(now.iter().map(|(key, count)| counted(*key, *count)).collect(), &names);
        tally.series().map(|one| (one.mount.to_string(), one.histogram.count)).collect()
    }

    fn counts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn tally(max_series: usize) -> Tally {
        Tally::new(probes::protocols().flat_map(|protocol| protocol.all_operations()), max_series)
    }

    #[test]
    fn what_was_counted_stays_with_the_mount_whose_device_number_goes_to_another() {
        let mut tally = tally(10);
        let [key, ..] = KEYS;
        assert_eq!(settle(&mut tally, &[(key, "/a")], &[(key, 5)]), counts(&[("/a", 5)]));
        assert_eq!(settle(&mut tally, &[], &[(key, 6)]), counts(&[("/a", 6)]), "unmounted, and still in use");
        assert_eq!(settle(&mut tally, &[(key, "/b")], &[(key, 9)]), counts(&[("/a", 6), ("/b", 3)]));
    }

    #[test]
    fn what_a_mount_did_before_it_was_seen_is_its_own() {
        let mut tally = tally(10);
        let [one, two, _] = KEYS;
        settle(&mut tally, &[(two, "/b")], &[(two, 1)]);
        settle(&mut tally, &[], &[(two, 1)]);
        let table = [(one, "/a"), (two, "/c")];
        let nowhere = MountLookup { mounted: &|_| None, known: &|_| "-".into() };
        let unnamed = tally.settle_mounted(vec![counted(one, 5), counted(two, 3)], &nowhere);
        let mounted = |key| table.iter().find(|(other, _)| *other == key).map(|(_, name)| (*name).to_owned());
        tally.add(unnamed, &MountLookup { mounted: &mounted, ..nowhere });
        let now = settle(&mut tally, &table, &[(one, 5), (two, 3)]);
        assert_eq!(now, counts(&[("/a", 5), ("/b", 1), ("/c", 2)]));
    }

    #[test]
    fn no_series_falls_when_the_kernel_begins_again() {
        let mut tally = tally(10);
        let [key, ..] = KEYS;
        settle(&mut tally, &[(key, "/a")], &[(key, 5)]);
        assert_eq!(settle(&mut tally, &[(key, "/a")], &[]), counts(&[("/a", 5)]), "given up");
        assert_eq!(settle(&mut tally, &[(key, "/a")], &[(key, 2)]), counts(&[("/a", 7)]));
        tally.begin_again(probes::protocols().flat_map(|protocol| protocol.all_operations()));
        assert_eq!(settle(&mut tally, &[(key, "/a")], &[(key, 2)]), counts(&[("/a", 9)]));
    }

    #[test]
    fn two_mounts_of_one_name_are_one_series() {
        let mut tally = tally(10);
        let [one, two, _] = KEYS;
        assert_eq!(settle(&mut tally, &[(one, "/a"), (two, "/a")], &[(one, 5), (two, 1)]), counts(&[("/a", 6)]));
    }

    #[test]
    fn a_bomb_of_mounts_ends_in_other_and_a_counter() {
        let mut tally = tally(2);
        let [one, two, three] = KEYS;
        let table = [(one, "/a"), (two, "/b"), (three, "/c")];
        let now = settle(&mut tally, &table, &[(one, 5), (two, 1), (three, 7)]);
        assert_eq!((now, tally.folded_and_retired()), (counts(&[("/a", 5), ("/b", 1), ("other", 7)]), (7, 0)));
        let now = settle(&mut tally, &table, &[(one, 6), (two, 1), (three, 9)]);
        assert_eq!((now, tally.folded_and_retired()), (counts(&[("/a", 6), ("/b", 1), ("other", 9)]), (9, 0)));
    }

    #[test]
    fn mounts_that_are_gone_make_room() {
        let mut tally = tally(2);
        let [one, two, three] = KEYS;
        settle(&mut tally, &[(one, "/a"), (two, "/b")], &[(one, 5), (two, 1)]);
        let now = settle(&mut tally, &[(two, "/b"), (three, "/c")], &[(one, 5), (two, 1), (three, 7)]);
        assert_eq!((now, tally.folded_and_retired()), (counts(&[("/b", 1), ("/c", 7)]), (0, 1)));
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(label("/mnt/ä"), "/mnt/ä");
        let long = label(&"ä".repeat(3000));
        assert!(long.len() <= LONGEST_LABEL && long.starts_with("...ä"), "{long}");
    }
}
