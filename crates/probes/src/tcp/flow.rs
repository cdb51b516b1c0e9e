//! What the kernel side says of connections, for the rest of the program.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use model::{Histogram, MountKey, Nanos};

use crate::generated::{Plain, connection, ends, flow, stage_times, stamp};

/// A part of a send's way; `enum stage` of flow.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The call began until all of it was in the socket's queue.
    Call,
    /// Until TCP gave its last byte to the queueing discipline.
    Queue,
    /// Until the driver had it.
    Scheduler,
    /// Until the peer had acknowledged it.
    Network,
    /// All of these.
    Send,
    /// Of what comes in: data was there until it was read.
    Read,
}

impl Stage {
    /// In the order of a send's way.
    pub const ALL: [Self; 6] = [Self::Call, Self::Queue, Self::Scheduler, Self::Network, Self::Send, Self::Read];

    /// `call`, `queue`, `scheduler`, `network`, `send`, `read`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Queue => "queue",
            Self::Scheduler => "scheduler",
            Self::Network => "network",
            Self::Send => "send",
            Self::Read => "read",
        }
    }
}

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// Our end.
    pub local: (IpAddr, u16),
    /// The other.
    pub peer: (IpAddr, u16),
    /// Inode number of its network namespace.
    pub namespace: u32,
}

impl From<ends> for Ends {
    fn from(raw: ends) -> Self {
        let address = |bytes| Ipv6Addr::from(bytes).to_canonical();
        Self {
            local: (address(raw.local), raw.local_port),
            peer: (address(raw.peer), raw.peer_port),
            namespace: raw.namespace,
        }
    }
}

/// Times of the sends of one connection since it was selected.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Which it is.
    pub ends: Ends,
    /// The socket's.
    pub cookie: u64,
    /// What is mounted from its peer; `MountKey::NONE`: nothing.
    pub mount: MountKey,
    /// Calls that sent something.
    pub sends: u64,
    /// Of those, calls that are in the histograms, or will be once they are acknowledged.
    pub stamped: u64,
    /// Bytes that they sent.
    pub bytes: u64,
    /// It is not stamped, and has but the network's time: as TCP measures it by itself.
    pub measured: bool,
    /// How often last segments of stamped sends were sent again.
    pub retransmitted: u64,
    /// Nanoseconds that stamped sends were in the queue while the peer's window was closed.
    pub window_ns: u64,
    /// Nanoseconds that the connection's own pacing held them.
    pub pacing_ns: u64,
    /// When it was closed; 0: it is there.
    pub closed: Nanos,
    /// Once it is closed: the smoothed round-trip time and the least of late, microseconds.
    pub last_rtt_us: (u32, u32),
    /// Likewise, segments that were sent again.
    pub retransmits: u32,
    /// By [`Stage::ALL`]; a histogram's bytes and sizes are not counted.
    pub stages: [Histogram; 6],
    /// The longest of each, nanoseconds.
    pub longest: [u64; 6],
}

impl Flow {
    /// From a key and a value of the map `flows`.
    pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<Self> {
        let (cookie, raw) = (u64::from_bytes(key)?, flow::from_bytes(value)?);
        Some(Self {
            ends: raw.ends.into(),
            cookie,
            mount: MountKey(raw.mount),
            sends: raw.sends,
            stamped: raw.stamped,
            bytes: raw.bytes,
            measured: raw.measured != 0,
            retransmitted: raw.retransmitted,
            window_ns: raw.window_ns,
            pacing_ns: raw.pacing_ns,
            closed: raw.closed,
            last_rtt_us: (raw.srtt_us, raw.min_rtt_us),
            retransmits: raw.retransmits,
            stages: raw.stages.map(histogram),
            longest: raw.stages.map(|times| times.max),
        })
    }

    fn add_to(&self, sums: &mut [Histogram; 6]) {
        sums.iter_mut().zip(&self.stages).for_each(|(sum, times)| sum.merge(times));
        let [_, _, _, _, send, _] = sums;
        send.bytes += self.bytes;
    }

    /// The times of one stage.
    pub fn stage(&self, stage: Stage) -> &Histogram {
        let [call, queue, scheduler, network, send, read] = &self.stages;
        match stage {
            Stage::Call => call,
            Stage::Queue => queue,
            Stage::Scheduler => scheduler,
            Stage::Network => network,
            Stage::Send => send,
            Stage::Read => read,
        }
    }
}

/// What the connections with each mount's server have come to that are over.
#[derive(Default)]
pub(crate) struct Ended(HashMap<MountKey, [Histogram; 6]>);

impl Ended {
    /// The sums of all connections that there have been, by mount. Those that are closed are added to this for good.
    pub fn sums(&mut self, flows: &[Flow]) -> HashMap<MountKey, [Histogram; 6]> {
        let of_mounts = || flows.iter().filter(|flow| flow.mount != MountKey::NONE);
        for flow in of_mounts().filter(|flow| flow.closed != 0) {
            flow.add_to(self.0.entry(flow.mount).or_default());
        }
        let mut sums: HashMap<_, [Histogram; 6]> = HashMap::new();
        for flow in of_mounts() {
            let sum = sums.entry(flow.mount).or_insert_with(|| self.0.get(&flow.mount).cloned().unwrap_or_default());
            if flow.closed == 0 {
                flow.add_to(sum);
            }
        }
        sums
    }

    /// Gives up what is known of mounts that are gone.
    pub fn forget(&mut self, gone: impl Fn(MountKey) -> bool) {
        self.0.retain(|mount, _| !gone(*mount));
    }
}

fn histogram(times: stage_times) -> Histogram {
    Histogram { count: times.count, sum: times.sum, buckets: times.buckets.map(u64::from), ..Histogram::default() }
}

/// What the kernel knows of a connection by itself, at one moment.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Which it is.
    pub ends: Ends,
    /// The socket's.
    pub cookie: u64,
    /// What is mounted from its peer; `MountKey::NONE`: nothing.
    pub mount: MountKey,
    /// The socket's cgroup, an id.
    pub cgroup: u64,
    /// include/net/tcp_states.h; 1 is ESTABLISHED.
    pub state: u8,
    /// Whether its sends are stamped.
    pub stamped: bool,
    /// Bytes sent, those sent again included.
    pub bytes_sent: u64,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes that have come in.
    pub bytes_received: u64,
    /// Bytes a second that it allows itself; `None`: no limit.
    pub pacing_rate: Option<u64>,
    /// Round-trip time, smoothed, microseconds.
    pub srtt_us: u32,
    /// The least round-trip time of late, microseconds.
    pub min_rtt_us: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Bytes in the queue that TCP has not sent yet.
    pub unsent: u32,
    /// Bytes sent that the peer has not acknowledged yet.
    pub unacked: u32,
    /// Bytes that have come in and that nobody has read yet.
    pub unread: u32,
    /// Bytes that the peer has room for.
    pub window: u32,
    /// Segments that may be on their way at once.
    pub congestion_window: u32,
    /// Bytes of a segment.
    pub segment: u32,
    /// Milliseconds with something to send or to be acknowledged.
    pub busy_ms: u32,
    /// Of those, with the peer's window closed.
    pub window_limited_ms: u32,
    /// Of those, with our own send buffer full.
    pub buffer_limited_ms: u32,
    /// Since data was last sent; `None`: none was.
    pub sent_ago_ms: Option<u32>,
    /// Since data last came in; `None`: none did.
    pub arrived_ago_ms: Option<u32>,
    /// Since the peer last acknowledged anything; `None`: it never did.
    pub acked_ago_ms: Option<u32>,
    /// Data has come in behind some that is missing still.
    pub gap: bool,
}

impl Connection {
    /// Each of those in the bytes that the iterator wrote.
    pub(super) fn decode_all(bytes: &[u8]) -> Vec<Self> {
        bytes.chunks_exact(size_of::<connection>()).filter_map(Self::decode).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = connection::from_bytes(bytes)?;
        let known = |ms: u32| (ms != u32::MAX).then_some(ms);
        Some(Self {
            ends: raw.ends.into(),
            cookie: raw.cookie,
            mount: MountKey(raw.mount),
            cgroup: raw.cgroup,
            state: raw.state,
            stamped: raw.stamped != 0,
            bytes_sent: raw.bytes_sent,
            bytes_acked: raw.bytes_acked,
            bytes_received: raw.bytes_received,
            pacing_rate: (raw.pacing != 0 && raw.pacing_rate != u64::MAX).then_some(raw.pacing_rate),
            srtt_us: raw.srtt_us,
            min_rtt_us: raw.min_rtt_us,
            retransmits: raw.retransmits,
            unsent: raw.unsent,
            unacked: raw.unacked,
            unread: raw.unread,
            window: raw.window,
            congestion_window: raw.congestion_window,
            segment: raw.segment,
            busy_ms: raw.busy_ms,
            window_limited_ms: raw.window_limited_ms,
            buffer_limited_ms: raw.buffer_limited_ms,
            sent_ago_ms: known(raw.sent_ago_ms),
            arrived_ago_ms: known(raw.arrived_ago_ms),
            acked_ago_ms: known(raw.acked_ago_ms),
            gap: raw.gap != 0,
        })
    }
}

/// One stage of one send has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The socket's.
    pub cookie: u64,
    /// When; CLOCK_MONOTONIC.
    pub time: Nanos,
    /// Which: for all bytes up to `last`.
    pub stage: Stage,
    /// Sequence number of the last byte.
    pub last: u32,
    /// Of [`Stage::Call`]: when it began; 0: not known.
    pub start: Nanos,
    /// Of [`Stage::Call`]: how many.
    pub bytes: u32,
}

impl Stamp {
    /// From the ring.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = stamp::from_bytes(bytes)?;
        let stage = *Stage::ALL.get(raw.stage as usize)?;
        Some(Self { cookie: raw.cookie, time: raw.time, stage, last: raw.last, start: raw.start, bytes: raw.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(mount: u64, sends: u64, closed: Nanos) -> Flow {
        let raw = flow { mount, sends, closed, ..flow::default() };
        let mut flow = Flow::decode(&7_u64.to_ne_bytes(), raw.as_bytes()).unwrap();
        (0..sends).for_each(|_| flow.stages[4].add(1000, 0, false));
        flow
    }

    #[test]
    fn sums_of_a_mount_never_fall_when_connections_end() {
        let mut ended = Ended::default();
        let count = |sums: HashMap<MountKey, [Histogram; 6]>| sums.get(&MountKey(1)).map(|stages| stages[4].count);
        assert_eq!(count(ended.sums(&[flow(1, 3, 0), flow(1, 2, 0), flow(0, 9, 0)])), Some(5));
        assert_eq!(count(ended.sums(&[flow(1, 4, 99), flow(1, 2, 0)])), Some(6));
        assert_eq!(count(ended.sums(&[flow(1, 2, 0)])), Some(6));
        assert_eq!(count(ended.sums(&[flow(1, 2, 100)])), Some(6));
        assert_eq!(count(ended.sums(&[])), None, "nothing is new");
        assert_eq!(count(ended.sums(&[flow(1, 1, 0)])), Some(7));
    }
}
