//! The attached tcp probe: selects connections, and reads them and the stages of their sends.

use std::{cell::RefCell, time::Duration};

use libbpf_rs::{ErrorExt as _, Object, ProgramMut, Result};
use model::{Histogram, MountKey, Operation};

use super::{
    ConnectionSelection, PROTOCOL, SendStamp, SendTimes, TIMESTAMPS, TcpInfo, flow::ClosedConnections,
    stamping::Stamping,
};
use crate::{
    ProbeSet, connections,
    mounts::Mounts,
    probe::{Probe, Sent},
    spec::Rung,
};

#[derive(Default)]
pub(super) struct Tcp {
    selection: ConnectionSelection,
    /// `None` while the probe is not attached.
    stamping: Option<Stamping>,
    ended: RefCell<ClosedConnections>,
    /// Stamps taken from the ring that no caller has fetched yet.
    stamps: Vec<SendStamp>,
}

impl Tcp {
    /// Sets the selection. Before the probe is attached, the selection is kept until then.
    fn select(&mut self, selection: ConnectionSelection, object: Option<&mut Object>, mounts: &Mounts) -> Result<()> {
        self.selection = selection;
        match (&mut self.stamping, object) {
            (Some(stamping), Some(object)) => stamping.select(object, &self.selection, mounts),
            _ => Ok(()),
        }
    }
}

impl Probe for Tcp {
    /// [`Stamping`] attaches all programs, once connections are selected.
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
            // The probe has just been attached; the selection was set before.
            Some(stamping) if !stamping.is_of(&self.selection) => {
                stamping.select(object, &self.selection, mounts).context("cannot stamp sockets")
            }
            Some(stamping) => stamping.follow(object, mounts),
            None => Ok(()),
        }
    }

    fn select_mounts(&mut self, object: Option<&mut Object>, mounts: &Mounts) -> Result<()> {
        self.select(ConnectionSelection { mounts: true, ..ConnectionSelection::default() }, object, mounts)
    }

    fn take(&mut self, record: &[u8]) {
        self.stamps.extend(SendStamp::decode(record));
    }

    /// The times of the connections with servers, summed by mount: the kernel's map has them by connection.
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
        let sent = |connection: &TcpInfo| Sent {
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
    /// Selects the connections that the tcp probe watches. Initially, none are selected.
    ///
    /// # Errors
    ///
    /// When sockets cannot be stamped: the cgroup cannot be opened, say. [`Self::flows`] has their [`TcpInfo`]s even
    /// then.
    pub fn select(&mut self, selection: &ConnectionSelection) -> Result<()> {
        let selection = selection.clone();
        self.probe::<Tcp>().map_or(Ok(()), |(tcp, object, mounts)| tcp.select(selection, object, mounts))
    }

    /// The selected connections of all network namespaces, as TCP itself knows them; and the times of the stamped ones,
    /// including those closed since the last call.
    ///
    /// # Errors
    ///
    /// When the iterator or the map cannot be read.
    pub fn flows(&mut self) -> Result<(Vec<TcpInfo>, Vec<SendTimes>)> {
        let stamping = self.probe::<Tcp>().and_then(|(tcp, ..)| tcp.stamping.as_ref());
        let Some(stamping) = stamping else { return Ok(Default::default()) };
        // This order matters for a connection that closes or opens between the two reads: a closed one is among the
        // flows.
        let connections = stamping.connections()?;
        let flows = stamping.flows()?;
        stamping.forget_all_but(&connections, &flows);
        Ok((connections, flows))
    }

    /// Switches timestamping off for sockets on which a killed process left it on. Sockets of mounts keep it if another
    /// process stamps sockets. Returns the number of sockets changed.
    ///
    /// # Errors
    ///
    /// When sockets cannot be walked.
    pub fn clear_stamps(&mut self) -> Result<usize> {
        let Some((tcp, Some(object), _)) = self.probe::<Tcp>() else { return Ok(0) };
        tcp.selection = ConnectionSelection::default();
        tcp.stamping.as_mut().map_or(Ok(0), |stamping| stamping.clear(object, false))
    }

    /// The stamps that [`ProbeSet::drain`] has taken from the ring since the last call, if [`ConnectionSelection::every_send`] is
    /// set.
    pub fn stamps(&mut self) -> Vec<SendStamp> {
        self.probe::<Tcp>().map(|(tcp, ..)| std::mem::take(&mut tcp.stamps)).unwrap_or_default()
    }
}
