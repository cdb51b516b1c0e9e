//! The kernel side: loading, attaching and draining the probes, one folder each.
//!
//! `bpf/` holds what the probes' C sources share; [`ProbeSet`] is the way in.

use model::{Event, EventLine, FileNames, Level, Protocol};
use serde::Serialize;

mod accesses;
mod aside;
mod batches;
mod btf;
mod ceph;
mod cephproxy;
mod columns;
mod connections;
mod decode;
mod directory;
pub mod filesystems;
mod foreign_mounts;
mod fuse;
mod generated;
mod iterator;
mod kernel;
mod kubelet;
mod libraries;
pub mod mounts;
mod mpiio;
mod names;
pub mod netlink;
mod nfs;
pub mod own;
mod probe;
mod probe_set;
mod processes;
mod recorder;
mod ring;
mod runs;
mod server;
mod shared;
mod smb;
mod spec;
mod syscalls;
pub mod tasks;
pub mod tcp;
mod threads;
mod usage;
mod vfs;
pub mod watched_namespace;

pub use accesses::{Access, Accesses, Transfers};
pub use columns::{EventCell, EventColumn};
pub use decode::decode_event;
pub use kernel::{Kernel, PERMISSION, may_load};
pub use mpiio::rank_of_process;
pub use probe_set::{Filter, ProbeOptions, ProbeSet, clean_pins, keys_of, monotonic, requester};
pub use processes::{Followed, every_process};
pub use recorder::{RECORD_SIZE, Recorder, RecorderCopy, Slice, Tail, operations as operations_of};
pub use runs::ProgramRuns;
pub use shared::ProbeCounters;
pub use usage::{Account, Usage, Who};

/// Every probe. A new probe is a folder, a number in bpf/event.h and a line here. If the hooks of one protocol are in
/// several modules, the protocol has several probes, next to each other.
static SPECS: &[&spec::Spec] = &[
    &smb::SPEC,
    &syscalls::SPEC,
    &nfs::SPEC,
    &vfs::SPEC,
    &connections::TCP,
    &connections::DROPS,
    &connections::PATH,
    &connections::IFB,
    &connections::NFQUEUE,
    &connections::SMB,
    &connections::RPC,
    &connections::NFS4,
    &connections::LIBCEPH,
    &connections::CEPH,
    &mpiio::SPEC,
    &tcp::SPEC,
    &cephproxy::SPEC,
    &fuse::SPEC,
    &server::SPEC,
    &ceph::SPEC,
    &ceph::OSD,
];

/// The specs of the built-in probes and of the site's own operations.
fn specs() -> impl Iterator<Item = &'static spec::Spec> {
    SPECS.iter().copied().chain(own::current())
}

/// Every protocol that a probe watches, in the order of the probes.
pub fn protocols() -> impl Iterator<Item = &'static Protocol> {
    specs().filter(|spec| spec.is_first()).map(|spec| spec.protocol)
}

/// The protocols whose operations are seen at this level.
pub fn at(level: Level) -> impl Iterator<Item = &'static Protocol> {
    protocols().filter(move |protocol| protocol.level == level)
}

/// Every protocol with the number that its probe has in records.
pub fn numbers() -> impl Iterator<Item = (u8, &'static Protocol)> {
    let first = specs().filter(|spec| spec.is_first());
    first.filter_map(|spec| Some((u8::try_from(spec.id.0).ok()?, spec.protocol)))
}

/// The name of a system call as this program has it; `None` if this machine has no call of that name.
pub fn system_call(name: &str) -> Option<&'static str> {
    name.parse::<::syscalls::Sysno>().ok().map(|call| call.name())
}

/// Whether the protocol's operations in flight carry the names of their files: those listed by a program do, those read from a map
/// do not.
pub fn names_files_in_flight(protocol: &Protocol) -> bool {
    let lists = |spec: &spec::Spec| {
        let programs = spec.rungs.iter().flat_map(|rung| rung.required.iter().chain(rung.optional));
        programs.into_iter().any(|program| spec.inflight.contains(program))
    };
    protocol.file_names != FileNames::None && specs().any(|spec| spec.protocol == protocol && lists(spec))
}

/// Whether the protocol's probe can list operations in flight: see [`ProbeSet::in_flight`].
pub fn shows_in_flight(protocol: &Protocol) -> bool {
    specs().any(|spec| spec.protocol == protocol && !spec.inflight.is_empty())
}

/// What a table shows of the protocol's events.
pub fn columns(protocol: &Protocol) -> &'static [EventColumn] {
    spec::Spec::of(protocol).map_or(columns::LOCAL, |spec| spec.columns)
}

/// Fills in what only lines of the event's protocol have.
pub fn fill_line(event: &Event, line: &mut EventLine<'static>) {
    if let Some(spec) = spec::Spec::of(event.operation.protocol()) {
        (spec.line)(event, line);
    }
}

/// Another name of a probe, and the defaults that go with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alias {
    /// The name; also the probe's own, where that has other defaults than most.
    pub name: &'static str,
    /// Operations that take less than this are not shown, milliseconds.
    pub min_ms: f64,
    /// The type of file system that it is limited to.
    pub fstype: Option<&'static str>,
}

impl Alias {
    const fn of(name: &'static str, min_ms: f64) -> Self {
        Self { name, min_ms, fstype: None }
    }
}

/// Every alias, with its probe and defaults.
pub fn aliases() -> impl Iterator<Item = (&'static Protocol, Alias)> {
    let first = specs().filter(|spec| spec.is_first());
    first.flat_map(|spec| spec.aliases.iter().map(|alias| (spec.protocol, *alias)))
}

/// Sends libbpf's messages to the log, at debug level.
pub fn log_libbpf() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, message| {
        tracing::debug!(target: "libbpf", "{}", message.trim_end());
    })));
}

/// The protocol called `name`.
pub fn protocol(name: &str) -> Option<&'static Protocol> {
    protocols().find(|protocol| protocol.name == name)
}

/// How well a probe can work here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeSupport {
    /// The probe sees everything that it can see.
    Ready,
    /// It works, but something is missing; the reason says what.
    Degraded,
    /// It does not work here; the reason says why, the fix what to do.
    Unavailable,
}

/// What one probe can do here. One row of `plumbline doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Its name.
    pub probe: &'static str,
    /// How well it works.
    pub state: ProbeSupport,
    /// How it is attached.
    pub via: Vec<&'static str>,
    /// What is missing, and why; empty if nothing is.
    pub reason: String,
    /// What to do about it; empty if nothing can be done or need be.
    pub fix: String,
    /// It is off now, but is attached by itself once its kernel module is there and in use.
    #[serde(skip)]
    pub may_come: bool,
}
