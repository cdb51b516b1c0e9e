//! Names in directories: what they lead to, or that they lead nowhere.

use std::{collections::HashMap, ffi::CString};

use cephfs_proxy::wire::{Errno, Found, Handle, Lookup, Nop, Stamp, Statx};

use super::{HARMLESS, Kept, attributes::Attributes};
use crate::{
    fork,
    link::GONE,
    session::Target,
    tables::{Origin, Pointer, Tables},
};

/// Names that are kept of one directory, at most, and of all.
const MOST_OF_ONE: usize = 4 << 10;
const MOST: usize = 8 << 10;

/// CEPH_STATX_ALL_STATS: what is asked for with every name, since it is what is asked for next.
pub const COMMON: u32 = 0xfff;

/// Of one directory: by identity, since some may look and others may not, and by name. With the number of an inode, or none.
#[derive(Default)]
pub struct Names(HashMap<Vec<u8>, Kept<Option<u64>>>);

fn key(perms: Handle, name: &[u8]) -> Vec<u8> {
    [&perms.0.to_le_bytes(), name].concat()
}

impl Names {
    fn get(&self, perms: Handle, name: &[u8]) -> Option<&Kept<Option<u64>>> {
        self.0.get(&key(perms, name))
    }

    fn insert(&mut self, perms: Handle, name: &[u8], kept: Kept<Option<u64>>, count: &mut usize) {
        if self.0.len() >= MOST_OF_ONE || *count >= MOST {
            *count = count.saturating_sub(self.0.len());
            self.0.clear();
        }
        *count += usize::from(self.0.insert(key(perms, name), kept).is_none());
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// What is looked for, and by whom.
pub struct Question<'a> {
    /// The directory.
    pub parent: Pointer,
    /// In it.
    pub name: &'a [u8],
    /// Who asks, as the daemon knows it.
    pub perms: Handle,
    /// Attributes.
    pub want: u32,
    /// AT_*.
    pub flags: u32,
    /// When it was asked.
    pub asked: u64,
}

impl Target {
    /// What a name leads to, from copies, or from the daemon: then the caller has the inode once more.
    pub fn find(&self, question: &Question<'_>) -> Result<(Pointer, Statx), Errno> {
        if self.link.is_full() {
            // Any request makes room.
            self.link.call(&Nop {})?;
        }
        if let Some(known) = self.look_up(question) {
            return known;
        }
        if self.bring_many(question)
            && let Some(known) = self.look_up(question)
        {
            return known;
        }
        let &Question { parent, name, perms, want, flags, .. } = question;
        let (mount, parent) = (self.mount, self.remote(parent)?);
        let name = CString::new(name).map_err(|_| Errno(libc::EINVAL))?;
        let found = self.link.call(&Lookup { mount, parent, name: &name, want: want | COMMON, flags, perms })?;
        if found.inode == Handle(0) {
            self.learn(question, &found, None);
            return Err(Errno(libc::ENOENT));
        }
        let inode = self.hand_out(found.inode, Origin::from(&found.statx));
        self.learn(question, &found, Some(inode as u64));
        Ok((inode, found.statx))
    }

    /// What a name leads to, from copies.
    fn look_up(&self, question: &Question<'_>) -> Option<Result<(Pointer, Statx), Errno>> {
        let &Question { parent, name, perms, want, flags, .. } = question;
        if flags & !HARMLESS != 0 {
            return None;
        }
        let mut tables = fork::tables();
        let directory = tables.present(parent as u64).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let Some(number) = *directory.names.get(perms, name)?.get(&self.link)? else {
            return Some(Err(Errno(libc::ENOENT)));
        };
        let inode = tables.inodes.get(number).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let statx = inode.attributes.as_ref()?.get(&self.link)?.cover(want)?;
        // One that only we have is the caller's again, and the daemon must not take it for idle.
        if inode.held == 0 && !inode.pinned {
            if !self.link.retake(inode.remote) {
                return None;
            }
            inode.owed += 1;
        }
        inode.held += 1;
        Some(Ok((number as Pointer, statx)))
    }

    /// The daemon's handle of an inode that the caller has, or we.
    fn remote(&self, inode: Pointer) -> Result<Handle, Errno> {
        let mut tables = fork::tables();
        let found = tables.present(inode as u64)?;
        if found.is_at(self.local, &self.link) { Ok(found.remote) } else { Err(GONE) }
    }

    /// Keeps what the daemon has said to that. An inode that was found is known by its number.
    pub fn learn(&self, question: &Question<'_>, answer: &Found, number: Option<u64>) {
        let &Question { parent, name, perms, want, asked, .. } = question;
        let mut tables = fork::tables();
        let Tables { inodes, names, .. } = &mut *tables;
        if let Some(inode) = number.and_then(|number| inodes.get(number).ok()) {
            keep(
                &mut inode.attributes,
                Attributes::keep(&self.link, want | COMMON, answer.statx, answer.attributes, asked),
            );
        }
        if let Some(kept) = Kept::new(&self.link, number, answer.name, asked)
            && let Ok(directory) = inodes.get(parent as u64)
        {
            directory.names.insert(perms, name, kept, names);
        }
    }

    /// Keeps attributes that were asked for.
    pub fn learn_attributes(&self, inode: Pointer, want: u32, statx: Statx, stamp: Stamp, asked: u64) {
        if stamp.life > 0
            && let Ok(inode) = fork::tables().inode(inode as u64)
        {
            keep(&mut inode.attributes, Attributes::keep(&self.link, want, statx, stamp, asked));
        }
    }
}

/// What is new replaces what was there; nothing new, nothing is changed.
fn keep<T>(place: &mut Option<Kept<T>>, new: Option<Kept<T>>) {
    if new.is_some() {
        *place = new;
    }
}
