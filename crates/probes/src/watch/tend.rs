//! What changes by itself: mounts, modules that come and go, entries that never finish, maps that are full.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use libbpf_rs::{MapCore as _, MapType};
use model::MountKey;

use super::{
    Watch,
    attach::{attach_side_by_side, cure, follow_mounts},
    monotonic,
    probe::{Obstacle, Probe, ready},
};
use crate::{
    Capability, SPECS, State,
    generated::counter,
    kernel::{module_identity, module_users},
    mounts::MountPoint,
    tcp::Selection,
};

/// An in-flight entry this old will never finish: the operation's end was missed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// How long a failure to attach stands.
const RETRY_AFTER: Duration = Duration::from_secs(300);
/// An in-flight entry whose operation has finished is kept this long to be used again: long enough that none is removed
/// in the moment in which it is.
const UNUSED: Duration = Duration::from_secs(60);
/// How long a module must be without users before its hooks are given back, so that it can be unloaded.
const IDLE_BEFORE_DETACH: Duration = Duration::from_secs(5);

impl Watch {
    /// Looks after what changes by itself: mounts, modules that come and go, entries that never finish. Call it when
    /// mountinfo changes and every few seconds. Returns the probes whose state changed.
    pub fn tend(&mut self) -> Vec<Capability> {
        let elsewhere = self.mounts.set_elsewhere(self.elsewhere.borrow().devices());
        // An unreadable mountinfo leaves what was known.
        if self.mounts.refresh().unwrap_or(false) || elsewhere {
            let attached = self.probes.iter_mut().filter_map(|probe| Some((probe.spec, probe.attached.as_mut()?)));
            attached.for_each(|(spec, attached)| follow_mounts(spec, attached, &self.mounts));
            self.tell_mounts();
        }
        let before: Vec<_> = self.probes.iter().map(|probe| probe.capability().state).collect();
        self.detach_unloaded();
        if self.yield_idle_modules {
            self.detach_idle();
        }
        self.attach_missing();
        for (libraries, object) in self.probes.iter_mut().filter_map(Probe::libraries) {
            libraries.tend(object, &self.mounts, monotonic());
        }
        self.sweep();
        // For those who read the pinned maps.
        if self.pinned.is_some()
            && let Err(error) = self.sum_up_flows()
        {
            tracing::warn!(%error, "cannot sum up what TCP sends took");
        }
        self.make_room();
        let changed = |(probe, before): (&Probe, State)| Some(probe.capability()).filter(|now| now.state != before);
        self.probes.iter().zip(before).filter_map(changed).collect()
    }

    /// Has other programs, which read the pinned maps, know what the keys of mounts mean.
    pub(super) fn tell_mounts(&mut self) {
        if self.pinned.is_none() {
            return;
        }
        let elsewhere = self.elsewhere.borrow();
        let all = self.shared.any_filesystem();
        let here = self.mounts.iter().filter(|point| point.remote || all);
        let keys = |point: &MountPoint| SPECS.iter().map(|spec| (spec.mount_key)(point)).collect::<HashSet<_>>();
        let here = here.flat_map(|point| keys(point).into_iter().map(move |key| (key, point)));
        // Of several mounts of one superblock, the one that everything else names it by.
        let here = here.map(|(key, point)| (key, self.mounts.get(key).unwrap_or(point)));
        if let Err(error) = self.told.tell(&self.shared, here.chain(elsewhere.iter())) {
            tracing::warn!(%error, "cannot tell other programs what is mounted");
        }
    }

    pub(super) fn attach_missing(&mut self) {
        let now = monotonic();
        let mut wanted = Vec::new();
        for index in 0..self.probes.len() {
            let Some(Probe { spec, attached: None, .. }) = self.probes.get(index) else { continue };
            let ours = spec.module.as_ref().map_or(0, |module| self.our_users(module.name));
            let is_ready = ready(spec, &self.kernel, self.yield_idle_modules.then_some(ours));
            let Some(probe) = self.probes.get_mut(index) else { continue };
            match is_ready {
                Err(obstacle) => (probe.obstacle, probe.retry_at) = (obstacle, Duration::ZERO),
                Ok(()) if now >= probe.retry_at => wanted.push((index, probe.spec)),
                Ok(()) => {}
            }
        }
        for (index, result) in attach_side_by_side(wanted, &self.shared) {
            let Some(probe) = self.probes.get_mut(index) else { continue };
            match result {
                Ok(mut attached) => {
                    follow_mounts(probe.spec, &mut attached, &self.mounts);
                    if let Some(stamping) = &mut attached.stamping
                        && self.selection != Selection::default()
                        && let Err(error) = stamping.select(&mut attached.object, &self.selection, &self.mounts)
                    {
                        tracing::warn!(%error, "cannot stamp sockets");
                    }
                    (probe.attached, probe.retry_at) = (Some(attached), Duration::ZERO);
                    if let Some((libraries, object)) = probe.libraries() {
                        libraries.look_at_all(object, &self.mounts, now);
                    }
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
        self.ended.borrow_mut().forget(gone);
        match self.shared.forget_mounts(gone) {
            Ok(forgotten) => tracing::warn!("histograms were full: {forgotten} of mounts that are gone were given up"),
            Err(error) => tracing::warn!(%error, "histograms are full, and cannot be given up"),
        }
    }

    fn sweep(&self) {
        let now = monotonic();
        let before = |age| u64::try_from(now.saturating_sub(age).as_nanos()).unwrap_or_default();
        for (spec, map) in self.inflight_maps().filter(|(_, map)| map.map_type() != MapType::Array) {
            if let Err(error) = self.shared.sweep(&map, spec.id, before(ABANDONED), before(UNUSED), spec.has_ended) {
                tracing::warn!(probe = spec.protocol.name, %error, "cannot sweep operations in flight");
            }
        }
    }
}
