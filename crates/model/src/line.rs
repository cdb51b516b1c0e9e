//! The one form of an event in JSON and CSV: the lines of `trace`, `events.jsonl`, `recorder.jsonl`, and the calls of an incident.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// An event as other programs read it. Field names are stable; times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventLine<'a> {
    /// When it was asked for, UTC.
    pub time: String,
    /// The probe.
    pub probe: Cow<'a, str>,
    /// The operation.
    pub operation: Cow<'a, str>,
    /// From asking until the result was there.
    pub duration_ms: f64,
    /// Waiting for credits and queued, before it was sent; absent where the probe cannot split.
    pub queue_ms: Option<f64>,
    /// Sent until received.
    pub wire_ms: Option<f64>,
    /// Received until the requester had it.
    pub deliver_ms: Option<f64>,
    /// The protocol's status by name, or as a hexadecimal number; absent if the protocol has none.
    pub status: Option<String>,
    /// The error by name, or as a number; absent on success.
    pub errno: Option<String>,
    /// Payload bytes.
    pub bytes: u64,
    /// mpiio: whether the probe could tell how many these are; if not, `bytes` is 0 and says nothing.
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
    /// The file's name, without its folder; mpiio: as it was opened, cut in front; connections: empty.
    pub file: String,
    /// connections: the server's address and port, and the local port.
    pub peer: Option<String>,
    /// Inode number; cephproxy: the connection's own number of the inode, file or directory.
    pub inode: u64,
    /// vfs: where in the file.
    pub offset: Option<u64>,
    /// vfs, mpiio, cephproxy: bytes asked for.
    pub asked: Option<u64>,
    /// vfs: flags, mode or command of the request.
    pub request: Option<u32>,
    /// mpiio: the process' rank in its job; absent where its environment does not say.
    pub rank: Option<u32>,
    /// mpiio: whether all processes that have the file open take part.
    pub collective: Option<bool>,
    /// SMB: session id. NFS 4.1 and later: the halves of the session id, exclusive-or'd.
    pub session: u64,
    /// SMB: message id.
    pub mid: u64,
    /// SMB: tree id.
    pub tree: u32,
    /// NFS: the RPC call's id.
    pub xid: Option<u64>,
    /// NFS 4.1 and later: the slot of the session.
    pub slot: Option<u32>,
    /// NFS 4.1 and later: the slot's sequence number.
    pub sequence: Option<u32>,
    /// NFS: how often the call was sent again. connections: the how-manieth in a row it is, where that is known.
    pub resent: Option<u32>,
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
    /// Its newest single sample.
    pub rtt_ms: Option<f64>,
    /// Segments retransmitted over the connection's life.
    pub retransmits: Option<u32>,
    /// TCP's own minimum of the round trip over the last minutes; this and the next three are absent of operations that took less than 10 ms, and in
    /// `recorder.jsonl`.
    pub min_rtt_ms: Option<f64>,
    /// For at least as long the answer lay in this host's socket, to a jiffy.
    pub unread_ms: Option<f64>,
    /// Segments that arrived out of order over the connection's life.
    pub out_of_order: Option<u32>,
    /// Packets in the queueing discipline that the connection's segments go to.
    pub own_queue: Option<u32>,
    /// Over the connection's life, as the next seven: segments sent; absent of operations that took less than 10 ms, and in `recorder.jsonl`, as is all up to
    /// `memory_pressure_ms`.
    pub segments_out: Option<u32>,
    /// Segments received.
    pub segments_in: Option<u32>,
    /// Segments with data that the server acknowledged.
    pub segments_acked: Option<u32>,
    /// Retransmission timeouts; 0 before Linux 6.7.
    pub timeouts: Option<u32>,
    /// Segments that were sent again although the server had them.
    pub needless_retransmits: Option<u32>,
    /// Something was not acknowledged, or waited to be sent.
    pub busy_ms: Option<u32>,
    /// Thereof, it did not fit the server's window.
    pub window_limited_ms: Option<u32>,
    /// Thereof, the send buffer was full.
    pub buffer_limited_ms: Option<u32>,
    /// What TCP spaces segments by, bytes a second; 0: it does not.
    pub pacing_rate: Option<u64>,
    /// At which data was acknowledged last, bytes a second.
    pub delivery_rate: Option<u64>,
    /// The requester's thread was runnable without a CPU, in all its life.
    pub requester_cpu_wait_ms: Option<f64>,
    /// Likewise, the thread that took the answer.
    pub receiver_cpu_wait_ms: Option<f64>,
    /// Some threads of the requester's cgroup waited for a CPU, in all its life.
    pub cpu_pressure_ms: Option<u32>,
    /// Likewise, for memory.
    pub memory_pressure_ms: Option<u32>,
    /// Its sends on the connection, and those that cannot be told from them; this and what follows is absent where nobody
    /// stamps them.
    pub sends: Option<u32>,
    /// The longest that one of them lay in this host's queueing discipline.
    pub sends_local_ms: Option<f64>,
    /// The longest that one of them lay in TCP's own queue.
    pub sends_held_ms: Option<f64>,
    /// From the driver to the acknowledgement, the shortest.
    pub ack_least_ms: Option<f64>,
    /// Likewise, the longest.
    pub ack_most_ms: Option<f64>,
    /// Times that their segments were sent again.
    pub sends_retransmitted: Option<u32>,
    /// Operations that this line stands for: above 1 only while sampling.
    pub weight: u32,
}

/// A system call as other programs read it: its event, and what ran below it where that can be told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallLine<'a> {
    /// The event.
    #[serde(flatten)]
    pub event: EventLine<'a>,
    /// What ran below it, if that is known.
    #[serde(flatten)]
    pub below: Option<BelowLine<'a>>,
}

/// The operations below a call. Field names are stable; times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BelowLine<'a> {
    /// The longest, in the order of their starts.
    pub children: Vec<ChildLine<'a>>,
    /// How many there were, listed or not.
    pub children_count: usize,
    /// For how long one of them was under way.
    pub children_ms: f64,
    /// Operations of kernel threads on the same mount meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<ChildLine<'a>>,
    /// How many there were, listed or not.
    pub meanwhile_count: usize,
    /// Some may be missing.
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
    /// From the call's start until this was asked for; below zero for what began before.
    pub after_ms: f64,
    /// From asking until the result was there.
    pub duration_ms: f64,
    /// Waiting, before it was sent; absent where the probe cannot split.
    pub queue_ms: Option<f64>,
    /// Sent until received.
    pub wire_ms: Option<f64>,
    /// Received until the requester had it.
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
