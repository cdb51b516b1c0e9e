//! Operations of the virtual file system on the file systems watched: what applications wait for, whatever a mount caches.

use model::{Code, Detail, Direction, Event, FileNames, Level, Protocol, Vfs};

use crate::{
    Alias,
    columns::{COMM, DURATION, ERROR, EventCell, EventColumn, FILE, PID, TIME},
    decode::text,
    generated::probe_id,
    spec::{Hook, Rung, Spec},
};

/// The VFS's operations, in the order of `enum operation` in vfs.h.
pub static PROTOCOL: Protocol = Protocol {
    name: "vfs",
    operations: &[
        "read",
        "write",
        "open",
        "release",
        "fsync",
        "flush",
        "lock",
        "mmap",
        "lookup",
        "getattr",
        "setattr",
        "readdir",
        "rename",
        "unlink",
        "mkdir",
        "rmdir",
        "fallocate",
        "copy_file_range",
        "splice_read",
        "writeback",
        "revalidate",
    ],
    waits_by_design: &[6],
    level: Level::FileSystem,
    direction: |name| match name {
        "read" | "splice_read" => Some(Direction::Read),
        "write" => Some(Direction::Written),
        _ => None,
    },
    ordinary: ORDINARY,
    file_names: FileNames::Path,
    ..Protocol::BY_ERRNO
};

/// Failures that are normal: names that do not exist, names that exist already, locks that another process holds,
/// operations that a file system does not offer, and calls that were told not to wait.
const ORDINARY: &[Code] = &[
    Code::Errno(libc::ENOENT.cast_unsigned()),
    Code::Errno(libc::ENOTDIR.cast_unsigned()),
    Code::Errno(libc::EEXIST.cast_unsigned()),
    Code::Errno(libc::ENOTEMPTY.cast_unsigned()),
    Code::Errno(libc::EAGAIN.cast_unsigned()),
    Code::Errno(libc::EINTR.cast_unsigned()),
    Code::Errno(libc::EOPNOTSUPP.cast_unsigned()),
    Code::Errno(libc::EXDEV.cast_unsigned()),
];

pub(crate) static SPEC: Spec = Spec {
    name: "vfs",
    protocol: &PROTOCOL,
    id: probe_id::PROBE_VFS,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/vfs.bpf.o")),
    rungs: &[
        Rung { via: "fentry", required: &[], optional: &[], without: "" },
        Rung { via: "kprobe", required: &[], optional: &[], without: "" },
    ],
    hooks: HOOKS,
    inflight: &["slots", "inflight"],
    detail: |raw| {
        Detail::Vfs(Vfs {
            inode: raw.inode,
            path: text(&raw.file),
            offset: raw.offset,
            asked: raw.asked,
            request: raw.request,
        })
    },
    columns: &[
        TIME,
        EventColumn::operation(15),
        DURATION,
        EventColumn::new("OFFSET", -12, EventCell::Own(|event| own(event, |vfs| vfs.offset))),
        EventColumn::new("ASKED", -9, EventCell::Own(|event| own(event, |vfs| vfs.asked))),
        EventColumn::bytes(-9),
        ERROR,
        PID,
        COMM,
        EventColumn::mount(24),
        FILE,
    ],
    line: |event, line| {
        if let Detail::Vfs(vfs) = event.detail {
            (line.offset, line.asked, line.request) = (Some(vfs.offset), Some(vfs.asked), Some(vfs.request));
        }
    },
    aliases: &[
        Alias { fstype: Some("cifs"), ..Alias::of("smbvfsslower", 10.0) },
        Alias { fstype: Some("cifs"), ..Alias::of("smbvfsiosnoop", 0.0) },
    ],
    ..Spec::BASE
};

fn own(event: &Event, number: fn(&Vfs) -> u64) -> String {
    if let Detail::Vfs(vfs) = &event.detail { number(vfs).to_string() } else { "-".into() }
}

/// The functions, and which of them compilers inline, were found by disassembling 6.1, 6.12 and 7.2.
const HOOKS: &[Hook] = &[
    Hook { sees: "read", functions: &["vfs_read"] },
    Hook { sees: "readv", functions: &["vfs_readv"] },
    Hook { sees: "read by other parts of the kernel", functions: &["vfs_iter_read"] },
    Hook { sees: "write", functions: &["vfs_write"] },
    Hook { sees: "writev", functions: &["vfs_writev"] },
    Hook { sees: "write by other parts of the kernel", functions: &["vfs_iter_write"] },
    Hook { sees: "open", functions: &["path_openat"] },
    Hook { sees: "failed open", functions: &["terminate_walk"] },
    Hook { sees: "release", functions: &["__fput"] },
    Hook { sees: "fsync", functions: &["vfs_fsync_range"] },
    Hook { sees: "fsync and fdatasync", functions: &["do_fsync", "__x64_sys_fdatasync", "__arm64_sys_fdatasync"] },
    Hook { sees: "flush", functions: &["filp_flush", "filp_close"] },
    Hook { sees: "lock", functions: &["fcntl_setlk"] },
    Hook { sees: "flock", functions: &["__x64_sys_flock", "__arm64_sys_flock"] },
    Hook { sees: "mmap", functions: &["vm_mmap_pgoff"] },
    Hook { sees: "lookup", functions: &["__lookup_slow"] },
    Hook { sees: "lookup of what is changed", functions: &["lookup_one_qstr_excl"] },
    Hook { sees: "revalidate", functions: &["lookup_fast"] },
    Hook { sees: "getattr", functions: &["vfs_getattr_nosec"] },
    Hook { sees: "setattr", functions: &["notify_change"] },
    Hook { sees: "readdir", functions: &["iterate_dir"] },
    Hook { sees: "rename", functions: &["vfs_rename"] },
    Hook { sees: "unlink", functions: &["vfs_unlink"] },
    Hook { sees: "mkdir", functions: &["vfs_mkdir"] },
    Hook { sees: "rmdir", functions: &["vfs_rmdir"] },
    Hook { sees: "fallocate", functions: &["vfs_fallocate"] },
    Hook { sees: "copy_file_range", functions: &["vfs_copy_file_range"] },
    Hook { sees: "splice_read", functions: &["do_splice_read", "do_splice_to"] },
    Hook { sees: "writeback", functions: &["do_writepages"] },
];
