//! Cached names in directories: the name's inode, or that the name does not exist.

use std::{collections::HashMap, ffi::CString};

use cephfs_proxy::wire::{Errno, FoundInode, Handle, Lookup, Nop, Statx, Validity};

use super::{CachedAnswer, HARMLESS, attributes::CachedAttributes};
use crate::{
    fork,
    link::CallError,
    session::RequestTarget,
    tables::{Origin, Pointer, Tables},
};

/// The most cached names of one directory, and of all.
const MOST_OF_ONE: usize = 4 << 10;
const MOST: usize = 8 << 10;

/// CEPH_STATX_ALL_STATS: the attributes requested with every name, since callers usually need them next.
pub const COMMON: u32 = 0xfff;

/// The cached names of one directory, by identity (permissions differ) and name. The value is an inode's number, or
/// `None` for a name that does not exist.
#[derive(Default)]
pub struct DirectoryNames(HashMap<Vec<u8>, CachedAnswer<Option<u64>>>);

fn key(perms: Handle, name: &[u8]) -> Vec<u8> {
    [&perms.0.to_le_bytes(), name].concat()
}

impl DirectoryNames {
    fn get(&self, perms: Handle, name: &[u8]) -> Option<&CachedAnswer<Option<u64>>> {
        self.0.get(&key(perms, name))
    }

    fn insert(&mut self, perms: Handle, name: &[u8], kept: CachedAnswer<Option<u64>>, count: &mut usize) {
        if self.0.len() >= MOST_OF_ONE || *count >= MOST {
            *count = count.saturating_sub(self.0.len());
            self.0.clear();
        }
        *count += usize::from(self.0.insert(key(perms, name), kept).is_none());
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A look-up of a name.
pub struct Question<'a> {
    /// The directory.
    pub parent: Pointer,
    /// The name.
    pub name: &'a [u8],
    /// The daemon's handle of the identity.
    pub perms: Handle,
    /// The wanted attributes, CEPH_STATX_*.
    pub want: u32,
    /// The flags, AT_*.
    pub flags: u32,
    /// The time of the request, by [`super::now`].
    pub asked: u64,
}

impl RequestTarget {
    /// Finds a name's inode, from copies or from the daemon. The caller gets one more reference to the inode.
    pub fn find(&self, question: &Question<'_>) -> Result<(Pointer, Statx), CallError> {
        if self.link.is_full() {
            // Any request makes room.
            self.link.call(&Nop {})?;
        }
        if let Some(known) = self.look_up(question) {
            return known.map_err(CallError::from);
        }
        if self.bring_many(question)
            && let Some(known) = self.look_up(question)
        {
            return known.map_err(CallError::from);
        }
        let &Question { parent, name, perms, want, flags, .. } = question;
        let (mount, parent) = (self.mount, self.remote(parent)?);
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let found = self.link.call(&Lookup { mount, parent, name: &name, want: want | COMMON, flags, perms })?;
        if found.inode == Handle(0) {
            self.learn(question, &found, None);
            return Err(Errno::NOENT.into());
        }
        let inode = self.hand_out(found.inode, Origin::from(&found.statx));
        self.learn(question, &found, Some(inode as u64));
        Ok((inode, found.statx))
    }

    /// Finds a name's inode from copies; `None` if there are no valid copies.
    fn look_up(&self, question: &Question<'_>) -> Option<Result<(Pointer, Statx), Errno>> {
        let &Question { parent, name, perms, want, flags, .. } = question;
        if flags & !HARMLESS != 0 {
            return None;
        }
        let mut tables = fork::tables();
        let directory = tables.present(parent as u64).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let Some(number) = *directory.names.get(perms, name)?.get(&self.link)? else {
            return Some(Err(Errno::NOENT));
        };
        let inode = tables.inodes.get(number).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let statx = inode.attributes.as_ref()?.get(&self.link)?.cover(want)?;
        // The caller holds the idle inode again, so the daemon must not treat it as idle.
        if inode.held == 0 && !inode.pinned {
            if !self.link.retake(inode.remote) {
                return None;
            }
            inode.owed += 1;
        }
        inode.held += 1;
        Some(Ok((number as Pointer, statx)))
    }

    /// The daemon's handle of an inode that the caller or the library holds.
    fn remote(&self, inode: Pointer) -> Result<Handle, CallError> {
        let mut tables = fork::tables();
        let found = tables.present(inode as u64)?;
        if found.is_at(self.local, &self.link) { Ok(found.remote) } else { Err(CallError::NotStarted) }
    }

    /// Caches the daemon's answer to a look-up. `number`: the caller's number of the inode, if it was found.
    pub fn learn(&self, question: &Question<'_>, answer: &FoundInode, number: Option<u64>) {
        let &Question { parent, name, perms, want, asked, .. } = question;
        let mut tables = fork::tables();
        let Tables { inodes, names, .. } = &mut *tables;
        if let Some(inode) = number.and_then(|number| inodes.get(number).ok()) {
            keep(
                &mut inode.attributes,
                CachedAttributes::keep(&self.link, want | COMMON, answer.statx, answer.attributes, asked),
            );
        }
        if let Some(kept) = CachedAnswer::new(&self.link, number, answer.name, asked)
            && let Ok(directory) = inodes.get(parent as u64)
        {
            directory.names.insert(perms, name, kept, names);
        }
    }

    /// Caches attributes from the daemon.
    pub fn learn_attributes(&self, inode: Pointer, want: u32, statx: Statx, stamp: Validity, asked: u64) {
        if stamp.life > 0
            && let Ok(inode) = fork::tables().inode(inode as u64)
        {
            keep(&mut inode.attributes, CachedAttributes::keep(&self.link, want, statx, stamp, asked));
        }
    }
}

/// Replaces a copy if there is a newer one.
fn keep<T>(place: &mut Option<CachedAnswer<T>>, new: Option<CachedAnswer<T>>) {
    if new.is_some() {
        *place = new;
    }
}
