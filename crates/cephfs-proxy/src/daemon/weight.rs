//! Upper bounds of the memory, in bytes, that an object of a client takes here and in libcephfs. They exceed the measured values;
//! `tests/ceph/clients` compares them.
//!
//! The bounds leave out libcephfs's caches of a mount, which have their own limits (client_cache_size, client_oc_size).
//! They also leave out an inode's extended attributes, of which the metadata server allows 64 KiB.

use super::handles::HeldObject;

/// An inode, with a name and its capability.
pub const INODE: usize = 8 << 10;
/// An open file.
pub const FILE: usize = 1 << 10;
/// An open directory: libcephfs keeps a thousand entries for each.
pub const DIRECTORY: usize = 512 << 10;
/// A mount, mounted or not. Its client may be the only one, and it has a dozen threads.
pub const MOUNT: usize = 16 << 20;

/// An identity whose groups take this many bytes.
pub const fn identity(groups: usize) -> usize {
    (1 << 10) + groups
}

impl HeldObject {
    /// The object's bound, bytes.
    pub fn weight(&self) -> usize {
        match self {
            HeldObject::Mount(_) => MOUNT,
            HeldObject::Inode(_) => INODE,
            HeldObject::File(_) => FILE,
            HeldObject::Dir(_) => DIRECTORY,
            HeldObject::Perms(perms) => identity(size_of_val(&*perms.groups)),
        }
    }
}
