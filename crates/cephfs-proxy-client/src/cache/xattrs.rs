//! Cached extended attributes of inodes. The absence of an attribute is cached, too.

use cephfs_proxy::wire::{Errno, Handle, Validity};

use super::CachedAnswer;
use crate::{fork, session::RequestTarget, tables::Pointer};

/// The most cached extended attributes of an inode.
const MOST_OF_ONE: usize = 8;
/// The most bytes of a cached value.
pub const LARGEST: usize = 1024;

/// A value or an errno, for one identity. The empty name is the list of names.
pub struct CachedXattr {
    perms: Handle,
    name: Box<[u8]>,
    said: Result<Box<[u8]>, Errno>,
}

/// The cached extended attributes of an inode.
#[derive(Default)]
pub struct Xattrs(Vec<CachedAnswer<CachedXattr>>);

impl RequestTarget {
    /// An extended attribute from a copy; the empty name is the list of names. `None` if there is no valid copy.
    pub fn xattr(&self, inode: Pointer, name: &[u8], perms: Handle) -> Option<Result<Box<[u8]>, Errno>> {
        let mut tables = fork::tables();
        let inode = tables.inode(inode as u64).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let mut all = inode.xattrs.0.iter().filter_map(|kept| kept.get(&self.link));
        all.find(|xattr| xattr.perms == perms && *xattr.name == *name).map(|xattr| xattr.said.clone())
    }

    /// Caches the daemon's answer, if it is complete.
    pub fn learn_xattr(
        &self,
        inode: u64,
        (name, perms): (&[u8], Handle),
        said: Result<&[u8], Errno>,
        stamp: Validity,
        asked: u64,
    ) {
        // libcephfs computes attributes whose names begin with `ceph.` at each request, so they are not cached.
        if name.starts_with(b"ceph.") || said.is_ok_and(|value| value.len() > LARGEST) {
            return;
        }
        let xattr = CachedXattr { perms, name: name.into(), said: said.map(Into::into) };
        let Some(kept) = CachedAnswer::new(&self.link, xattr, stamp, asked) else { return };
        let mut tables = fork::tables();
        let Ok(inode) = tables.inodes.get(inode) else { return };
        let all = &mut inode.xattrs.0;
        all.retain(|kept| kept.get(&self.link).is_some_and(|xattr| xattr.perms != perms || *xattr.name != *name));
        all.truncate(MOST_OF_ONE - 1);
        all.insert(0, kept);
    }
}
