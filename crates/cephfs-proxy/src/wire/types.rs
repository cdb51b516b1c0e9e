//! The types of requests and answers.

pub use rustix::io::Errno;

use super::{Malformed, Wire, WireReader, WireWriter};

/// The errno for a negative result. EIO if the number is not an errno (at most 4095), since the other side may be wrong.
pub fn errno_of(result: i64) -> Errno {
    let errno = result.checked_neg().filter(|errno| (1..4096).contains(errno));
    errno.map_or(Errno::IO, |errno| Errno::from_raw_os_error(errno as i32))
}

/// The negative result for an errno.
pub fn result_of(errno: Errno) -> i64 {
    -i64::from(errno.raw_os_error())
}

/// The errno of an error; EIO if it has none.
pub fn errno_in(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A connection's own number for an object in the daemon. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Handle(pub u64);

/// CEPH_NOSNAP: the inode's current state, not a snapshot.
pub const NO_SNAPSHOT: u64 = -2i64 as u64;

/// A point in time: seconds and nanoseconds, as in `struct timespec`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timespec {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanoseconds: i64,
}

/// An entry of a directory, without its name, as in `struct dirent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryEntry {
    /// `d_ino`.
    pub ino: u64,
    /// `d_off`: the position of the next entry, for `telldir`.
    pub next: i64,
    /// `d_type`.
    pub kind: u8,
    /// Bytes of the name that follows.
    pub length: u8,
}

impl DirectoryEntry {
    /// The bytes of an entry, without its name.
    pub const SIZE: usize = 18;
}

/// Implements `Wire` for a struct of values.
macro_rules! wire_struct {
    ($name:ident $($field:ident)*) => {
        impl<'a> Wire<'a> for $name {
            fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
                $(self.$field.put(to)?;)*
                Ok(())
            }
            fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Wire::take(from)?),* })
            }
        }
    };
}

/// `struct ceph_statx`, as libcephfs has had it from 12 to 20.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "cephfs/ceph_ll_client.h documents them")]
pub struct Statx {
    pub mask: u32,
    pub blksize: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub dev: u64,
    pub rdev: u64,
    pub atime: Timespec,
    pub ctime: Timespec,
    pub mtime: Timespec,
    pub btime: Timespec,
    pub version: u64,
}

/// The fields of `struct statvfs` that libcephfs fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "statvfs(3) documents them")]
pub struct Statvfs {
    pub bsize: u64,
    pub frsize: u64,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub favail: u64,
    pub fsid: u64,
    pub flag: u64,
    pub namemax: u64,
}

/// How long a copy of an answer is valid: while both entries of the version table have these values, but at most `life`
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Validity {
    /// Milliseconds; 0: no copy may be kept.
    pub life: u32,
    /// An entry of the version table, and its value.
    pub first: (u32, u64),
    /// A second entry and its value; the same as `first` if there is only one.
    pub second: (u32, u64),
}

/// An inode that was found or created, and its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoundInode {
    /// The inode; 0 if the name does not exist, and its absence may be cached.
    pub inode: Handle,
    /// The requested attributes.
    pub statx: Statx,
    /// The validity of the attributes.
    pub attributes: Validity,
    /// The validity of the name.
    pub name: Validity,
}

/// CephFS's record of the last change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeMark {
    /// The file's version, which each write increments by one.
    pub version: u64,
    /// The change time.
    pub ctime: Timespec,
}

impl ChangeMark {
    /// Whether this is the mark of a known change.
    pub fn is_known(&self) -> bool {
        *self != ChangeMark::default()
    }
}

impl Default for ChangeMark {
    /// The mark of an unknown change.
    fn default() -> ChangeMark {
        ChangeMark { version: u64::MAX, ctime: Timespec::default() }
    }
}

/// An open file, and the mark of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// The file.
    pub file: Handle,
    /// The last change that the daemon knows of.
    pub mark: ChangeMark,
    /// The same number as from an earlier process, if nobody could change that process's open files until this process started; 0: not known.
    pub lineage: u64,
}

/// Attributes that were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Altered {
    /// All attributes, as libcephfs returns them.
    pub statx: Statx,
    /// The mark of this change.
    pub mark: ChangeMark,
}

/// Where data that was read can be read again without a request (`data_pages`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachedData {
    /// The number of the file's memory; 0: there is none.
    pub memory: u64,
    /// The validity of the memory's chunks: those of the version `stamp.first`.
    pub stamp: Validity,
    /// Whether the data is only in the memory, which the client has mapped, and not in the slot.
    pub is_only_there: bool,
}

/// The memory that has a file's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataMemory {
    /// Its number.
    pub memory: u64,
    /// The number of chunks for which the memory has room.
    pub chunks: u32,
}

/// An inode's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The requested attributes.
    pub statx: Statx,
    /// Their validity.
    pub stamp: Validity,
}

/// The answer about an extended attribute, besides its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Xattr {
    /// Not 0: the attribute does not exist, and its absence may be cached.
    pub errno: i32,
    /// The validity of the value, or of the errno.
    pub stamp: Validity,
}

/// The answer about entries of a directory, besides the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entries {
    /// There are no more entries.
    pub end: bool,
    /// The validity of the directory's list, if all its parts have the same stamp.
    pub stamp: Validity,
}

/// An open directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenDirectory {
    /// The directory.
    pub dir: Handle,
    /// Its first entries.
    pub entries: Entries,
}

/// A file that was created and opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Created {
    /// The inode.
    pub inode: Handle,
    /// The open file.
    pub opened: Opened,
    /// The requested attributes.
    pub statx: Statx,
}

impl<'a> Wire<'a> for Handle {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        self.0.put(to)
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        u64::take(from).map(Handle)
    }
    fn handle(&self) -> Option<Handle> {
        Some(*self)
    }
}

wire_struct!(Timespec seconds nanoseconds);
wire_struct!(DirectoryEntry ino next kind length);
wire_struct!(Statx mask blksize nlink uid gid mode ino size blocks dev rdev atime ctime mtime btime version);
wire_struct!(Statvfs bsize frsize blocks bfree bavail files ffree favail fsid flag namemax);
wire_struct!(Validity life first second);
wire_struct!(FoundInode inode statx attributes name);
wire_struct!(Attributes statx stamp);
wire_struct!(Xattr errno stamp);
wire_struct!(Entries end stamp);
wire_struct!(OpenDirectory dir entries);
wire_struct!(ChangeMark version ctime);
wire_struct!(Altered statx mark);
wire_struct!(Opened file mark lineage);
wire_struct!(CachedData memory stamp is_only_there);
wire_struct!(DataMemory memory chunks);
wire_struct!(Created inode opened statx);
