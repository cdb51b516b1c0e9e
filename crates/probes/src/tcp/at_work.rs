//! The tcp probe at work: the connections selected, and their sends' stages.

use std::{cell::RefCell, time::Duration};

use libbpf_rs::{ErrorExt as _, Object, ProgramMut, Result};
use model::{Histogram, MountKey, Operation};

use super::{Connection, Flow, PROTOCOL, Selection, Stamp, TIMESTAMPS, flow::Ended, stamping::Stamping};
use crate::{
    ProbeSet, connections,
    mounts::Mounts,
    probe::{Probe, Sent},
    spec::Rung,
};

#[derive(Default)]
pub(super) struct Tcp {
    selection: Selection,
    /// While it is attached.
    stamping: Option<Stamping>,
    ended: RefCell<Ended>,
    /// Taken from the ring, and asked for by nobody yet.
    stamps: Vec<Stamp>,
}

impl Tcp {
    /// Also before it is attached.
    fn select(&mut self, selection: Selection, object: Option<&mut Object>, mounts: &Mounts) -> Result<()> {
        self.selection = selection;
        match (&mut self.stamping, object) {
            (Some(stamping), Some(object)) => stamping.select(object, &self.selection, mounts),
            _ => Ok(()),
        }
    }
}

impl Probe for Tcp {
    /// All of it, and nothing while nothing is selected.
    fn attaches(&self, _: &ProgramMut<'_>) -> bool {
        true
    }

    fn attach(&mut self, object: &mut Object) -> Result<()> {
        self.stamping = Some(Stamping::new(object)?);
        Ok(())
    }

    fn unseen(&self, rung: &Rung) -> Option<&'static str> {
        (rung.via != TIMESTAMPS).then_some("the time of each stage: BPF timestamping takes Linux 6.14")
    }

    fn detach(&mut self, object: &Object) {
        if let Some(mut stamping) = self.stamping.take() {
            stamping.end(object);
        }
    }

    fn follow_mounts(&mut self, object: &mut Object, mounts: &Mounts) -> Result<()> {
        connections::write_servers(object, mounts)?;
        match &mut self.stamping {
            // It has just been attached, and was told before.
            Some(stamping) if !stamping.is_of(&self.selection) => {
                stamping.select(object, &self.selection, mounts).context("cannot stamp sockets")
            }
            Some(stamping) => stamping.follow(object, mounts),
            None => Ok(()),
        }
    }

    fn select_mounts(&mut self, object: Option<&mut Object>, mounts: &Mounts) -> Result<()> {
        self.select(Selection { mounts: true, ..Selection::default() }, object, mounts)
    }

    fn take(&mut self, record: &[u8]) {
        self.stamps.extend(Stamp::decode(record));
    }

    /// The times of the connections with servers: the kernel side keeps them by connection.
    fn histograms(&self) -> Result<Vec<(Operation, MountKey, Histogram)>> {
        let Some(stamping) = self.stamping.as_ref().filter(|stamping| stamping.stamps()) else { return Ok(Vec::new()) };
        let sums = self.ended.borrow_mut().sums(&stamping.flows()?);
        let of_mount = |(mount, stages): (MountKey, [Histogram; 6])| {
            PROTOCOL.all_operations().zip(stages).map(move |(stage, histogram)| (stage, mount, histogram))
        };
        Ok(sums.into_iter().flat_map(of_mount).collect())
    }

    fn sent(&self) -> Vec<Sent> {
        let Some(stamping) = &self.stamping else { return Vec::new() };
        let connections =
            stamping.connections().inspect_err(|error| tracing::debug!(%error, "cannot look at connections"));
        let ago = |ms: u32| Duration::from_millis(ms.into());
        let sent = |connection: &Connection| Sent {
            mount: connection.mount,
            quiet: connection.sent_ago_ms.map(ago),
            unacknowledged: connection.acked_ago_ms.filter(|_| connection.unacked > 0).map(ago),
            gap: connection.gap,
        };
        connections.iter().flatten().map(sent).collect()
    }

    fn forget_mounts(&self, gone: &dyn Fn(MountKey) -> bool) {
        self.ended.borrow_mut().forget(gone);
    }
}

impl ProbeSet {
    /// Selects the connections that the tcp probe looks at; none are before.
    ///
    /// # Errors
    ///
    /// When they cannot be stamped: no cgroup2, say. What the kernel knows of them by itself is there all the same.
    pub fn select(&mut self, selection: &Selection) -> Result<()> {
        let selection = selection.clone();
        self.probe::<Tcp>().map_or(Ok(()), |(tcp, object, mounts)| tcp.select(selection, object, mounts))
    }

    /// The connections selected, as the kernel knows them by itself, of every network namespace; and the times of those that
    /// are stamped, also of those closed since this was last asked.
    ///
    /// # Errors
    ///
    /// When the iterator or the map cannot be read.
    pub fn flows(&mut self) -> Result<(Vec<Connection>, Vec<Flow>)> {
        let stamping = self.probe::<Tcp>().and_then(|(tcp, ..)| tcp.stamping.as_ref());
        let Some(stamping) = stamping else { return Ok(Default::default()) };
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
    pub fn clear_stamps(&mut self) -> Result<usize> {
        let Some((tcp, Some(object), _)) = self.probe::<Tcp>() else { return Ok(0) };
        tcp.selection = Selection::default();
        tcp.stamping.as_mut().map_or(Ok(0), |stamping| stamping.clear(object, false))
    }

    /// What [`ProbeSet::drain`] has taken from the ring of every send's stages, if that was selected.
    pub fn stamps(&mut self) -> Vec<Stamp> {
        self.probe::<Tcp>().map(|(tcp, ..)| std::mem::take(&mut tcp.stamps)).unwrap_or_default()
    }
}
