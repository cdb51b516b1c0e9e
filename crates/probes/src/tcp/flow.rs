//! The tcp probe's types for the rest of the program, decoded from the kernel's.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use model::{Histogram, MountKey, Nanos};

use crate::generated::{Plain, connection, ends, flow, stage_times, stamp};

/// A stage of a send; `enum stage` of flow.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// From the call's start until all of its bytes are in the socket's queue.
    Call,
    /// Until TCP gives the last byte to the queueing discipline.
    Queue,
    /// Until the driver has the last byte.
    Scheduler,
    /// Until the peer has acknowledged the last byte.
    Network,
    /// All of these together.
    Send,
    /// Of received data: from its arrival until it is read.
    Read,
}

impl Stage {
    /// All stages, in the order of a send's way.
    pub const ALL: [Self; 6] = [Self::Call, Self::Queue, Self::Scheduler, Self::Network, Self::Send, Self::Read];

    /// The stage's name in output: `call`, `queue`, `scheduler`, `network`, `send` or `read`.
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
pub struct Endpoints {
    /// This host's address and port.
    pub local: (IpAddr, u16),
    /// The peer's address and port.
    pub peer: (IpAddr, u16),
    /// The inode number of the connection's network namespace.
    pub namespace: u32,
}

impl From<ends> for Endpoints {
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
pub struct SendTimes {
    /// Which it is.
    pub ends: Endpoints,
    /// The socket's.
    pub cookie: u64,
    /// What is mounted from its peer; `MountKey::NONE`: nothing.
    pub mount: MountKey,
    /// Calls that sent something.
    pub sends: u64,
    /// Of those, calls that are in the histograms, or will be once they are acknowledged.
    pub stamped: u64,
    /// Bytes that these calls sent.
    pub bytes: u64,
    /// The connection is not stamped, so it only has the time of [`Stage::Network`], as TCP itself measures it.
    pub measured: bool,
    /// How often last segments of stamped sends were sent again.
    pub retransmitted: u64,
    /// How long the peer's window was closed while stamped sends were in the queue, nanoseconds.
    pub window_ns: u64,
    /// How long the connection's own pacing held stamped sends in the queue, nanoseconds.
    pub pacing_ns: u64,
    /// When the connection closed; 0: it is open.
    pub closed: Nanos,
    /// Once closed: the last smoothed round-trip time, and TCP's minimum of the last minutes; microseconds.
    pub last_rtt_us: (u32, u32),
    /// Once closed: the number of segments sent again.
    pub retransmits: u32,
    /// By [`Stage::ALL`]; a histogram's bytes and sizes are not counted.
    pub stages: [Histogram; 6],
    /// The longest of each, nanoseconds.
    pub longest: [u64; 6],
}

impl SendTimes {
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

/// The sums of the times of closed connections, by mount.
#[derive(Default)]
pub(crate) struct ClosedConnections(HashMap<MountKey, [Histogram; 6]>);

impl ClosedConnections {
    /// The sums of all connections so far, closed and open, of each mount in `flows`. Adds the closed ones of `flows` to
    /// the kept sums, so pass each closed one only once.
    pub fn sums(&mut self, flows: &[SendTimes]) -> HashMap<MountKey, [Histogram; 6]> {
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

    /// Removes the sums of mounts for which `gone` holds.
    pub fn forget(&mut self, gone: impl Fn(MountKey) -> bool) {
        self.0.retain(|mount, _| !gone(*mount));
    }
}

fn histogram(times: stage_times) -> Histogram {
    Histogram { count: times.count, sum: times.sum, buckets: times.buckets.map(u64::from), ..Histogram::default() }
}

/// What TCP itself knows of a connection at one moment.
#[derive(Debug, Clone)]
pub struct TcpInfo {
    /// Which it is.
    pub ends: Endpoints,
    /// The socket's.
    pub cookie: u64,
    /// What is mounted from its peer; `MountKey::NONE`: nothing.
    pub mount: MountKey,
    /// The id of the socket's cgroup.
    pub cgroup: u64,
    /// The TCP state (include/net/tcp_states.h); 1 is ESTABLISHED.
    pub state: u8,
    /// Whether its sends are stamped.
    pub stamped: bool,
    /// Bytes sent, including those sent again.
    pub bytes_sent: u64,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// The pacing rate, bytes per second; `None`: no limit.
    pub pacing_rate: Option<u64>,
    /// The smoothed round-trip time, microseconds.
    pub srtt_us: u32,
    /// TCP's minimum round-trip time of the last minutes, microseconds.
    pub min_rtt_us: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Bytes in the queue that TCP has not sent yet.
    pub unsent: u32,
    /// Bytes sent that the peer has not acknowledged yet.
    pub unacked: u32,
    /// Bytes received that no reader has taken yet.
    pub unread: u32,
    /// The peer's receive window, bytes.
    pub window: u32,
    /// Segments that may be on their way at once.
    pub congestion_window: u32,
    /// The size of a segment, bytes.
    pub segment: u32,
    /// Time with data to send, or sent and not acknowledged, milliseconds.
    pub busy_ms: u32,
    /// The part of `busy_ms` with the peer's window closed.
    pub window_limited_ms: u32,
    /// The part of `busy_ms` with the socket's send buffer full.
    pub buffer_limited_ms: u32,
    /// Time since data was last sent, milliseconds; `None`: never.
    pub sent_ago_ms: Option<u32>,
    /// Time since data was last received, milliseconds; `None`: never.
    pub arrived_ago_ms: Option<u32>,
    /// Time since the peer last acknowledged anything, milliseconds; `None`: never.
    pub acked_ago_ms: Option<u32>,
    /// Data has arrived, and data before it is still missing.
    pub gap: bool,
}

impl TcpInfo {
    /// Decodes the output of the iterator `look`.
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
pub struct SendStamp {
    /// The socket's.
    pub cookie: u64,
    /// When it ended, nanoseconds of CLOCK_MONOTONIC.
    pub time: Nanos,
    /// The stage, which has ended for all bytes up to `last`.
    pub stage: Stage,
    /// The sequence number of the last byte.
    pub last: u32,
    /// Of [`Stage::Call`]: when the call began; 0: not known.
    pub start: Nanos,
    /// Of [`Stage::Call`]: the number of bytes.
    pub bytes: u32,
}

impl SendStamp {
    /// Decodes a record of the ring; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = stamp::from_bytes(bytes)?;
        let stage = *Stage::ALL.get(raw.stage as usize)?;
        Some(Self { cookie: raw.cookie, time: raw.time, stage, last: raw.last, start: raw.start, bytes: raw.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(mount: u64, sends: u64, closed: Nanos) -> SendTimes {
        let raw = flow { mount, sends, closed, ..flow::default() };
        let mut flow = SendTimes::decode(&7_u64.to_ne_bytes(), raw.as_bytes()).unwrap();
        (0..sends).for_each(|_| flow.stages[4].add(1000, 0, false));
        flow
    }

    #[test]
    fn sums_of_a_mount_never_fall_when_connections_end() {
        let mut ended = ClosedConnections::default();
        let count = |sums: HashMap<MountKey, [Histogram; 6]>| sums.get(&MountKey(1)).map(|stages| stages[4].count);
        assert_eq!(count(ended.sums(&[flow(1, 3, 0), flow(1, 2, 0), flow(0, 9, 0)])), Some(5));
        assert_eq!(count(ended.sums(&[flow(1, 4, 99), flow(1, 2, 0)])), Some(6));
        assert_eq!(count(ended.sums(&[flow(1, 2, 0)])), Some(6));
        assert_eq!(count(ended.sums(&[flow(1, 2, 100)])), Some(6));
        assert_eq!(count(ended.sums(&[])), None, "nothing is new");
        assert_eq!(count(ended.sums(&[flow(1, 1, 0)])), Some(7));
    }
}
