//! Requests of the kernel's FUSE client to the daemons of file systems, and to virtiofs devices, one event per request.

use libbpf_rs::OpenObject;
use model::{Code, Detail, Direction, Fuse, Level, Protocol};

use crate::{
    Alias, columns,
    generated::probe_id,
    probe::Probe,
    spec::{RequiredModule, Rung, Spec},
};

pub(crate) static SPEC: Spec = Spec {
    name: PROTOCOL.name,
    protocol: &PROTOCOL,
    id: probe_id::PROBE_FUSE,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/fuse.bpf.o")),
    module: Some(RequiredModule {
        name: "fuse",
        load: "mount a FUSE file system, or `modprobe fuse`",
        hooks: Some("fuse"),
    }),
    // The rung that sees more comes first. Linux 7.2 has a tracepoint where the daemon takes a request; Linux 6.11 has those of a
    // request's start and end.
    rungs: &[
        Rung { via: "tp_btf", required: &["tp_started", "tp_taken", "tp_ended", "fexit_waited"], ..BEST },
        Rung { via: "tp_btf", required: &["tp_started", "fentry_taken", "tp_ended", "fexit_waited"], ..BEST },
        Rung { via: "fentry", required: &["fentry_started", "fentry_taken", "fentry_ended", "fexit_waited"], ..BEST },
        Rung { via: "tp_btf", required: &["tp_started", "tp_taken", "tp_ended"], ..BEST },
        Rung { via: "tp_btf", required: &["tp_started", "tp_ended"], ..BEST },
        Rung { via: "kprobe", required: &["kprobe_started", "kprobe_taken", "kprobe_ended"], ..BEST },
    ],
    inflight: &["inflight"],
    detail: |raw| {
        let (unique, inode, daemon) = (raw.message, raw.inode, raw.tree);
        Detail::Fuse(Fuse { unique, inode, daemon, taken: raw.session != 0 || raw.queue > 0, look: None })
    },
    columns: columns::REMOTE,
    line: |event, line| {
        if let Detail::Fuse(fuse) = &event.detail {
            line.daemon = (fuse.daemon != 0).then_some(fuse.daemon);
        }
    },
    aliases: &[Alias::of("fuse", 10.0)],
    probe: || Box::new(FuseProbe),
    ..Spec::BASE
};

/// What all rungs have in common.
const BEST: Rung = Rung {
    via: "",
    required: &[],
    optional: &["forget_ended"],
    without: "requests that were given up unseen: they look as if they hung",
};

/// Operations by their opcode (enum fuse_opcode in include/uapi/linux/fuse.h); the first is for opcodes that are not known here.
pub static PROTOCOL: Protocol = Protocol {
    name: "fuse",
    operations: &[
        "OTHER",
        "LOOKUP",
        "FORGET",
        "GETATTR",
        "SETATTR",
        "READLINK",
        "SYMLINK",
        "",
        "MKNOD",
        "MKDIR",
        "UNLINK",
        "RMDIR",
        "RENAME",
        "LINK",
        "OPEN",
        "READ",
        "WRITE",
        "STATFS",
        "RELEASE",
        "",
        "FSYNC",
        "SETXATTR",
        "GETXATTR",
        "LISTXATTR",
        "REMOVEXATTR",
        "FLUSH",
        "INIT",
        "OPENDIR",
        "READDIR",
        "RELEASEDIR",
        "FSYNCDIR",
        "GETLK",
        "SETLK",
        "SETLKW",
        "ACCESS",
        "CREATE",
        "INTERRUPT",
        "BMAP",
        "DESTROY",
        "IOCTL",
        "POLL",
        "NOTIFY_REPLY",
        "BATCH_FORGET",
        "FALLOCATE",
        "READDIRPLUS",
        "RENAME2",
        "LSEEK",
        "COPY_FILE_RANGE",
        "SETUPMAPPING",
        "REMOVEMAPPING",
        "SYNCFS",
        "TMPFILE",
        "STATX",
        "COPY_FILE_RANGE_64",
    ],
    waits_by_design: &[33], // SETLKW
    level: Level::Daemon,
    filesystems: &["fuse", "fuseblk", "virtiofs"],
    direction: |name| match name {
        "READ" => Some(Direction::Read),
        "WRITE" => Some(Direction::Written),
        _ => None,
    },
    ordinary: ORDINARY,
    ..Protocol::BY_ERRNO
};

/// Results that are normal: a name that does not exist, or exists already; a directory that is not empty; an operation that the
/// daemon does not implement, which the kernel asks for once; a buffer that is too small; a lock that another process holds; and a
/// requester that was interrupted.
const ORDINARY: &[Code] = &[
    Code::Errno(libc::ENOENT.cast_unsigned()),
    Code::Errno(libc::ENOTDIR.cast_unsigned()),
    Code::Errno(libc::EEXIST.cast_unsigned()),
    Code::Errno(libc::ENOTEMPTY.cast_unsigned()),
    Code::Errno(libc::ENODATA.cast_unsigned()),
    Code::Errno(libc::ENOSYS.cast_unsigned()),
    Code::Errno(libc::EOPNOTSUPP.cast_unsigned()),
    Code::Errno(libc::ERANGE.cast_unsigned()),
    Code::Errno(libc::EAGAIN.cast_unsigned()),
    Code::Errno(libc::EINTR.cast_unsigned()),
];

struct FuseProbe;

impl Probe for FuseProbe {
    /// Writes what the rung sees into the object's read-only data.
    fn prepare(&mut self, object: &mut OpenObject, rung: &Rung) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            let constants = map.name().as_encoded_bytes().ends_with(b".rodata");
            if let Some([taken, waited, ..]) = map.initial_value_mut().filter(|_| constants) {
                (*taken, *waited) = (u8::from(sees_taken(rung)), u8::from(sees_waited(rung)));
            }
        }
        Ok(())
    }

    fn unseen(&self, rung: &Rung) -> Option<&'static str> {
        if !sees_taken(rung) {
            return Some("when the daemon takes a request: `queue` counts as `wire`; and when the requester goes on");
        }
        (!sees_waited(rung)).then_some("when the requester goes on after the answer")
    }
}

fn sees_taken(rung: &Rung) -> bool {
    rung.required.iter().any(|program| program.ends_with("_taken"))
}

fn sees_waited(rung: &Rung) -> bool {
    rung.required.iter().any(|program| program.ends_with("_waited"))
}
