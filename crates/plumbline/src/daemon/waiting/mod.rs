//! What waits where while an incident is open: the kernel stacks of those who asked for what is in flight, and of those who take answers.
//!
//! A stack is unwound by a BPF iterator, which waits for nobody. /proc/PID/stack would wait for an exec that hangs on a dead mount.

mod profile;

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Display,
    time::{Duration, Instant},
};

use model::{Event, MountKey, Waited};
use probes::{
    Watch,
    tasks::{Stack, Stacks},
};

use super::{Daemon, release_free_memory};
use profile::{Profile, Role, Sighting};

/// The time between two samples of a new incident; it grows to a fiftieth of the incident's age.
const INTERVAL: Duration = Duration::from_millis(100);
const PER_AGE: u32 = 50;
/// Sampling takes at most a fiftieth of one CPU's time.
const COST: u32 = 50;
/// Operations that have been in flight for less are not looked at.
const AGE: Duration = Duration::from_millis(10);
/// Operations of each protocol that are looked at, the oldest first.
const MOST: usize = 64;

/// Looks at threads while incidents are open.
#[derive(Default)]
pub struct Waiting {
    /// Loaded while there are incidents.
    sampler: Option<Sampler>,
    /// The kernel does not let us; the log says why.
    refused: bool,
    incidents: HashMap<u64, Looked>,
}

/// What samples, and when.
struct Sampler {
    stacks: Stacks,
    /// The next sample.
    at: Instant,
    /// What it stands for: the time since the last one.
    span: Duration,
    before: Stretches,
}

/// An incident that is open.
struct Looked {
    since: Instant,
    /// The superblocks of the mounts that it is about.
    devices: BTreeSet<MountKey>,
    profile: Profile,
}

/// By thread, how often it had given up its CPU when it was last sampled, and since when it had not run.
type Stretches = HashMap<u32, (u64, Instant)>;

impl Waiting {
    /// The incidents that are open now, and the mounts that each is about.
    pub fn follow(&mut self, watch: &Watch, open: Vec<(u64, BTreeSet<MountKey>)>) {
        if open.is_empty() || self.refused {
            if self.sampler.is_some() {
                *self = Self { refused: self.refused, ..Self::default() };
                release_free_memory();
            }
            return;
        }
        let now = Instant::now();
        self.incidents.retain(|id, _| open.iter().any(|(other, _)| other == id));
        for (id, mounts) in open {
            let devices = mounts.into_iter().map(|mount| device(watch, mount)).collect();
            let new = || Looked { since: now, devices: BTreeSet::new(), profile: Profile::default() };
            self.incidents.entry(id).or_insert_with(new).devices = devices;
        }
        if self.sampler.is_none() {
            match Stacks::sampler() {
                Ok(stacks) => {
                    self.sampler = Some(Sampler { stacks, at: now, span: INTERVAL, before: Stretches::new() })
                }
                Err(error) => self.refuse(&error),
            }
        }
    }

    /// In how long to look next; `None` while no incident is open.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        self.sampler.as_ref().map(|sampler| sampler.at.saturating_duration_since(now))
    }

    /// Looks, if it is time to.
    pub fn look(&mut self, watch: &Watch) {
        let began = Instant::now();
        let Some(sampler) = self.sampler.as_mut().filter(|sampler| sampler.at <= began) else { return };
        let flights = in_flight(watch);
        if let Err(error) = sampler.look(&flights, &mut self.incidents) {
            return self.refuse(&error);
        }
        let (now, youngest) = (Instant::now(), self.incidents.values().map(|looked| looked.since).max());
        let age = youngest.map_or(Duration::ZERO, |since| now - since);
        sampler.span = INTERVAL.max(age / PER_AGE).max((now - began) * COST);
        sampler.at = now + sampler.span;
    }

    /// What is known of an incident, for `incident.json`.
    pub fn told(&self, id: u64) -> Vec<Waited> {
        let known = self.sampler.as_ref().zip(self.incidents.get(&id));
        known.map_or_else(Vec::new, |(sampler, looked)| looked.profile.told(&|frame| sampler.stacks.function(frame)))
    }

    /// Likewise, for tools that draw flame graphs; `None` if nothing is known.
    pub fn folded(&self, id: u64) -> Option<String> {
        let (sampler, looked) = self.sampler.as_ref().zip(self.incidents.get(&id))?;
        Some(looked.profile.folded(&|frame| sampler.stacks.function(frame))).filter(|text| !text.is_empty())
    }

    fn refuse(&mut self, error: &dyn Display) {
        tracing::warn!(
            "bundles will not say where threads waited: the kernel does not let their stacks be read: {error}"
        );
        *self = Self { refused: true, ..Self::default() };
    }
}

impl Sampler {
    /// Adds what threads do now to the incidents on whose mounts they have something in flight.
    fn look(&mut self, flights: &[(u32, MountKey)], incidents: &mut HashMap<u64, Looked>) -> anyhow::Result<()> {
        let before = std::mem::take(&mut self.before);
        if flights.is_empty() {
            return Ok(());
        }
        let (now, span, after) = (Instant::now(), self.span, &mut self.before);
        self.stacks.sample(flights.iter().map(|(thread, _)| *thread), |stack| {
            let same = before.get(&stack.pid()).filter(|(switches, _)| *switches == stack.switches());
            let since = same.map_or(now, |(_, since)| *since);
            after.insert(stack.pid(), (stack.switches(), since));
            for looked in incidents.values_mut() {
                let mut here = flights.iter().filter(|(_, device)| looked.devices.contains(device)).peekable();
                let is_concerned = here.peek().is_some();
                let asked = here.any(|(thread, _)| *thread == stack.pid());
                let role = if asked { Role::Requester } else { Role::Receiver };
                if let Some(state) = state(stack).filter(|_| is_concerned && (asked || stack.is_of_kernel())) {
                    let seen = Sighting { role, comm: stack.comm(), state, frames: stack.addresses().to_vec() };
                    looked.profile.add(seen, span, now - since);
                }
            }
        })?;
        Ok(())
    }
}

/// The threads that wait for operations on mounts, by superblock.
fn in_flight(watch: &Watch) -> Vec<(u32, MountKey)> {
    let is_waited_for = |event: &Event| event.requester.tid != 0 && !event.operation.waits_by_design();
    let events = watch.in_flight(|_| true, AGE, MOST).into_iter().filter(is_waited_for);
    let threads: BTreeSet<_> = events.map(|event| (event.requester.tid, device(watch, event.mount))).collect();
    threads.into_iter().collect()
}

fn device(watch: &Watch, mount: MountKey) -> MountKey {
    watch.mount_point(mount).map_or(mount, |point| point.device)
}

/// In a word; `None` of one that has ended.
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
    /// Which incidents are open has changed, maybe.
    pub(super) fn follow_incidents(&mut self) {
        self.waiting.follow(self.source.watch(), self.detection.open());
    }
}
