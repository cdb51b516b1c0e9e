//! SMB2 and SMB3 commands of the kernel's client (cifs.ko), one event per command.

mod credits;
mod status;

use model::{Detail, Direction, Level, MountKey, Protocol, Smb};

use crate::{
    Alias, columns,
    generated::probe_id,
    mounts::share,
    spec::{RequiredModule, Rung, Spec},
};

pub(crate) static SPEC: Spec = Spec {
    name: "smb",
    protocol: &PROTOCOL,
    id: probe_id::PROBE_SMB,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/smb.bpf.o")),
    module: Some(RequiredModule { name: "cifs", load: "mount an SMB share, or `modprobe cifs`", hooks: Some("cifs") }),
    rungs: &[
        Rung {
            via: "fentry",
            required: &["look", "fexit_started", "fentry_received", "fentry_finished"],
            optional: &["fentry_waiting", "fentry_waiting_mtu", "fexit_waited_mtu"],
            without: "time spent waiting for credits",
        },
        Rung {
            via: "kprobe",
            required: &["look", "kprobe_starting", "kretprobe_started", "kprobe_received", "kprobe_finished"],
            optional: &["kprobe_waiting", "kprobe_waiting_mtu", "kretprobe_waited_mtu"],
            without: "time spent waiting for credits",
        },
    ],
    mount_key: |point| MountKey::source(share(point.mount.source.as_bytes())),
    inflight: &["inflight"],
    detail: |raw| Detail::Smb(Smb { session: raw.session, message: raw.message, tree: raw.tree }),
    columns: columns::REMOTE,
    line: |event, line| {
        if let Detail::Smb(smb) = event.detail {
            (line.session, line.mid, line.tree) = (smb.session, smb.message, smb.tree);
        }
    },
    aliases: &[Alias::of("smbslower", 10.0), Alias::of("smbiosnoop", 0.0)],
    probe: || Box::<credits::SmbProbe>::default(),
    ..Spec::BASE
};

/// SMB2 commands by their code (MS-SMB2 2.2.1.2).
pub static PROTOCOL: Protocol = Protocol {
    name: "smb",
    operations: &[
        "SMB2_NEGOTIATE",
        "SMB2_SESSION_SETUP",
        "SMB2_LOGOFF",
        "SMB2_TREE_CONNECT",
        "SMB2_TREE_DISCONNECT",
        "SMB2_CREATE",
        "SMB2_CLOSE",
        "SMB2_FLUSH",
        "SMB2_READ",
        "SMB2_WRITE",
        "SMB2_LOCK",
        "SMB2_IOCTL",
        "SMB2_CANCEL",
        "SMB2_ECHO",
        "SMB2_QUERY_DIRECTORY",
        "SMB2_CHANGE_NOTIFY",
        "SMB2_QUERY_INFO",
        "SMB2_SET_INFO",
        "SMB2_OPLOCK_BREAK",
        "SMB2_SERVER_TO_CLIENT_NOTIFICATION",
    ],
    waits_by_design: &[10, 15, 19],
    level: Level::Request,
    filesystems: &["cifs", "smb3"],
    direction: |name| match name {
        "SMB2_READ" => Some(Direction::Read),
        "SMB2_WRITE" => Some(Direction::Written),
        _ => None,
    },
    status_name: status::name,
    status_named: status::named,
    status_example: "STATUS_DISK_FULL",
    status_errno: status::errno,
    ordinary: status::ORDINARY,
    ..Protocol::BY_ERRNO
};
