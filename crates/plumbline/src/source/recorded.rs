//! A recording as a source of events.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    time::Duration,
};

use anyhow::Result;
use model::{Event, Histogram, Host, Losses, Mount, MountKey, Nanos, Operation, Protocol, Requester, text::printable};
use probes::{Recorder, RecorderCopy, Slice};

use super::{
    EventSource, MountHistogram, SeesBelow,
    kernel::{SAMPLED, lost_events, oldest},
};
use crate::{
    recording::{
        IntervalFacts, MountFacts, RecordingHeader, RecordingItem, RecordingReader, ReportSettings, name_of,
        operation_named,
    },
    view::clock::Clock,
    who::Cgroup,
};

/// The operations that the rules need as events, possibly more than the recording's rules needed.
#[derive(Debug, Clone, Default)]
pub struct WantedOperations {
    /// The least duration of these events, nanoseconds.
    pub thresholds: BTreeMap<Operation, u64>,
    /// Operations whose failures are events, except with ordinary error codes.
    pub failures: Vec<Operation>,
}

/// The number of records in a recording, and a sample of the newest. Recorder and replay use the same sample, so that they learn the same.
#[derive(Debug, Default)]
pub(super) struct RecordCount {
    operations: u64,
    /// When the sample was last taken, and the number of records then.
    asked: Cell<(Nanos, u64)>,
}

impl RecordCount {
    pub fn add(&mut self, slice: &Slice) {
        self.operations += (slice.bytes.len() / probes::RECORD_SIZE) as u64;
    }

    /// Begins a run of the recorder, which has taken no sample yet.
    fn begin_run(&mut self) {
        self.asked.set((0, self.operations));
    }

    /// As [`EventSource::newest`].
    pub fn newest(&self, recorder: &Recorder, now: Nanos) -> (Vec<Event>, u64) {
        let (since, before) = self.asked.replace((now, self.operations));
        let events: Vec<_> = recorder.events_since(since.saturating_add(1), SAMPLED).collect();
        let ended = self.operations.saturating_sub(before).max(events.len() as u64);
        (events, ended)
    }
}

/// A recording, read interval by interval.
pub struct RecordedSource {
    reader: RecordingReader,
    wanted: WantedOperations,
    header: RecordingHeader,
    facts: IntervalFacts,
    slices: Vec<Slice>,
    drained: bool,
    reported: ReportSettings,
    /// Records that become events although the recording's rules did not need them: from this duration up to that one, nanoseconds, by operation.
    more: HashMap<Operation, (u64, u64)>,
    ring: Option<RecorderCopy>,
    counted: HashMap<(Operation, MountKey), Histogram>,
    mounts: HashMap<MountKey, MountFacts>,
    requesters: HashMap<u32, Requester>,
    cgroups: HashMap<(u32, u64), Rc<Cgroup>>,
    losses: Losses,
    count: RecordCount,
    records_lost: u64,
    intervals_lost: u64,
}

/// The most names of each kind that are read from a recording; further ones are ignored.
const MOST_NAMES: usize = 65_536;

/// The result of [`RecordedSource::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStep {
    /// Another run of the recorder begins: open episodes are over.
    Run,
    /// The next interval.
    Interval,
    /// The recording is over.
    End,
}

impl RecordedSource {
    /// A source at the beginning of the recording.
    pub fn new(reader: RecordingReader, wanted: WantedOperations) -> Self {
        Self {
            reader,
            wanted,
            header: RecordingHeader::default(),
            facts: IntervalFacts::default(),
            slices: Vec::new(),
            drained: true,
            reported: ReportSettings::default(),
            more: HashMap::new(),
            ring: None,
            counted: HashMap::new(),
            mounts: HashMap::new(),
            requesters: HashMap::new(),
            cgroups: HashMap::new(),
            losses: Losses::default(),
            count: RecordCount::default(),
            records_lost: 0,
            intervals_lost: 0,
        }
    }

    /// Advances to the next item of the recording.
    ///
    /// # Errors
    ///
    /// When the next file cannot be opened.
    pub fn advance(&mut self) -> Result<ReplayStep> {
        match self.reader.next()? {
            None => Ok(ReplayStep::End),
            Some(RecordingItem::Run(header)) => {
                self.ring = RecorderCopy::new(header.cpus, header.records_per_cpu);
                self.header = RecordingHeader {
                    host: printable(header.host.as_bytes()),
                    kernel: printable(header.kernel.as_bytes()),
                    ..*header
                };
                (self.facts, self.reported, self.losses) = Default::default();
                self.count.begin_run();
                self.slices.clear();
                self.counted.clear();
                self.mounts.clear();
                self.requesters.clear();
                self.cgroups.clear();
                Ok(ReplayStep::Run)
            }
            Some(RecordingItem::Interval(interval)) => {
                self.take_in(interval.facts);
                for slice in &interval.slices {
                    self.count.add(slice);
                    if let Some(ring) = &mut self.ring {
                        ring.apply(slice);
                    }
                }
                self.slices = interval.slices;
                self.drained = false;
                Ok(ReplayStep::Interval)
            }
        }
    }

    fn take_in(&mut self, mut facts: IntervalFacts) {
        for finished in &facts.finished {
            let Some(operation) = operation_named(&finished.operation) else { continue };
            if self.counted.len() < MOST_NAMES {
                finished.add_to(self.counted.entry((operation, finished.mount)).or_default());
            }
        }
        insert(&mut self.mounts, facts.mounts.drain(..).map(|mount| (mount.key, printable_mount(mount))));
        insert(&mut self.requesters, facts.requesters.drain(..).map(|who| (who.pid, who)));
        let cgroups = facts.cgroups.drain(..).map(|facts| ((facts.pid, facts.id), Rc::new(facts.cgroup())));
        insert(&mut self.cgroups, cgroups);
        if let Some(losses) = facts.losses.take() {
            self.losses = losses;
        }
        if let Some(reported) = facts.reported.take() {
            self.more = more(&self.wanted, &reported);
            self.reported = reported;
        }
        self.records_lost += facts.records_lost;
        self.intervals_lost += facts.intervals_lost;
        self.facts = facts;
    }

    /// When the interval began.
    pub fn interval_start(&self) -> Nanos {
        self.facts.began
    }

    /// Whether the recorder's own detection ended with this interval, for instance because its daemon was stopped.
    pub fn ends_detection(&self) -> bool {
        self.facts.ends
    }

    /// The header of the current run.
    pub fn header(&self) -> &RecordingHeader {
        &self.header
    }

    /// The reader, for the errors that it has found.
    pub fn reader(&self) -> &RecordingReader {
        &self.reader
    }

    /// The number of operations so far, of operations that the recorder missed, and of missing intervals.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.count.operations, self.records_lost, self.intervals_lost)
    }

    /// Makes events of records that the recording's rules did not need. Their details are incomplete: no file, no state of the connection.
    fn more_events(&self, see: &mut dyn FnMut(&Event)) {
        let failures = |operation: &Operation| {
            self.wanted.failures.contains(operation) && !self.reported.failures.contains(&name_of(*operation))
        };
        if self.more.is_empty() && !self.wanted.failures.iter().any(failures) {
            return;
        }
        for event in self.slices.iter().flat_map(probes::operations_of) {
            let slow = self.more.get(&event.operation);
            let slow = slow.is_some_and(|(from, until)| (*from..*until).contains(&event.duration));
            if slow || event.flags.failed && failures(&event.operation) && !is_ordinary(&event) {
                see(&self.named(event));
            }
        }
    }

    fn named(&self, mut event: Event) -> Event {
        if let Some(known) = self.requesters.get(&event.requester.pid) {
            event.requester = Requester { tid: event.requester.tid, ..*known };
        }
        event
    }
}

/// The ranges of durations, from and until, that the rules need and the recording's rules did not.
fn more(wanted: &WantedOperations, reported: &ReportSettings) -> HashMap<Operation, (u64, u64)> {
    let until = |operation: Operation| reported.thresholds.get(&name_of(operation)).copied().unwrap_or(u64::MAX);
    let all = wanted.thresholds.iter().map(|(operation, from)| (*operation, (*from, until(*operation))));
    all.filter(|(_, (from, until))| from < until).collect()
}

/// Makes a mount's names safe to print: a recording may come from anywhere.
fn printable_mount(facts: MountFacts) -> MountFacts {
    let Mount { mountpoint, source, server, fstype, pv } = &facts.mount;
    let [mountpoint, source, server, fstype, pv] =
        [mountpoint, source, server, fstype, pv].map(|name| printable(name.as_bytes()));
    MountFacts { mount: Mount { mountpoint, source, server, fstype, pv }, ..facts }
}

fn is_ordinary(event: &Event) -> bool {
    event.operation.protocol().ordinary.iter().any(|code| event.ended_with(*code))
}

fn insert<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, more: impl Iterator<Item = (K, V)>) {
    for (key, value) in more {
        if map.len() < MOST_NAMES || map.contains_key(&key) {
            map.insert(key, value);
        }
    }
}

impl SeesBelow for RecordedSource {
    fn in_flight(&self, wanted: &dyn Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event> {
        let events: Vec<_> = self.facts.in_flight.iter().filter_map(|event| event.event()).collect();
        oldest(&events, wanted, age, limit)
    }

    fn means(&self, key: MountKey, device: MountKey) -> bool {
        key == device || self.mounts.get(&device).is_some_and(|facts| facts.aliases.contains(&key))
    }

    fn sees_below_since(&self, mount: MountKey) -> Option<Nanos> {
        self.mounts.get(&mount)?.below_since
    }
}

impl EventSource for RecordedSource {
    fn drain(&mut self, see: &mut dyn FnMut(&Event)) -> bool {
        if !std::mem::replace(&mut self.drained, true) {
            self.facts.events.iter().filter_map(|event| event.event()).for_each(|event| see(&event));
            self.more_events(see);
        }
        false
    }

    fn now(&self) -> Nanos {
        self.facts.at
    }

    fn clock(&self) -> Clock {
        Clock::from_boot(self.facts.boot)
    }

    fn lost_events(&self) -> Vec<(&'static Protocol, u64)> {
        lost_events(&self.losses)
    }

    fn histograms(&self) -> Result<Rc<Vec<MountHistogram>>> {
        let all = self.counted.iter().map(|((operation, mount), histogram)| (*operation, *mount, histogram.clone()));
        Ok(Rc::new(all.collect()))
    }

    fn recorder(&self) -> Rc<Recorder> {
        Rc::new(self.ring.as_ref().map(RecorderCopy::recorder).unwrap_or_default())
    }

    fn recorded_since(&self, since: Nanos) -> Vec<Event> {
        self.recorder().events_since(since, usize::MAX).map(|event| self.named(event)).collect()
    }

    fn newest(&self) -> (Vec<Event>, u64) {
        self.count.newest(&self.recorder(), self.now())
    }

    fn mount(&self, key: MountKey) -> Mount {
        self.mounts.get(&key).map(|facts| facts.mount.clone()).unwrap_or_default()
    }

    fn device(&self, key: MountKey) -> Option<MountKey> {
        self.mounts.get(&key)?.device
    }

    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup> {
        self.cgroups.get(&(pid, id)).cloned().unwrap_or_default()
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }

    fn host(&self) -> Host {
        Host {
            name: self.header.host.clone(),
            kernel: self.header.kernel.clone(),
            plumbline: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: self.header.addresses.clone(),
        }
    }
}
