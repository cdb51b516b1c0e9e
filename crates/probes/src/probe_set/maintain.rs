//! Reacts to changes: mounts, modules that come and go, entries that never finish, maps that are full.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use libbpf_rs::{MapCore as _, MapType};
use model::{MountKey, Protocol};

use super::{
    ProbeSet,
    at_work::{AtWork, Demand, ready},
    attach::attach_side_by_side,
    monotonic, slots,
};
use crate::{
    Capability, ProbeSupport,
    generated::counter,
    kernel::{module_identity, module_users},
    mounts::MountPoint,
    spec::RequiredModule,
};

/// An in-flight entry this old will never finish: the operation's end was missed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// An in-flight entry whose operation has finished is kept this long for reuse: long enough that no entry is removed
/// while it is taken into use again.
const UNUSED: Duration = Duration::from_secs(60);
/// How long a module must be without users before the probe detaches from its hooks, so that the module can be
/// unloaded.
const IDLE_BEFORE_DETACH: Duration = Duration::from_secs(5);
/// How long after detaching the module's number of users means nothing: the kernel returns a program's references some time
/// after the program is detached.
const REFERENCES_RETURNED: Duration = Duration::from_secs(1);

impl ProbeSet {
    /// Looks after what changes by itself: mounts, modules that come and go, entries that never finish. Call it when
    /// mountinfo changes and every few seconds. Returns the probes whose state changed.
    pub fn maintain(&mut self) -> Vec<Capability> {
        let foreign = self.mounts.set_foreign(self.foreign_mounts.borrow().devices());
        let mut daemons: Vec<_> = self.probes.iter().flat_map(|probe| probe.probe.daemons()).collect();
        daemons.sort_unstable();
        daemons.dedup();
        let daemons = self.mounts.set_daemons(daemons);
        // If mountinfo cannot be read, the known mounts stay.
        if self.mounts.refresh().unwrap_or(false) || foreign || daemons {
            self.probes.iter_mut().for_each(|probe| probe.follow_mounts(&self.mounts));
            self.publish_mounts();
        }
        let before = self.states();
        self.detach_unloaded();
        if self.yield_idle_modules {
            self.detach_idle();
        }
        self.attach_missing();
        for (libraries, object) in self.probes.iter_mut().filter_map(AtWork::libraries) {
            libraries.maintain(object, &self.mounts, monotonic());
        }
        self.probes.iter_mut().for_each(AtWork::tend);
        self.sweep();
        // For the programs that read the pinned maps.
        if self.pinned.is_some()
            && let Err(error) = self.sum_up()
        {
            tracing::warn!(%error, "cannot sum up what probes count themselves");
        }
        self.make_room();
        self.changed_since(before)
    }

    /// Attaches the probes on demand of these protocols, and detaches the other probes on demand. Returns the probes whose state
    /// changed.
    pub fn demand(&mut self, protocols: &[&Protocol]) -> Vec<Capability> {
        let is_demanded = |probe: &AtWork| protocols.iter().any(|protocol| **protocol == *probe.spec.protocol);
        let before = self.states();
        let mut is_changed = false;
        for probe in self.probes.iter_mut().filter(|probe| probe.demand != Demand::Always) {
            let demand = if is_demanded(probe) { Demand::Now } else { Demand::NotNow };
            is_changed |= demand != probe.demand;
            if demand == Demand::NotNow {
                probe.detach();
            }
            (probe.demand, probe.retry_at) = (demand, Duration::ZERO);
        }
        if is_changed {
            self.maintain();
        }
        self.changed_since(before)
    }

    fn states(&self) -> Vec<ProbeSupport> {
        self.probes.iter().map(|probe| probe.capability().state).collect()
    }

    fn changed_since(&self, before: Vec<ProbeSupport>) -> Vec<Capability> {
        let changed =
            |(probe, before): (&AtWork, ProbeSupport)| Some(probe.capability()).filter(|now| now.state != before);
        self.probes.iter().zip(before).filter_map(changed).collect()
    }

    /// Tells other programs, which read the pinned maps, what the keys of mounts mean.
    pub(super) fn publish_mounts(&mut self) {
        if self.pinned.is_none() {
            return;
        }
        let foreign = self.foreign_mounts.borrow();
        let all = self.shared.any_filesystem();
        let here = self.mounts.iter().filter(|point| point.remote || all);
        let keys = |point: &MountPoint| crate::specs().map(|spec| (spec.mount_key)(point)).collect::<HashSet<_>>();
        let here = here.flat_map(|point| keys(point).into_iter().map(move |key| (key, point)));
        // If one superblock has several mounts, the mount by which everything else names the superblock.
        let here = here.map(|(key, point)| (key, self.mounts.get(key).unwrap_or(point)));
        if let Err(error) = self.mount_directory.publish(&self.shared, here.chain(foreign.iter())) {
            tracing::warn!(%error, "cannot tell other programs what is mounted");
        }
    }

    pub(super) fn attach_missing(&mut self) {
        let now = monotonic();
        let mut wanted = HashSet::new();
        for index in 0..self.probes.len() {
            let Some(probe @ AtWork { spec, attached: None, .. }) = self.probes.get(index) else { continue };
            let ours = spec.module.as_ref().map_or(0, |module| self.our_users(module.name));
            let ours = self.yield_idle_modules.then_some(ours);
            let is_ready = probe.is_demanded().and_then(|()| ready(spec, &self.kernel, ours));
            let Some(probe) = self.probes.get_mut(index) else { continue };
            match is_ready {
                Err(obstacle) => (probe.obstacle, probe.retry_at) = (obstacle, Duration::ZERO),
                Ok(()) if now >= probe.retry_at => drop(wanted.insert(index)),
                Ok(()) => {}
            }
        }
        let probes = self.probes.iter_mut().enumerate().filter(|(index, _)| wanted.contains(index));
        let mut probes: Vec<_> = probes.map(|(_, probe)| probe).collect();
        attach_side_by_side(probes.iter_mut().map(|probe| &mut **probe).collect(), &self.shared, now);
        for probe in probes {
            probe.follow_mounts(&self.mounts);
            if let Some((libraries, object)) = probe.libraries() {
                libraries.look_at_all(object, &self.mounts, now);
            }
        }
    }

    /// A kprobe does not hold its module, and is removed with it.
    fn detach_unloaded(&mut self) {
        for probe in &mut self.probes {
            let (Some(attached), Some(module)) = (&probe.attached, &probe.spec.module) else { continue };
            if attached.module != module_identity(module.name) {
                probe.detach();
            }
        }
    }

    /// The users of a module that are our own hooks.
    fn our_users(&self, module: &str) -> u64 {
        let of_module = |probe: &&AtWork| probe.spec.module.as_ref().is_some_and(|other| other.name == module);
        let attached = self.probes.iter().filter(of_module).filter_map(|probe| probe.attached.as_ref());
        attached.map(|attached| attached.own_users).sum()
    }

    /// A hook holds its module: detach once there are no other users of the module.
    fn detach_idle(&mut self) {
        let now = monotonic();
        let ours: Vec<_> = self.probes.iter().filter_map(|probe| probe.spec.module.as_ref()).collect();
        let ours: HashMap<_, _> = ours.iter().map(|module| (module.name, self.our_users(module.name))).collect();
        for probe in &mut self.probes {
            let (Some(attached), Some(module @ RequiredModule { hooks: Some(_), .. })) =
                (&mut probe.attached, &probe.spec.module)
            else {
                continue;
            };
            let ours = ours.get(module.name).copied().unwrap_or(0);
            if module_users(module.name).is_none_or(|users| users > ours) {
                attached.idle_since = None;
            } else if now.saturating_sub(*attached.idle_since.get_or_insert(now)) >= IDLE_BEFORE_DETACH {
                probe.detach();
                probe.retry_at = now + REFERENCES_RETURNED;
            }
        }
    }

    /// Once histograms found no room, the histograms of mounts that are gone are removed.
    fn make_room(&mut self) {
        let lost = self.one_counter(counter::COUNT_LOST_HISTOGRAM).iter().map(|(_, lost)| lost).sum();
        if lost == self.lost_histograms {
            return;
        }
        self.lost_histograms = lost;
        let gone = |key| key != MountKey::NONE && self.mount_point(key).is_none();
        self.probes.iter().for_each(|probe| probe.probe.forget_mounts(&gone));
        match self.shared.forget_mounts(gone) {
            Ok(forgotten) => tracing::warn!("histograms were full: {forgotten} of mounts that are gone were given up"),
            Err(error) => tracing::warn!(%error, "histograms are full, and cannot be given up"),
        }
    }

    fn sweep(&self) {
        let now = monotonic();
        let before = |age| u64::try_from(now.saturating_sub(age).as_nanos()).unwrap_or_default();
        for (probe, map) in self.inflight_maps().filter(|(_, map)| map.map_type() != MapType::Array) {
            let (id, has_ended) = (probe.spec.id, |key: &[u8]| probe.probe.has_ended(key));
            if let Err(error) = self.shared.sweep(&map, id, before(ABANDONED), before(UNUSED), has_ended) {
                tracing::warn!(probe = probe.spec.protocol.name, %error, "cannot sweep operations in flight");
            }
        }
        self.probes.iter().filter_map(|probe| probe.attached.as_ref()).for_each(|attached| {
            slots::look(&attached.object);
        });
    }
}
