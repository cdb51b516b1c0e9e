//! The changes of each connection, or of all connections with a server, since the last look.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use anyhow::Result;
use model::{Histogram, MountKey};
use probes::{
    ProbeSet,
    tcp::{Endpoints, SendTimes, TcpInfo},
};

use super::NetRowsBy;

/// The figures of the last look, which are subtracted.
#[derive(Default)]
struct PreviousFigures {
    flow: Option<SendTimes>,
    retransmits: u32,
    busy_ms: u32,
    window_limited_ms: u32,
    buffer_limited_ms: u32,
    bytes_received: u64,
    bytes_acked: u64,
}

/// One row of the table: sums since the last look, except for fields marked `now`.
#[derive(Default)]
pub struct NetRow {
    /// This host's address and port, for a single connection.
    pub local: Option<(IpAddr, u16)>,
    pub peer: Option<(IpAddr, u16)>,
    pub namespace: u32,
    pub cookie: u64,
    /// The mount of the peer's file system.
    pub mount: String,
    /// The number of connections in this row, and how many of them were closed since the last look.
    pub connections: u64,
    pub closed: u64,
    pub stamped: u64,
    pub sends: u64,
    pub sends_stamped: u64,
    pub bytes: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub retransmits: u64,
    pub stages: [Histogram; 6],
    pub window_ns: u64,
    pub pacing_ns: u64,
    pub busy_ms: u64,
    pub window_limited_ms: u64,
    pub buffer_limited_ms: u64,
    /// Now: the greatest of the connections.
    pub srtt_us: u32,
    /// Now: the least of the connections.
    pub min_rtt_us: u32,
    /// Now.
    pub unsent: u64,
    pub unacked: u64,
    pub unread: u64,
    /// Now: the least of the connections.
    pub window: Option<u32>,
    /// Now: the least of the connections, segments.
    pub congestion_window: Option<u32>,
    pub pacing_rate: Option<u64>,
    pub arrived_ago_ms: Option<u32>,
    pub sent_ago_ms: Option<u32>,
}

pub struct NetMeter {
    by: NetRowsBy,
    before: HashMap<u64, PreviousFigures>,
}

impl NetMeter {
    pub fn new(by: NetRowsBy) -> Self {
        Self { by, before: HashMap::new() }
    }

    /// The changes since the last call; in the first call, since each connection was selected.
    pub fn read(&mut self, watch: &mut ProbeSet) -> Result<Vec<NetRow>> {
        let (connections, flows) = watch.flows()?;
        let mut flows: HashMap<u64, SendTimes> = flows.into_iter().map(|flow| (flow.cookie, flow)).collect();
        let mut rows: BTreeMap<_, NetRow> = BTreeMap::new();
        let mut here = HashMap::new();
        let by = self.by;
        let key = |ends: &Endpoints, cookie| match by {
            NetRowsBy::Flow => (ends.peer, Some((ends.local, cookie))),
            NetRowsBy::Server => (ends.peer, None),
        };
        for connection in &connections {
            let (flow, before) = (flows.remove(&connection.cookie), self.before.remove(&connection.cookie));
            let row = rows.entry(key(&connection.ends, connection.cookie)).or_default();
            row.name(by, &connection.ends, connection.cookie, watch, connection.mount);
            // A new connection: the kernel's counts so far belong to no interval.
            let before = before.unwrap_or_else(|| PreviousFigures::of(connection, None));
            row.add_flow(flow.as_ref(), before.flow.as_ref());
            row.add_connection(connection, &before);
            let now = PreviousFigures::of(connection, flow);
            match &now.flow {
                // The connection was closed after the connections were listed.
                Some(flow) if flow.closed != 0 => row.close(flow, &now),
                _ => drop(here.insert(connection.cookie, now)),
            }
        }
        for flow in flows.into_values() {
            let before = self.before.remove(&flow.cookie).unwrap_or_default();
            let row = rows.entry(key(&flow.ends, flow.cookie)).or_default();
            row.name(by, &flow.ends, flow.cookie, watch, flow.mount);
            row.add_flow(Some(&flow), before.flow.as_ref());
            row.close(&flow, &before);
            if flow.closed == 0 {
                // The connection was made after the connections were listed.
                here.insert(flow.cookie, PreviousFigures { flow: Some(flow), ..PreviousFigures::default() });
            }
        }
        self.before = here;
        Ok(rows.into_values().collect())
    }
}

impl PreviousFigures {
    fn of(connection: &TcpInfo, flow: Option<SendTimes>) -> Self {
        Self {
            flow,
            retransmits: connection.retransmits,
            busy_ms: connection.busy_ms,
            window_limited_ms: connection.window_limited_ms,
            buffer_limited_ms: connection.buffer_limited_ms,
            bytes_received: connection.bytes_received,
            bytes_acked: connection.bytes_acked,
        }
    }
}

impl NetRow {
    fn name(&mut self, by: NetRowsBy, ends: &Endpoints, cookie: u64, watch: &ProbeSet, mount: MountKey) {
        self.peer = Some(ends.peer);
        self.namespace = ends.namespace;
        self.connections += 1;
        if by == NetRowsBy::Flow {
            (self.local, self.cookie) = (Some(ends.local), cookie);
        }
        if mount != MountKey::NONE && self.mount.is_empty() {
            self.mount = watch.mount(mount).label().to_owned();
        }
    }

    fn add_flow(&mut self, flow: Option<&SendTimes>, before: Option<&SendTimes>) {
        let Some(flow) = flow else { return };
        let since = |now: u64, then: fn(&SendTimes) -> u64| now.saturating_sub(before.map_or(0, then));
        self.stamped += u64::from(!flow.measured);
        self.sends += since(flow.sends, |flow| flow.sends);
        self.sends_stamped += since(flow.stamped, |flow| flow.stamped);
        self.bytes += since(flow.bytes, |flow| flow.bytes);
        self.window_ns += since(flow.window_ns, |flow| flow.window_ns);
        self.pacing_ns += since(flow.pacing_ns, |flow| flow.pacing_ns);
        let none = Default::default();
        let earlier = before.map_or(&none, |flow| &flow.stages);
        for ((sum, now), then) in self.stages.iter_mut().zip(&flow.stages).zip(earlier) {
            sum.merge(&now.since(then));
        }
    }

    fn add_connection(&mut self, now: &TcpInfo, before: &PreviousFigures) {
        self.retransmits += u64::from(now.retransmits.saturating_sub(before.retransmits));
        self.busy_ms += u64::from(now.busy_ms.saturating_sub(before.busy_ms));
        self.window_limited_ms += u64::from(now.window_limited_ms.saturating_sub(before.window_limited_ms));
        self.buffer_limited_ms += u64::from(now.buffer_limited_ms.saturating_sub(before.buffer_limited_ms));
        self.bytes_received += now.bytes_received.saturating_sub(before.bytes_received);
        self.bytes_acked += now.bytes_acked.saturating_sub(before.bytes_acked);
        self.meet_rtt(now.srtt_us, now.min_rtt_us);
        self.unsent += u64::from(now.unsent);
        self.unacked += u64::from(now.unacked);
        self.unread += u64::from(now.unread);
        self.window = Some(self.window.map_or(now.window, |least| least.min(now.window)));
        self.congestion_window = self.congestion_window.into_iter().chain([now.congestion_window]).min();
        self.pacing_rate = [self.pacing_rate, now.pacing_rate].into_iter().flatten().min();
        self.arrived_ago_ms = [self.arrived_ago_ms, now.arrived_ago_ms].into_iter().flatten().min();
        self.sent_ago_ms = [self.sent_ago_ms, now.sent_ago_ms].into_iter().flatten().min();
    }

    fn close(&mut self, flow: &SendTimes, before: &PreviousFigures) {
        if flow.closed != 0 {
            self.closed += 1;
            self.retransmits += u64::from(flow.retransmits.saturating_sub(before.retransmits));
            self.meet_rtt(flow.last_rtt_us.0, flow.last_rtt_us.1);
        }
    }

    fn meet_rtt(&mut self, smoothed: u32, least: u32) {
        self.srtt_us = self.srtt_us.max(smoothed);
        // All ones: no sample yet.
        if least != u32::MAX && least != 0 && (self.min_rtt_us == 0 || least < self.min_rtt_us) {
            self.min_rtt_us = least;
        }
    }
}
