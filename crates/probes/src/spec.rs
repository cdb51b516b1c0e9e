//! How a probe describes itself; what it does beyond that is its [`Probe`].

use model::{Detail, Event, EventLine, MountKey, Protocol};

use crate::{
    Alias, EventColumn, columns,
    generated::{event, probe_id, record, ring_kind},
    libraries::LibraryKind,
    mounts::MountPoint,
    own::OwnOperation,
    probe::{PlainProbe, Probe},
};

/// One probe: what it watches and the ways to attach it, best first. Fields that a probe does not need are those of
/// [`Spec::BASE`].
pub(crate) struct Spec {
    /// What `doctor` calls it: the protocol's name, but for a protocol's further objects, which need other modules.
    pub name: &'static str,
    pub protocol: &'static Protocol,
    pub id: probe_id,
    /// The compiled object of the probe's `.bpf.c`.
    pub object: &'static [u8],
    /// The kernel module that its hooks live in.
    pub module: Option<RequiredModule>,
    /// Ways to attach, best first. The first that works is taken.
    pub rungs: &'static [Rung],
    /// Kernel functions with programs of their own in every rung: of each hook, the first function that this kernel has.
    pub hooks: &'static [Hook],
    /// What it is attached to, of a probe on libraries that processes map.
    pub libraries: Option<&'static LibraryKind>,
    /// The key by which its events name a mount.
    pub mount_key: fn(&MountPoint) -> MountKey,
    /// The probe's maps of operations in flight: each value begins with a `struct flight`. Maps that are not arrays are
    /// swept. Or the iterator over tasks that lists the operations, as events.
    pub inflight: &'static [&'static str],
    /// What an event has that only those of this probe have.
    pub detail: fn(&event) -> Detail,
    /// Puts in order what a flight record of this probe has where those of others have something else.
    pub recorded: fn(&record, &mut Event),
    /// What a table shows of its events.
    pub columns: &'static [EventColumn],
    /// Fills in what lines of its events have in JSON and CSV that not all have, the file aside.
    pub line: fn(&Event, &mut EventLine<'static>),
    /// What else `trace` calls it.
    pub aliases: &'static [Alias],
    /// Records of its own in the ring.
    pub record: Option<OwnRecord>,
    /// For an operation of the site's own: its definition.
    pub own: Option<&'static OwnOperation>,
    /// What it does beyond all this, from when it is wanted.
    pub probe: fn() -> Box<dyn Probe>,
}

impl Spec {
    /// What only some probes need is missing.
    pub const BASE: Self = Self {
        name: "",
        protocol: &Protocol::BY_ERRNO,
        id: probe_id(0),
        object: &[],
        module: None,
        rungs: &[],
        hooks: &[],
        libraries: None,
        mount_key: |point| point.device,
        inflight: &[],
        detail: |_| Detail::None,
        recorded: |_, _| (),
        columns: columns::LOCAL,
        line: |_, _| (),
        aliases: &[],
        record: None,
        own: None,
        probe: || Box::new(PlainProbe),
    };

    /// The first of a protocol's.
    pub fn of(protocol: &Protocol) -> Option<&'static Self> {
        crate::specs().find(|spec| spec.protocol == protocol)
    }

    /// Whether it is its protocol's first, which stands for all of them where they share something.
    pub fn is_first(&self) -> bool {
        self.own.map_or(self.name == self.protocol.name, |own| own.is_first)
    }
}

/// The module a probe needs, and how an operator gets it.
pub(crate) struct RequiredModule {
    pub name: &'static str,
    /// Empty: who does not have it loaded has no use for it.
    pub load: &'static str,
    /// The module with the functions and tracepoints that the programs are attached to by the kernel's types: `name`, or a module that it
    /// depends on. `None`: the programs are attached to the kernel proper, so they hold no module.
    pub hooks: Option<&'static str>,
}

/// A kind of record in the ring that is no event.
pub(crate) struct OwnRecord {
    pub kind: ring_kind,
    /// Bytes, its head included.
    pub size: usize,
    /// Whether it says something that can be.
    pub makes_sense: fn(&[u8]) -> bool,
}

/// A place in the kernel that differs between versions, because compilers inline functions into one another.
pub(crate) struct Hook {
    /// What the probe does not see if the kernel has none of the functions.
    pub sees: &'static str,
    /// The kernel's functions, best first. Their programs' sections name them: `fentry/vfs_read`, `fexit/vfs_read`.
    pub functions: &'static [&'static str],
}

/// One way to attach a probe.
pub(crate) struct Rung {
    /// What `doctor` calls it: `fentry`.
    pub via: &'static str,
    /// Programs without which the probe sees nothing.
    pub required: &'static [&'static str],
    /// Programs that add something; tried with, then without.
    pub optional: &'static [&'static str],
    /// What is lost without the optional programs.
    pub without: &'static str,
}
