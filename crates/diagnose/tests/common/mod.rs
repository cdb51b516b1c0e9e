//! Events as the probes would send them, for tests.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::expect_used, reason = "only tests use it")]

pub mod connections;
pub mod faults;

use std::time::Duration;

use model::{
    Caller, Detail, Direction, Event, Flags, Level, MountKey, Network, Operation, Phases, Protocol, Requester, Smb,
    Syscall, Verdict, text::Text,
};
use plumbline_diagnose::{latency::LatencyRule, long_term::LongTerm, rule::Subject};

pub const MS: u64 = 1_000_000;

/// A status by which the server asks to be asked again later.
pub const LATER: u32 = 7;

/// A status by which the server refuses what was sent before.
pub const REPEATED: u32 = 8;

pub static SMB: Protocol = Protocol {
    name: "smb",
    operations: &["", "SMB2_CREATE", "SMB2_CLOSE", "SMB2_READ", "SMB2_WRITE", "SMB2_CHANGE_NOTIFY"],
    waits_by_design: &[5],
    level: Level::Request,
    direction: |name| match name {
        "SMB2_READ" => Some(Direction::Read),
        "SMB2_WRITE" => Some(Direction::Written),
        _ => None,
    },
    later: &[LATER],
    repeated: &[REPEATED],
    ..Protocol::BY_ERRNO
};

pub static SYSCALLS: Protocol = Protocol { name: "syscalls", operations: &["read", "write"], ..Protocol::BY_ERRNO };

pub fn operation(name: &str) -> Operation {
    let protocol = if name.starts_with("SMB2_") { &SMB } else { &SYSCALLS };
    protocol.operation(name).expect("an operation of the test protocols")
}

/// An SMB command on connection 1; times in milliseconds, fractions allowed.
pub fn smb(name: &str, start: f64, [queue, wire, deliver]: [f64; 3]) -> Event {
    let ns = |ms: f64| (ms * MS as f64) as u64;
    let phases = Phases { queue: ns(queue), wire: ns(wire), deliver: ns(deliver) };
    Event {
        operation: operation(name),
        start: ns(start),
        duration: phases.queue + phases.wire + phases.deliver,
        phases,
        status: 0,
        errno: 0,
        bytes: 4096,
        mount: MountKey::source(b"//server/share"),
        requester: Requester { pid: 4242, tid: 4242, uid: 0, comm: Text::new(b"fio"), cgroup: 7 },
        connection: 1,
        network: Network { srtt_us: 300, rtt_us: 300, known: true, ..Network::default() },
        send_timing: None,
        progress: None,
        detail: Detail::Smb(Smb { session: 1, message: ns(start), tree: 1 }),
        caller: Caller::Unknown,
        flags: Flags::default(),
        weight: 1,
    }
}

/// A system call that took so many milliseconds.
pub fn syscall(name: &str, start: f64, duration: f64) -> Event {
    let base = smb("SMB2_READ", start, [0.0, duration, 0.0]);
    Event {
        operation: operation(name),
        phases: Phases::default(),
        connection: 0,
        detail: Detail::Syscall(Syscall::default()),
        network: Network::default(),
        ..base
    }
}

/// At least `count` at or over 20 ms, or one of a second; every SMB command but notifications.
pub fn rule(count: u32) -> LatencyRule {
    LatencyRule {
        subject: Subject { name: "latency".to_owned(), protocol: &SMB },
        thresholds: SMB
            .all_operations()
            .filter(|operation| !operation.waits_by_design())
            .map(|operation| (operation, Duration::from_millis(20)))
            .collect(),
        acceptable_count: count,
        ceiling: Duration::from_secs(1),
        normal_factor: 2.0,
    }
}

/// Judged where nothing is known of what is normal but what `around` says.
pub fn judge(kind: &str, events: &[Event], around: &[Event]) -> Verdict {
    plumbline_diagnose::judge(kind, events, around, &[], &LongTerm::default())
}

/// Likewise.
pub fn verdict(slow: &[Event], around: &[Event]) -> Verdict {
    plumbline_diagnose::verdict(slow, around, &LongTerm::default())
}
