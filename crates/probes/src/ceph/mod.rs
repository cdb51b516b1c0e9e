//! Requests of the kernel's CephFS client to metadata servers and OSDs, one event per request, and waits for capabilities. The
//! two kinds of requests are seen in two modules, so there is an object for each.

mod operations;
mod status;

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::Path,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, OpenObject};
use model::{
    CephDaemon, CephRequest, CephState, Detail, Direction, Event, FileNames, Level, MountKey, Protocol, SendTiming,
};

use crate::{
    Alias, batches,
    columns::{COMM, DURATION, EventCell, EventColumn, FILE, PID, TIME},
    decode::text,
    generated::{event, probe_id},
    probe::Probe,
    spec::{RequiredModule, Rung, Spec},
};

/// All that fentry sees; `$got` sees waits for capabilities end.
macro_rules! fentry_with_waits {
    ($got:literal) => {
        Rung {
            via: FENTRY.via,
            required: &[
                "fentry_started",
                "fexit_submitted",
                "fexit_waited",
                "fentry_created",
                "fentry_unlinked",
                "fexit_tried",
                "fexit_only_tried",
                $got,
            ],
            optional: &["forget_ended"],
            without: WITHOUT_STATE,
        }
    };
}

/// The client is the module `ceph`, which uses `libceph`; RBD devices use `libceph`, too. `hooks` names the module that an object's hooks
/// are in. Without a CephFS, there is nothing to see in either module.
pub(crate) const fn client(hooks: &'static str) -> Option<RequiredModule> {
    Some(RequiredModule { name: "ceph", load: "mount a CephFS, or `modprobe ceph`", hooks: Some(hooks) })
}

pub(crate) static SPEC: Spec = Spec {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/ceph.bpf.o")),
    module: client("ceph"),
    rungs: &[
        fentry_with_waits!("fexit_got"),
        // 6.1 has no __ceph_get_caps.
        fentry_with_waits!("fexit_got_by_file"),
        FENTRY,
        Rung {
            via: "kprobe",
            required: &["kprobe_started", "kretprobe_submitted", "kprobe_waits", "kretprobe_waited"],
            optional: &["kprobe_created", "kprobe_unlinked", "forget_ended"],
            without: WITHOUT_CALLBACKS,
        },
    ],
    probe: || Box::new(CephProbe { codes: operations::of_mds, is_of_mds: true, daemons: None }),
    ..SHARED
};

pub(crate) static OSD: Spec = Spec {
    name: "ceph/osd",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/ceph_osd.bpf.o")),
    module: client("libceph"),
    rungs: &[
        Rung {
            via: "fentry",
            required: &["fentry_started", "fentry_sending", "fentry_ended"],
            optional: &["fentry_given_up", "forget_ended"],
            without: WITHOUT_GIVEN_UP,
        },
        Rung {
            via: "kprobe",
            required: &["kprobe_started", "kprobe_sending", "kprobe_ended"],
            optional: &["kprobe_given_up", "forget_ended"],
            without: WITHOUT_GIVEN_UP,
        },
    ],
    probe: || Box::new(CephProbe { codes: operations::of_osds, is_of_mds: false, daemons: None }),
    ..SHARED
};

/// What is lost without the optional programs of a rung.
const WITHOUT_CALLBACKS: &str = "the answers to creations and removals that nobody waits for";
const WITHOUT_GIVEN_UP: &str = "requests that were given up: they look as if they had been answered";
const WITHOUT_STATE: &str = "the state of the daemon of a request that hangs";

/// Without waits for capabilities, whose functions a compiler may have inlined.
const FENTRY: Rung = Rung {
    via: "fentry",
    required: &["fentry_started", "fexit_submitted", "fexit_waited"],
    optional: &["fentry_created", "fentry_unlinked", "forget_ended"],
    without: WITHOUT_CALLBACKS,
};

/// What both objects share.
const SHARED: Spec = Spec {
    name: PROTOCOL.name,
    protocol: &PROTOCOL,
    id: probe_id::PROBE_CEPH,
    inflight: &["inflight"],
    detail,
    columns: &[
        TIME,
        EventColumn::operation(16),
        DURATION,
        EventColumn::new("WIRE", -7, EventCell::Wire),
        EventColumn::new("DELIVER", -7, EventCell::Deliver),
        EventColumn::bytes(-9),
        EventColumn::new("STATUS", 12, EventCell::Status),
        EventColumn::new("DAEMON", 9, EventCell::Own(daemon)),
        PID,
        COMM,
        EventColumn::mount(24),
        FILE,
    ],
    line: |event, line| {
        if let Detail::Ceph(ceph) = &event.detail {
            line.asked_of = (ceph.daemon != CephDaemon::Unknown).then(|| ceph.daemon.to_string());
            line.peer = ceph.address.map(|address| address.to_string());
            line.transaction = (ceph.tid != 0).then_some(ceph.tid);
            line.object = ceph.object().map(|object| object.to_string());
            (line.resent, line.forwarded) = (Some(ceph.resent), Some(ceph.forwarded));
        }
    },
    aliases: &[Alias::of("ceph", 10.0)],
    ..Spec::BASE
};

/// Operations by what the client calls them: those of metadata servers, and of OSDs by what a request does first.
pub static PROTOCOL: Protocol = Protocol {
    name: "ceph",
    operations: &operations::NAMES,
    waits_by_design: &[operations::SETFILELOCK],
    level: Level::Request,
    filesystems: &["ceph"],
    direction: |name| match name {
        "OSD_READ" | "OSD_SPARSE_READ" => Some(Direction::Read),
        "OSD_WRITE" | "OSD_WRITEFULL" | "OSD_APPEND" => Some(Direction::Written),
        _ => None,
    },
    status_name: status::name,
    status_named: status::named,
    status_example: "EBLOCKLISTED",
    status_errno: |status| status,
    ordinary: status::ORDINARY,
    file_names: FileNames::Last,
    has_daemons: true,
    ..Protocol::BY_ERRNO
};

/// A metadata server, in `tree` of an event: DAEMON_MDS of daemon.h.
const MDS: u32 = 1 << 31;

fn daemon_of(number: u32) -> CephDaemon {
    match (number & !MDS).checked_sub(1) {
        None => CephDaemon::Unknown,
        Some(rank) if number & MDS != 0 => CephDaemon::Mds(rank),
        Some(id) => CephDaemon::Osd(id),
    }
}

fn number_of(daemon: CephDaemon) -> u32 {
    match daemon {
        CephDaemon::Unknown => 0,
        CephDaemon::Mds(rank) => MDS | (rank + 1),
        CephDaemon::Osd(id) => id + 1,
    }
}

fn detail(raw: &event) -> Detail {
    let name = text(&raw.file);
    let daemon = daemon_of(raw.tree);
    let inode = match daemon {
        CephDaemon::Osd(_) => inode_of_object(&name.to_string()),
        _ => raw.inode,
    };
    Detail::Ceph(CephRequest {
        tid: raw.message,
        daemon,
        address: None,
        resent: raw.resent,
        forwarded: raw.sequence,
        inode,
        name,
        state: state(raw.session),
    })
}

/// Objects of a file are called `INODE.NUMBER`, in hexadecimal; 0 for other names.
fn inode_of_object(name: &str) -> u64 {
    let is_number = |(_, number): &(&str, &str)| number.len() == 8 && u32::from_str_radix(number, 16).is_ok();
    let inode = name.split_once('.').filter(is_number).map(|(inode, _)| u64::from_str_radix(inode, 16));
    inode.and_then(Result::ok).unwrap_or(0)
}

/// Of a request in flight: STATE_* of daemon.h.
fn state(raw: u64) -> Option<CephState> {
    let has = |bit: u32| raw >> bit & 1 != 0;
    let [unacknowledged @ .., _, _, _, _] = raw.to_le_bytes();
    let [_, _, _, _, _, mds, _, _] = raw.to_le_bytes();
    has(32).then(|| CephState {
        unacknowledged_ms: u32::from_le_bytes(unacknowledged),
        connected: has(33),
        laggy: has(34),
        blocklisted: has(35),
        sent: has(36),
        mds: mds.cast_signed(),
    })
}

fn daemon(event: &Event) -> String {
    if let Detail::Ceph(ceph) = &event.detail { ceph.daemon.to_string() } else { String::new() }
}

struct CephProbe {
    /// The kernel's numbers of the operations, by their codes.
    codes: fn() -> Vec<u32>,
    /// Whether it is the object for metadata servers, which sees waits for capabilities.
    is_of_mds: bool,
    /// Where daemons are, while it is attached.
    daemons: Option<MapHandle>,
}

/// Bytes of `struct daemon_address`: an address, and the port in network byte order.
const ADDRESS: usize = 16;

impl CephProbe {
    /// Where the daemon is, as this object's requests to it have shown.
    fn address(&self, mount: MountKey, daemon: CephDaemon) -> Option<SocketAddr> {
        let number = number_of(daemon);
        // `struct daemon_key`
        let key = [&mount.0.to_ne_bytes()[..], &number.to_ne_bytes(), &[0; 4]].concat();
        socket_address(&self.daemons.as_ref()?.lookup(&key, MapFlags::ANY).ok()??)
    }
}

/// The address of a value of the map `daemons`.
fn socket_address(value: &[u8]) -> Option<SocketAddr> {
    let (address, rest) = value.split_first_chunk::<ADDRESS>()?;
    let port = rest.first_chunk().map(|port| u16::from_be_bytes(*port))?;
    Some(SocketAddr::new(Ipv6Addr::from(*address).to_canonical(), port))
}

impl Probe for CephProbe {
    /// Writes the numbers of the requests into the object's read-only data.
    fn prepare(&mut self, object: &mut OpenObject, _: &Rung) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            let is_of_codes = map.name().as_encoded_bytes().ends_with(b".codes");
            let Some(value) = map.initial_value_mut().filter(|_| is_of_codes) else { continue };
            value.chunks_exact_mut(size_of::<u32>()).zip((self.codes)()).for_each(|(slot, number)| {
                slot.copy_from_slice(&number.to_ne_bytes());
            });
        }
        Ok(())
    }

    fn unseen(&self, rung: &Rung) -> Option<&'static str> {
        (self.is_of_mds && !rung.required.contains(&"fexit_tried")).then_some("waits for capabilities")
    }

    fn attach(&mut self, object: &mut Object) -> libbpf_rs::Result<()> {
        let daemons = object.maps().find(|map| map.name() == "daemons");
        self.daemons = daemons.map(|map| MapHandle::try_from(&map)).transpose()?;
        Ok(())
    }

    fn detach(&mut self, _: &Object) {
        self.daemons = None;
    }

    /// Whether a thread that waited for capabilities is gone: requests are known by addresses, of which the highest bit is set.
    fn has_ended(&self, key: &[u8]) -> bool {
        let Some(key) = key.first_chunk().map(|key| u64::from_ne_bytes(*key)) else { return false };
        key >> 63 == 0 && !Path::new(&format!("/proc/{}/task/{}", key >> 32, key & 0xffff_ffff)).exists()
    }

    fn daemons(&self) -> Vec<(SocketAddr, MountKey)> {
        let mut found = Vec::new();
        let Some(daemons) = &self.daemons else { return found };
        let read = batches::each(daemons, |key, value| {
            let mount = key.first_chunk().map(|mount| MountKey(u64::from_ne_bytes(*mount)));
            found.extend(socket_address(value).zip(mount));
        });
        if let Err(error) = read {
            tracing::debug!(%error, "cannot read where Ceph's daemons are");
        }
        found
    }

    /// Adds where the daemon is; and of a request in flight, whether what was sent to it is acknowledged.
    fn complete(&self, event: &mut Event) {
        let Detail::Ceph(ceph) = &mut event.detail else { return };
        if ceph.address.is_none() {
            ceph.address = self.address(event.mount, ceph.daemon);
        }
        if let Some(state) = ceph.state.filter(|state| state.connected && state.sent) {
            event.send_timing = whether_acknowledged(state, event.duration);
        }
    }
}

/// Data that was sent a shorter time ago is not yet overdue: Linux's least retransmission timeout (TCP_RTO_MIN),
/// nanoseconds.
const PROMPT: u64 = 200_000_000;

fn whether_acknowledged(state: CephState, age: u64) -> Option<SendTiming> {
    let unacknowledged = (u64::from(state.unacknowledged_ms) * 1_000_000).min(age);
    // A shorter time is no sign of anything yet.
    let is_known = unacknowledged == 0 || unacknowledged >= PROMPT;
    is_known.then(|| SendTiming { unacknowledged, ..SendTiming::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_told_by_its_number() {
        let daemons =
            [CephDaemon::Unknown, CephDaemon::Mds(0), CephDaemon::Osd(0), CephDaemon::Mds(3), CephDaemon::Osd(512)];
        assert_eq!(daemons.map(number_of).map(daemon_of), daemons);
        assert_eq!(daemons.map(number_of), [0, 0x8000_0001, 1, 0x8000_0004, 513]);
    }

    #[test]
    fn the_name_of_an_object_has_its_files_inode() {
        assert_eq!(inode_of_object("10000000abc.0000000f"), 0x100_0000_0abc);
        assert_eq!(["rbd_data.1.00000000", "notes.txt", "abc", ""].map(inode_of_object), [0; 4]);
    }

    #[test]
    fn the_state_of_a_daemon_is_taken_from_its_bits() {
        assert_eq!(state(0), None);
        let of = |raw| state(raw).unwrap();
        assert_eq!(of(1 << 32), CephState::default());
        let active = of(0x0000_0d13_0000_04d2);
        assert_eq!(
            (active.mds, active.unacknowledged_ms, active.connected, active.sent, active.laggy),
            (13, 1234, true, true, false)
        );
        assert_eq!(of(0xff01_0000_0000).mds, -1);
    }

    #[test]
    fn what_was_sent_a_moment_ago_says_nothing_yet() {
        let acknowledged =
            |ms| whether_acknowledged(CephState { unacknowledged_ms: ms, ..CephState::default() }, 5_000_000_000);
        assert_eq!(acknowledged(0).map(|timing| timing.unacknowledged), Some(0));
        assert_eq!(acknowledged(20), None);
        assert_eq!(
            acknowledged(9_000).map(|timing| timing.unacknowledged),
            Some(5_000_000_000),
            "not longer than it has been in flight"
        );
    }
}
