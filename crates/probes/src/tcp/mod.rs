//! Where the time of TCP's sends goes, connection by connection: by BPF timestamping (Linux 6.14), for those that are selected,
//! and for those only; where the kernel has none, what it knows of its connections by itself.

mod at_work;
mod flow;
mod namespaces;
mod stamping;

use std::{net::IpAddr, path::PathBuf};

use model::{Level, Protocol};

use at_work::Tcp;
pub use flow::{Connection, Ends, Flow, Stage, Stamp};

use crate::{
    columns, connections,
    generated::{probe_id, ring_kind, stamp},
    spec::{OwnRecord, Rung, Spec},
};

/// The stages of a send; `enum stage` in flow.h, in its order.
pub static PROTOCOL: Protocol = Protocol {
    name: "tcp",
    operations: &["CALL", "QUEUE", "SCHEDULER", "NETWORK", "SEND", "READ"],
    level: Level::Transport,
    ..Protocol::BY_ERRNO
};

/// TCP's name for a socket's state (include/net/tcp_states.h).
pub fn state_name(state: u32) -> Option<&'static str> {
    const NAMES: [&str; 13] = [
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
        "BOUND_INACTIVE",
    ];
    NAMES.get(usize::try_from(state).ok()?.checked_sub(1)?).copied()
}

/// How the probe is attached where it knows the times of stages; else by what the kernel knows of connections by itself.
pub const TIMESTAMPS: &str = "timestamps";

pub(crate) static SPEC: Spec = Spec {
    name: PROTOCOL.name,
    protocol: &PROTOCOL,
    id: probe_id::PROBE_TCP,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/tcp.bpf.o")),
    rungs: &[
        Rung {
            via: TIMESTAMPS,
            required: &["plumb_stamp", "choose", "look"],
            optional: &["call_begins", "data_ready", "data_read"],
            without: "when calls begin and data is read (`net --full`): that takes Linux 6.16",
        },
        Rung {
            via: "iterator",
            required: &["look"],
            optional: &["segment_came"],
            without: "each round trip (`net --full`): the tracepoint tcp_probe cannot be used",
        },
    ],
    mount_key: connections::mount_key,
    columns: columns::REMOTE,
    record: Some(OwnRecord {
        kind: ring_kind::RING_STAMP,
        size: size_of::<stamp>(),
        makes_sense: |bytes| Stamp::decode(bytes).is_some(),
    }),
    probe: || Box::<Tcp>::default(),
    ..Spec::BASE
};

/// Which connections are looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Those with the servers of what is mounted by SMB, NFS or Ceph.
    pub mounts: bool,
    /// Others that all of this is true of; `None`: no others.
    pub others: Option<Others>,
    /// Only sockets of this cgroup and those below it: a folder of cgroup2.
    pub cgroup: Option<PathBuf>,
    /// Have every stage of every send told: see [`crate::ProbeSet::stamps`].
    pub every_send: bool,
    /// Know when calls begin and data is read, too, at the cost of a program that runs for every send of the host.
    pub full: bool,
}

/// Connections by what they are; the default is all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Others {
    /// Of either end; 0: any.
    pub port: u16,
    /// The peer's.
    pub address: Option<IpAddr>,
    /// This share of them, of 65536; `None`: all.
    pub share: Option<u32>,
}
