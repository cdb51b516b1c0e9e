//! The values that operations are made of.

use super::{Malformed, Reader, Wire, Writer};

/// An errno, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// A number by which one connection names something of its own in the daemon. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Handle(pub u64);

/// A point in time: seconds and nanoseconds, as in `struct timespec`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: i64,
}

/// An entry of a directory, without its name, as in `struct dirent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// `d_ino`.
    pub ino: u64,
    /// `d_off`: where the next one is, for `telldir`.
    pub next: i64,
    /// `d_type`.
    pub kind: u8,
    /// Bytes of the name that follows.
    pub length: u8,
}

impl Entry {
    /// Bytes of one, without its name.
    pub const SIZE: usize = 18;
}

/// Gives a struct of values its `Wire`.
macro_rules! wire_struct {
    ($name:ident $($field:ident)*) => {
        impl<'a> Wire<'a> for $name {
            fn put(&self, to: &mut Writer<'_>) -> Result<(), Malformed> {
                $(self.$field.put(to)?;)*
                Ok(())
            }
            fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
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
    pub atime: Time,
    pub ctime: Time,
    pub mtime: Time,
    pub btime: Time,
    pub version: u64,
}

/// `struct statvfs`, of which libcephfs fills these.
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

/// How long a copy of an answer is valid: while both entries of the version table have these values, and no longer than so many
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// 0: it is to be asked for again each time.
    pub life: u32,
    /// An entry of the version table, and its value.
    pub first: (u32, u64),
    /// Likewise; the same one again if there is no other.
    pub second: (u32, u64),
}

/// An inode that was found or made, and its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// It; 0 if there is none by that name, and that can be kept.
    pub inode: Handle,
    /// As they were asked for.
    pub statx: Statx,
    /// For these attributes.
    pub attributes: Stamp,
    /// For what the name leads to.
    pub name: Stamp,
}

/// An inode's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// As they were asked for.
    pub statx: Statx,
    /// For them.
    pub stamp: Stamp,
}

/// What goes with an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Xattr {
    /// Not 0: there is none, and that can be kept.
    pub errno: i32,
    /// For it, or for that.
    pub stamp: Stamp,
}

/// What goes with entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entries {
    /// There are no more.
    pub end: bool,
    /// For the list that they are part of, if all of it has the same.
    pub stamp: Stamp,
}

/// An open directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// It.
    pub dir: Handle,
    /// The first of its entries.
    pub entries: Entries,
}

/// A file that was made, and is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Created {
    /// It.
    pub inode: Handle,
    /// And as opened.
    pub file: Handle,
    /// As they were asked for.
    pub statx: Statx,
}

impl<'a> Wire<'a> for Handle {
    fn put(&self, to: &mut Writer<'_>) -> Result<(), Malformed> {
        self.0.put(to)
    }
    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        u64::take(from).map(Handle)
    }
    fn handle(&self) -> Option<Handle> {
        Some(*self)
    }
}

wire_struct!(Time seconds nanoseconds);
wire_struct!(Entry ino next kind length);
wire_struct!(Statx mask blksize nlink uid gid mode ino size blocks dev rdev atime ctime mtime btime version);
wire_struct!(Statvfs bsize frsize blocks bfree bavail files ffree favail fsid flag namemax);
wire_struct!(Stamp life first second);
wire_struct!(Found inode statx attributes name);
wire_struct!(Attributes statx stamp);
wire_struct!(Xattr errno stamp);
wire_struct!(Entries end stamp);
wire_struct!(Opened dir entries);
wire_struct!(Created inode file statx);
