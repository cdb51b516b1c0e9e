//! Events of the connections with servers of mounts: connections lost and set up again, sessions and leases lost, calls
//! that time out, resets, retransmissions. They are the operations of one protocol. Each place in the kernel where they
//! are observed has an object of its own, since each needs another kernel module.

mod above;
mod counters;
mod interfaces;

use std::{collections::HashMap, net::IpAddr, os::unix::fs::MetadataExt};

use interfaces::DropsProbe;
use libbpf_rs::{MapCore, MapFlags, Object};
use model::{Connection, Detail, Event, Level, MountKey, Protocol};

use crate::{
    Alias, ceph,
    columns::{DURATION, EventCell, EventColumn, PID, TIME},
    decode::text,
    generated::{event, probe_id, record},
    mounts::{MountPoint, Mounts},
    probe::Probe,
    spec::{RequiredModule, Rung, Spec},
    tcp,
};

/// The place of `INTERFACE_DROPPED` in the next.
const INTERFACE_DROPPED: u16 = 21;

/// The events, in the order of `enum happening` in connections.h.
pub static PROTOCOL: Protocol = Protocol {
    name: "connections",
    operations: &[
        "CONNECTION_LOST",
        "RECONNECT",
        "SESSION_LOST",
        "LEASE_LOST",
        "LEASE_BREAK_TIMEOUT",
        "CREDIT_STARVATION",
        "SLOT_STARVATION",
        "RPC_TIMEOUT",
        "RPC_RETRANSMIT",
        "TCP_RESET",
        "TCP_RESET_SENT",
        "TCP_RETRANSMIT",
        "TCP_NO_ANSWER",
        "TCP_ZERO_WINDOW",
        "TCP_NOT_SENT",
        "TCP_DROPPED",
        "TCP_DAMAGED",
        "TCP_REROUTED",
        "TCP_HELD",
        "TCP_UNREACHABLE",
        "NEIGHBOUR_CHANGED",
        "INTERFACE_DROPPED",
        "TCP_CONNECTED",
    ],
    // No rule counts these unless it names them, since they also happen on a healthy host. A client may reset a
    // connection that it no longer needs, a queueing discipline or an interface may drop or hold packets, and routes change. An ICMP error
    // is only a hint (RFC 1122 4.2.3.9).
    only_by_name: &[10, 15, 16, 17, 18, 19, 20, INTERFACE_DROPPED, 22],
    level: Level::Connection,
    // The status is the socket's state when a loss was noticed, the reason for which a segment was dropped, the direction
    // of a segment that was held, the flags of a reset, why a segment did not get through, and who said so, who changed a
    // neighbour, or which counter of an interface rose.
    status_name: |status| tcp::state_name(status).or_else(|| fate(status)),
    ..Protocol::BY_ERRNO
};

/// The status of a segment that was held when it was received: HELD_RECEIVED of received.h.
const HELD_RECEIVED: u32 = 32;
/// The status of the first of [`DROP_REASONS`]: DROP_STATUS of conn_drops.bpf.c plus 1.
const FIRST_DROP_REASON: u32 = 33;
/// Why this host dropped a segment, in the order of `enum drop` of conn_drops.bpf.c.
const DROP_REASONS: [&str; 9] =
    ["FILTER", "TRAFFIC_CONTROL", "QUEUE", "ROUTE", "REVERSE_PATH", "BACKLOG", "MEMORY", "POLICY", "CHECKSUM"];

/// The status of the first of [`RESETS`]: RESET_STATUS of conn_tcp.bpf.c.
const FIRST_RESET: u32 = 48;
/// The flags of a reset.
const RESETS: [&str; 3] = ["RST", model::RESET_WITH_ACK, model::RESET_REFUSED];

/// The status of the first of [`UNREACHABLE`]: UNREACHABLE_STATUS of conn_path.bpf.c.
const FIRST_UNREACHABLE: u32 = 64;
/// Why a segment did not get through, in the order of `enum unreachable` of conn_path.bpf.c: as another host says, as the
/// server's own host says, and as this host says.
const UNREACHABLE: [&str; 18] = [
    "NET_UNREACHABLE",
    "HOST_UNREACHABLE",
    "PROTOCOL_UNREACHABLE",
    "PORT_UNREACHABLE",
    "ADMIN_PROHIBITED",
    "TIME_EXCEEDED",
    "SERVER_NET_UNREACHABLE",
    "SERVER_HOST_UNREACHABLE",
    "SERVER_PROTOCOL_UNREACHABLE",
    "SERVER_PORT_UNREACHABLE",
    "SERVER_ADMIN_PROHIBITED",
    "SERVER_TIME_EXCEEDED",
    "OWN_NET_UNREACHABLE",
    "OWN_HOST_UNREACHABLE",
    "OWN_PROTOCOL_UNREACHABLE",
    "OWN_PORT_UNREACHABLE",
    "OWN_ADMIN_PROHIBITED",
    "OWN_TIME_EXCEEDED",
];

/// The status of the first of [`NEIGHBOUR_CHANGES`]: CHANGED_BY_ADMIN of neighbours.h.
const FIRST_NEIGHBOUR_CHANGE: u32 = 96;
/// Who changed a neighbour's link-layer address: an administrator or program on this host, or the network by ARP or
/// neighbour discovery.
const NEIGHBOUR_CHANGES: [&str; 2] = ["ADMIN", "LEARNED"];

/// The status of the first of [`INTERFACE_DROPS`].
const FIRST_INTERFACE_DROP: u32 = 112;
/// What an interface counted, in the order of `Kind` of interfaces.rs: packets received and dropped, longer than allowed, and damaged;
/// packets that were to be sent and dropped, and that met no carrier.
const INTERFACE_DROPS: [&str; 5] = ["RX_DROPPED", "RX_LENGTH", "RX_CRC", "TX_DROPPED", "TX_CARRIER"];

fn fate(status: u32) -> Option<&'static str> {
    let in_list = |names: &[&'static str], first| names.get(usize::try_from(status.checked_sub(first)?).ok()?).copied();
    match status {
        HELD_RECEIVED => Some("RECEIVED"),
        FIRST_INTERFACE_DROP.. => in_list(&INTERFACE_DROPS, FIRST_INTERFACE_DROP),
        FIRST_NEIGHBOUR_CHANGE.. => in_list(&NEIGHBOUR_CHANGES, FIRST_NEIGHBOUR_CHANGE),
        FIRST_UNREACHABLE.. => in_list(&UNREACHABLE, FIRST_UNREACHABLE),
        FIRST_RESET.. => in_list(&RESETS, FIRST_RESET),
        _ => in_list(&DROP_REASONS, FIRST_DROP_REASON),
    }
}

/// The fields that the specs of all objects share.
const SHARED: Spec = Spec {
    name: PROTOCOL.name,
    protocol: &PROTOCOL,
    id: probe_id::PROBE_CONNECTIONS,
    mount_key,
    detail: connection,
    recorded: packets,
    columns: &[
        TIME,
        EventColumn::operation(20),
        DURATION,
        EventColumn::new("STATE", 17, EventCell::State),
        PID,
        EventColumn::mount(24),
        EventColumn::new("PEER", 0, EventCell::Own(peer)),
    ],
    line: |event, line| {
        if let Detail::Connection(connection) = event.detail {
            (line.peer, line.resent) = (Some(connection.peer.to_string()), Some(connection.times));
            line.ttl = (connection.ttl > 0).then_some(connection.ttl);
            line.server_ttl = (connection.server_ttl > 0).then_some(connection.server_ttl);
        }
    },
    // Most events of a connection have no duration, so the threshold is zero.
    aliases: &[Alias::of(PROTOCOL.name, 0.0)],
    probe: || Box::new(ConnectionsProbe),
    ..Spec::BASE
};

pub(crate) static TCP: Spec = Spec {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_tcp.bpf.o")),
    rungs: &[Rung {
        via: "tp_btf",
        required: &["tp_retransmit", "tp_reset", "tp_reset_sent", "tp_neighbour", "tp_transmit"],
        optional: &["fentry_probe0", "fentry_routed", "fentry_connected", "fentry_reset"],
        without: "windows that stay closed (TCP_ZERO_WINDOW), sends that fail on this host (TCP_NOT_SENT), changes of route (TCP_REROUTED), \
                  new connections (TCP_CONNECTED) and who sent a reset",
    }],
    ..SHARED
};

pub(crate) static DROPS: Spec = Spec {
    name: "connections/drops",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_drops.bpf.o")),
    rungs: &[Rung {
        via: "tp_btf",
        required: &["tp_dropped"],
        optional: &["interface_dropped"],
        without: "what interfaces drop (INTERFACE_DROPPED)",
    }],
    probe: || Box::<DropsProbe>::default(),
    ..SHARED
};

pub(crate) static IFB: Spec = Spec {
    name: "connections/ifb",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_ifb.bpf.o")),
    module: Some(RequiredModule { name: "ifb", load: "", hooks: None }),
    rungs: &[Rung { via: "tp_btf", required: &["tp_queue", "tp_transmit_ifb"], optional: &[], without: "" }],
    ..SHARED
};

pub(crate) static NFQUEUE: Spec = Spec {
    name: "connections/nfqueue",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_nfqueue.bpf.o")),
    rungs: &[
        // From 6.10 on, nf_reinject is a part of the module.
        Rung { via: "fentry", required: &["fentry_queued", "fentry_given_back"], optional: &[], without: "" },
        Rung { via: "fentry", required: &["fentry_queued", "fentry_freed"], optional: &[], without: "" },
        Rung { via: "kprobe", required: &["kprobe_queued", "kprobe_given_back"], optional: &[], without: "" },
        Rung { via: "kprobe", required: &["kprobe_queued", "kprobe_freed"], optional: &[], without: "" },
    ],
    ..SHARED
};

pub(crate) static PATH: Spec = Spec {
    name: "connections/path",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_path.bpf.o")),
    rungs: &[
        Rung { via: "fentry", required: &["fentry_error_v4"], optional: &["fentry_error_v6"], without: WITHOUT_V6 },
        Rung { via: "kprobe", required: &["kprobe_error_v4"], optional: &["kprobe_error_v6"], without: WITHOUT_V6 },
    ],
    ..SHARED
};

const WITHOUT_V6: &str = "errors of ICMPv6";

pub(crate) static SMB: Spec = Spec {
    name: "connections/smb",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_smb.bpf.o")),
    module: Some(RequiredModule { name: "cifs", load: "mount an SMB share, or `modprobe cifs`", hooks: Some("cifs") }),
    rungs: &[
        // 6.1 has no __cifs_reconnect.
        Rung {
            via: "fentry",
            required: &["fentry_losing", "fexit_connected", "fentry_losing_inner", "fexit_connected_inner"],
            optional: &["fentry_break_begins", "fexit_break_ends", "tp_expired", "tp_no_credits"],
            without: WITHOUT,
        },
        Rung {
            via: "fentry",
            required: &["fentry_losing", "fexit_connected"],
            optional: &["fentry_break_begins", "fexit_break_ends", "tp_expired", "tp_no_credits"],
            without: WITHOUT,
        },
        Rung {
            via: "kprobe",
            required: &["kprobe_losing", "kretprobe_connected", "kprobe_losing_inner", "kretprobe_connected_inner"],
            optional: &["kprobe_break_begins", "kretprobe_break_ends", "tp_expired", "tp_no_credits"],
            without: WITHOUT,
        },
        Rung {
            via: "kprobe",
            required: &["kprobe_losing", "kretprobe_connected"],
            optional: &["kprobe_break_begins", "kretprobe_break_ends", "tp_expired", "tp_no_credits"],
            without: WITHOUT,
        },
    ],
    ..SHARED
};

const WITHOUT: &str = "late answers to lease breaks, credits that do not come, and why a connection was given up";

pub(crate) static RPC: Spec = Spec {
    name: "connections/rpc",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_rpc.bpf.o")),
    module: Some(RequiredModule { name: "nfs", load: "mount an NFS export, or `modprobe nfs`", hooks: Some("sunrpc") }),
    rungs: &[Rung {
        via: "tp_btf",
        required: &["tp_state", "tp_timeout", "tp_retransmit"],
        optional: &[],
        without: "",
    }],
    ..SHARED
};

pub(crate) static NFS4: Spec = Spec {
    name: "connections/nfs4",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_nfs.bpf.o")),
    module: Some(RequiredModule {
        name: "nfsv4",
        load: "mount an NFSv4 export, or `modprobe nfsv4`",
        hooks: Some("nfsv4"),
    }),
    rungs: &[Rung {
        via: "tp_btf",
        required: &["tp_recover"],
        optional: &["fentry_slot"],
        without: "long waits for a slot (SLOT_STARVATION)",
    }],
    ..SHARED
};

pub(crate) static LIBCEPH: Spec = Spec {
    name: "connections/libceph",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_libceph.bpf.o")),
    module: ceph::client("libceph"),
    rungs: &[
        Rung { via: "fentry", required: &["fentry_state"], optional: &[], without: "" },
        Rung { via: "kprobe", required: &["kprobe_state"], optional: &[], without: "" },
    ],
    ..SHARED
};

pub(crate) static CEPH: Spec = Spec {
    name: "connections/ceph",
    object: include_bytes!(concat!(env!("OUT_DIR"), "/conn_ceph.bpf.o")),
    module: ceph::client("ceph"),
    rungs: &[
        Rung { via: "fentry", required: &["fentry_dispatch", "fentry_reset"], optional: &[], without: "" },
        Rung { via: "kprobe", required: &["kprobe_dispatch", "kprobe_reset"], optional: &[], without: "" },
    ],
    ..SHARED
};

fn connection(raw: &event) -> Detail {
    let ttl = |raw: u32| u8::try_from(raw).unwrap_or(0);
    Detail::Connection(Connection {
        peer: text(&raw.file),
        times: raw.resent,
        ttl: ttl(raw.request),
        server_ttl: ttl(raw.tree),
    })
}

fn peer(event: &Event) -> String {
    if let Detail::Connection(own) = &event.detail { own.peer.to_string() } else { String::new() }
}

/// A record of drops of an interface has the number of packets in place of a count of segments that were sent again.
fn packets(raw: &record, event: &mut Event) {
    if event.operation.code() == INTERFACE_DROPPED {
        event.weight = raw.retransmits.max(1);
        event.detail = Detail::Connection(Connection { times: raw.retransmits, ..Connection::default() });
        event.network.retransmits = 0;
    }
}

struct ConnectionsProbe;

impl Probe for ConnectionsProbe {
    fn follow_mounts(&mut self, object: &mut Object, mounts: &Mounts) -> libbpf_rs::Result<()> {
        write_servers(object, mounts)
    }
}

/// The mount's key as the smb and nfs probes have it, so that a verdict finds their operations together with these
/// events.
pub(crate) fn mount_key(point: &MountPoint) -> MountKey {
    point.source_key()
}

/// `struct peer` of connections.h.
type KernelPeer = [u8; 20];

/// Bytes of the map `ports`: one bit for each port.
const PORTS: usize = 8192;

/// The servers of SMB and NFS mounts, each with the key of its first mount; and the daemons that requests of others go to.
fn servers(mounts: &Mounts) -> HashMap<KernelPeer, MountKey> {
    let seen = mounts.daemons().iter().map(|(address, mount)| (kernel_peer(address.ip(), address.port()), *mount));
    let mut servers: HashMap<_, _> = seen.collect();
    for point in mounts.iter() {
        let Some(usual) = point.filesystem().port else { continue };
        if let Some((address, port)) = point.address {
            let peer = kernel_peer(address, port.filter(|port| *port != 0).unwrap_or(usual));
            servers.entry(peer).or_insert_with(|| mount_key(point));
        }
    }
    servers
}

fn kernel_peer(address: IpAddr, port: u16) -> KernelPeer {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut peer = [0; 20];
    let bytes = address.octets().into_iter().chain(port.to_be_bytes());
    peer.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = byte);
    peer
}

/// The content of the map `ports`: a bit for each server's port, indexed by the port in network byte order.
fn ports<'a>(servers: impl Iterator<Item = &'a KernelPeer>) -> Vec<u8> {
    let mut bits = vec![0_u8; PORTS];
    for peer in servers {
        let [.., low, high, _, _] = peer;
        let port = u16::from_ne_bytes([*low, *high]);
        if let Some(byte) = bits.get_mut(usize::from(port >> 3)) {
            *byte |= 1 << (port & 7);
        }
    }
    bits
}

/// The inode number of this process's network namespace, as in the kernel's `struct ns_common`; 0 if it cannot be read.
fn own_namespace() -> u32 {
    let inode = std::fs::metadata("/proc/self/ns/net").map_or(0, |about| about.ino());
    u32::try_from(inode).unwrap_or(0)
}

/// Writes the servers of these mounts into the object's maps: removes those that are gone, adds the others, and writes
/// the ports last.
pub(crate) fn write_servers(object: &Object, mounts: &Mounts) -> libbpf_rs::Result<()> {
    let wanted = servers(mounts);
    for map in object.maps() {
        match map.name().as_encoded_bytes() {
            b"servers" => {
                let known: Vec<KernelPeer> = map.keys().filter_map(|key| key.try_into().ok()).collect();
                for gone in known.iter().filter(|peer| !wanted.contains_key(*peer)) {
                    map.delete(gone)?;
                }
                for (peer, mount) in &wanted {
                    map.update(peer, &mount.0.to_ne_bytes(), MapFlags::ANY)?;
                }
            }
            b"own_namespace" => map.update(&0_u32.to_ne_bytes(), &own_namespace().to_ne_bytes(), MapFlags::ANY)?,
            b"ports" => map.update(&0_u32.to_ne_bytes(), &ports(wanted.keys()), MapFlags::ANY)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::Plain;

    const MOUNTINFO: &[u8] = b"\
61 28 0:49 / /mnt/a rw - cifs //srv/Share/sub rw,vers=3.1.1,addr=10.0.0.1
62 28 0:50 / /mnt/b rw - cifs //srv/other rw,vers=3.1.1,addr=10.0.0.1
63 28 0:51 / /mnt/n rw - nfs4 srv:/export rw,port=0,addr=fd00::2
64 28 0:52 / /mnt/c rw - ceph 10.0.0.9:/ rw,addr=10.0.0.9
";

    #[test]
    fn a_server_stands_for_its_first_mount_and_what_is_neither_smb_nor_nfs_is_left_out() {
        let servers = servers(&Mounts::parse(MOUNTINFO));
        assert_eq!(servers.len(), 2);
        let smb = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1, 1, 189, 0, 0];
        assert_eq!(servers.get(&smb), Some(&MountKey::source(b"//srv/share")));
        let nfs = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 8, 1, 0, 0];
        assert_eq!(servers.get(&nfs), Some(&MountKey::device(0, 51)));
    }

    #[test]
    fn daemons_that_requests_were_seen_to_go_to_are_servers_too() {
        let mut mounts = Mounts::parse(MOUNTINFO);
        let osd = ("10.0.0.9:6801".parse().unwrap(), MountKey::device(0, 52));
        assert!(mounts.set_daemons(vec![osd]) && !mounts.set_daemons(vec![osd]));
        let servers = servers(&mounts);
        let peer = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 9, 26, 145, 0, 0];
        assert_eq!((servers.len(), servers.get(&peer)), (3, Some(&MountKey::device(0, 52))));
    }

    #[test]
    fn drops_of_an_interface_have_their_names_and_their_number() {
        let operation = PROTOCOL.operation_by_code(INTERFACE_DROPPED).unwrap();
        assert!(operation.name() == "INTERFACE_DROPPED" && operation.only_by_name());
        let names = (FIRST_INTERFACE_DROP..).map_while(PROTOCOL.status_name).collect::<Vec<_>>();
        assert_eq!(names, INTERFACE_DROPS);
        let raw = record {
            end: 2,
            probe: probe_id::PROBE_CONNECTIONS.0 as u8,
            operation: INTERFACE_DROPPED,
            retransmits: 57,
            ..record::default()
        };
        let event = crate::decode::decode_record(raw.as_bytes()).unwrap();
        assert_eq!((event.weight, event.network.retransmits), (57, 0));
        let other = crate::decode::decode_record(record { operation: 11, ..raw }.as_bytes()).unwrap();
        assert_eq!((other.weight, other.network.retransmits), (1, 57));
    }

    #[test]
    fn resets_have_their_names() {
        let names = (FIRST_RESET..).map_while(PROTOCOL.status_name).collect::<Vec<_>>();
        assert_eq!(names, RESETS);
    }

    #[test]
    fn a_port_has_its_bit_by_its_number_on_the_wire() {
        let servers = servers(&Mounts::parse(MOUNTINFO));
        let bits = ports(servers.keys());
        assert_eq!(bits.iter().map(|byte| byte.count_ones()).sum::<u32>(), 2);
        let wire = usize::from(445_u16.to_be());
        assert_eq!(bits[wire >> 3] >> (wire & 7) & 1, 1);
    }
}
