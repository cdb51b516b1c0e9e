//! Where the time of TCP's sends goes, connection by connection: by BPF timestamping (Linux 6.14), for those that are selected,
//! and for those only; where the kernel has none, what it knows of its connections by itself.

mod flow;
mod namespaces;
mod stamping;

use std::{net::IpAddr, path::PathBuf};

use model::{Detail, Level, Protocol};

pub(crate) use flow::Ended;
pub use flow::{Connection, Ends, Flow, Stage, Stamp};
pub(crate) use stamping::Stamping;

use crate::{
    connections,
    generated::probe_id,
    spec::{Rung, Spec},
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
    module: None,
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
    hooks: &[],
    prepare: |_| Ok(()),
    follow_mounts: connections::follow_mounts,
    mount_key: connections::mount_key,
    inflight: &[],
    detail: |_| Detail::None,
    has_ended: |_| false,
};

/// What a rung cannot see, if it is not the best.
pub(crate) fn unseen(rung: &Rung) -> Option<&'static str> {
    (rung.via != TIMESTAMPS).then_some("the time of each stage: BPF timestamping takes Linux 6.14")
}

/// Which connections are looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Those with the servers of what is mounted by SMB, NFS or Ceph.
    pub mounts: bool,
    /// Others that all of this is true of; `None`: no others.
    pub others: Option<Others>,
    /// Only sockets of this cgroup and those below it: a folder of cgroup2.
    pub cgroup: Option<PathBuf>,
    /// Have every stage of every send told: see [`crate::Watch::stamps`].
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
