//! A set of probes at work: loading, attaching, attaching again, filtering and draining.

use std::{
    cell::{OnceCell, RefCell},
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use libbpf_rs::{
    ErrorExt as _, Link, MapCore, MapType, Object, ObjectBuilder, ProgramMut, RingBuffer, RingBufferBuilder,
};
use model::{Code, Event, Histogram, Mount, MountKey, Nanos, Operation, Protocol, Requester};
use nix::time::{ClockId, clock_gettime};

use crate::{
    Capability, Kernel, Recorder, SPECS, State,
    decode::decode_event,
    elsewhere::Elsewhere,
    generated::counter,
    kernel::{Module, PERMISSION, functions_of_kernel, may_load, module_identity, module_users},
    mounts::{MountPoint, Mounts},
    runs::{self, Runs},
    shared::{Counters, Shared, Sizes, unpin},
    spec::{Hook, Rung, Spec},
    threads::Threads,
};

mod in_flight;
use in_flight::name_requester;

/// An in-flight entry this old will never finish: the operation's end was missed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// How long a failure to attach stands.
const RETRY_AFTER: Duration = Duration::from_secs(300);
/// An in-flight entry whose operation has finished is kept this long to be used again: long enough that none is removed
/// in the moment in which it is.
const UNUSED: Duration = Duration::from_secs(60);
/// How long a module must be without users before its hooks are given back, so that it can be unloaded.
const IDLE_BEFORE_DETACH: Duration = Duration::from_secs(5);

/// Which events the kernel side lets through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Threshold per operation; an operation that is missing here never becomes an event for being slow.
    pub thresholds: Vec<(Operation, Duration)>,
    /// Operations whose failures are events, however fast; but for those that end with an ordinary code.
    pub failures: Vec<Operation>,
    /// Codes that are wanted though their protocol calls them ordinary.
    pub wanted_ordinary: Vec<(&'static Protocol, Code)>,
    /// Only this mount; `MountKey::NONE`: all.
    pub mount: MountKey,
    /// Only this process (thread group); 0: all.
    pub pid: u32,
    /// Only operations that failed.
    pub errors_only: bool,
    /// System calls: watch local file systems too.
    pub all_filesystems: bool,
    /// vfs: only file systems with this superblock magic number, whatever they are; 0: those that are watched.
    pub magic: u32,
    /// Watch this process as well.
    pub watch_self: bool,
    /// Wake the reader once this many bytes wait in the ring; 0: with every event.
    pub wake_bytes: u64,
}

/// How a set of probes is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The protocols whose probes are wanted.
    pub protocols: Vec<&'static Protocol>,
    /// Size of the event ring: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Operations that the flight recorder holds, over all CPUs.
    pub recorder_records: u32,
    /// Where to pin the maps that other programs read; `None`: nowhere.
    pub pin: Option<PathBuf>,
    /// Give a module's hooks back while it has no users, so that it can be unloaded.
    pub yield_idle_modules: bool,
}

/// A probe that has been loaded and attached. Dropping it detaches.
struct Attached {
    // Links first: they are dropped before the object that their programs live in.
    _links: Vec<Link>,
    /// The iterator over tasks that lists what is in flight, of a probe that has one.
    in_flight: Option<Link>,
    object: Object,
    rung: &'static Rung,
    all_optional: bool,
    /// What hooks would have seen that this kernel has no function for.
    unseen: Vec<&'static str>,
    since: Nanos,
    /// Users of the module that are us.
    own_users: u64,
    idle_since: Option<Duration>,
    /// Which loading of the module it is attached to.
    module: Option<u64>,
}

struct Probe {
    spec: &'static Spec,
    attached: Option<Attached>,
    /// Why it is not attached, and what would help.
    obstacle: Obstacle,
    /// Attaching failed: not worth another try before this.
    retry_at: Duration,
}

/// Why a probe is off.
#[derive(Debug, Clone, Default)]
struct Obstacle {
    reason: String,
    fix: String,
    may_come: bool,
}

/// Probes at work. Everything is detached and unpinned when this is dropped.
pub struct Watch {
    probes: Vec<Probe>,
    shared: Shared,
    ring: RingBuffer<'static>,
    drained: Rc<RefCell<Drained>>,
    mounts: Mounts,
    /// Of other namespaces. In a cell, since it is learned from events wherever they are read.
    elsewhere: RefCell<Elsewhere>,
    kernel: Kernel,
    pinned: Option<PathBuf>,
    yield_idle_modules: bool,
    /// Operations that had not found room in the histograms when this was last looked at.
    lost_histograms: u64,
    /// Loaded when first asked; `None` where that does not work.
    threads: OnceCell<Option<Threads>>,
}

#[derive(Default)]
struct Drained {
    events: Vec<Event>,
    consumed: u64,
    refused: u64,
}

/// Events taken from the ring at once; the rest stays there for the next call.
const BATCH: usize = 1024;

impl Watch {
    /// Creates the maps and attaches what can be attached. A probe that cannot run is no error: see [`Watch::state`].
    ///
    /// # Errors
    ///
    /// When not even the maps can be created: no permission, or a kernel without BPF.
    pub fn start(options: &Options) -> libbpf_rs::Result<Self> {
        let shared =
            Shared::create(&Sizes { ring_bytes: options.ring_bytes, recorder_records: options.recorder_records })?;
        let drained = Rc::new(RefCell::new(Drained::default()));
        let sink = Rc::clone(&drained);
        let mut builder = RingBufferBuilder::new();
        builder.add(shared.map("events")?, move |bytes| {
            let mut drained = sink.borrow_mut();
            drained.consumed += 1;
            match decode_event(bytes) {
                Some(event) => drained.events.push(event),
                None => drained.refused += 1,
            }
            0
        })?;
        let ring = builder.build()?;
        let wanted = |spec: &&&'static Spec| options.protocols.iter().any(|p| p.name == spec.protocol.name);
        let probes = SPECS
            .iter()
            .filter(wanted)
            .map(|spec| Probe { spec, attached: None, obstacle: Obstacle::default(), retry_at: Duration::ZERO })
            .collect();
        let mut watch = Self {
            probes,
            shared,
            ring,
            drained,
            mounts: Mounts::current().unwrap_or_default(),
            elsewhere: RefCell::default(),
            kernel: Kernel::current(),
            pinned: None,
            yield_idle_modules: options.yield_idle_modules,
            lost_histograms: 0,
            threads: OnceCell::new(),
        };
        watch.attach_missing();
        watch.pinned = watch.pin(options.pin.as_deref());
        Ok(watch)
    }

    /// Pins last, so that what ends the process before leaves nothing. Other programs may have to go without, we do not.
    fn pin(&mut self, folder: Option<&Path>) -> Option<PathBuf> {
        let folder = folder?;
        match self.shared.pin(folder) {
            Ok(()) => Some(folder.to_owned()),
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(
                    "maps are not pinned, so that no other program can read them: cannot use {folder}: {error}; \
                     `mount -t bpf bpf /sys/fs/bpf` if that is missing"
                );
                None
            }
        }
    }

    /// Tells the kernel side what to let through.
    ///
    /// # Errors
    ///
    /// When the settings map cannot be written.
    pub fn set_filter(&mut self, filter: &Filter) -> libbpf_rs::Result<()> {
        self.shared.apply(filter, SPECS)
    }

    /// Lets one event in 2^`shift` through; its weight makes up for the others.
    ///
    /// # Errors
    ///
    /// When the settings map cannot be written.
    pub fn sample(&mut self, shift: u32) -> libbpf_rs::Result<()> {
        self.shared.sample(shift)
    }

    /// How each probe stands.
    pub fn state(&self) -> Vec<Capability> {
        self.probes.iter().map(Probe::capability).collect()
    }

    /// Readable when events wait, unless the filter's `wake_bytes` says otherwise.
    pub fn ring_fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// Hands over up to a batch of events. Returns how many were taken from the ring, those that could not be decoded
    /// included; less than [`Watch::BATCH`] means that it is empty.
    pub fn drain(&mut self, mut each: impl FnMut(Event)) -> usize {
        let taken = self.ring.consume_raw_n(BATCH);
        for event in self.drained.borrow_mut().events.drain(..) {
            self.meet(&event);
            each(event);
        }
        usize::try_from(taken).unwrap_or(0)
    }

    /// What a full [`Watch::drain`] returns.
    pub const BATCH: usize = BATCH;

    /// Events taken from the ring so far, and how many of these could not be decoded.
    pub fn consumed(&self) -> (u64, u64) {
        let drained = self.drained.borrow();
        (drained.consumed, drained.refused)
    }

    /// What each probe has counted.
    pub fn counters(&self) -> Vec<(&'static Protocol, Counters)> {
        let read = |probe: &Probe| self.shared.counters(probe.spec.id).unwrap_or_default();
        self.first_probes().map(|probe| (probe.spec.protocol, read(probe))).collect()
    }

    /// One for each protocol: those of one share their counters.
    fn first_probes(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter().filter(|probe| probe.spec.is_first())
    }

    /// Events that found the ring full, by probe: the one counter that is asked for all the time.
    pub fn lost_events(&self) -> Vec<(&'static Protocol, u64)> {
        self.one_counter(counter::COUNT_LOST_RING)
    }

    fn one_counter(&self, which: counter) -> Vec<(&'static Protocol, u64)> {
        let read = |probe: &Probe| self.shared.counter(probe.spec.id, which).unwrap_or_default();
        self.first_probes().map(|probe| (probe.spec.protocol, read(probe))).collect()
    }

    /// What the kernel counts about each protocol's programs.
    pub fn runs(&self) -> Vec<(&'static Protocol, Runs)> {
        let of_protocol = |first: &Probe| {
            let same = self.probes.iter().filter(|probe| probe.spec.id == first.spec.id);
            runs::of(same.filter_map(|probe| probe.attached.as_ref()).map(|attached| &attached.object))
        };
        self.first_probes().map(|probe| (probe.spec.protocol, of_protocol(probe))).collect()
    }

    /// Every histogram there is.
    pub fn histograms(&self) -> libbpf_rs::Result<Vec<(Operation, MountKey, Histogram)>> {
        self.shared.histograms()
    }

    /// Whether `key` means the mount of this device, by whichever probe's way to name it.
    pub fn means(&self, key: MountKey, device: MountKey) -> bool {
        let same = |point| SPECS.iter().any(|spec| (spec.mount_key)(point) == key);
        key == device || self.mounts.get(device).is_some_and(same)
    }

    /// Since when probes have been attached that see the operations below the system calls on this mount; `None` if none is.
    pub fn sees_below_since(&self, mount: MountKey) -> Option<Nanos> {
        let protocol = match &*self.mount(mount).fstype {
            "cifs" | "smb3" => "smb",
            "nfs" | "nfs4" => "nfs",
            _ => "",
        };
        let lower = self.probes.iter().filter(|probe| [protocol, "vfs"].contains(&probe.spec.protocol.name));
        lower.filter_map(|probe| probe.attached.as_ref()).map(|attached| attached.since).max()
    }

    /// Has the mount of an event named, if that is of another namespace.
    fn meet(&self, event: &Event) {
        if event.mount != MountKey::NONE && self.mounts.get(event.mount).is_none() {
            self.elsewhere.borrow_mut().meet(event.mount, event.requester.pid, monotonic());
        }
    }

    fn inflight_maps(&self) -> impl Iterator<Item = (&'static Spec, libbpf_rs::Map<'_>)> {
        let attached = self.probes.iter().filter_map(|probe| Some((probe.spec, probe.attached.as_ref()?)));
        attached.flat_map(|(spec, attached)| {
            let named = |map: &libbpf_rs::Map<'_>| spec.inflight.iter().any(|name| map.name() == *name);
            attached.object.maps().filter(named).map(move |map| (spec, map))
        })
    }

    /// A copy of the flight recorder as it is now.
    pub fn recorder(&self) -> libbpf_rs::Result<Recorder> {
        self.shared.recorder()
    }

    /// What the flight recorder has of operations that have ended since then, with the names of those who asked that are
    /// still there. Costs milliseconds.
    pub fn recorded_since(&self, since: u64) -> Vec<Event> {
        let Ok(recorder) = self.recorder() else { return Vec::new() };
        let mut names = HashMap::new();
        let name = |mut event: Event| {
            let who = &mut event.requester;
            let named = names.entry(who.pid).or_insert_with(|| {
                let mut named = Requester { tid: who.pid, ..*who };
                name_requester(&mut named);
                named
            });
            *who = Requester { tid: who.tid, ..*named };
            self.meet(&event);
            event
        };
        recorder.events_since(since, usize::MAX).map(name).collect()
    }

    /// Leaves the pins to another watch that has replaced them with its own.
    pub fn give_up_pins(&mut self) {
        self.pinned = None;
    }

    /// What is mounted, as of the last [`Watch::tend`].
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// What a key means: a mount of this namespace, else of another (named as the processes there see it), else what the
    /// kernel side knows of it.
    pub fn mount(&self, key: MountKey) -> Mount {
        match self.mount_point(key) {
            Some(point) => point.mount,
            None => self.shared.name_of(key).unwrap_or_default(),
        }
    }

    /// The mount that a key means, in this namespace or, if an event has led there, in another.
    pub fn mount_point(&self, key: MountKey) -> Option<MountPoint> {
        self.mounts.get(key).cloned().or_else(|| self.elsewhere.borrow().get(key).cloned())
    }

    /// The key by which a protocol's events name what is mounted at `path`; `None` if nothing is mounted just there.
    pub fn key_at(&self, protocol: &Protocol, path: &[u8]) -> Option<MountKey> {
        let spec = SPECS.iter().find(|spec| spec.protocol.name == protocol.name)?;
        self.mounts.at(path).map(spec.mount_key)
    }

    /// Looks after what changes by itself: mounts, modules that come and go, entries that never finish. Call it when
    /// mountinfo changes and every few seconds. Returns the probes whose state changed.
    pub fn tend(&mut self) -> Vec<Capability> {
        let elsewhere = self.mounts.set_elsewhere(self.elsewhere.borrow().devices());
        // An unreadable mountinfo leaves what was known.
        if self.mounts.refresh().unwrap_or(false) || elsewhere {
            let attached = self.probes.iter().filter_map(|probe| Some((probe.spec, probe.attached.as_ref()?)));
            attached.for_each(|(spec, attached)| follow_mounts(spec, attached, &self.mounts));
        }
        let before: Vec<_> = self.probes.iter().map(|probe| probe.capability().state).collect();
        self.detach_unloaded();
        if self.yield_idle_modules {
            self.detach_idle();
        }
        self.attach_missing();
        self.sweep();
        self.make_room();
        let changed = |(probe, before): (&Probe, State)| Some(probe.capability()).filter(|now| now.state != before);
        self.probes.iter().zip(before).filter_map(changed).collect()
    }

    fn attach_missing(&mut self) {
        let now = monotonic();
        for index in 0..self.probes.len() {
            let Some(Probe { spec, attached: None, .. }) = self.probes.get(index) else { continue };
            let ours = spec.module.as_ref().map_or(0, |module| self.our_users(module.name));
            let is_ready = ready(spec, &self.kernel, self.yield_idle_modules.then_some(ours));
            let Some(probe) = self.probes.get_mut(index) else { continue };
            if let Err(obstacle) = is_ready {
                (probe.obstacle, probe.retry_at) = (obstacle, Duration::ZERO);
                continue;
            }
            if now < probe.retry_at {
                continue;
            }
            match attach(probe.spec, &self.shared) {
                Ok(attached) => {
                    follow_mounts(probe.spec, &attached, &self.mounts);
                    (probe.attached, probe.retry_at) = (Some(attached), Duration::ZERO);
                }
                Err(reason) => {
                    probe.obstacle = Obstacle { fix: cure(&reason), reason, may_come: false };
                    // Trying takes the verifier's time, and a kernel that has said no seldom changes its mind.
                    probe.retry_at = now + RETRY_AFTER;
                }
            }
        }
    }

    /// A kprobe does not hold its module, and dies with it.
    fn detach_unloaded(&mut self) {
        for probe in &mut self.probes {
            let (Some(attached), Some(module)) = (&probe.attached, &probe.spec.module) else { continue };
            if attached.module != module_identity(module.name) {
                probe.attached = None;
            }
        }
    }

    /// Users of a module that are hooks of ours.
    fn our_users(&self, module: &str) -> u64 {
        let of_module = |probe: &&Probe| probe.spec.module.as_ref().is_some_and(|other| other.name == module);
        let attached = self.probes.iter().filter(of_module).filter_map(|probe| probe.attached.as_ref());
        attached.map(|attached| attached.own_users).sum()
    }

    /// A hook holds its module: give it back once nobody else uses the module.
    fn detach_idle(&mut self) {
        let now = monotonic();
        let ours: Vec<_> = self.probes.iter().filter_map(|probe| probe.spec.module.as_ref()).collect();
        let ours: HashMap<_, _> = ours.iter().map(|module| (module.name, self.our_users(module.name))).collect();
        for probe in &mut self.probes {
            let (Some(attached), Some(module)) = (&mut probe.attached, &probe.spec.module) else { continue };
            let ours = ours.get(module.name).copied().unwrap_or(0);
            if module_users(module.name).is_none_or(|users| users > ours) {
                attached.idle_since = None;
            } else if now.saturating_sub(*attached.idle_since.get_or_insert(now)) >= IDLE_BEFORE_DETACH {
                probe.attached = None;
            }
        }
    }

    /// Once histograms found no room, those of mounts that are gone are given up.
    fn make_room(&mut self) {
        let lost = self.one_counter(counter::COUNT_LOST_HISTOGRAM).iter().map(|(_, lost)| lost).sum();
        if lost == self.lost_histograms {
            return;
        }
        self.lost_histograms = lost;
        let gone = |key| key != MountKey::NONE && self.mount_point(key).is_none();
        match self.shared.forget_mounts(gone) {
            Ok(forgotten) => tracing::warn!("histograms were full: {forgotten} of mounts that are gone were given up"),
            Err(error) => tracing::warn!(%error, "histograms are full, and cannot be given up"),
        }
    }

    fn sweep(&self) {
        let now = monotonic();
        let before = |age| u64::try_from(now.saturating_sub(age).as_nanos()).unwrap_or_default();
        for (spec, map) in self.inflight_maps().filter(|(_, map)| map.map_type() != MapType::Array) {
            if let Err(error) = self.shared.sweep(&map, spec.id, before(ABANDONED), before(UNUSED)) {
                tracing::warn!(probe = spec.protocol.name, %error, "cannot sweep operations in flight");
            }
        }
    }
}

/// Brings a probe's own maps up to date.
fn follow_mounts(spec: &Spec, attached: &Attached, mounts: &Mounts) {
    if let Err(error) = (spec.follow_mounts)(&attached.object, mounts) {
        tracing::warn!(probe = spec.name, %error, "cannot tell the probe what is mounted");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(folder) = &self.pinned {
            unpin(folder);
        }
    }
}

/// Removes pins that a killed process left behind.
pub fn clean_pins(folder: &Path) {
    unpin(folder);
}

impl Probe {
    fn capability(&self) -> Capability {
        let probe = self.spec.name;
        match &self.attached {
            None => {
                let Obstacle { reason, fix, may_come } = self.obstacle.clone();
                Capability { probe, state: State::Unavailable, via: vec![], reason, fix, may_come }
            }
            Some(attached) => {
                let best = self.spec.rungs.first().is_some_and(|best| best.via == attached.rung.via);
                let missing = (!attached.all_optional).then_some(attached.rung.without);
                let missing: Vec<_> = missing.iter().chain(&attached.unseen).copied().collect();
                let missing = (!missing.is_empty()).then(|| format!("without {}", missing.join(", ")));
                let state = if best && missing.is_none() { State::Ready } else { State::Degraded };
                let lower = (!best).then(|| format!("by {}, since what is better does not attach", attached.rung.via));
                let reason = [lower, missing].into_iter().flatten().collect::<Vec<_>>().join("; ");
                let via = vec![attached.rung.via];
                Capability { probe, state, via, reason, fix: String::new(), may_come: false }
            }
        }
    }
}

/// Whether attaching is worth a try; else the reason and the cure. `ours`: only if the module has more users than these.
fn ready(spec: &Spec, kernel: &Kernel, ours: Option<u64>) -> Result<(), Obstacle> {
    if !kernel.btf {
        return Err(Obstacle {
            reason: "this kernel has no BTF (/sys/kernel/btf/vmlinux)".into(),
            fix: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y".into(),
            may_come: false,
        });
    }
    if kernel.lockdown == "confidentiality" {
        // Every program reads kernel memory; what loading it then fails with is EINVAL, which explains nothing.
        return Err(Obstacle {
            reason: "kernel lockdown is at confidentiality, which forbids BPF programs to read kernel memory".into(),
            fix: "boot with lockdown=integrity or without lockdown".into(),
            may_come: false,
        });
    }
    let Some(module) = &spec.module else { return Ok(()) };
    match kernel.module(module.name) {
        Module::Loaded if ours.is_some_and(|ours| module_users(module.name).is_some_and(|users| users <= ours)) => {
            Err(Obstacle {
                reason: format!("nothing uses {} now; watched from the first mount on", module.name),
                fix: String::new(),
                may_come: true,
            })
        }
        Module::Loaded => Ok(()),
        Module::Loadable => Err(Obstacle {
            reason: format!("{} is not loaded; watched as soon as it is", module.name),
            fix: module.load.into(),
            may_come: true,
        }),
        Module::Missing => Err(Obstacle {
            reason: format!("kernel {} has no {} module", kernel.release, module.name),
            fix: "install the kernel's module package, or boot a kernel with it".into(),
            may_come: false,
        }),
    }
}

/// Climbs down the ladder until something attaches. The error says what each rung failed with.
fn attach(spec: &'static Spec, shared: &Shared) -> Result<Attached, String> {
    let users_before = spec.module.as_ref().and_then(|module| module_users(module.name)).unwrap_or(0);
    let (functions, unseen) = choose(spec.hooks)?;
    let mut failures = Vec::new();
    // For trying a lower rung where a better one works: PLUMBLINE_VIA=kprobe.
    let only = std::env::var("PLUMBLINE_VIA").ok();
    for rung in
        spec.rungs.iter().filter(|rung| only.as_deref().is_none_or(|only| only.split(',').any(|via| via == rung.via)))
    {
        // With the optional programs, and if that fails and there are any, without.
        let tries: &[bool] = if rung.optional.is_empty() { &[true] } else { &[true, false] };
        for optional in tries.iter().copied() {
            match attach_rung(spec, shared, rung, optional, &functions) {
                Ok((object, links, in_flight)) => {
                    let users = spec.module.as_ref().and_then(|module| module_users(module.name)).unwrap_or(0);
                    let own_users = users.saturating_sub(users_before);
                    return Ok(Attached {
                        _links: links,
                        in_flight,
                        object,
                        rung,
                        all_optional: optional,
                        unseen,
                        since: nanos_now(),
                        own_users,
                        idle_since: None,
                        module: spec.module.as_ref().and_then(|module| module_identity(module.name)),
                    });
                }
                Err(error) => failures.push(format!("{}: {error:#}", rung.via)),
            }
        }
    }
    failures.dedup();
    if failures.is_empty() {
        let ways: Vec<_> = spec.rungs.iter().map(|rung| rung.via).collect();
        return Err(format!("PLUMBLINE_VIA leaves out every way to attach it: {}", ways.join(", ")));
    }
    Err(failures.join("; "))
}

/// The functions to hook on this kernel, and what is not seen for want of one.
fn choose(hooks: &'static [Hook]) -> Result<(Vec<&'static str>, Vec<&'static str>), String> {
    if hooks.is_empty() {
        return Ok(Default::default());
    }
    let wanted: HashSet<_> = hooks.iter().flat_map(|hook| hook.functions).copied().collect();
    let there = functions_of_kernel(&wanted).map_err(|error| format!("cannot read the kernel's BTF: {error}"))?;
    let find = |hook: &'static Hook| hook.functions.iter().find(|name| there.contains(*name)).ok_or(hook.sees);
    let (found, unseen): (Vec<_>, Vec<_>) = hooks.iter().map(find).partition(Result::is_ok);
    Ok((found.into_iter().flatten().copied().collect(), unseen.into_iter().filter_map(Result::err).collect()))
}

/// Whether a program belongs to a rung's way to attach, and its function is one of `functions`.
fn hooks_one_of(section: &str, rung: &Rung, functions: &[&str]) -> bool {
    let ways = [("fentry", "fentry"), ("fexit", "fentry"), ("kprobe", "kprobe"), ("kretprobe", "kprobe")];
    section.split_once('/').is_some_and(|(kind, name)| ways.contains(&(kind, rung.via)) && functions.contains(&name))
}

fn attach_rung(
    spec: &Spec,
    shared: &Shared,
    rung: &Rung,
    optional: bool,
    functions: &[&str],
) -> libbpf_rs::Result<(Object, Vec<Link>, Option<Link>)> {
    let mut builder = ObjectBuilder::default();
    let mut object = builder.open_memory(spec.object)?;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let wanted = rung.required.contains(&name.as_str())
            || (optional && rung.optional.contains(&name.as_str()))
            || hooks_one_of(&program.section().to_string_lossy(), rung, functions);
        program.set_autoload(wanted);
    }
    shared.lend_to(&mut object)?;
    (spec.prepare)(&mut object)?;
    let object = object.load()?;
    let attach = |program: ProgramMut<'_>| {
        program.attach().with_context(|| format!("cannot attach {}", program.name().to_string_lossy()))
    };
    let (mut links, mut in_flight) = (Vec::new(), None);
    // Objects have what sees an operation's start before what sees its end. The end is attached first: otherwise those that
    // start in between would never end, and look as if they hung.
    let mut programs: Vec<_> = object.progs_mut().filter(|program| program.autoload()).collect();
    programs.reverse();
    for program in programs {
        if spec.inflight.iter().any(|name| program.name() == *name) {
            in_flight = Some(attach(program)?);
        } else {
            links.push(attach(program)?);
        }
    }
    Ok((object, links, in_flight))
}

fn cure(reason: &str) -> String {
    if !may_load() {
        return PERMISSION.into();
    }
    if reason.contains("Operation not permitted") || reason.contains("Permission denied") {
        return "this kernel refuses to attach to functions (its configuration or a security module); \
                the syscalls probe works all the same"
            .into();
    }
    "please report this with the kernel's release and `plumbline -v doctor`".into()
}

fn nanos_now() -> Nanos {
    u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// The clock of every event: CLOCK_MONOTONIC.
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}
