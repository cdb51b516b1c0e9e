//! From an event to its line in JSON and CSV.

use std::borrow::Cow;

use model::{Caller, Event, EventLine, Flags, Mount, Operation, errno_name};

use super::clock::Clock;
use crate::who::Cgroup;

/// The line of an event on a mount; `who` is the requester's cgroup.
pub fn line<'a>(event: &Event, mount: &'a Mount, who: &'a Cgroup, clock: &Clock) -> EventLine<'a> {
    named(of_event(event, clock), mount, who, Cow::Borrowed)
}

/// As [`line`], borrowing nothing.
pub fn owned_line(event: &Event, mount: &Mount, who: &Cgroup, clock: &Clock) -> EventLine<'static> {
    named(of_event(event, clock), mount, who, |name| Cow::Owned(name.to_owned()))
}

/// Adds the names of its mount and of its requester's cgroup to a line.
fn named<'a, 'l>(
    line: EventLine<'l>,
    mount: &'a Mount,
    who: &'a Cgroup,
    text: fn(&'a str) -> Cow<'l, str>,
) -> EventLine<'l> {
    let known = |name: &'a str| (!name.is_empty()).then(|| text(name));
    EventLine {
        mountpoint: text(&mount.mountpoint),
        source: text(&mount.source),
        server: text(&mount.server),
        fstype: text(&mount.fstype),
        container: known(&who.container),
        job: known(&who.job),
        namespace: known(&who.names.namespace),
        pod: known(&who.names.pod),
        container_name: known(&who.names.container_name),
        workload: known(&who.names.workload),
        pv: known(&mount.pv),
        pvc: mount.claim(&who.names.namespace).map(text),
        ..line
    }
}

/// The fields that come from the event itself.
fn of_event(event: &Event, clock: &Clock) -> EventLine<'static> {
    let phases = event.phases.known().then_some(event.phases);
    let network = event.network.known.then_some(event.network);
    let closely = network.filter(|network| network.min_rtt_us > 0);
    let timing = event.stamped();
    let progress = event.progress.as_deref();
    let (socket, requester) = (progress.and_then(|p| p.socket), progress.and_then(|p| p.requester));
    EventLine {
        time: clock.iso(event.start),
        probe: event.operation.protocol().name.into(),
        operation: event.operation.name().into(),
        duration_ms: milliseconds(event.duration),
        queue_ms: phases.map(|phases| milliseconds(phases.queue)),
        wire_ms: phases.map(|phases| milliseconds(phases.wire)),
        deliver_ms: phases.map(|phases| milliseconds(phases.deliver)),
        status: status_of(event.operation, event.status, event.flags),
        errno: errno_name(event.errno),
        bytes: event.bytes,
        pid: event.requester.pid,
        tid: event.requester.tid,
        uid: event.requester.uid,
        comm: event.requester.comm.to_string(),
        cgroup: event.requester.cgroup,
        connection: event.connection,
        caller: caller_of(event).map(Cow::Borrowed),
        compound: event.flags.compound,
        asynchronous: event.flags.asynchronous,
        unanswered: event.flags.unanswered,
        failed: event.flags.failed,
        in_flight: event.flags.in_flight,
        srtt_ms: network.filter(|n| n.srtt_us > 0).map(|n| f64::from(n.srtt_us) / 1e3),
        rtt_ms: network.filter(|n| n.rtt_us > 0).map(|n| f64::from(n.rtt_us) / 1e3),
        retransmits: network.map(|n| n.retransmits),
        min_rtt_ms: closely.map(|n| f64::from(n.min_rtt_us) / 1e3),
        unread_ms: closely.map(|n| f64::from(n.unread_us) / 1e3),
        out_of_order: closely.map(|n| n.out_of_order),
        own_queue: closely.map(|n| n.own_queue),
        segments_sacked: closely.map(|n| n.sacked).filter(|segments| *segments > 0),
        segments_out: socket.map(|s| s.segments_out),
        segments_in: socket.map(|s| s.segments_in),
        segments_acked: socket.map(|s| s.delivered),
        timeouts: socket.map(|s| s.timeouts),
        needless_retransmits: socket.map(|s| s.needless),
        busy_ms: socket.map(|s| s.busy_ms),
        window_limited_ms: socket.map(|s| s.window_ms),
        buffer_limited_ms: socket.map(|s| s.buffer_ms),
        pacing_rate: socket.map(|s| s.pacing_rate),
        delivery_rate: socket.map(|s| s.delivery_rate),
        own_window: socket.map(|s| s.own_window),
        mss: socket.map(|s| s.mss).filter(|mss| *mss > 0),
        route_mtu: socket.map(|s| s.route_mtu).filter(|mtu| *mtu > 0),
        requester_cpu_wait_ms: requester.map(|r| f64::from(r.cpu.waited_us) / 1e3),
        cpu_wait_ms: requester.and_then(|r| r.during_us).map(|us| f64::from(us) / 1e3),
        receiver_cpu_wait_ms: progress.and_then(|p| p.receiver).map(|r| f64::from(r.waited_us) / 1e3),
        cpu_pressure_ms: requester.map(|r| r.cpu_pressure_ms),
        memory_pressure_ms: requester.map(|r| r.memory_pressure_ms),
        sends: timing.map(|t| t.sends),
        sends_local_ms: timing.map(|t| milliseconds(t.local)),
        sends_held_ms: timing.map(|t| milliseconds(t.held)),
        ack_least_ms: timing.map(|t| milliseconds(t.least)),
        ack_most_ms: timing.map(|t| milliseconds(t.most)),
        sends_retransmitted: timing.map(|t| t.retransmitted),
        weight: event.weight,
        ..own(event)
    }
}

/// The fields that only events of this protocol have.
fn own(event: &Event) -> EventLine<'static> {
    let mut line = EventLine::default();
    if let Some(file) = event.detail.file() {
        (line.inode, line.file) = (file.inode, file.name.to_string());
    }
    probes::fill_line(event, &mut line);
    line
}

/// The caller of an operation. Writes of a kernel thread are writeback, its reads are readahead.
pub fn caller_of(event: &Event) -> Option<&'static str> {
    let operation = event.operation.name();
    match event.caller {
        Caller::Unknown => None,
        Caller::Call(name) => Some(name),
        Caller::PageFault => Some("page_fault"),
        Caller::Kernel if operation.ends_with("WRITE") => Some("writeback"),
        Caller::Kernel if operation.ends_with("READ") => Some("readahead"),
        Caller::Kernel => Some("kernel"),
    }
}

/// Nanoseconds as milliseconds, to the microsecond.
pub fn milliseconds(ns: u64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

/// Nanoseconds as milliseconds in a column of numbers: three significant digits, and none below the microsecond.
pub fn ms(ns: u64) -> String {
    let value = ns as f64 / 1e6;
    // From these limits on, rounding gives another digit.
    let decimals = match value {
        ..0.9995 => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// A duration in milliseconds as text; `-` if it is not known.
pub fn known_ms(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".into(), ms)
}

/// The protocol's status by name.
pub fn status_of(operation: Operation, status: u32, flags: Flags) -> Option<String> {
    if flags.in_flight {
        return None;
    }
    if flags.unanswered {
        return Some("NO_ANSWER".into());
    }
    let name = (operation.protocol().status_name)(status);
    // Some operations have no status.
    if name.is_none() && status == 0 {
        return None;
    }
    Some(name.map_or_else(|| format!("{status:#010x}"), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_in_a_table_have_three_digits_that_mean_something() {
        let shown =
            [0, 432, 43_210, 999_499, 999_500, 9_994_999, 9_995_000, 43_210_000, 99_950_000, 12_345_678_000].map(ms);
        assert_eq!(shown, ["0.000", "0.000", "0.043", "0.999", "1.00", "9.99", "10.0", "43.2", "100", "12346"]);
    }
}
