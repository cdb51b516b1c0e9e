//! Collects what a recording needs of the kernel: every answer that detection got, and the answers that another configuration would ask for.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use model::{Event, Histogram, Losses, MountKey, Nanos, Operation, Requester};
use probes::{ProbeSet, Recorder, RecorderCopy, Slice, Tail};

use super::{MountHistogram, recorded::RecordCount};
use crate::{
    recording::{
        CgroupFacts, FinishedFacts, Handed, IntervalFacts, MountFacts, RecordedEvent, RecordedInterval,
        RecordingHeader, RecordingWriter, ReportSettings, numbering,
    },
    view::clock::Clock,
    who::Cgroup,
};

/// The most events of an interval that are recorded.
const MOST_EVENTS: usize = 20_000;
/// The most mounts, processes and cgroups that are remembered, each.
const MOST_NAMES: usize = 4096;
/// The most processes, and the most cgroups, that are looked up for an interval.
const NAMED_AT_ONCE: usize = 64;
/// The longest time between two questions for operations in flight, nanoseconds.
const IN_FLIGHT_EVERY: u64 = 900_000_000;

/// Looks up a process's cgroup.
pub(super) type CgroupOf<'a> = &'a mut dyn FnMut(u32, u64) -> Rc<Cgroup>;

/// Records the kernel's answers.
pub struct Tap {
    writer: RecordingWriter,
    tail: Tail,
    ring: RecorderCopy,
    count: RecordCount,
    slices: Vec<Slice>,
    /// What is known so far of the interval's facts.
    facts: RefCell<IntervalFacts>,
    mounts: RefCell<RecordedNames<MountKey, MountFacts>>,
    requesters: RefCell<RecordedNames<u32, Requester>>,
    cgroups: RefCell<RecordedNames<(u32, u64), CgroupFacts>>,
    counted: Deltas,
    losses: Option<Losses>,
    reported: Option<ReportSettings>,
    /// When operations in flight were last asked for.
    in_flight_at: Nanos,
    intervals_lost: u64,
    /// When the last interval ended.
    began: Nanos,
}

impl Tap {
    /// The least age of operations in flight that are recorded, even if no rule asks for them.
    pub const IN_FLIGHT_AGE: Duration = Duration::from_secs(1);

    /// Begins to record what `watch` sees, and the content of the flight recorder. The first interval begins at `began`, like that of the rules;
    /// the operations in `finished` are not part of it. `start` creates the recording.
    ///
    /// # Errors
    ///
    /// When the flight recorder cannot be read, or the recording cannot be begun.
    pub fn new(
        watch: &ProbeSet,
        began: Nanos,
        finished: &[MountHistogram],
        header: RecordingHeader,
        start: impl FnOnce(RecordingHeader) -> Result<RecordingWriter>,
    ) -> Result<Self> {
        let tail = watch.tail().context("cannot read the flight recorder")?;
        let ring = tail.ring().context("recordings do not support the layout of this flight recorder")?;
        let (cpus, records_per_cpu) = ring.shape();
        let mut counted = Deltas::default();
        counted.since(finished.iter());
        let run = format!("{} {}", header.started, std::process::id());
        let writer = start(RecordingHeader { cpus, records_per_cpu, run, numbers: numbering(), ..header })?;
        Ok(Self {
            writer,
            tail,
            ring,
            count: RecordCount::default(),
            slices: Vec::new(),
            facts: RefCell::default(),
            mounts: RefCell::default(),
            requesters: RefCell::default(),
            cgroups: RefCell::default(),
            counted,
            losses: None,
            reported: None,
            in_flight_at: 0,
            intervals_lost: 0,
            began,
        })
    }

    /// The writer of the recording.
    pub fn writer(&self) -> &RecordingWriter {
        &self.writer
    }

    /// Ends the recording.
    pub fn into_writer(self) -> RecordingWriter {
        self.writer
    }

    /// Takes note of which operations become events from now on.
    pub fn set_reported(&mut self, reported: ReportSettings) {
        self.facts.get_mut().reported = Some(reported.clone());
        self.reported = Some(reported);
    }

    /// Records an event that was drained.
    pub(super) fn event(&self, event: &Event) {
        let mut facts = self.facts.borrow_mut();
        if facts.events.len() < MOST_EVENTS {
            facts.events.push(RecordedEvent::new(event));
        } else {
            facts.events_left_out += 1;
        }
    }

    pub(super) fn begin_interval(&mut self, watch: &ProbeSet, now: Nanos, clock: Clock) {
        let facts = self.facts.get_mut();
        (facts.at, facts.boot) = (now, clock.boot());
        if facts.began == 0 {
            facts.began = self.began;
        }
        self.began = now;
        match watch.read_tail(&mut self.tail) {
            Ok((slices, lost)) => {
                facts.records_lost += lost;
                for slice in &slices {
                    self.ring.apply(slice);
                    self.count.add(slice);
                }
                self.slices.extend(slices);
            }
            Err(error) => tracing::warn!(%error, "cannot read the flight recorder"),
        }
    }

    /// The copy of the flight recorder that the recording has.
    pub(super) fn recorder(&self) -> Recorder {
        self.ring.recorder()
    }

    /// The number of records in the recording.
    pub(super) fn count(&self) -> &RecordCount {
        &self.count
    }

    pub(super) fn wants_in_flight(&self) -> bool {
        self.facts.borrow().at.saturating_sub(self.in_flight_at) >= IN_FLIGHT_EVERY
    }

    /// Completes the interval and passes it to the writer.
    pub(super) fn end_interval(
        &mut self,
        watch: &ProbeSet,
        counted: Option<&Vec<MountHistogram>>,
        in_flight: &[Event],
        (losses, cgroup_of): (Losses, CgroupOf<'_>),
        ends: bool,
    ) {
        if self.wants_in_flight() {
            self.in_flight_at = self.facts.get_mut().at;
        }
        let begins_segment = self.writer.wants_segment();
        if begins_segment || self.intervals_lost > 0 {
            self.restate();
        }
        self.name_everything(watch, in_flight, cgroup_of);
        let facts = self.facts.get_mut();
        facts.ends = ends;
        facts.in_flight = in_flight.iter().map(RecordedEvent::new).collect();
        facts.finished = self.counted.since(counted.into_iter().flatten());
        if self.losses.as_ref() != Some(&losses) {
            facts.losses = Some(losses.clone());
            self.losses = Some(losses);
        }
        facts.mounts = self.mounts.get_mut().take_news().map(|(_, mount)| mount).collect();
        facts.requesters = self.requesters.get_mut().take_news().map(|(_, who)| who).collect();
        let cgroups = self.cgroups.get_mut().take_news();
        facts.cgroups = cgroups.map(|(_, cgroup)| cgroup).collect();
        facts.intervals_lost = std::mem::take(&mut self.intervals_lost);
        let (facts, slices) = (std::mem::take(facts), std::mem::take(&mut self.slices));
        let lost_before = facts.intervals_lost;
        if self.writer.interval(RecordedInterval { facts, slices, begins_segment }) == Handed::Lost {
            self.intervals_lost = lost_before + 1;
        }
    }

    /// Makes the next interval repeat all names and settings, since the previous ones may be in another segment, or lost.
    fn restate(&mut self) {
        self.mounts.get_mut().restate();
        self.requesters.get_mut().restate();
        self.cgroups.get_mut().restate();
        self.losses = None;
        self.facts.get_mut().reported.clone_from(&self.reported);
    }

    /// Looks up all mounts again after a change.
    pub(super) fn mounts_changed(&self, watch: &ProbeSet) {
        let keys: Vec<MountKey> = self.mounts.borrow().map.keys().copied().collect();
        keys.into_iter().for_each(|key| self.mount(watch, key));
    }

    /// Records which mount a key means now.
    pub(super) fn mount(&self, watch: &ProbeSet, key: MountKey) {
        let point = watch.mount_point(key);
        let facts = MountFacts {
            key,
            mount: watch.mount(key),
            device: point.as_ref().map(|point| point.device),
            aliases: point.map(|point| probes::keys_of(&point)).unwrap_or_default(),
            below_since: watch.sees_below_since(key),
        };
        self.mounts.borrow_mut().insert(key, facts);
    }

    /// Records the name and user of a process.
    pub(super) fn requester(&self, who: &Requester) {
        self.requesters.borrow_mut().insert(who.pid, *who);
    }

    /// Records a cgroup.
    pub(super) fn cgroup(&self, pid: u32, id: u64, cgroup: &Cgroup) {
        self.cgroups.borrow_mut().insert((pid, id), CgroupFacts::new(pid, id, cgroup));
    }

    /// Looks up the names in the interval's events and records, since other rules may make incidents of them.
    fn name_everything(&self, watch: &ProbeSet, in_flight: &[Event], cgroup_of: CgroupOf<'_>) {
        let (mut mounts, mut processes, mut cgroups) = (HashSet::new(), HashSet::new(), HashSet::new());
        for record in self.slices.iter().flat_map(probes::operations_of) {
            mounts.insert(record.mount);
            processes.insert(record.requester.pid);
        }
        for event in &self.facts.borrow().events {
            mounts.insert(event.mount);
            cgroups.insert((event.requester.pid, event.requester.cgroup));
        }
        for event in in_flight {
            mounts.insert(event.mount);
            cgroups.insert((event.requester.pid, event.requester.cgroup));
        }
        let unknown = |key: &&MountKey| **key != MountKey::NONE && !self.mounts.borrow().map.contains_key(key);
        mounts.iter().filter(unknown).for_each(|key| self.mount(watch, *key));
        let unknown = |pid: &&u32| **pid != 0 && !self.requesters.borrow().map.contains_key(pid);
        for pid in processes.iter().filter(unknown).take(NAMED_AT_ONCE) {
            self.requester(&probes::requester(*pid));
        }
        let unknown = |key: &&(u32, u64)| key.0 != 0 && !self.cgroups.borrow().map.contains_key(key);
        for (pid, id) in cgroups.iter().filter(unknown).take(NAMED_AT_ONCE) {
            self.cgroup(*pid, *id, &cgroup_of(*pid, *id));
        }
    }
}

/// The names that are recorded, and those that are not written yet. New names replace the oldest ones.
struct RecordedNames<K, V> {
    map: HashMap<K, V>,
    order: VecDeque<K>,
    news: HashSet<K>,
}

impl<K, V> Default for RecordedNames<K, V> {
    fn default() -> Self {
        Self { map: HashMap::new(), order: VecDeque::new(), news: HashSet::new() }
    }
}

impl<K: Copy + Eq + Hash + Ord, V: Clone + PartialEq> RecordedNames<K, V> {
    fn insert(&mut self, key: K, value: V) {
        if self.map.get(&key) == Some(&value) {
            return;
        }
        if self.map.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        self.news.insert(key);
        if self.map.len() > MOST_NAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.map.remove(&oldest);
            self.news.remove(&oldest);
        }
    }

    fn restate(&mut self) {
        self.news.extend(self.map.keys().copied());
    }

    fn take_news(&mut self) -> impl Iterator<Item = (K, V)> + '_ {
        let mut news: Vec<K> = self.news.drain().collect();
        news.sort_unstable();
        news.into_iter().filter_map(|key| Some((key, self.map.get(&key)?.clone())))
    }
}

/// Computes an interval's histograms from those since the probes were loaded.
#[derive(Default)]
struct Deltas(HashMap<(Operation, MountKey), Histogram>);

impl Deltas {
    fn since<'a>(&mut self, now: impl Iterator<Item = &'a MountHistogram>) -> Vec<FinishedFacts> {
        let mut finished = Vec::new();
        let mut there = HashMap::new();
        for (operation, mount, histogram) in now {
            let before = self.0.remove(&(*operation, *mount)).filter(|before| before.count <= histogram.count);
            let delta = histogram.since(&before.unwrap_or_default());
            if delta.count > 0 {
                finished.push(FinishedFacts::new(*operation, *mount, &delta));
            }
            there.insert((*operation, *mount), histogram.clone());
        }
        self.0 = there;
        finished
    }
}
