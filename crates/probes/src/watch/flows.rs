//! What the tcp probe adds: the connections selected, and their sends' stages.

use libbpf_rs::Object;

use super::Watch;
use crate::{
    mounts::Mounts,
    tcp::{self, Connection, Flow, Selection, Stamp, Stamping},
};

impl Watch {
    /// Selects the connections that the tcp probe looks at; none are before.
    ///
    /// # Errors
    ///
    /// When they cannot be stamped: no cgroup2, say. What the kernel knows of them by itself is there all the same.
    pub fn select(&mut self, selection: &Selection) -> libbpf_rs::Result<()> {
        self.selection = selection.clone();
        self.stamping().map_or(Ok(()), |(stamping, object, mounts)| stamping.select(object, selection, mounts))
    }

    /// Has probes that look at nothing by themselves look at what the mounts have: the tcp probe at their connections.
    ///
    /// # Errors
    ///
    /// As for [`Watch::select`].
    pub fn select_mounts(&mut self) -> libbpf_rs::Result<()> {
        self.select(&Selection { mounts: true, ..Selection::default() })
    }

    /// The connections selected, as the kernel knows them by itself, of every network namespace; and the times of those that
    /// are stamped, also of those closed since this was last asked.
    ///
    /// # Errors
    ///
    /// When the iterator or the map cannot be read.
    pub fn flows(&mut self) -> libbpf_rs::Result<(Vec<Connection>, Vec<Flow>)> {
        let Some((stamping, ..)) = self.stamping() else { return Ok(Default::default()) };
        // What is closed in between is among the flows, and what is connected in between is not.
        let connections = stamping.connections()?;
        let flows = stamping.flows()?;
        stamping.forget_all_but(&connections, &flows);
        Ok((connections, flows))
    }

    /// Takes timestamping back from sockets that a killed process has left with it; but not from those of mounts, if another
    /// process stamps sockets. Returns from how many.
    ///
    /// # Errors
    ///
    /// When sockets cannot be walked.
    pub fn clear_stamps(&mut self) -> libbpf_rs::Result<usize> {
        self.stamping().map_or(Ok(0), |(stamping, object, _)| stamping.clear(object, false))
    }

    /// What [`Watch::drain`] has taken from the ring of every send's stages, if that was selected.
    pub fn stamps(&mut self) -> Vec<Stamp> {
        std::mem::take(&mut self.drained.borrow_mut().stamps)
    }

    fn stamping(&mut self) -> Option<(&mut Stamping, &mut Object, &Mounts)> {
        let attached = self.probes.iter_mut().filter_map(|probe| probe.attached.as_mut());
        let mut stamping = attached.filter_map(|attached| Some((attached.stamping.as_mut()?, &mut attached.object)));
        stamping.next().map(|(stamping, object)| (stamping, object, &self.mounts))
    }

    /// Has the times of the connections with servers among the histograms: the kernel side keeps them by connection.
    pub(super) fn sum_up_flows(&self) -> libbpf_rs::Result<()> {
        let mut attached = self.probes.iter().filter_map(|probe| probe.attached.as_ref()?.stamping.as_ref());
        let Some(stamping) = attached.find(|stamping| stamping.stamps()) else { return Ok(()) };
        for (mount, stages) in self.ended.borrow_mut().sums(&stamping.flows()?) {
            for (stage, histogram) in tcp::PROTOCOL.all_operations().zip(&stages) {
                self.shared.set_histogram(stage, mount, histogram)?;
            }
        }
        Ok(())
    }
}
