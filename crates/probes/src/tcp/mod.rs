//! The probe `tcp`: the stages of TCP's sends, for each selected connection, by BPF timestamping (Linux 6.14). On older
//! kernels it reads what TCP itself knows of the selected connections.

mod at_work;
mod flow;
mod namespaces;
mod stamping;

use std::{net::IpAddr, path::PathBuf};

use model::{Level, Protocol};

use at_work::Tcp;
pub use flow::{Endpoints, SendStamp, SendTimes, Stage, TcpInfo};
pub use namespaces::enter_network_namespace;

use crate::{
    columns, connections,
    generated::{probe_id, ring_kind, stamp},
    spec::{OwnRecord, Rung, Spec},
};

/// The stages of a send, in the order of `enum stage` in flow.h.
pub static PROTOCOL: Protocol = Protocol {
    name: "tcp",
    operations: &["CALL", "QUEUE", "SCHEDULER", "NETWORK", "SEND", "READ"],
    level: Level::Transport,
    ..Protocol::BY_ERRNO
};

/// The name of a TCP state (include/net/tcp_states.h); `None` for an unknown number.
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

/// The rung by which the probe knows the times of stages. By the other one, it knows what TCP itself counts.
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
        makes_sense: |bytes| SendStamp::decode(bytes).is_some(),
    }),
    probe: || Box::<Tcp>::default(),
    ..Spec::BASE
};

/// Which connections the probe watches, and how closely.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConnectionSelection {
    /// Connections with the servers of SMB, NFS and Ceph mounts.
    pub mounts: bool,
    /// Other connections that meet all of these conditions; `None`: no others.
    pub others: Option<Others>,
    /// Only sockets of this cgroup and those below it; a directory of cgroup2.
    pub cgroup: Option<PathBuf>,
    /// Report every stage of every send: see [`crate::ProbeSet::stamps`].
    pub every_send: bool,
    /// Also observe when calls begin and data is read. Its programs run for every send and read of the host.
    pub full: bool,
}

/// Conditions on connections; the default is met by all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Others {
    /// The port of either end; 0: any.
    pub port: u16,
    /// The peer's address; `None`: any.
    pub address: Option<IpAddr>,
    /// The share of connections to select, in 65536ths; `None`: all.
    pub share: Option<u32>,
}
