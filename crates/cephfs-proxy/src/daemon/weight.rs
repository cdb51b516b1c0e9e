//! What a thing that a client holds may take, here and in libcephfs, in bytes: more than was measured (`tests/ceph/clients` compares).
//!
//! What libcephfs keeps for a mount, whoever uses it, is not in it: its own limits (client_cache_size, client_oc_size) are for that; nor are
//! an inode's extended attributes, of which the metadata server allows 64 KiB.

use super::handles::Held;

/// An inode, with a name and its capability.
pub const INODE: usize = 8 << 10;
/// An open file.
pub const FILE: usize = 1 << 10;
/// An open directory: libcephfs keeps a thousand entries for each.
pub const DIRECTORY: usize = 512 << 10;
/// A mount, mounted or not: it may be one of its own, with a dozen threads.
pub const MOUNT: usize = 16 << 20;

/// An identity with so many bytes of groups.
pub const fn identity(groups: usize) -> usize {
    (1 << 10) + groups
}

impl Held {
    /// Its own.
    pub fn weight(&self) -> usize {
        match self {
            Held::Mount(_) => MOUNT,
            Held::Inode(_) => INODE,
            Held::File(_) => FILE,
            Held::Dir(_) => DIRECTORY,
            Held::Perms(perms) => identity(size_of_val(&*perms.groups)),
        }
    }
}
