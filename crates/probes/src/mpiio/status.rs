//! Error classes of MPI-IO (MPI 4.1, 14.7 and 9.4). The standard names them; their numbers are each library's own.

/// Name, number in Open MPI, number in MPICH, errno.
const CLASSES: &[(&str, u32, u32, i32)] = &[
    ("MPI_ERR_BUFFER", 1, 1, libc::EFAULT),
    ("MPI_ERR_COUNT", 2, 2, libc::EINVAL),
    ("MPI_ERR_TYPE", 3, 3, libc::EINVAL),
    ("MPI_ERR_COMM", 5, 5, libc::EINVAL),
    ("MPI_ERR_REQUEST", 7, 19, libc::EINVAL),
    ("MPI_ERR_ARG", 13, 12, libc::EINVAL),
    ("MPI_ERR_UNKNOWN", 14, 13, 0),
    ("MPI_ERR_TRUNCATE", 15, 14, 0),
    ("MPI_ERR_OTHER", 16, 15, 0),
    ("MPI_ERR_INTERN", 17, 16, 0),
    ("MPI_ERR_IN_STATUS", 18, 17, 0),
    ("MPI_ERR_ACCESS", 20, 20, libc::EACCES),
    ("MPI_ERR_AMODE", 21, 21, libc::EINVAL),
    ("MPI_ERR_BAD_FILE", 23, 22, libc::EINVAL),
    ("MPI_ERR_CONVERSION", 25, 23, 0),
    ("MPI_ERR_DUP_DATAREP", 27, 24, 0),
    ("MPI_ERR_FILE_EXISTS", 28, 25, libc::EEXIST),
    ("MPI_ERR_FILE_IN_USE", 29, 26, libc::EBUSY),
    ("MPI_ERR_FILE", 30, 27, libc::EBADF),
    ("MPI_ERR_INFO_VALUE", 33, 30, libc::EINVAL),
    ("MPI_ERR_INFO", 34, 28, libc::EINVAL),
    ("MPI_ERR_IO", 35, 32, libc::EIO),
    ("MPI_ERR_NO_MEM", 39, 34, libc::ENOMEM),
    ("MPI_ERR_NOT_SAME", 40, 35, libc::EINVAL),
    ("MPI_ERR_NO_SPACE", 41, 36, libc::ENOSPC),
    ("MPI_ERR_NO_SUCH_FILE", 42, 37, libc::ENOENT),
    ("MPI_ERR_QUOTA", 44, 39, libc::EDQUOT),
    ("MPI_ERR_READ_ONLY", 45, 40, libc::EROFS),
    ("MPI_ERR_UNSUPPORTED_DATAREP", 51, 43, libc::EINVAL),
    ("MPI_ERR_UNSUPPORTED_OPERATION", 52, 44, libc::EOPNOTSUPP),
];

/// A status has the class in its lower half and whose it is (`enum layout`) in its upper.
fn class(status: u32) -> Option<&'static (&'static str, u32, u32, i32)> {
    let number = status & 0xffff;
    CLASSES.iter().find(|(_, open_mpi, mpich, _)| match status >> 16 {
        1 => *open_mpi == number,
        2 => *mpich == number,
        _ => false,
    })
}

pub(super) fn name(status: u32) -> Option<&'static str> {
    class(status).map(|(name, ..)| *name)
}

/// Of the two numbers that a name has, this is Open MPI's.
pub(super) fn named(name: &str) -> Option<u32> {
    CLASSES.iter().find(|(known, ..)| *known == name).map(|(_, open_mpi, ..)| 1 << 16 | open_mpi)
}

pub(super) fn errno(status: u32) -> u32 {
    class(status).map_or(0, |(.., errno)| errno.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_its_own_number_for_a_class() {
        assert_eq!([name(0x1_002a), name(0x2_0025)], [Some("MPI_ERR_NO_SUCH_FILE"); 2]);
        assert_eq!([errno(0x1_002a), errno(0x2_0024)], [libc::ENOENT, libc::ENOSPC].map(i32::cast_unsigned));
        assert_eq!([name(0), name(42), name(0x1_ffff)], [None; 3]);
        assert_eq!(named("MPI_ERR_IO"), Some(0x1_0023));
    }
}
