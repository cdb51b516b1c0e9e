//! What single probes do beyond their specs: see [`Probe`].

use std::any::Any;

use libbpf_rs::Object;
use model::{Event, MountKey};

use super::{AtWork, ProbeSet, monotonic};
use crate::{mounts::Mounts, probe::Probe, ring};

impl ProbeSet {
    /// Makes probes that look at nothing by themselves look at the mounts, at their connections, for example.
    ///
    /// # Errors
    ///
    /// When one of the probes cannot. The others still look.
    pub fn select_mounts(&mut self) -> libbpf_rs::Result<()> {
        let select = |probe: &mut AtWork| {
            let object = probe.attached.as_mut().map(|attached| &mut attached.object);
            probe.probe.select_mounts(object, &self.mounts)
        };
        let selected: Vec<_> = self.probes.iter_mut().map(select).collect();
        selected.into_iter().collect()
    }

    /// This probe, its object while it is attached, and the mounts; `None` if the probe is not wanted.
    pub(crate) fn probe<P: Probe>(&mut self) -> Option<(&mut P, Option<&mut Object>, &Mounts)> {
        let mounts = &self.mounts;
        self.probes.iter_mut().find_map(|probe| {
            let object = probe.attached.as_mut().map(|attached| &mut attached.object);
            let any: &mut dyn Any = &mut *probe.probe;
            Some((any.downcast_mut()?, object, mounts))
        })
    }

    /// Passes libraries that have come into use, and the records of single probes, to their probes.
    pub(super) fn hand_out(&mut self) {
        let (mapped, own) = {
            let mut drained = self.drained.borrow_mut();
            (std::mem::take(&mut drained.mapped), std::mem::take(&mut drained.own))
        };
        for mapped in mapped {
            let theirs = self.probes.iter_mut().filter(|probe| probe.spec.id.0 == mapped.probe);
            for (libraries, object) in theirs.filter_map(AtWork::libraries) {
                libraries.mapped(object, &self.mounts, &mapped);
            }
        }
        for record in ring::each(&own) {
            let theirs = self.probes.iter_mut().filter(|probe| ring::is_of(record, probe.spec));
            theirs.for_each(|probe| probe.probe.take(record));
        }
        self.probes.iter_mut().for_each(AtWork::tend);
    }

    /// Adds the histograms that probes keep themselves to those of the kernel side.
    pub(super) fn sum_up(&self) -> libbpf_rs::Result<()> {
        for probe in &self.probes {
            for (operation, mount, histogram) in probe.probe.histograms()? {
                self.shared.set_histogram(operation, mount, &histogram)?;
            }
        }
        Ok(())
    }

    /// Makes the event's probe complete the event, and names the mount if it belongs to another namespace.
    pub(super) fn complete(&self, event: &mut Event) {
        let protocol = event.operation.protocol();
        let theirs = self.probes.iter().filter(|probe| probe.spec.protocol == protocol);
        theirs.for_each(|probe| probe.probe.complete(event));
        if event.mount != MountKey::NONE && self.mounts.get(event.mount).is_none() {
            self.foreign_mounts.borrow_mut().resolve(event.mount, event.requester.pid, monotonic());
        }
    }
}
