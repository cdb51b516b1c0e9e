//! Requests that create, rename and remove names.

use std::{
    ffi::{CStr, c_char, c_int},
    ptr,
};

use super::{
    PERMISSIONS, Reply, RequestContext, changed_name, done,
    inodes::{SNAPSHOT_DIRECTORY, number},
    weight,
};
use crate::{
    daemon::{
        ceph::{Ceph, CephInode, CephMount, CephPerms, TakeAway},
        coherence::Copied,
    },
    wire::*,
};

/// The common arguments of libcephfs's creating functions.
struct CreationArguments {
    ceph: &'static Ceph,
    mount: *mut CephMount,
    parent: *mut CephInode,
    name: *const c_char,
    perms: *const CephPerms,
}

impl RequestContext<'_> {
    pub(super) fn mknod(&self, r: &Mknod<'_>) -> Reply<FoundInode> {
        // As in mknod(2), a directory is refused. A metadata server would create the directory, and crash when a name is created in the directory
        // (16.2).
        match r.mode & libc::S_IFMT {
            libc::S_IFDIR => return Err(Errno::PERM),
            0 | libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK => {}
            _ => return Err(Errno::INVAL),
        }
        self.make(r.mount, r.parent, r.name, r.perms, |at, raw, statx| {
            // SAFETY: all objects are held, and the pointers to the results are valid.
            unsafe {
                let mknod = at.ceph.ceph_ll_mknod;
                mknod(at.mount, at.parent, at.name, r.mode, r.rdev, raw, statx, r.want, r.flags, at.perms)
            }
        })
    }

    pub(super) fn mkdir(&self, r: &Mkdir<'_>) -> Reply<FoundInode> {
        self.make(r.mount, r.parent, r.name, r.perms, |at, raw, statx| {
            let mkdir = at.ceph.ceph_ll_mkdir;
            // SAFETY: all objects are held, and the pointers to the results are valid.
            unsafe { mkdir(at.mount, at.parent, at.name, r.mode & PERMISSIONS, raw, statx, r.want, r.flags, at.perms) }
        })
    }

    pub(super) fn symlink(&self, r: &Symlink<'_>) -> Reply<FoundInode> {
        self.make(r.mount, r.parent, r.name, r.perms, |at, raw, statx| {
            let (symlink, target) = (at.ceph.ceph_ll_symlink, r.target.as_ptr());
            // SAFETY: all objects are held, and the pointers to the results are valid.
            unsafe { symlink(at.mount, at.parent, at.name, target, raw, statx, r.want, r.flags, at.perms) }
        })
    }

    /// Creates a name by `function`, and returns the inode.
    fn make(
        &self,
        owner: Handle,
        parent: Handle,
        text: &CStr,
        perms: Handle,
        function: impl FnOnce(&CreationArguments, &mut *mut CephInode, &mut Statx) -> c_int,
    ) -> Reply<FoundInode> {
        self.room_for([weight::INODE])?;
        let (parent, perms) = (self.parent(owner, parent)?, self.perms(perms)?);
        let ((ceph, mount), mut raw, mut statx) = (parent.parts(), ptr::null_mut(), Statx::default());
        let at = CreationArguments {
            ceph,
            mount,
            parent: parent.raw,
            name: changed_name(text)?.as_ptr(),
            perms: perms.raw(),
        };
        let named = parent.mount.naming(parent.ino);
        let change = parent.mount.change(&[Copied::Name(parent.ino, text.to_bytes()), Copied::Attributes(parent.ino)]);
        let result = function(&at, &mut raw, &mut statx);
        drop((change, named));
        let found = self.found(owner, parent.mount.clone(), result, raw, statx)?;
        self.note_snapshot(&parent, text, &statx);
        Ok(found)
    }

    pub(super) fn link(&self, r: &Link<'_>) -> Reply<()> {
        let inode = self.inode(r.mount, r.inode)?;
        let (parent, perms) = (self.parent(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), name) = (parent.parts(), changed_name(r.name)?.as_ptr());
        let _named = parent.mount.naming(parent.ino);
        let _change = parent.mount.change(&[
            Copied::Name(parent.ino, r.name.to_bytes()),
            Copied::Attributes(parent.ino),
            Copied::Attributes(inode.ino),
        ]);
        // SAFETY: all objects are held, and belong to one mount.
        done(unsafe { (ceph.ceph_ll_link)(mount, inode.raw, parent.raw, name, perms.raw()) })
    }

    pub(super) fn rename(&self, r: &Rename<'_>) -> Reply<()> {
        let (parent, new_parent) = (self.parent(r.mount, r.parent)?, self.parent(r.mount, r.new_parent)?);
        let ((ceph, mount), perms) = (parent.parts(), self.perms(r.perms)?);
        let (from, to) = (changed_name(r.name)?.as_ptr(), changed_name(r.new_name)?.as_ptr());
        let _alone = parent.mount.renaming([parent.ino, new_parent.ino]);
        let moved = parent.attributes_of(r.name, &perms)?;
        let replaced = new_parent.attributes_of(r.new_name, &perms).ok();
        // As in rename(2), two names of one inode stay as they are. libcephfs would treat both names as removed until somebody else
        // changes the directory (16.2).
        if replaced.is_some_and(|replaced| (replaced.ino, replaced.dev) == (moved.ino, moved.dev)) {
            return Ok((0, ()));
        }
        let _change = parent.mount.change(&[
            Copied::Name(parent.ino, r.name.to_bytes()),
            Copied::Name(new_parent.ino, r.new_name.to_bytes()),
            Copied::Attributes(parent.ino),
            Copied::Attributes(new_parent.ino),
            Copied::Attributes(number(&moved)),
            Copied::Attributes(replaced.map_or(parent.ino, |replaced| number(&replaced))),
        ]);
        // SAFETY: all objects are held, and belong to one mount.
        done(unsafe { (ceph.ceph_ll_rename)(mount, parent.raw, from, new_parent.raw, to, perms.raw()) })
    }

    pub(super) fn unlink(&self, r: &Unlink<'_>) -> Reply<()> {
        self.take_away(r.mount, r.parent, r.name, r.perms, |ceph| ceph.ceph_ll_unlink)
    }

    pub(super) fn rmdir(&self, r: &Rmdir<'_>) -> Reply<()> {
        self.take_away(r.mount, r.parent, r.name, r.perms, |ceph| ceph.ceph_ll_rmdir)
    }

    fn take_away(
        &self,
        mount: Handle,
        parent: Handle,
        text: &CStr,
        perms: Handle,
        function: impl FnOnce(&Ceph) -> TakeAway,
    ) -> Reply<()> {
        let (parent, perms) = (self.parent(mount, parent)?, self.perms(perms)?);
        let ((ceph, mount), name) = (parent.parts(), changed_name(text)?.as_ptr());
        let is_snapshot = parent.snapshot == SNAPSHOT_DIRECTORY;
        let _alone = parent.mount.removing(parent.ino, is_snapshot);
        if is_snapshot {
            // If the name does not exist, libcephfs keeps the name for ever, and can never unmount again (16.2).
            parent.attributes_of(text, &perms)?;
        }
        let gone = parent.number_of(text, &perms).unwrap_or(parent.ino);
        let _change = parent.mount.change(&[
            Copied::Name(parent.ino, text.to_bytes()),
            Copied::Attributes(parent.ino),
            Copied::Attributes(gone),
        ]);
        // SAFETY: all objects are held, and belong to one mount.
        done(unsafe { function(ceph)(mount, parent.raw, name, perms.raw()) })
    }
}
