//! Events of connections, as the probe would send them, for tests.

use model::{
    Connection, Detail, Event, Level, Network, Operation, Protocol, RESET_REFUSED, RESET_WITH_ACK, Verdict, text::Text,
};

use super::{MS, judge, smb};

pub static CONNECTIONS: Protocol = Protocol {
    name: "connections",
    operations: &[
        "CONNECTION_LOST",
        "RECONNECT",
        "SESSION_LOST",
        "RPC_TIMEOUT",
        "TCP_RESET",
        "TCP_RETRANSMIT",
        "TCP_NO_ANSWER",
        "TCP_ZERO_WINDOW",
        "SLOT_STARVATION",
        "TCP_NOT_SENT",
        "TCP_DROPPED",
        "TCP_DAMAGED",
        "TCP_REROUTED",
        "TCP_HELD",
        "TCP_UNREACHABLE",
        "NEIGHBOUR_CHANGED",
        "INTERFACE_DROPPED",
        "TCP_CONNECTED",
        "TCP_RESET_SENT",
    ],
    level: Level::Connection,
    status_name: |status| match status {
        FILTER => Some("FILTER"),
        ROUTE => Some("ROUTE"),
        RECEIVED => Some("RECEIVED"),
        WITH_ACK => Some(RESET_WITH_ACK),
        REFUSED => Some(RESET_REFUSED),
        HOST_UNREACHABLE => Some("HOST_UNREACHABLE"),
        ADMIN_PROHIBITED => Some("ADMIN_PROHIBITED"),
        SERVER_PROHIBITED => Some("SERVER_ADMIN_PROHIBITED"),
        OWN_UNREACHABLE => Some("OWN_HOST_UNREACHABLE"),
        ADMIN => Some("ADMIN"),
        LEARNED => Some("LEARNED"),
        OWN_PROHIBITED => Some("OWN_ADMIN_PROHIBITED"),
        112..=116 => INTERFACE_DROPS.get(status as usize - 112).copied(),
        _ => None,
    },
    ..Protocol::BY_ERRNO
};

pub const FILTER: u32 = 33;
pub const ROUTE: u32 = 36;
pub const RECEIVED: u32 = 32;
pub const WITH_ACK: u32 = 49;
pub const REFUSED: u32 = 50;
pub const HOST_UNREACHABLE: u32 = 65;
pub const ADMIN_PROHIBITED: u32 = 68;
pub const SERVER_PROHIBITED: u32 = 74;
pub const OWN_UNREACHABLE: u32 = 77;
pub const OWN_PROHIBITED: u32 = 80;
pub const ADMIN: u32 = 96;
pub const LEARNED: u32 = 97;

/// The statuses of drops of an interface, from 112 on.
pub const INTERFACE_DROPS: [&str; 5] = ["RX_DROPPED", "RX_LENGTH", "RX_CRC", "TX_DROPPED", "TX_CARRIER"];

/// So many packets that eth0 dropped in the second before this moment; milliseconds.
pub fn interface_dropped(status: &str, looked_ms: u32, packets: u32) -> Event {
    let place = INTERFACE_DROPS.iter().position(|name| *name == status).expect("a status of an interface's drops");
    let peer = Text::new(b"10.0.0.1:445 through eth0");
    Event {
        status: 112 + place as u32,
        weight: packets,
        detail: Detail::Connection(Connection { peer, times: packets, ..Connection::default() }),
        ..happening("INTERFACE_DROPPED", f64::from(looked_ms) - 1000.0, 1000)
    }
}

pub fn kind(name: &str) -> Operation {
    CONNECTIONS.operation(name).expect("an operation of the test protocol")
}

pub fn happening(name: &str, at_ms: f64, lasted_ms: u64) -> Event {
    let event = smb("SMB2_READ", at_ms, [0.0; 3]);
    Event {
        operation: kind(name),
        duration: lasted_ms * MS,
        detail: Detail::Connection(Connection { times: 3, ..Connection::default() }),
        ..event
    }
}

/// A segment that arrived with this time to live, from a server that accepted the connection with this one (0: not known).
pub fn arrived(name: &str, at_ms: f64, ttl: u8, server_ttl: u8) -> Event {
    let peer = Text::new(format!("10.0.0.1:445 from port {}", 50000.0 + at_ms).as_bytes());
    let detail = Detail::Connection(Connection { peer, ttl, server_ttl, ..Connection::default() });
    Event { detail, ..happening(name, at_ms, 0) }
}

/// Reads of 1 ms in the first second, and then ten of 300 ms.
pub fn reads() -> (Vec<Event>, Vec<Event>) {
    let fast: Vec<_> = (0..20).map(|n| smb("SMB2_READ", 50.0 * f64::from(n), [0.0, 1.0, 0.0])).collect();
    let slow = (0..10).map(|n| smb("SMB2_READ", 1100.0 + 30.0 * f64::from(n), [0.0, 300.0, 0.0])).collect();
    (fast, slow)
}

/// A segment that was held for so long, and left at this moment; milliseconds.
pub fn held(left_ms: u32, held_ms: u32) -> Event {
    happening("TCP_HELD", f64::from(left_ms - held_ms), u64::from(held_ms))
}

/// Reads every 10 ms, whose answers lag by so many milliseconds.
pub fn answers(from_ms: u32, count: u32, lag: u16) -> Vec<Event> {
    let read = |n: u32| {
        let event = smb("SMB2_READ", f64::from(from_ms + 10 * n), [0.0, 1.0, 0.0]);
        Event { network: Network { arrival_ms: lag, ..event.network }, ..event }
    };
    (0..count).map(read).collect()
}

/// Segments sent in vain, four in a row.
pub fn unanswered() -> Vec<Event> {
    (0..4).map(|n| happening("TCP_NO_ANSWER", 1000.0 + 200.0 * f64::from(n), 0)).collect()
}

pub fn verdict(events: &[Event], around: &[Event]) -> Verdict {
    judge("connection", events, around)
}
