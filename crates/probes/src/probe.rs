//! What a probe does that no other does, while it is wanted. What it is, its [`Spec`](crate::spec::Spec) says.

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
    /// For how long the server's host has acknowledged nothing, although not all that was sent is acknowledged.
    pub unacknowledged: Option<Duration>,
    /// Data of the server has come in behind some that is missing still.
    pub gap: bool,
}

/// What a program is attached to in a module.
pub(crate) enum AttachedTo {
    /// A function, by a trampoline (fentry, fexit).
    Function(String),
    /// A tracepoint.
    Tracepoint,
}

/// A probe, attached or not. Whatever it may do is nothing unless it says otherwise; most do nothing but what their
/// [`Spec`](crate::spec::Spec) describes.
pub(crate) trait Probe: Any + Send {
    /// Why nothing need be tried, and the cure, where that is known beforehand.
    fn refusal(&mut self) -> Option<(String, String)> {
        None
    }

    /// What to do if no way to attach it works, where that is known better than of any probe.
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

    /// The object has been loaded: attaches what it attaches itself, at least what can be now.
    fn attach(&mut self, _object: &mut Object) -> Result<()> {
        Ok(())
    }

    /// Attaches and detaches what is needed only now and then. It is called whenever the ring has been looked at, and every few seconds.
    fn tend(&mut self, _object: &Object) {}

    /// What its programs whose sections do not say so are attached to in this module.
    fn attached_in(&self, _module: &str) -> Vec<AttachedTo> {
        Vec::new()
    }

    /// What this rung cannot see though nothing of it is missing.
    fn unseen(&self, _rung: &Rung) -> Option<&'static str> {
        None
    }

    /// Gives back what it has attached or set, before the object goes.
    fn detach(&mut self, _object: &Object) {}

    /// Brings its own maps up to date with what is mounted: when it has been attached, and when that changes.
    fn follow_mounts(&mut self, _object: &mut Object, _mounts: &Mounts) -> Result<()> {
        Ok(())
    }

    /// Has a probe that looks at nothing by itself look at what the mounts have. It may not be attached yet.
    fn select_mounts(&mut self, _object: Option<&mut Object>, _mounts: &Mounts) -> Result<()> {
        Ok(())
    }

    /// Whether the entry of this key, in a map of operations in flight, will never be removed by the kernel side: its
    /// process is gone, say.
    fn has_ended(&self, _key: &[u8]) -> bool {
        false
    }

    /// What it can see of the connections with servers now: what was sent, and whether the server's host has it.
    fn sent(&self) -> Vec<Sent> {
        Vec::new()
    }

    /// Servers that it has seen requests go to and that mountinfo does not name, each with one of its mounts.
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

    /// Gives up what those say of mounts that are gone.
    fn forget_mounts(&self, _gone: &dyn Fn(MountKey) -> bool) {}
}

/// One that does nothing else.
pub(crate) struct PlainProbe;

impl Probe for PlainProbe {}
