//! One finished operation, as the kernel side saw it.

use serde::{Deserialize, Serialize};

use crate::{Code, Detail, MountKey, Operation, Progress, SocketTotals, text::Text};

/// A point in time: nanoseconds of CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns`.
pub type Nanos = u64;

/// One finished operation. What a probe cannot know is zero (numbers) or empty (text).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Protocol and command.
    pub operation: Operation,
    /// When the requester began it.
    pub start: Nanos,
    /// From the start until the requester had the result, in nanoseconds.
    pub duration: u64,
    /// The phases of the duration, as far as the probe can tell.
    pub phases: Phases,
    /// The protocol's own status (NTSTATUS for SMB); 0 is success.
    pub status: u32,
    /// The errno, positive, with which the operation ended; 0: success, or the probe sees no errno.
    pub errno: u32,
    /// Payload bytes moved, or requested if no answer came.
    pub bytes: u64,
    /// The mount of the operation.
    pub mount: MountKey,
    /// The process that began it.
    pub requester: Requester,
    /// The client's number of the connection; 0: none, or not known.
    pub connection: u64,
    /// The state of the server connection at completion.
    pub network: Network,
    /// The timing of the connection's sends during the operation; `None` if sends are not timestamped.
    pub send_timing: Option<SendTiming>,
    /// Totals of the connection and of the threads that sent and received; `None` if the operation took less than 10
    /// ms.
    pub progress: Option<Box<Progress>>,
    /// The fields that only operations of its protocol have.
    pub detail: Detail,
    /// The system call, page fault or kernel thread that caused it.
    pub caller: Caller,
    /// Properties of the request.
    pub flags: Flags,
    /// How many operations this event stands for: above 1 only while the ring is flooded and the kernel side samples.
    pub weight: u32,
}

impl Event {
    /// When the requester had its result.
    pub fn end(&self) -> Nanos {
        self.start.saturating_add(self.duration)
    }

    /// The number of operations that this event stands for; at least one.
    pub fn operations(&self) -> u64 {
        self.weight.max(1).into()
    }

    /// The end, the kind and the thread: equal in an event and in the flight recorder's record of the same operation.
    pub fn identity(&self) -> (Nanos, Operation, u32) {
        (self.end(), self.operation, self.requester.tid)
    }

    /// The timing of its sends; `None` if none was timestamped.
    pub fn stamped(&self) -> Option<SendTiming> {
        self.send_timing.filter(|timing| timing.sends > 0)
    }

    /// TCP's counters of the connection, if they were read when the operation ended.
    pub fn socket(&self) -> Option<SocketTotals> {
        self.progress.as_ref()?.socket
    }

    /// Whether it ended with this code.
    pub fn ended_with(&self, code: Code) -> bool {
        match code {
            Code::Status(status) => self.status == status,
            Code::Errno(errno) => self.errno == errno,
        }
    }

    /// Whether both are sightings of one operation.
    pub fn same_operation(&self, other: &Self) -> bool {
        self.operation == other.operation
            && (self.start, self.requester.tid, self.detail.message())
                == (other.start, other.requester.tid, other.detail.message())
    }
}

/// Where an operation's time went, nanoseconds. The three parts add up to at most the duration. Of a request that this host serves, they are the
/// wait for a thread, the execution, and the sending of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// Waiting for credits or slots, and queued, before the request was sent.
    pub queue: u64,
    /// From sent to received: the network and the server.
    pub wire: u64,
    /// From received until the requester had the result.
    pub deliver: u64,
}

impl Phases {
    /// True if the probe could split the time at all.
    pub fn known(&self) -> bool {
        self.queue > 0 || self.wire > 0 || self.deliver > 0
    }
}

/// The process that began an operation, read when it began: completion may run in a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requester {
    /// Process (thread group) id in the initial pid namespace.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// User id.
    pub uid: u32,
    /// The thread's name.
    pub comm: Text<16>,
    /// Id of the thread's cgroup (v2).
    pub cgroup: u64,
}

/// What caused an operation: the activity of its thread when it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caller {
    /// The probe cannot tell.
    #[default]
    Unknown,
    /// The system call of this name.
    Call(&'static str),
    /// An access to memory that a file is mapped to.
    PageFault,
    /// A kernel thread, for example writeback: no process waits in a system call.
    Kernel,
}

/// The state of the server connection when the operation completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Smoothed round-trip time, microseconds; 0 when unknown.
    pub srtt_us: u32,
    /// The newest single round-trip sample, microseconds; 0 when unknown.
    /// A delayed acknowledgement counts into it: up to 40 ms on Linux peers.
    pub rtt_us: u32,
    /// Segments retransmitted over the connection's life, without those that the peer reported as duplicates.
    pub retransmits: u32,
    /// The newest segment's arrival by this host's clock minus its TCP timestamp (RFC 7323), which is the peer's clock,
    /// milliseconds modulo 2^16; 0 when unknown. If it changes, the delay from the server to this host has changed by
    /// as much.
    pub arrival_ms: u16,
    /// TCP's minimum round-trip time over the last 5 minutes (net.ipv4.tcp_min_rtt_wlen), microseconds; 0 when unknown.
    /// This field and the next four are 0 if the operation took less than 10 ms.
    pub min_rtt_us: u32,
    /// Time since data last arrived, microseconds, to a jiffy. The answer lay in the socket for at least this long.
    pub unread_us: u32,
    /// Segments that arrived out of order, over the connection's life.
    pub out_of_order: u32,
    /// Segments with data sent, over the connection's life.
    pub segments: u32,
    /// Packets in this host's queueing discipline that the connection's segments pass through.
    pub own_queue: u32,
    /// Of an event of a connection: segments that the server acknowledged although an earlier one is missing
    /// (`sacked_out`, RFC 2018); 65535 stands for more.
    pub sacked: u16,
    /// Whether the probe could read the socket; if not, all fields are 0.
    pub known: bool,
}

impl Network {
    /// TCP's minimum round-trip time, nanoseconds; `None` when unknown.
    pub fn least_round_trip(&self) -> Option<u64> {
        (self.min_rtt_us > 0).then(|| u64::from(self.min_rtt_us) * 1_000)
    }
}

/// How an operation's request was sent, by BPF timestamping (Linux 6.14). It covers the operation's own sends on the
/// connection, and others so close in time that they cannot be told apart from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SendTiming {
    /// Number of sends that were acknowledged, or, if `unacknowledged` is not 0, that are not yet. 0: no send was
    /// timestamped; of an operation in flight only `unacknowledged` is then known, from TCP's state of the connections
    /// with its server.
    pub sends: u32,
    /// The longest time of one send from TCP to the driver, nanoseconds: this host's queueing discipline.
    pub local: u64,
    /// The longest time that one send waited in TCP's queue, nanoseconds: for the peer's window, congestion control or
    /// pacing.
    pub held: u64,
    /// The shortest time of one send from the driver to the peer's acknowledgement, nanoseconds. It includes
    /// retransmissions and the peer's delayed acknowledgement: up to 40 ms on Linux, less if its answer is ready first.
    pub least: u64,
    /// The longest time of one send from the driver to the peer's acknowledgement, nanoseconds.
    pub most: u64,
    /// How many times segments of these sends were retransmitted.
    pub retransmitted: u32,
    /// Of an operation in flight: how long its oldest unacknowledged send has waited, nanoseconds; 0 if all are
    /// acknowledged.
    pub unacknowledged: u64,
    /// Of an operation in flight: data from its server arrived out of order, and an earlier segment is still missing.
    pub gap: bool,
}

/// Properties of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flags {
    /// Part of a compound request (MS-SMB2 3.2.4.1.4).
    pub compound: bool,
    /// The server answered STATUS_PENDING first (MS-SMB2 3.3.4.2).
    pub asynchronous: bool,
    /// No answer came: the connection broke, or the requester gave up.
    pub unanswered: bool,
    /// The operation has not returned yet: `duration` is the time so far.
    pub in_flight: bool,
    /// The operation failed, by the protocol's own measure: an SMB warning such as STATUS_NO_MORE_FILES is no failure.
    pub failed: bool,
    /// The request went to another program of this host that is not a file server: a proxy, which passes the request
    /// on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub passed_on: bool,
    /// The operation may have moved bytes, but the probe cannot tell how many: `bytes` is 0.
    pub bytes_unknown: bool,
}
