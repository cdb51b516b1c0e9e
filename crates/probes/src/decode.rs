//! Decodes the kernel side's bytes to the model's types. Invalid bytes are refused.

use model::{
    Caller, CpuWait, Event, Flags, Histogram, MountKey, Nanos, Network, Operation, Phases, Progress, Requester,
    RequesterWaits, SendTiming, SocketTotals, text::Text,
};
use syscalls::Sysno;

use crate::{
    generated::{Plain, caller, event, event_flags, flight, histogram, network, progress, record, transit},
    spec::Spec,
};

/// The event in these bytes; `None` if they are too few or name an operation that no probe has.
pub fn decode_event(bytes: &[u8]) -> Option<Event> {
    let raw = event::from_bytes(bytes)?;
    let (spec, operation) = known(raw.probe, raw.operation)?;
    let flags = flags(raw.flags);
    Some(Event {
        operation,
        start: raw.start,
        duration: raw.duration,
        phases: Phases { queue: raw.queue, wire: raw.wire, deliver: raw.deliver },
        status: raw.status,
        errno: errno(operation, raw.status, raw.error, flags),
        bytes: raw.bytes,
        mount: MountKey(raw.mount),
        requester: Requester { pid: raw.pid, tid: raw.tid, uid: raw.uid, comm: text(&raw.comm), cgroup: raw.cgroup },
        connection: raw.connection,
        network: network(&raw.network, raw.flags),
        send_timing: transit(&raw.transit),
        progress: progress(&raw.progress).map(Box::new),
        detail: (spec.detail)(&raw),
        caller: caller_of(raw.caller),
        flags,
        weight: raw.weight.max(1),
    })
}

/// The event of a flight record: no names, and microseconds where an event has nanoseconds.
pub(crate) fn decode_record(bytes: &[u8]) -> Option<Event> {
    let raw = record::from_bytes(bytes).filter(|raw| raw.end != 0)?;
    let duration = nanoseconds(raw.duration_us);
    let (spec, operation) = known(raw.probe, raw.operation)?;
    let flags = flags(raw.flags);
    let known = raw.queue_us > 0 || raw.wire_us > 0;
    let deliver_us = if known { raw.duration_us.saturating_sub(raw.queue_us).saturating_sub(raw.wire_us) } else { 0 };
    let mut event = Event {
        operation,
        start: raw.end.saturating_sub(duration),
        duration,
        phases: Phases {
            queue: nanoseconds(raw.queue_us),
            wire: nanoseconds(raw.wire_us),
            deliver: nanoseconds(deliver_us),
        },
        status: raw.status,
        errno: errno(operation, raw.status, raw.error.into(), flags),
        bytes: raw.bytes.into(),
        mount: MountKey(raw.mount),
        requester: Requester { pid: raw.pid, tid: raw.tid, ..Requester::default() },
        connection: raw.connection.into(),
        network: Network {
            rtt_us: raw.rtt_us,
            retransmits: raw.retransmits,
            arrival_ms: raw.arrival_ms,
            known: has(raw.flags, event_flags::EVENT_NETWORK_KNOWN),
            ..Network::default()
        },
        send_timing: None,
        progress: None,
        detail: (spec.detail)(&event::default()),
        caller: if has(raw.flags, event_flags::EVENT_BY_KERNEL) { Caller::Kernel } else { Caller::Unknown },
        flags,
        weight: 1,
    };
    (spec.recorded)(&raw, &mut event);
    Some(event)
}

/// The operation of an in-flight map's entry, as it stands at `now`; `None` if the operation has finished, or the kernel
/// side is still filling in the entry.
pub(crate) fn decode_flight(bytes: &[u8], now: Nanos) -> Option<Event> {
    let raw = flight::from_bytes(bytes).filter(|raw| raw.start > 1)?;
    let (spec, operation) = known(raw.probe, raw.operation)?;
    let named = event { session: raw.session, message: raw.message, tree: raw.tree, ..event::default() };
    Some(Event {
        operation,
        start: raw.start,
        duration: now.saturating_sub(raw.start),
        phases: Phases::default(),
        status: 0,
        errno: 0,
        bytes: 0,
        mount: MountKey(raw.mount),
        requester: Requester { pid: raw.pid, tid: raw.tid, ..Requester::default() },
        connection: raw.connection,
        network: Network::default(),
        send_timing: None,
        progress: None,
        detail: (spec.detail)(&named),
        caller: caller_of(raw.caller),
        flags: Flags { in_flight: true, ..flags(raw.flags) },
        weight: 1,
    })
}

/// The call that is pending, as it stands at `now`.
pub(crate) fn decode_pending(raw: &event, now: Nanos) -> Option<Event> {
    let event = decode_event(raw.as_bytes())?;
    let flags = Flags { in_flight: true, ..event.flags };
    Some(Event { duration: now.saturating_sub(event.start), flags, ..event })
}

fn network(raw: &network, flags: u8) -> Network {
    Network {
        srtt_us: raw.srtt_us,
        rtt_us: raw.rtt_us,
        retransmits: raw.retransmits,
        arrival_ms: raw.arrival_ms,
        min_rtt_us: raw.min_rtt_us,
        unread_us: raw.unread_us,
        out_of_order: raw.out_of_order,
        segments: raw.segments,
        own_queue: raw.own_queue,
        sacked: raw.sacked,
        known: has(flags, event_flags::EVENT_NETWORK_KNOWN),
    }
}

/// `None` where nothing was read.
fn progress(raw: &progress) -> Option<Progress> {
    let socket = (raw.segments_out > 0).then_some(SocketTotals {
        segments_out: raw.segments_out,
        segments_in: raw.segments_in,
        delivered: raw.delivered,
        timeouts: raw.timeouts,
        needless: raw.needless,
        busy_ms: raw.busy_ms,
        window_ms: raw.window_ms,
        buffer_ms: raw.buffer_ms,
        pacing_rate: raw.pacing_rate,
        delivery_rate: raw.delivery_rate,
        application_limited: raw.application_limited != 0,
        own_window: raw.own_window,
        mss: raw.mss,
        route_mtu: raw.route_mtu,
        port: raw.port,
        by_loopback: raw.by_loopback != 0,
    });
    let wait = |tid, waited_us| (tid > 0).then_some(CpuWait { tid, waited_us });
    let requester = wait(raw.requester, raw.requester_us).map(|cpu| RequesterWaits {
        cpu,
        during_us: (raw.requester_began_us > 0).then(|| raw.requester_us.wrapping_sub(raw.requester_began_us)),
        cpu_pressure_ms: raw.cpu_pressure_ms,
        memory_pressure_ms: raw.memory_pressure_ms,
    });
    let all = Progress { socket, requester, receiver: wait(raw.receiver, raw.receiver_us) };
    (all != Progress::default()).then_some(all)
}

/// `None` where nothing was stamped.
fn transit(raw: &transit) -> Option<SendTiming> {
    (raw.sends > 0).then(|| SendTiming {
        sends: raw.sends,
        local: nanoseconds(raw.local_us),
        held: nanoseconds(raw.held_us),
        least: nanoseconds(raw.least_us),
        most: nanoseconds(raw.most_us),
        retransmitted: raw.retransmitted,
        unacknowledged: 0,
        gap: false,
    })
}

/// The layers above the operation.
fn caller_of(raw: u32) -> Caller {
    match caller(raw) {
        caller::CALLER_UNKNOWN => Caller::Unknown,
        caller::CALLER_KERNEL => Caller::Kernel,
        caller::CALLER_PAGE_FAULT => Caller::PageFault,
        caller(number) => {
            let name = usize::try_from(number - 1).ok().and_then(Sysno::new).map(|call| call.name());
            name.map_or(Caller::Unknown, Caller::Call)
        }
    }
}

/// The errno from the kernel side; if it has none, the errno that corresponds to the status.
fn errno(operation: Operation, status: u32, errno: u32, flags: Flags) -> u32 {
    if errno != 0 || !flags.failed || flags.unanswered {
        return errno;
    }
    (operation.protocol().status_errno)(status)
}

/// The histogram in these bytes.
pub(crate) fn decode_histogram(bytes: &[u8]) -> Option<Histogram> {
    let histogram { count, sum, bytes, errors, buckets, sizes } = histogram::from_bytes(bytes)?;
    Some(Histogram { count, sum, bytes, errors, buckets, sizes })
}

/// The operation that a probe's id and an operation's code mean.
pub(crate) fn operation(probe: u8, code: u16) -> Option<Operation> {
    known(probe, code).map(|(_, operation)| operation)
}

/// The operation of a probe's number and code, with the probe's spec.
fn known(probe: u8, code: u16) -> Option<(&'static Spec, Operation)> {
    let spec = crate::specs().find(|spec| spec.id.0 == u32::from(probe))?;
    Some((spec, spec.protocol.operation_by_code(code)?))
}

/// A name as an event has it.
pub(crate) fn text<const N: usize>(raw: &[i8; N]) -> Text<N> {
    Text::new(&raw.map(i8::cast_unsigned))
}

fn nanoseconds(us: u32) -> u64 {
    u64::from(us) * 1000
}

fn has(flags: u8, flag: event_flags) -> bool {
    u32::from(flags) & flag.0 != 0
}

fn flags(raw: u8) -> Flags {
    Flags {
        compound: has(raw, event_flags::EVENT_COMPOUND),
        asynchronous: has(raw, event_flags::EVENT_ASYNCHRONOUS),
        unanswered: has(raw, event_flags::EVENT_UNANSWERED),
        in_flight: false,
        failed: has(raw, event_flags::EVENT_FAILED),
        passed_on: false,
        bytes_unknown: has(raw, event_flags::EVENT_BYTES_UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use model::{Connection, Detail, Smb};

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_break_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode_event(&bytes);
            let _ = decode_record(&bytes);
            let _ = decode_flight(&bytes, 0);
        }
    }

    #[test]
    fn an_entry_that_is_free_or_only_being_filled_in_is_no_operation() {
        let is_one = |start| decode_flight(flight { start, probe: 1, ..flight::default() }.as_bytes(), 10).is_some();
        assert_eq!([0, 1, 2].map(is_one), [false, false, true]);
    }

    #[test]
    fn a_hostile_name_arrives_as_the_kernel_had_it_and_prints_safely() {
        let mut raw = event { probe: 1, operation: 9, ..event::default() };
        raw.comm[..4].copy_from_slice(&[b'a', b'\n', 0x1b, 0xff].map(u8::cast_signed));
        let event = decode_event(raw.as_bytes()).unwrap();
        assert_eq!(event.operation.name(), "SMB2_WRITE");
        assert_eq!(event.requester.comm.to_string(), "a\\x0a\\x1b\\xff");
    }

    #[test]
    fn one_place_in_the_bytes_is_what_the_protocol_has_there() {
        let detail = |probe, operation| {
            let mut raw = event { probe, operation, tree: 3, message: 4, inode: 5, resent: 6, ..event::default() };
            raw.file[..1].copy_from_slice(&[b'p'.cast_signed()]);
            decode_event(raw.as_bytes()).unwrap().detail
        };
        assert_eq!(detail(1, 9), Detail::Smb(Smb { session: 0, message: 4, tree: 3 }));
        assert!(matches!(detail(3, 1), Detail::Nfs(nfs) if (nfs.xid, nfs.slot, nfs.resent, nfs.inode) == (4, 3, 6, 5)));
        assert_eq!(
            detail(5, 0),
            Detail::Connection(Connection { peer: Text::new(b"p"), times: 6, ttl: 0, server_ttl: 3 })
        );
        assert!(detail(5, 0).file().is_none() && detail(4, 0).file().is_some());
    }

    #[test]
    fn an_operation_that_no_probe_has_is_refused() {
        let raw = event { probe: 1, operation: 63, ..event::default() };
        assert_eq!(decode_event(raw.as_bytes()), None);
        assert_eq!(decode_event(&raw.as_bytes()[1..]), None);
    }
}
