//! The one form of an event in JSON and CSV: the lines of `trace`, `events.jsonl`, `recorder.jsonl`, and the calls of an incident.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// An event as other programs read it. Field names are stable; times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventLine<'a> {
    /// When the requester began it, UTC.
    pub time: String,
    /// The probe.
    pub probe: Cow<'a, str>,
    /// The operation.
    pub operation: Cow<'a, str>,
    /// From its start until the requester had the result.
    pub duration_ms: f64,
    /// From its start until the request was sent; absent where the probe cannot split the duration.
    pub queue_ms: Option<f64>,
    /// From the request's sending until the answer's arrival.
    pub wire_ms: Option<f64>,
    /// From the answer's arrival until the requester had it.
    pub deliver_ms: Option<f64>,
    /// The protocol's status by name, or as a hexadecimal number; absent if the protocol has none.
    pub status: Option<String>,
    /// The error by name, or as a number; absent on success.
    pub errno: Option<String>,
    /// Payload bytes.
    pub bytes: u64,
    /// mpiio: whether `bytes` is known; if not, it is 0.
    pub bytes_known: Option<bool>,
    /// Where it is mounted.
    pub mountpoint: Cow<'a, str>,
    /// What is mounted.
    pub source: Cow<'a, str>,
    /// The server.
    pub server: Cow<'a, str>,
    /// The file system's type.
    pub fstype: Cow<'a, str>,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// User.
    pub uid: u32,
    /// The thread's name.
    pub comm: String,
    /// Id of the cgroup.
    pub cgroup: u64,
    /// The file's name, without its directory. mpiio: the name passed to open, or its end if it is too long.
    /// connections: empty.
    pub file: String,
    /// connections: the server's address and port, and the local port. ceph: the daemon's address and port.
    pub peer: Option<String>,
    /// server: the client's address; absent if only its number is known (`connection`).
    pub client: Option<String>,
    /// Inode number; cephproxy: the handle of the inode, file or directory, valid on this connection only.
    pub inode: u64,
    /// vfs: offset in the file, bytes.
    pub offset: Option<u64>,
    /// vfs, mpiio, cephproxy: bytes requested.
    pub asked: Option<u64>,
    /// vfs: flags, mode or command of the request.
    pub request: Option<u32>,
    /// mpiio: the process' rank in its job; absent if its environment does not have it.
    pub rank: Option<u32>,
    /// mpiio: whether all processes that have the file open take part.
    pub collective: Option<bool>,
    /// SMB: session id. NFS 4.1 and later: the XOR of the two halves of the session id.
    pub session: u64,
    /// SMB: message id.
    pub mid: u64,
    /// SMB: tree id.
    pub tree: u32,
    /// NFS, server: the RPC call's id.
    pub xid: Option<u64>,
    /// NFS 4.1 and later: the slot of the session.
    pub slot: Option<u32>,
    /// NFS 4.1 and later: the slot's sequence number.
    pub sequence: Option<u32>,
    /// NFS: how many times the call was retransmitted. ceph: how many times the request was sent again. connections: how many times in a row this has happened, if
    /// known.
    pub resent: Option<u32>,
    /// connections: time to live (IPv6: hop limit) with which the segment of the event arrived; absent if unknown.
    pub ttl: Option<u8>,
    /// connections: time to live of the segment with which the server accepted the connection; absent if unknown.
    pub server_ttl: Option<u8>,
    /// FUSE: the daemon's process; absent if unknown.
    pub daemon: Option<u32>,
    /// ceph: the daemon that it was sent to, `mds.0` or `osd.3`; absent if it was sent to none.
    pub asked_of: Option<String>,
    /// ceph: the client's number of the request (`tid`).
    pub transaction: Option<u64>,
    /// ceph: the object of a request to an OSD.
    pub object: Option<String>,
    /// ceph: how many times a metadata server sent the client on to another.
    pub forwarded: Option<u32>,
    /// The client's number of the connection.
    pub connection: u64,
    /// The system call above it; else `page_fault`, `writeback`, `readahead` or `kernel`; absent if unknown.
    pub caller: Option<Cow<'a, str>>,
    /// Part of a compound request.
    pub compound: bool,
    /// Answered asynchronously.
    #[serde(rename = "async")]
    pub asynchronous: bool,
    /// No answer came.
    pub unanswered: bool,
    /// It failed, by the protocol's own measure.
    pub failed: bool,
    /// It had not returned when this was written.
    pub in_flight: bool,
    /// Smoothed round-trip time of the connection; absent if unknown.
    pub srtt_ms: Option<f64>,
    /// The newest sample of the connection's round-trip time.
    pub rtt_ms: Option<f64>,
    /// Segments retransmitted over the connection's life.
    pub retransmits: Option<u32>,
    /// TCP's minimum round-trip time over the last 5 minutes. This field and the next three are absent if the operation
    /// took less than 10 ms, and in `recorder.jsonl`.
    pub min_rtt_ms: Option<f64>,
    /// The least time that the answer lay in this host's socket, to a jiffy.
    pub unread_ms: Option<f64>,
    /// Segments that arrived out of order over the connection's life.
    pub out_of_order: Option<u32>,
    /// Packets in the queueing discipline that the connection's segments go to.
    pub own_queue: Option<u32>,
    /// Of an event of a connection: segments that the server acknowledged although an earlier one is missing; absent if
    /// there are none.
    pub segments_sacked: Option<u16>,
    /// Segments sent. This field and the next seven are totals over the connection's life. All fields from here to
    /// `memory_pressure_ms` are absent if the operation took less than 10 ms, and in `recorder.jsonl`.
    pub segments_out: Option<u32>,
    /// Segments received.
    pub segments_in: Option<u32>,
    /// Segments with data that the server acknowledged.
    pub segments_acked: Option<u32>,
    /// Retransmission timeouts; 0 before Linux 6.7.
    pub timeouts: Option<u32>,
    /// Segments that were retransmitted although the server had them.
    pub needless_retransmits: Option<u32>,
    /// Time during which data was unacknowledged or waited to be sent.
    pub busy_ms: Option<u32>,
    /// Part of `busy_ms`: the data to send did not fit the server's window.
    pub window_limited_ms: Option<u32>,
    /// Part of `busy_ms`: the send buffer was full.
    pub buffer_limited_ms: Option<u32>,
    /// The rate at which TCP paces segments, bytes per second; 0: no pacing.
    pub pacing_rate: Option<u64>,
    /// The newest sample of the rate at which data was acknowledged, bytes per second.
    pub delivery_rate: Option<u64>,
    /// The receive window that this host offered last, bytes.
    pub own_window: Option<u32>,
    /// The most data that TCP sends in a segment, bytes.
    pub mss: Option<u16>,
    /// The MTU that somebody has set on this host's route to the server, bytes. IPv4 without IPsec only.
    pub route_mtu: Option<u16>,
    /// Time that the requester's thread was runnable without a CPU, in all its life.
    pub requester_cpu_wait_ms: Option<f64>,
    /// The part of `requester_cpu_wait_ms` that passed during the operation.
    pub cpu_wait_ms: Option<f64>,
    /// Time that the thread which read the answer was runnable without a CPU, in all its life.
    pub receiver_cpu_wait_ms: Option<f64>,
    /// Time that some threads of the requester's cgroup waited for a CPU, in all the cgroup's life.
    pub cpu_pressure_ms: Option<u32>,
    /// Time that some threads of the requester's cgroup waited for memory, in all the cgroup's life.
    pub memory_pressure_ms: Option<u32>,
    /// Number of the operation's sends on the connection, with others that cannot be told apart from them. This field
    /// and those up to `sends_retransmitted` are absent where sends are not timestamped.
    pub sends: Option<u32>,
    /// The longest time that one send lay in this host's queueing discipline.
    pub sends_local_ms: Option<f64>,
    /// The longest time that one send waited in TCP's queue.
    pub sends_held_ms: Option<f64>,
    /// The shortest time of one send from the driver to the acknowledgement.
    pub ack_least_ms: Option<f64>,
    /// The longest time of one send from the driver to the acknowledgement.
    pub ack_most_ms: Option<f64>,
    /// How many times segments of these sends were retransmitted.
    pub sends_retransmitted: Option<u32>,
    /// The short id of the requester's container, or its name; absent if it is in none. This field and those up to `workload` are absent in
    /// `recorder.jsonl`.
    pub container: Option<Cow<'a, str>>,
    /// The requester's job, as `plumbline io` calls it.
    pub job: Option<Cow<'a, str>>,
    /// Kubernetes: the namespace of the requester's pod.
    pub namespace: Option<Cow<'a, str>>,
    /// Kubernetes: the requester's pod.
    pub pod: Option<Cow<'a, str>>,
    /// Kubernetes: the container's name in its pod.
    pub container_name: Option<Cow<'a, str>>,
    /// Kubernetes: the Deployment, StatefulSet, DaemonSet, Job or CronJob, as far as the pod's name tells.
    pub workload: Option<Cow<'a, str>>,
    /// Kubernetes: the mount's persistent volume.
    pub pv: Option<Cow<'a, str>>,
    /// Kubernetes: its claim, where the folder on the server is named after it.
    pub pvc: Option<Cow<'a, str>>,
    /// Operations that this line stands for: above 1 only while sampling.
    pub weight: u32,
}

/// A system call as other programs read it: its event, and the operations below it if they are known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallLine<'a> {
    /// The event.
    #[serde(flatten)]
    pub event: EventLine<'a>,
    /// The operations below it; `None` if they are not known.
    #[serde(flatten)]
    pub below: Option<BelowLine<'a>>,
}

/// An operation and all that ran below it, as `plumbline follow` prints it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeLine<'a> {
    /// The event.
    #[serde(flatten)]
    pub event: EventLine<'a>,
    /// From the start of the tree's first operation until this one's start.
    pub after_ms: f64,
    /// The part of its duration during which no operation below it was in progress.
    pub own_ms: f64,
    /// The longest of the operations directly below it, in the order of their starts.
    pub children: Vec<TreeLine<'a>>,
    /// Number of the operations directly below it, listed or not.
    pub children_count: usize,
    /// Time during which at least one of the operations below it was in progress.
    pub children_ms: f64,
    /// The longest concurrent operations that this one did not wait for, or not for certain: operations of its own thread that were answered only
    /// later, and operations of kernel threads on its mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<EventLine<'a>>,
    /// Number of these operations, listed or not.
    pub meanwhile_count: usize,
    /// Some operations may be missing.
    pub children_incomplete: bool,
}

/// The operations below a call. Field names are stable; times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BelowLine<'a> {
    /// The longest of the operations below the call, in the order of their starts.
    pub children: Vec<ChildLine<'a>>,
    /// Number of operations below the call, listed or not.
    pub children_count: usize,
    /// Time during which at least one of them was in progress.
    pub children_ms: f64,
    /// The longest operations of kernel threads on the same mount during the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<ChildLine<'a>>,
    /// Number of these operations of kernel threads, listed or not.
    pub meanwhile_count: usize,
    /// Some operations may be missing.
    pub children_incomplete: bool,
}

/// One operation below a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChildLine<'a> {
    /// The probe.
    pub protocol: Cow<'a, str>,
    /// The operation.
    pub operation: Cow<'a, str>,
    /// From the call's start until this operation's start; negative if the operation began first.
    pub after_ms: f64,
    /// From its start until the requester had the result.
    pub duration_ms: f64,
    /// From its start until the request was sent; absent where the probe cannot split the duration.
    pub queue_ms: Option<f64>,
    /// From the request's sending until the answer's arrival.
    pub wire_ms: Option<f64>,
    /// From the answer's arrival until the requester had it.
    pub deliver_ms: Option<f64>,
    /// The protocol's status by name.
    pub status: Option<String>,
    /// The error by name; absent on success.
    pub errno: Option<String>,
    /// Payload bytes.
    pub bytes: u64,
    /// The client's number of the connection.
    pub connection: u64,
    /// It failed, by the protocol's own measure.
    pub failed: bool,
    /// It had not returned when this was written.
    pub in_flight: bool,
}
