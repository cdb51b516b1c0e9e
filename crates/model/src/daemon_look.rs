//! What the daemon of a FUSE file system, and the connections that it may wait on, did at one moment.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What a FUSE daemon did at one moment at which it had requests to answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonLook {
    /// The time of the look, CLOCK_MONOTONIC, nanoseconds.
    pub at: u64,
    /// Time since the previous look, nanoseconds; 0: there was no recent look.
    pub since: u64,
    /// Its threads.
    pub threads: u32,
    /// Of these, the ones that wait for requests.
    pub free: u32,
    /// ... that run, or are ready to.
    pub running: u32,
    /// ... that are stopped, by a signal or a debugger.
    pub stopped: u32,
    /// ... that wait for a file, or for something that this host does not recognize as a plain sleep.
    pub on_files: u32,
    /// The longest time since the previous look for which one thread of the daemon, or of a helper, was ready to run and
    /// had no CPU, nanoseconds.
    pub no_cpu: u64,
    /// Its helpers: its children, and processes whose standard input or output leads to a local socket of it (ssh of
    /// sshfs).
    pub helpers: u32,
    /// Of these, the ones whose threads are all stopped.
    pub stopped_helpers: u32,
    /// TCP connections of it and its helpers.
    pub connections: u32,
    /// Of these, the connections on which unacknowledged data is sent again.
    pub resending: u32,
    /// Its sockets that are no TCP connections.
    pub other_sockets: u32,
    /// The connections that were used last, as far as sock_diag(7) told of them.
    pub tcp: Vec<DaemonConnection>,
}

impl DaemonLook {
    /// A request that took less needs no look at its daemon, nanoseconds.
    pub const SLOW: u64 = 50_000_000;
}

/// A TCP connection of a FUSE daemon or its helper, by the kernel's `inet_diag_msg` and `tcp_info`. Times are counted
/// back from the look, in the kernel's ticks of 1 to 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonConnection {
    /// The process that the connection belongs to.
    pub pid: u32,
    /// The other end; `None`: not known.
    pub peer: Option<SocketAddr>,
    /// The smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// The minimum round-trip time of the last minutes, microseconds; 0: not known.
    pub min_rtt_us: u32,
    /// Segments that were sent and are not acknowledged.
    pub unacknowledged: u32,
    /// Of these, the ones that were sent again.
    pub resending: u32,
    /// Bytes that TCP has not sent yet.
    pub unsent: u32,
    /// Bytes that have arrived and were not read yet.
    pub unread: u32,
    /// Segments that were sent again since the look before.
    pub resent: u32,
    /// Of these, the segments that the peer had received already (DSACK, RFC 2883).
    pub needless: u32,
    /// Segments that arrived out of order since the look before.
    pub out_of_order: u32,
    /// Segments without data that were sent since the look before data last arrived: acknowledgements that carried no
    /// data. `None`: not known.
    pub acks: Option<u32>,
    /// Bytes that have arrived since the look before.
    pub received: u64,
    /// When data was last sent, milliseconds ago.
    pub sent_ms: u32,
    /// When data last arrived, milliseconds ago.
    pub received_ms: u32,
    /// When an acknowledgement last arrived, with data or without, milliseconds ago.
    pub acknowledged_ms: u32,
    /// If something is not acknowledged: packets of all connections in the queueing discipline of the interface that it left by. 0
    /// as well if this number is not known, or if the discipline paces what TCP sends (`fq`).
    pub own_queue: u32,
}
