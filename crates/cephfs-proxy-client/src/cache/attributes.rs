//! Cached attributes of inodes.

use cephfs_proxy::wire::{Statx, Validity};

use super::{CachedAnswer, HARMLESS};
use crate::{
    fork,
    link::DaemonLink,
    tables::{Pointer, Tables},
};

/// Attributes, and the mask of the requested ones.
pub struct CachedAttributes {
    want: u32,
    statx: Statx,
}

impl CachedAttributes {
    /// A copy of these attributes; `None` if they must not be cached.
    pub fn keep(
        link: &DaemonLink,
        want: u32,
        statx: Statx,
        stamp: Validity,
        asked: u64,
    ) -> Option<CachedAnswer<CachedAttributes>> {
        CachedAnswer::new(link, CachedAttributes { want: want | statx.mask, statx }, stamp, asked)
    }

    /// The attributes, if they include all wanted ones.
    pub fn cover(&self, want: u32) -> Option<Statx> {
        (want & !self.want == 0).then_some(self.statx)
    }
}

/// An inode's attributes from a copy. `None` if there is no valid copy, or an argument is invalid: then the daemon must be asked.
pub fn attributes(mount: Pointer, inode: Pointer, want: u32, flags: u32, perms: Pointer) -> Option<Statx> {
    let mut tables = fork::tables();
    let Tables { mounts, inodes, perms: identities, .. } = &mut *tables;
    let link = &mounts.get(mount as u64).ok()?.link;
    let inode = inodes.get(inode as u64).ok().filter(|inode| inode.held > 0)?;
    let kept = inode.attributes.as_ref()?;
    if flags & !HARMLESS != 0 || link.is_dead() || !inode.is_at(mount as u64, link) || !identities.knows(perms) {
        return None;
    }
    kept.get(link)?.cover(want)
}
