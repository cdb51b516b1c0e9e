//! What a single probe does beyond its [`Spec`](crate::spec::Spec), while the probe is wanted.

use std::{any::Any, net::SocketAddr, time::Duration};

use libbpf_rs::{Object, OpenObject, ProgramMut, Result};
use model::{Event, Histogram, MountKey, Operation};

use crate::{mounts::Mounts, spec::Rung};

/// How a connection with a server stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// One of the server's mounts.
    pub mount: MountKey,
    /// For how long nothing was sent; `None`: nothing ever was.
    pub quiet: Option<Duration>,
    /// For how long the server's host has acknowledged nothing, although sent data is not yet acknowledged.
    pub unacknowledged: Option<Duration>,
    /// Data of the server has arrived, and data before it is still missing.
    pub gap: bool,
}

/// What a program is attached to in a module.
pub(crate) enum AttachedTo {
    /// A function, by a trampoline (fentry, fexit).
    Function(String),
    /// A tracepoint.
    Tracepoint,
}

/// A probe, attached or not. The default of every method does nothing; most probes do only what their
/// [`Spec`](crate::spec::Spec) describes.
pub(crate) trait Probe: Any + Send {
    /// Why attaching need not be tried, and the cure, if this is known beforehand.
    fn refusal(&mut self) -> Option<(String, String)> {
        None
    }

    /// What to do if no way to attach the probe works, if the probe knows better than the general advice.
    fn cure(&self) -> Option<String> {
        None
    }

    /// Fills in read-only data before the object is loaded, to be attached by this rung.
    fn prepare(&mut self, _object: &mut OpenObject, _rung: &Rung) -> Result<()> {
        Ok(())
    }

    /// Whether it attaches this program itself, when there is something to attach it to.
    fn attaches(&self, _program: &ProgramMut<'_>) -> bool {
        false
    }

    /// Called when the object has been loaded: attaches what the probe attaches itself, as far as this is possible now.
    fn attach(&mut self, _object: &mut Object) -> Result<()> {
        Ok(())
    }

    /// Attaches and detaches programs that are needed only at times. Called after each look at the ring, and every few seconds.
    fn tend(&mut self, _object: &Object) {}

    /// The target in this module of each program whose section does not name one.
    fn attached_in(&self, _module: &str) -> Vec<AttachedTo> {
        Vec::new()
    }

    /// What this rung cannot see although none of its programs is missing.
    fn unseen(&self, _rung: &Rung) -> Option<&'static str> {
        None
    }

    /// Returns what the probe has attached or set, before the object is dropped.
    fn detach(&mut self, _object: &Object) {}

    /// Updates the probe's own maps with the mounts: after attaching, and when the mounts change.
    fn follow_mounts(&mut self, _object: &mut Object, _mounts: &Mounts) -> Result<()> {
        Ok(())
    }

    /// Makes a probe that looks at nothing by itself look at the mounts. The probe may not be attached yet.
    fn select_mounts(&mut self, _object: Option<&mut Object>, _mounts: &Mounts) -> Result<()> {
        Ok(())
    }

    /// Whether the kernel side will never remove the entry of this key in a map of operations in flight: its process is
    /// gone, for example.
    fn has_ended(&self, _key: &[u8]) -> bool {
        false
    }

    /// What the probe sees of the connections with servers now: what was sent, and whether the server's host has
    /// acknowledged it.
    fn sent(&self) -> Vec<Sent> {
        Vec::new()
    }

    /// Servers that the probe has seen requests go to and that mountinfo does not name, each with one of its mounts.
    fn daemons(&self) -> Vec<(SocketAddr, MountKey)> {
        Vec::new()
    }

    /// Adds to an event what only user space can find out.
    fn complete(&self, _event: &mut Event) {}

    /// Takes a record of its own from the ring: see [`Spec::record`](crate::spec::Spec::record).
    fn take(&mut self, _record: &[u8]) {}

    /// Histograms that it keeps itself, since it was loaded; they go beside those that the kernel side keeps.
    fn histograms(&self) -> Result<Vec<(Operation, MountKey, Histogram)>> {
        Ok(Vec::new())
    }

    /// Drops the histograms of mounts that are gone.
    fn forget_mounts(&self, _gone: &dyn Fn(MountKey) -> bool) {}
}

/// A probe that does only what its spec says.
pub(crate) struct PlainProbe;

impl Probe for PlainProbe {}
