//! Samples where threads wait while an incident is open: the kernel stacks of threads whose operations are in flight,
//! and of threads that read answers.
//!
//! A BPF iterator unwinds the stacks, and takes no lock that a hanging thread may hold. Reading /proc/PID/stack would
//! wait for an exec that hangs on a dead mount.

mod profile;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use model::{Event, MountKey, Waited};
use probes::{
    ProbeSet, filesystems,
    tasks::{Stack, Stacks},
};

use super::{Daemon, release_free_memory};
use profile::{Profile, Role, ThreadSample};

/// The time between two samples of a new incident. It grows to a fiftieth of the incident's age, up to ten seconds.
const SHORTEST: Duration = Duration::from_millis(100);
const PER_AGE: u32 = 50;
const LONGEST: Duration = Duration::from_secs(10);
/// Sampling takes at most a fiftieth of one CPU's time.
const COST: u32 = 50;
/// Operations that have been in flight for less time are ignored.
const AGE: Duration = Duration::from_millis(10);
/// The most operations in flight that are examined, the oldest of each protocol, and the most threads of these.
const OPERATIONS: usize = 512;
const THREADS: usize = 128;
/// The most addresses whose functions are remembered.
const NAMES: usize = 8_192;

/// Samples threads while incidents are open.
#[derive(Default)]
pub struct Waiting {
    /// Loaded while an incident is open.
    sampler: Option<Sampler>,
    /// The kernel refused the sampler; the log says why.
    refused: bool,
    incidents: HashMap<u64, WaitingIncident>,
}

/// The loaded BPF programs that sample, and the times of the samples.
struct Sampler {
    stacks: Stacks,
    next: Instant,
    last: Option<Instant>,
    stretches: Stretches,
    /// The function and module of an address.
    names: RefCell<HashMap<u64, (String, String)>>,
    has_failed: bool,
}

/// An open incident.
struct WaitingIncident {
    since: Instant,
    /// The superblocks of the mounts that the incident concerns.
    devices: BTreeSet<MountKey>,
    /// The kernel modules of these mounts' file systems.
    modules: BTreeSet<&'static str>,
    profile: Profile,
}

/// By thread: its count of context switches in the last sample, and since when it has not run.
type Stretches = HashMap<u32, (u64, Instant)>;

/// Threads with operations in flight, and the superblocks of these operations.
type Flights = BTreeSet<(u32, MountKey)>;

impl Waiting {
    /// Takes the incidents that are open now, each with the mounts that it concerns. Loads or unloads the sampler as
    /// needed.
    pub fn follow(&mut self, watch: &ProbeSet, open: Vec<(u64, BTreeSet<MountKey>)>) {
        if open.is_empty() || self.refused {
            if self.sampler.is_some() {
                *self = Self { refused: self.refused, ..Self::default() };
                release_free_memory();
            }
            return;
        }
        if self.sampler.is_none() {
            match Stacks::sampler() {
                Ok(stacks) => self.sampler = Some(Sampler::new(stacks)),
                Err(error) => {
                    tracing::warn!(
                        "cannot load the BPF programs that sample stacks: {error}; bundles will lack the stacks of waiting threads"
                    );
                    self.refused = true;
                    return;
                }
            }
        }
        self.incidents.retain(|id, _| open.iter().any(|(other, _)| other == id));
        for (id, mounts) in open {
            if !self.incidents.contains_key(&id) {
                self.sampler.iter_mut().for_each(|sampler| sampler.next = Instant::now());
            }
            let incident = self.incidents.entry(id).or_insert_with(WaitingIncident::new);
            incident.devices = mounts.iter().map(|mount| device(watch, *mount)).collect();
            let modules = |mount: &MountKey| filesystems::of(&watch.mount(*mount).fstype).modules;
            incident.modules = mounts.iter().flat_map(modules).copied().collect();
        }
    }

    /// The time until the next sample; `None` while no incident is open.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        self.sampler.as_ref().map(|sampler| sampler.next.saturating_duration_since(now))
    }

    /// Takes a sample if it is due.
    pub fn sample(&mut self, watch: &ProbeSet) {
        let began = Instant::now();
        let Some(sampler) = self.sampler.as_mut().filter(|sampler| sampler.next <= began) else { return };
        let flights = in_flight(watch, &self.incidents);
        let failure = sampler.sample(&flights, &mut self.incidents).err();
        if let Some(error) = failure.as_ref().filter(|_| !sampler.has_failed) {
            tracing::warn!("cannot read the stacks of waiting threads; retrying while incidents are open: {error:#}");
            sampler.has_failed = true;
        }
        let now = Instant::now();
        sampler.last = Some(now);
        let youngest = self.incidents.values().map(|incident| now - incident.since).min().unwrap_or_default();
        let rest = (youngest / PER_AGE).max((now - began) * COST).max(SHORTEST).min(LONGEST);
        sampler.next = now + if failure.is_some() { LONGEST } else { rest };
    }

    /// Where threads waited in an incident: the main places for `incident.json`, and all of them for `stacks.folded`.
    /// Both are empty if nothing was sampled.
    pub fn summary(&self, id: u64) -> (Vec<Waited>, String) {
        let known = self.sampler.as_ref().zip(self.incidents.get(&id));
        known.map_or_else(Default::default, |(sampler, incident)| {
            incident.profile.summary(&|frame| sampler.function(frame).0)
        })
    }
}

impl WaitingIncident {
    fn new() -> Self {
        let (devices, modules) = Default::default();
        Self { since: Instant::now(), devices, modules, profile: Profile::default() }
    }
}

impl Sampler {
    fn new(stacks: Stacks) -> Self {
        let (stretches, names) = Default::default();
        Self { stacks, next: Instant::now(), last: None, stretches, names, has_failed: false }
    }

    /// Adds the threads' current stacks to the incidents on whose mounts operations are in flight.
    fn sample(&mut self, flights: &Flights, incidents: &mut HashMap<u64, WaitingIncident>) -> anyhow::Result<()> {
        let before = std::mem::take(&mut self.stretches);
        if flights.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let mut after = Stretches::new();
        let all: BTreeSet<_> = flights.iter().map(|(thread, _)| *thread).collect();
        let of_incident = |incident: &WaitingIncident| -> BTreeSet<u32> {
            let here = flights.iter().filter(|(_, device)| incident.devices.contains(device));
            here.map(|(thread, _)| *thread).collect()
        };
        let concerned = incidents.values_mut().map(|incident| (of_incident(incident), incident));
        let mut concerned: Vec<_> = concerned.filter(|(asked, _)| !asked.is_empty()).collect();
        self.stacks.sample(all.iter().copied(), |stack| {
            let thread = stack.pid();
            let same = before.get(&thread).filter(|(switches, _)| *switches == stack.switches() && !stack.runs());
            let since = same.map_or(now, |(_, since)| *since);
            after.insert(thread, (stack.switches(), since));
            let Some(state) = state(stack) else { return };
            for (asked, incident) in &mut concerned {
                let role = if asked.contains(&thread) {
                    Role::Requester
                } else if !all.contains(&thread) && self.receives(stack, &incident.modules) {
                    Role::Receiver
                } else {
                    continue;
                };
                let since_last = now - self.last.map_or(incident.since, |last| last.max(incident.since));
                let seen = ThreadSample { role, comm: name(stack), state, frames: stack.addresses().to_vec() };
                incident.profile.add(seen, since_last.clamp(SHORTEST, LONGEST), now - since);
            }
        })?;
        self.stretches = after;
        Ok(())
    }

    /// Whether a thread reads answers for the file system client of these modules. A writeback thread does not: it
    /// requests writes, and other threads read the answers.
    fn receives(&self, stack: &Stack, modules: &BTreeSet<&str>) -> bool {
        let frames = || stack.addresses().iter().map(|frame| self.function(*frame));
        let is_of_client = || frames().any(|(_, module)| modules.contains(module.as_str()));
        let writes_back = || frames().any(|(function, _)| function == "wb_workfn");
        let takes_smb = modules.contains("cifs") && name(stack) == "cifsd";
        stack.is_of_kernel() && (takes_smb || (is_of_client() && !writes_back()))
    }

    /// The function of an address, and the function's module.
    fn function(&self, frame: u64) -> (String, String) {
        let mut names = self.names.borrow_mut();
        if names.len() >= NAMES {
            names.clear();
        }
        let named = || self.stacks.function(frame).unwrap_or_else(|| (format!("{frame:#x}"), String::new()));
        names.entry(frame).or_insert_with(named).clone()
    }
}

/// The threads that wait for operations on the mounts of incidents, at most [`THREADS`].
fn in_flight(watch: &ProbeSet, incidents: &HashMap<u64, WaitingIncident>) -> Flights {
    let is_waited_for = |event: &Event| event.requester.tid != 0 && !event.operation.waits_by_design();
    let events = watch.in_flight(|_| true, AGE, OPERATIONS).into_iter().filter(is_waited_for);
    let flights = events.map(|event| (event.requester.tid, device(watch, event.mount)));
    let is_concerned = |device: &MountKey| incidents.values().any(|incident| incident.devices.contains(device));
    flights.filter(|(_, device)| is_concerned(device)).take(THREADS).collect()
}

fn device(watch: &ProbeSet, mount: MountKey) -> MountKey {
    watch.mount_point(mount).map_or(mount, |point| point.device)
}

/// The thread's name; all kernel workers are `kworker`.
fn name(stack: &Stack) -> String {
    let name = stack.comm().to_string();
    if stack.is_of_kernel() && name.starts_with("kworker/") { "kworker".to_owned() } else { name }
}

/// The thread's state in a word; `None` if it has ended.
fn state(stack: &Stack) -> Option<&'static str> {
    match stack.state() {
        'R' if stack.runs() => Some("running"),
        'R' => Some("runnable"),
        'D' => Some("blocked"),
        'S' | 'I' => Some("asleep"),
        'T' | 't' => Some("stopped"),
        _ => None,
    }
}

impl Daemon {
    /// Passes the open incidents to the sampler.
    pub(super) fn follow_incidents(&mut self) {
        self.waiting.follow(self.source.watch(), self.detection.open());
    }
}
