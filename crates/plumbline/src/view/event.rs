//! The one form of an event in JSON and CSV: the lines of `trace`, `events.jsonl` and `recorder.jsonl`.

use model::{Caller, Event, Flags, Mount, Operation};
use serde::Serialize;

use super::clock::Clock;

/// An event as other programs read it. Field names are stable; times are milliseconds.
#[derive(Debug, Default, Serialize)]
pub struct EventLine<'a> {
    /// When it was asked for, UTC.
    pub time: String,
    /// The probe.
    pub probe: &'static str,
    /// The operation.
    pub operation: &'static str,
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
    pub mountpoint: &'a str,
    /// What is mounted.
    pub source: &'a str,
    /// The server.
    pub server: &'a str,
    /// The file system's type.
    pub fstype: &'a str,
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
    pub caller: Option<&'static str>,
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

impl<'a> EventLine<'a> {
    /// The line of an event on a mount.
    pub fn new(event: &Event, mount: &'a Mount, clock: &Clock) -> Self {
        let phases = event.phases.known().then_some(event.phases);
        let network = event.network.known.then_some(event.network);
        let transit = event.transit;
        let (link, is_nfs) = (event.link, event.operation.protocol().name == "nfs");
        let in_session = is_nfs && link.session != 0;
        let of_connections = event.operation.protocol().name == probes::connections::PROTOCOL.name;
        let of_mpiio = event.operation.protocol().name == probes::mpiio::PROTOCOL.name;
        let of_cephproxy = event.operation.protocol().name == probes::cephproxy::PROTOCOL.name;
        let of_vfs = event.operation.protocol().name == probes::vfs::PROTOCOL.name;
        Self {
            time: clock.iso(event.start),
            probe: event.operation.protocol().name,
            operation: event.operation.name(),
            duration_ms: milliseconds(event.duration),
            queue_ms: phases.map(|phases| milliseconds(phases.queue)),
            wire_ms: phases.map(|phases| milliseconds(phases.wire)),
            deliver_ms: phases.map(|phases| milliseconds(phases.deliver)),
            status: status_of(event.operation, event.status, event.flags),
            errno: errno_name(event.errno),
            bytes: event.bytes,
            bytes_known: of_mpiio.then_some(!event.flags.bytes_unknown),
            mountpoint: &mount.mountpoint,
            source: &mount.source,
            server: &mount.server,
            fstype: &mount.fstype,
            pid: event.requester.pid,
            tid: event.requester.tid,
            uid: event.requester.uid,
            comm: event.requester.comm.to_string(),
            cgroup: event.requester.cgroup,
            file: if of_connections { String::new() } else { event.file.to_string() },
            peer: of_connections.then(|| event.file.to_string()),
            inode: event.inode,
            offset: of_vfs.then_some(event.offset),
            asked: (of_vfs || of_mpiio || of_cephproxy).then_some(event.asked),
            request: of_vfs.then_some(event.request),
            rank: event.requester.rank,
            collective: of_mpiio.then(|| probes::mpiio::is_collective(event.operation)),
            session: link.session,
            mid: if is_nfs { 0 } else { link.message },
            tree: if is_nfs { 0 } else { link.tree },
            xid: is_nfs.then_some(link.message),
            slot: in_session.then_some(link.tree),
            sequence: in_session.then_some(link.sequence),
            resent: (is_nfs || of_connections).then_some(link.resent),
            connection: link.connection,
            caller: caller_of(event),
            compound: event.flags.compound,
            asynchronous: event.flags.asynchronous,
            unanswered: event.flags.unanswered,
            failed: event.flags.failed,
            in_flight: event.flags.in_flight,
            srtt_ms: network.filter(|n| n.srtt_us > 0).map(|n| f64::from(n.srtt_us) / 1e3),
            rtt_ms: network.filter(|n| n.rtt_us > 0).map(|n| f64::from(n.rtt_us) / 1e3),
            retransmits: network.map(|n| n.retransmits),
            sends: transit.map(|t| t.sends),
            sends_local_ms: transit.map(|t| milliseconds(t.local)),
            sends_held_ms: transit.map(|t| milliseconds(t.held)),
            ack_least_ms: transit.map(|t| milliseconds(t.least)),
            ack_most_ms: transit.map(|t| milliseconds(t.most)),
            sends_retransmitted: transit.map(|t| t.retransmitted),
            weight: event.weight,
        }
    }
}

/// What stands above it. What a thread of the kernel writes is written back, what it reads is read ahead.
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

/// The protocol's status by name.
pub fn status_of(operation: Operation, status: u32, flags: Flags) -> Option<String> {
    if flags.in_flight {
        return None;
    }
    if flags.unanswered {
        return Some("NO_ANSWER".into());
    }
    let name = (operation.protocol().status_name)(status);
    // Not everything ends with a status.
    if name.is_none() && status == 0 {
        return None;
    }
    Some(name.map_or_else(|| format!("{status:#010x}"), str::to_owned))
}

/// The error by name.
pub fn errno_name(errno: u32) -> Option<String> {
    let number = i32::try_from(errno).ok().filter(|number| *number != 0)?;
    match nix::errno::Errno::from_raw(number) {
        nix::errno::Errno::UnknownErrno => Some(number.to_string()),
        errno => Some(format!("{errno:?}")),
    }
}
