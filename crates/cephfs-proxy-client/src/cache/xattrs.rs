//! Extended attributes of inodes, and that there is none by a name.

use cephfs_proxy::wire::{Errno, Handle, Stamp};

use super::Kept;
use crate::{fork, session::Target, tables::Pointer};

/// How many are kept of an inode, at most.
const MOST_OF_ONE: usize = 8;
/// What is larger is not kept.
pub const LARGEST: usize = 1024;

/// A value or an errno, for somebody; a name that is none stands for the list of names.
pub struct Xattr {
    perms: Handle,
    name: Box<[u8]>,
    said: Result<Box<[u8]>, Errno>,
}

/// What is known of an inode's.
#[derive(Default)]
pub struct Xattrs(Vec<Kept<Xattr>>);

impl Target {
    /// What is known of an extended attribute; without a name, of the list of names.
    pub fn xattr(&self, inode: Pointer, name: &[u8], perms: Handle) -> Option<Result<Box<[u8]>, Errno>> {
        let mut tables = fork::tables();
        let inode = tables.inode(inode as u64).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let mut all = inode.xattrs.0.iter().filter_map(|kept| kept.get(&self.link));
        all.find(|xattr| xattr.perms == perms && *xattr.name == *name).map(|xattr| xattr.said.clone())
    }

    /// Keeps what the daemon has said, if that was all there is.
    pub fn learn_xattr(
        &self,
        inode: u64,
        (name, perms): (&[u8], Handle),
        said: Result<&[u8], Errno>,
        stamp: Stamp,
        asked: u64,
    ) {
        // What begins like this is made up by libcephfs as it is asked for.
        if name.starts_with(b"ceph.") || said.is_ok_and(|value| value.len() > LARGEST) {
            return;
        }
        let xattr = Xattr { perms, name: name.into(), said: said.map(Into::into) };
        let Some(kept) = Kept::new(&self.link, xattr, stamp, asked) else { return };
        let mut tables = fork::tables();
        let Ok(inode) = tables.inodes.get(inode) else { return };
        let all = &mut inode.xattrs.0;
        all.retain(|kept| kept.get(&self.link).is_some_and(|xattr| xattr.perms != perms || *xattr.name != *name));
        all.truncate(MOST_OF_ONE - 1);
        all.insert(0, kept);
    }
}
