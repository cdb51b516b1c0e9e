//! One finished operation, as the kernel side saw it.

use serde::{Deserialize, Serialize};

use crate::{Code, Detail, MountKey, Operation, Progress, text::Text};

/// A point in time: nanoseconds of CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns`.
pub type Nanos = u64;

/// One finished operation. What a probe cannot know is zero (numbers) or empty (text).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Protocol and command.
    pub operation: Operation,
    /// When the requester asked for it.
    pub start: Nanos,
    /// From then until the requester had the result, in nanoseconds.
    pub duration: u64,
    /// Where that time went, as far as the probe can tell.
    pub phases: Phases,
    /// The protocol's own status (NTSTATUS for SMB); 0 is success.
    pub status: u32,
    /// The errno, positive, that the operation ended with where the probe sees one; 0 is success.
    pub errno: u32,
    /// Payload bytes moved (or asked for, if nothing came back).
    pub bytes: u64,
    /// The mount it went to.
    pub mount: MountKey,
    /// Who asked.
    pub requester: Requester,
    /// The client's number of the connection; 0: none, or not known.
    pub connection: u64,
    /// The server connection at completion.
    pub network: Network,
    /// How its connection's sends fared meanwhile; `None` where nobody stamps them.
    pub transit: Option<SendTiming>,
    /// How the connection and the threads at both of its ends got on; `None` of operations that took less than 10 ms.
    pub progress: Option<Box<Progress>>,
    /// What only operations of its protocol have.
    pub detail: Detail,
    /// The layer above.
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

    /// How many operations it stands for: one at least.
    pub fn operations(&self) -> u64 {
        self.weight.max(1).into()
    }

    /// What a record of the flight recorder and an event of the same operation have in common: when it ended, which it is, and who asked.
    pub fn identity(&self) -> (Nanos, Operation, u32) {
        (self.end(), self.operation, self.requester.tid)
    }

    /// What became of its sends, if they were stamped.
    pub fn stamped(&self) -> Option<SendTiming> {
        self.transit.filter(|transit| transit.sends > 0)
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

/// Where an operation's time went, nanoseconds. The three parts add up to at most the duration.
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

/// The process that asked, taken when it asked: completion may run in a worker.
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
    /// Id of the cgroup (v2) it lives in.
    pub cgroup: u64,
}

/// What stood above an operation when it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caller {
    /// The probe cannot tell.
    #[default]
    Unknown,
    /// The system call of this name.
    Call(&'static str),
    /// An access to memory that a file is mapped to.
    PageFault,
    /// A thread of the kernel's own: it works for nobody in particular, or for somebody who has not waited.
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
    /// Segments retransmitted over the connection's life, without those that the peer called needless.
    pub retransmits: u32,
    /// When the newest segment came by this host's clock, less when it was sent by the peer's (its timestamp, RFC 7323),
    /// milliseconds modulo 2^16; 0 when unknown. What it changes by, the way from the server does.
    pub arrival_ms: u16,
    /// TCP's own minimum of the round trip over the last minutes (5, by net.ipv4.tcp_min_rtt_wlen), microseconds; 0 when unknown,
    /// as are the next four of operations that took less than 10 ms.
    pub min_rtt_us: u32,
    /// Since data last arrived, microseconds, to a jiffy: for at least as long the answer lay in the socket.
    pub unread_us: u32,
    /// Segments that arrived out of order, over the connection's life.
    pub out_of_order: u32,
    /// Segments with data sent, over the connection's life.
    pub segments: u32,
    /// Packets in the queueing discipline of this host that the connection's segments go to.
    pub own_queue: u32,
    /// Whether the socket was there to be read.
    pub known: bool,
}

impl Network {
    /// TCP's own minimum of the round trip, nanoseconds; `None` when unknown.
    pub fn least_round_trip(&self) -> Option<u64> {
        (self.min_rtt_us > 0).then(|| u64::from(self.min_rtt_us) * 1_000)
    }
}

/// How an operation's request was sent, by BPF timestamping (Linux 6.14): its own sends on the connection, and those that were
/// made so shortly before or after that they cannot be told from its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SendTiming {
    /// How many of them were acknowledged, or with `unacknowledged` are not yet. 0: nothing is stamped, and of an operation in flight only
    /// `unacknowledged` is known, from what TCP knows of the connections with its server.
    pub sends: u32,
    /// The longest from TCP's handing one down until the driver had it, nanoseconds: this host's queueing discipline.
    pub local: u64,
    /// The longest that one lay in TCP's own queue, nanoseconds: the peer's window, congestion, or pacing held it.
    pub held: u64,
    /// From the driver to the peer's acknowledgement, nanoseconds: the shortest. Time of retransmissions is in it, and what
    /// the peer delays acknowledgements by: up to 40 ms on Linux, less if its answer is ready first.
    pub least: u64,
    /// Likewise, the longest.
    pub most: u64,
    /// Times that segments of these sends were sent again.
    pub retransmitted: u32,
    /// Of an operation in flight: for how long the oldest of them has not been acknowledged, nanoseconds; 0 if all are.
    pub unacknowledged: u64,
    /// Of an operation in flight: data from its server has come in behind some that is missing still.
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
    /// It has not returned yet: its duration is how long that has lasted so far.
    pub in_flight: bool,
    /// It failed, by the protocol's own measure: an SMB warning such as STATUS_NO_MORE_FILES is no failure.
    pub failed: bool,
    /// It may have moved bytes, but nobody can tell how many: `bytes` is zero for want of better.
    pub bytes_unknown: bool,
}
