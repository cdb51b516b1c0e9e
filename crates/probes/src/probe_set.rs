//! A set of probes at work: filtering, draining, and what the probes have counted and recorded. Attaching and attaching again are in
//! `probe_set/`.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use model::{Code, Event, Histogram, Level, Mount, MountKey, Nanos, Operation, Protocol, Requester};
use nix::time::{ClockId, clock_gettime};

use crate::{
    Capability, Followed, Kernel, Recorder, Slice, Tail,
    directory::MountDirectory,
    filesystems,
    foreign_mounts::ForeignMounts,
    generated::{counter, mapped},
    mounts::{MountPoint, Mounts},
    ring::{self, RingRecord},
    runs::{self, ProgramRuns},
    shared::{ProbeCounters, SharedMaps, Sizes, unpin},
    spec::Spec,
    specs,
    threads::ThreadIterator,
    usage::{Account, Usage, Who},
};

mod at_work;
mod attach;
mod in_flight;
mod maintain;
mod own;
mod send_timing;
mod slots;
use at_work::AtWork;
use in_flight::name_requester;

/// Which events the kernel side lets through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Threshold per operation; an operation that is missing here never becomes an event for being slow.
    pub thresholds: Vec<(Operation, Duration)>,
    /// Operations whose failures are events, however fast, except failures with an ordinary code.
    pub failures: Vec<Operation>,
    /// Codes that are wanted although their protocol calls them ordinary.
    pub wanted_ordinary: Vec<(&'static Protocol, Code)>,
    /// Only this mount; `MountKey::NONE`: all.
    pub mount: MountKey,
    /// Only this process (thread group); 0: all.
    pub pid: u32,
    /// Only operations that failed.
    pub errors_only: bool,
    /// System calls: watch local file systems too.
    pub all_filesystems: bool,
    /// vfs: only file systems with this superblock magic number, of any type; 0: the file systems that are watched.
    pub magic: u32,
    /// By which requester operations are counted: see [`ProbeSet::usage`].
    pub account: Account,
    /// ProbeSet this process as well.
    pub watch_self: bool,
    /// Wake the reader once this many bytes wait in the ring; 0: with every event.
    pub wake_bytes: u64,
}

/// How a set of probes is set up.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// The protocols whose probes are wanted.
    pub protocols: Vec<&'static Protocol>,
    /// The protocols whose probes are attached only from [`ProbeSet::demand`] on.
    pub on_demand: Vec<&'static Protocol>,
    /// Size of the event ring: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Operations that the flight recorder holds, over all CPUs.
    pub recorder_records: u32,
    /// How many combinations of operation, mount and requester can be counted apart from one another; 0: operations are
    /// never counted by requester.
    pub usage_keys: u32,
    /// Give a module's hooks back while it has no users, so that it can be unloaded.
    pub yield_idle_modules: bool,
}

/// Probes at work. Everything is detached and unpinned when this is dropped.
pub struct ProbeSet {
    probes: Vec<AtWork>,
    shared: SharedMaps,
    ring: RingBuffer<'static>,
    drained: Rc<RefCell<Drained>>,
    mounts: Mounts,
    /// Mounts of other namespaces. In a cell, because they are learned from events wherever events are read.
    foreign_mounts: RefCell<ForeignMounts>,
    kernel: Kernel,
    pinned: Option<PathBuf>,
    /// What other programs are told of mounts while the maps are pinned.
    mount_directory: MountDirectory,
    yield_idle_modules: bool,
    /// The number of operations without room in the histograms, as of the last look.
    lost_histograms: u64,
    /// Loaded when first asked; `None` where that does not work.
    threads: OnceCell<Option<ThreadIterator>>,
}

#[derive(Default)]
struct Drained {
    events: Vec<Event>,
    mapped: Vec<mapped>,
    /// Records of single probes, one behind the other.
    own: Vec<u8>,
    consumed: u64,
    refused: u64,
}

/// Events taken from the ring at once; the rest stays there for the next call.
const BATCH: usize = 1024;

impl ProbeSet {
    /// Creates the maps and attaches what can be attached. A probe that cannot run is no error: see [`ProbeSet::state`].
    ///
    /// # Errors
    ///
    /// When not even the maps can be created: no permission, or a kernel without BPF.
    pub fn start(options: &ProbeOptions) -> libbpf_rs::Result<Self> {
        Self::begin(options, None)
    }

    /// As [`ProbeSet::start`], but only operations that the `followed` processes request, and those that kernel threads request for any
    /// process, become events. Histograms and the flight recorder have all operations.
    ///
    /// # Errors
    ///
    /// When not even the maps can be created: no permission, or a kernel without BPF.
    pub fn of_followed(options: &ProbeOptions, followed: &Followed) -> libbpf_rs::Result<Self> {
        Self::begin(options, Some(followed))
    }

    fn begin(options: &ProbeOptions, followed: Option<&Followed>) -> libbpf_rs::Result<Self> {
        let ProbeOptions { ring_bytes, recorder_records, usage_keys, .. } = *options;
        let shared = SharedMaps::create(&Sizes { ring_bytes, recorder_records, usage_keys }, followed)?;
        let drained = Rc::new(RefCell::new(Drained::default()));
        let sink = Rc::clone(&drained);
        let mut builder = RingBufferBuilder::new();
        builder.add(shared.map("events")?, move |bytes| {
            let mut drained = sink.borrow_mut();
            let record = ring::decode(bytes);
            // What is mapped is nothing that a probe has produced.
            drained.consumed += u64::from(!matches!(record, Some(RingRecord::Mapped(_))));
            match record {
                Some(RingRecord::Event(event)) => drained.events.push(event),
                Some(RingRecord::Mapped(mapped)) => drained.mapped.push(mapped),
                Some(RingRecord::Own(bytes)) => drained.own.extend(bytes),
                None => drained.refused += 1,
            }
            0
        })?;
        let ring = builder.build()?;
        let wanted = specs().filter(|spec| options.protocols.contains(&spec.protocol));
        let mut watch = Self {
            probes: wanted.map(|spec| AtWork::new(spec, options.on_demand.contains(&spec.protocol))).collect(),
            shared,
            ring,
            drained,
            mounts: Mounts::current().unwrap_or_default(),
            foreign_mounts: RefCell::default(),
            kernel: Kernel::current(),
            pinned: None,
            mount_directory: MountDirectory::default(),
            yield_idle_modules: options.yield_idle_modules,
            lost_histograms: 0,
            threads: OnceCell::new(),
        };
        watch.attach_missing();
        Ok(watch)
    }

    /// Pins the maps that other programs read, until this watch ends, and replaces what is pinned in that folder. If pinning fails,
    /// other programs do without the maps, and this watch goes on.
    pub fn pin(&mut self, folder: &Path) {
        match self.shared.pin(folder) {
            Ok(()) => {
                self.pinned = Some(folder.to_owned());
                self.publish_mounts();
            }
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(
                    "maps are not pinned, so that no other program can read them: cannot use {folder}: {error}; \
                     `mount -t bpf bpf /sys/fs/bpf` if that is missing"
                );
            }
        }
    }

    /// Tells the kernel side what to let through.
    ///
    /// # Errors
    ///
    /// When the settings map cannot be written.
    pub fn set_filter(&mut self, filter: &Filter) -> libbpf_rs::Result<()> {
        self.shared.apply(filter)
    }

    /// Lets one event in 2^`shift` through; the weight of this event stands for the others.
    ///
    /// # Errors
    ///
    /// When the settings map cannot be written.
    pub fn sample(&mut self, shift: u32) -> libbpf_rs::Result<()> {
        self.shared.sample(shift)
    }

    /// How each probe stands.
    pub fn state(&self) -> Vec<Capability> {
        self.probes.iter().map(AtWork::capability).collect()
    }

    /// Readable when events wait, unless the filter's `wake_bytes` says otherwise.
    pub fn ring_fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// Hands over up to a batch of events. Returns how many were taken from the ring, those that could not be decoded
    /// included; less than [`ProbeSet::BATCH`] means that it is empty.
    pub fn drain(&mut self, mut each: impl FnMut(Event)) -> usize {
        let taken = self.ring.consume_raw_n(BATCH);
        for mut event in self.drained.borrow_mut().events.drain(..) {
            self.complete(&mut event);
            each(event);
        }
        self.hand_out();
        usize::try_from(taken).unwrap_or(0)
    }

    /// What a full [`ProbeSet::drain`] returns.
    pub const BATCH: usize = BATCH;

    /// Events taken from the ring so far, and how many of these could not be decoded.
    pub fn consumed(&self) -> (u64, u64) {
        let drained = self.drained.borrow();
        (drained.consumed, drained.refused)
    }

    /// What each probe has counted.
    pub fn counters(&self) -> Vec<(&'static Protocol, ProbeCounters)> {
        let read = |probe: &AtWork| self.shared.counters(probe.spec.id).unwrap_or_default();
        let read_now = |probe: &AtWork| {
            let counted = read(probe);
            // An operation that ended without a program being called stays among the unfinished until the map is
            // checked.
            let looked = probe.attached.as_ref().filter(|_| counted.unfinished() > 0);
            looked.and_then(|attached| slots::look(&attached.object)).map_or(counted, |_| read(probe))
        };
        self.first_probes().map(|probe| (probe.spec.protocol, read_now(probe))).collect()
    }

    /// One entry for each protocol: the probes of a protocol share their counters.
    fn first_probes(&self) -> impl Iterator<Item = &AtWork> {
        self.probes.iter().filter(|probe| probe.spec.is_first())
    }

    /// Events that found the ring full, by probe: the one counter that is read all the time.
    pub fn lost_events(&self) -> Vec<(&'static Protocol, u64)> {
        self.one_counter(counter::COUNT_LOST_RING)
    }

    fn one_counter(&self, which: counter) -> Vec<(&'static Protocol, u64)> {
        let read = |probe: &AtWork| self.shared.counter(probe.spec.id, which).unwrap_or_default();
        self.first_probes().map(|probe| (probe.spec.protocol, read(probe))).collect()
    }

    /// What the kernel counts about each protocol's programs.
    pub fn runs(&self) -> Vec<(&'static Protocol, ProgramRuns)> {
        let of_protocol = |first: &AtWork| {
            let same = self.probes.iter().filter(|probe| probe.spec.id == first.spec.id);
            runs::of(same.filter_map(|probe| probe.attached.as_ref()).map(|attached| &attached.object))
        };
        self.first_probes().map(|probe| (probe.spec.protocol, of_protocol(probe))).collect()
    }

    /// Every histogram there is.
    pub fn histograms(&self) -> libbpf_rs::Result<Vec<(Operation, MountKey, Histogram)>> {
        self.sum_up()?;
        self.shared.histograms()
    }

    /// Shows operations by requester, as the filter distinguishes requesters: every entry since counting by requester
    /// began. Allocates nothing for an entry.
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub fn usage(&self, show: impl FnMut(Who, Usage)) -> libbpf_rs::Result<()> {
        self.shared.usage(show)
    }

    /// Removes the counts of a requester that requests nothing any more, to make room; `None` if there is no such
    /// requester.
    ///
    /// # Errors
    ///
    /// When the map cannot be written.
    pub fn take_usage(&self, who: &Who) -> libbpf_rs::Result<Option<Usage>> {
        self.shared.take_usage(who)
    }

    /// Whether `key` means the mount of this device, in any probe's way to name the mount.
    pub fn means(&self, key: MountKey, device: MountKey) -> bool {
        let same = |point| specs().any(|spec| (spec.mount_key)(point) == key);
        key == device || self.mounts.get(device).is_some_and(same)
    }

    /// Since when probes have been attached that see the operations below the system calls on this mount; `None` if none is.
    pub fn sees_below_since(&self, mount: MountKey) -> Option<Nanos> {
        let spoken = filesystems::protocol_of(&self.mount(mount).fstype);
        let is_lower = |of: &Protocol| of.level == Level::FileSystem || Some(of) == spoken;
        let lower = self.probes.iter().filter(|probe| is_lower(probe.spec.protocol));
        lower.filter_map(|probe| probe.attached.as_ref()).map(|attached| attached.since).max()
    }

    fn inflight_maps(&self) -> impl Iterator<Item = (&AtWork, libbpf_rs::Map<'_>)> {
        let attached = self.probes.iter().filter_map(|probe| Some((probe, probe.attached.as_ref()?)));
        attached.flat_map(|(probe, attached)| {
            let named = |map: &libbpf_rs::Map<'_>| probe.spec.inflight.iter().any(|name| map.name() == *name);
            attached.object.maps().filter(named).map(move |map| (probe, map))
        })
    }

    /// A copy of the flight recorder as it is now.
    pub fn recorder(&self) -> libbpf_rs::Result<Recorder> {
        self.shared.recorder()
    }

    /// A reader of the flight recorder that begins with the oldest record.
    ///
    /// # Errors
    ///
    /// When its memory cannot be mapped.
    pub fn tail(&self) -> libbpf_rs::Result<Tail> {
        self.shared.tail()
    }

    /// What was recorded since the tail was last read, and how many records were overwritten before.
    ///
    /// # Errors
    ///
    /// When the counters cannot be read.
    pub fn read_tail(&self, tail: &mut Tail) -> libbpf_rs::Result<(Vec<Slice>, u64)> {
        self.shared.read_tail(tail)
    }

    /// Operations that ended since the last call with the same `seen`: about `most` of the newest, and the number of all of them.
    ///
    /// # Errors
    ///
    /// When the flight recorder cannot be read.
    pub fn newest(&self, seen: &mut Vec<u64>, most: usize) -> libbpf_rs::Result<(Vec<Event>, u64)> {
        let (slices, ended) = self.shared.newest(seen, most)?;
        Ok((slices.iter().flat_map(crate::operations_of).collect(), ended))
    }

    /// Events of the flight recorder with the names of those who asked that are still there; `requester_seen` is shown each of those once.
    pub fn named(&self, events: impl Iterator<Item = Event>, requester_seen: impl Fn(&Requester)) -> Vec<Event> {
        let mut names = HashMap::new();
        let name = |mut event: Event| {
            let who = &mut event.requester;
            let named = names.entry(who.pid).or_insert_with(|| requester(who.pid));
            *who = Requester { tid: who.tid, ..*named };
            self.complete(&mut event);
            requester_seen(&event.requester);
            event
        };
        events.map(name).collect()
    }

    /// Leaves the pins to another watch that has replaced them with its own.
    pub fn give_up_pins(&mut self) {
        self.pinned = None;
    }

    /// What is mounted, as of the last [`ProbeSet::maintain`].
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// What a key means: a mount of this namespace, else of another (named as the processes there see it), else one that
    /// is no longer there, else what the kernel side knows of it.
    pub fn mount(&self, key: MountKey) -> Mount {
        let known = self.mount_point(key).map(|point| point.mount).or_else(|| self.mounts.gone(key).cloned());
        known.unwrap_or_else(|| self.shared.name_of(key).unwrap_or_default())
    }

    /// The mount that a key means, in this namespace or, if an event has led there, in another.
    pub fn mount_point(&self, key: MountKey) -> Option<MountPoint> {
        self.mounts.get(key).cloned().or_else(|| self.foreign_mounts.borrow().get(key).cloned())
    }

    /// The key by which a protocol's events name what is mounted at `path`; `None` if `path` is not a mount point.
    pub fn key_at(&self, protocol: &Protocol, path: &[u8]) -> Option<MountKey> {
        let spec = Spec::of(protocol)?;
        self.mounts.at(path).map(spec.mount_key)
    }
}

impl Drop for ProbeSet {
    fn drop(&mut self) {
        if let Some(folder) = &self.pinned {
            unpin(folder);
        }
    }
}

/// The identity of a process, as long as the process exists.
pub fn requester(pid: u32) -> Requester {
    let mut named = Requester { pid, tid: pid, ..Requester::default() };
    name_requester(&mut named);
    named
}

/// The keys by which the probes' events may name a mount, apart from the superblock's own key.
pub fn keys_of(point: &MountPoint) -> Vec<MountKey> {
    let mut keys: Vec<_> = specs().map(|spec| (spec.mount_key)(point)).filter(|key| *key != point.device).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Removes pins that a killed process left behind.
pub fn clean_pins(folder: &Path) {
    unpin(folder);
}

fn nanos_now() -> Nanos {
    u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// The clock of every event: CLOCK_MONOTONIC.
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}
