//! How daemons answer: by errno. A few numbers mean something else to Ceph than their names say.

use model::Code;

/// What the cluster answers a client that it has shut out (`EBLOCKLISTED` of include/linux/ceph/rados.h): `ESHUTDOWN`.
pub(super) const BLOCKLISTED: u32 = 108;

/// The name of what a daemon has answered; `None` if it was no error, or is none of these.
pub(super) fn name(status: u32) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == status).map(|(_, name)| *name)
}

/// The number of that name.
pub(super) fn named(name: &str) -> Option<u32> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

/// Linux's numbers, which are the protocol's.
const NAMES: &[(u32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (34, "ERANGE"),
    (36, "ENAMETOOLONG"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (61, "ENODATA"),
    (75, "EOVERFLOW"),
    (90, "EMSGSIZE"),
    (95, "EOPNOTSUPP"),
    (BLOCKLISTED, "EBLOCKLISTED"),
    (110, "ETIMEDOUT"),
    (116, "ESTALE"),
    (122, "EDQUOT"),
];

/// Results that are normal: a name that does not exist, or exists already; a directory that is not empty; a buffer that is too
/// small; a lock that another process holds; and requests that the client sends again.
pub(super) const ORDINARY: &[Code] = &[
    Code::Errno(libc::ENOENT.cast_unsigned()),
    Code::Errno(libc::ENOTDIR.cast_unsigned()),
    Code::Errno(libc::EEXIST.cast_unsigned()),
    Code::Errno(libc::ENOTEMPTY.cast_unsigned()),
    Code::Errno(libc::ENODATA.cast_unsigned()),
    Code::Errno(libc::EOPNOTSUPP.cast_unsigned()),
    Code::Errno(libc::ERANGE.cast_unsigned()),
    Code::Errno(libc::EAGAIN.cast_unsigned()),
    Code::Errno(libc::EINTR.cast_unsigned()),
];
