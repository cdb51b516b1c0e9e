//! The NTSTATUS codes that SMB servers answer with (MS-ERREF 2.3.1): their names, and what the kernel's client makes of
//! them (smb2_error_map_table of Linux 6.12).

use model::Code;

/// The name of `status`, if it is one that file servers use.
pub fn name(status: u32) -> Option<&'static str> {
    find(status).map(|(_, name, _)| *name)
}

/// The status called `name`.
pub fn named(name: &str) -> Option<u32> {
    CODES.iter().find(|(_, known, _)| *known == name).map(|(code, _, _)| *code)
}

/// The errno that the application gets; the client makes EIO of all that it does not know.
pub fn errno(status: u32) -> u32 {
    find(status).map_or(libc::EIO, |(_, _, errno)| *errno).cast_unsigned()
}

fn find(status: u32) -> Option<&'static (u32, &'static str, i32)> {
    CODES.binary_search_by_key(&status, |(code, _, _)| *code).ok().and_then(|index| CODES.get(index))
}

/// Results that are normal: misses, ends of files, locks that another process holds, names that exist already, files without extended attributes,
/// features that a server does not have, and a session being set up.
pub const ORDINARY: &[Code] = &[
    Code::Status(0xC000_0034), // STATUS_OBJECT_NAME_NOT_FOUND
    Code::Status(0xC000_003A), // STATUS_OBJECT_PATH_NOT_FOUND
    Code::Status(0xC000_000F), // STATUS_NO_SUCH_FILE
    Code::Status(0xC000_0225), // STATUS_NOT_FOUND
    Code::Status(0xC000_0011), // STATUS_END_OF_FILE
    Code::Status(0xC000_0054), // STATUS_FILE_LOCK_CONFLICT
    Code::Status(0xC000_0055), // STATUS_LOCK_NOT_GRANTED
    Code::Status(0xC000_007E), // STATUS_RANGE_NOT_LOCKED
    Code::Status(0xC000_0035), // STATUS_OBJECT_NAME_COLLISION
    Code::Status(0xC000_0101), // STATUS_DIRECTORY_NOT_EMPTY
    Code::Status(0xC000_0051), // STATUS_NONEXISTENT_EA_ENTRY
    Code::Status(0xC000_0052), // STATUS_NO_EAS_ON_FILE
    Code::Status(0xC000_004F), // STATUS_EAS_NOT_SUPPORTED
    Code::Status(0xC000_00BB), // STATUS_NOT_SUPPORTED
    Code::Status(0xC000_0002), // STATUS_NOT_IMPLEMENTED
    Code::Status(0xC000_0003), // STATUS_INVALID_INFO_CLASS
    Code::Status(0xC000_0010), // STATUS_INVALID_DEVICE_REQUEST
    Code::Status(0xC000_0275), // STATUS_NOT_A_REPARSE_POINT
    Code::Status(0xC000_0016), // STATUS_MORE_PROCESSING_REQUIRED
    Code::Status(0xC000_0120), // STATUS_CANCELLED
];

/// Sorted by code.
const CODES: &[(u32, &str, i32)] = &[
    (0x0000_0000, "STATUS_SUCCESS", 0),
    (0x0000_0103, "STATUS_PENDING", libc::EIO),
    (0x0000_010B, "STATUS_NOTIFY_CLEANUP", libc::EIO),
    (0x0000_010C, "STATUS_NOTIFY_ENUM_DIR", libc::EIO),
    (0x8000_0005, "STATUS_BUFFER_OVERFLOW", libc::E2BIG),
    (0x8000_0006, "STATUS_NO_MORE_FILES", libc::ENODATA),
    (0x8000_002D, "STATUS_STOPPED_ON_SYMLINK", libc::EOPNOTSUPP),
    (0xC000_0001, "STATUS_UNSUCCESSFUL", libc::EIO),
    (0xC000_0002, "STATUS_NOT_IMPLEMENTED", libc::EOPNOTSUPP),
    (0xC000_0003, "STATUS_INVALID_INFO_CLASS", libc::EIO),
    (0xC000_0008, "STATUS_INVALID_HANDLE", libc::EBADF),
    (0xC000_000D, "STATUS_INVALID_PARAMETER", libc::EINVAL),
    (0xC000_000E, "STATUS_NO_SUCH_DEVICE", libc::ENODEV),
    (0xC000_000F, "STATUS_NO_SUCH_FILE", libc::ENOENT),
    (0xC000_0010, "STATUS_INVALID_DEVICE_REQUEST", libc::EOPNOTSUPP),
    (0xC000_0011, "STATUS_END_OF_FILE", libc::ENODATA),
    (0xC000_0016, "STATUS_MORE_PROCESSING_REQUIRED", libc::EIO),
    (0xC000_0017, "STATUS_NO_MEMORY", libc::EREMOTEIO),
    (0xC000_0022, "STATUS_ACCESS_DENIED", libc::EACCES),
    (0xC000_0023, "STATUS_BUFFER_TOO_SMALL", libc::EIO),
    (0xC000_0033, "STATUS_OBJECT_NAME_INVALID", libc::ENOENT),
    (0xC000_0034, "STATUS_OBJECT_NAME_NOT_FOUND", libc::ENOENT),
    (0xC000_0035, "STATUS_OBJECT_NAME_COLLISION", libc::EEXIST),
    (0xC000_003A, "STATUS_OBJECT_PATH_NOT_FOUND", libc::ENOENT),
    (0xC000_003B, "STATUS_OBJECT_PATH_SYNTAX_BAD", libc::EIO),
    (0xC000_0043, "STATUS_SHARING_VIOLATION", libc::EBUSY),
    (0xC000_0044, "STATUS_QUOTA_EXCEEDED", libc::EDQUOT),
    (0xC000_004F, "STATUS_EAS_NOT_SUPPORTED", libc::EOPNOTSUPP),
    (0xC000_0051, "STATUS_NONEXISTENT_EA_ENTRY", libc::EIO),
    (0xC000_0052, "STATUS_NO_EAS_ON_FILE", libc::ENODATA),
    (0xC000_0054, "STATUS_FILE_LOCK_CONFLICT", libc::EACCES),
    (0xC000_0055, "STATUS_LOCK_NOT_GRANTED", libc::EACCES),
    (0xC000_0056, "STATUS_DELETE_PENDING", libc::ENOENT),
    (0xC000_0061, "STATUS_PRIVILEGE_NOT_HELD", libc::EIO),
    (0xC000_006D, "STATUS_LOGON_FAILURE", libc::EACCES),
    (0xC000_0071, "STATUS_PASSWORD_EXPIRED", libc::EKEYEXPIRED),
    (0xC000_0072, "STATUS_ACCOUNT_DISABLED", libc::EKEYREVOKED),
    (0xC000_007E, "STATUS_RANGE_NOT_LOCKED", libc::EIO),
    (0xC000_007F, "STATUS_DISK_FULL", libc::ENOSPC),
    (0xC000_009A, "STATUS_INSUFFICIENT_RESOURCES", libc::EAGAIN),
    (0xC000_00A2, "STATUS_MEDIA_WRITE_PROTECTED", libc::EROFS),
    (0xC000_00AC, "STATUS_PIPE_NOT_AVAILABLE", libc::EIO),
    (0xC000_00B5, "STATUS_IO_TIMEOUT", libc::EAGAIN),
    (0xC000_00BA, "STATUS_FILE_IS_A_DIRECTORY", libc::EISDIR),
    (0xC000_00BB, "STATUS_NOT_SUPPORTED", libc::EOPNOTSUPP),
    (0xC000_00BE, "STATUS_BAD_NETWORK_PATH", libc::EINVAL),
    (0xC000_00C9, "STATUS_NETWORK_NAME_DELETED", libc::EREMCHG),
    (0xC000_00CA, "STATUS_NETWORK_ACCESS_DENIED", libc::EACCES),
    (0xC000_00CC, "STATUS_BAD_NETWORK_NAME", libc::ENOENT),
    (0xC000_00D0, "STATUS_REQUEST_NOT_ACCEPTED", libc::EIO),
    (0xC000_0101, "STATUS_DIRECTORY_NOT_EMPTY", libc::ENOTEMPTY),
    (0xC000_0103, "STATUS_NOT_A_DIRECTORY", libc::ENOTDIR),
    (0xC000_011F, "STATUS_TOO_MANY_OPENED_FILES", libc::EMFILE),
    (0xC000_0120, "STATUS_CANCELLED", libc::EIO),
    (0xC000_0121, "STATUS_CANNOT_DELETE", libc::EACCES),
    (0xC000_0128, "STATUS_FILE_CLOSED", libc::EBADF),
    (0xC000_0194, "STATUS_POSSIBLE_DEADLOCK", libc::EIO),
    (0xC000_0203, "STATUS_USER_SESSION_DELETED", libc::EIO),
    (0xC000_0205, "STATUS_INSUFF_SERVER_RESOURCES", libc::EIO),
    (0xC000_020C, "STATUS_CONNECTION_DISCONNECTED", libc::ECONNABORTED),
    (0xC000_0225, "STATUS_NOT_FOUND", libc::ENOENT),
    (0xC000_0233, "STATUS_DOMAIN_CONTROLLER_NOT_FOUND", libc::EIO),
    (0xC000_0257, "STATUS_PATH_NOT_COVERED", libc::EREMOTE),
    (0xC000_0275, "STATUS_NOT_A_REPARSE_POINT", libc::EIO),
    (0xC000_0280, "STATUS_SERVER_UNAVAILABLE", libc::EIO),
    (0xC000_035C, "STATUS_NETWORK_SESSION_EXPIRED", libc::EIO),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_every_name_is_found() {
        assert!(CODES.is_sorted_by_key(|(code, _, _)| *code));
        assert_eq!(name(0xC000_0022), Some("STATUS_ACCESS_DENIED"));
        assert_eq!(name(0xC000_FFFF), None);
        assert_eq!(named("STATUS_DISK_FULL").map(errno), Some(libc::ENOSPC.cast_unsigned()));
        assert_eq!(errno(0xC000_FFFF), libc::EIO.cast_unsigned());
    }

    #[test]
    fn the_page_about_errors_names_every_ordinary_one() {
        let page = include_str!("../../../../docs/errors.md");
        for code in ORDINARY {
            let Code::Status(status) = code else { panic!("{code:?}") };
            assert!(page.contains(&format!("`{}`", name(*status).unwrap())), "{status:#x}");
        }
    }
}
