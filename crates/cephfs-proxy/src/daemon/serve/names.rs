//! What makes, moves and removes names.

use std::{ffi::CStr, ptr};

use super::{Reply, Service, done, name, weight};
use crate::{
    daemon::{
        ceph::{Ceph, TakeAway},
        coherence::Copied,
    },
    wire::*,
};

impl Service<'_> {
    pub(super) fn mknod(&self, r: &Mknod<'_>) -> Reply<Found> {
        // As mknod(2) has it. A metadata server makes one, and dies of what is made in there (16.2).
        if r.mode & libc::S_IFMT == libc::S_IFDIR {
            return Err(Errno(libc::EPERM));
        }
        self.room_for([weight::INODE])?;
        let (parent, perms) = (self.parent(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), mut raw, mut statx) = (parent.parts(), ptr::null_mut(), Statx::default());
        let (text, name) = (r.name.to_bytes(), name(r.name)?.as_ptr());
        let change = parent.mount.change(&[Copied::Name(parent.ino, text), Copied::Attributes(parent.ino)]);
        // SAFETY: all of them are held, and places for the results.
        let result = unsafe {
            let mknod = ceph.ceph_ll_mknod;
            let p = perms.raw();
            mknod(mount, parent.raw, name, r.mode, r.rdev, &mut raw, &mut statx, r.want, r.flags, p)
        };
        drop(change);
        self.found(r.mount, parent.mount.clone(), result, raw, statx)
    }

    pub(super) fn mkdir(&self, r: &Mkdir<'_>) -> Reply<Found> {
        self.room_for([weight::INODE])?;
        let (parent, perms) = (self.parent(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), mut raw, mut statx) = (parent.parts(), ptr::null_mut(), Statx::default());
        let (text, name) = (r.name.to_bytes(), name(r.name)?.as_ptr());
        let change = parent.mount.change(&[Copied::Name(parent.ino, text), Copied::Attributes(parent.ino)]);
        // SAFETY: likewise.
        let result = unsafe {
            let mkdir = ceph.ceph_ll_mkdir;
            mkdir(mount, parent.raw, name, r.mode, &mut raw, &mut statx, r.want, r.flags, perms.raw())
        };
        drop(change);
        self.found(r.mount, parent.mount.clone(), result, raw, statx)
    }

    pub(super) fn symlink(&self, r: &Symlink<'_>) -> Reply<Found> {
        self.room_for([weight::INODE])?;
        let (parent, perms) = (self.parent(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), mut raw, mut statx) = (parent.parts(), ptr::null_mut(), Statx::default());
        let (text, name, target) = (r.name.to_bytes(), name(r.name)?.as_ptr(), r.target.as_ptr());
        let change = parent.mount.change(&[Copied::Name(parent.ino, text), Copied::Attributes(parent.ino)]);
        // SAFETY: likewise.
        let result = unsafe {
            let symlink = ceph.ceph_ll_symlink;
            symlink(mount, parent.raw, name, target, &mut raw, &mut statx, r.want, r.flags, perms.raw())
        };
        drop(change);
        self.found(r.mount, parent.mount.clone(), result, raw, statx)
    }

    pub(super) fn link(&self, r: &Link<'_>) -> Reply<()> {
        let inode = self.inode(r.mount, r.inode)?;
        let (parent, perms) = (self.parent(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), name) = (parent.parts(), name(r.name)?.as_ptr());
        let _change = parent.mount.change(&[
            Copied::Name(parent.ino, r.name.to_bytes()),
            Copied::Attributes(parent.ino),
            Copied::Attributes(inode.ino),
        ]);
        // SAFETY: all of them are held, and of one mount.
        done(unsafe { (ceph.ceph_ll_link)(mount, inode.raw, parent.raw, name, perms.raw()) })
    }

    pub(super) fn rename(&self, r: &Rename<'_>) -> Reply<()> {
        let (parent, new_parent) = (self.parent(r.mount, r.parent)?, self.parent(r.mount, r.new_parent)?);
        let ((ceph, mount), perms) = (parent.parts(), self.perms(r.perms)?);
        let (from, to) = (name(r.name)?.as_ptr(), name(r.new_name)?.as_ptr());
        let _alone = parent.mount.taking_away([parent.ino, new_parent.ino]);
        let (moved, replaced) = (parent.number_of(r.name, &perms), new_parent.number_of(r.new_name, &perms));
        let _change = parent.mount.change(&[
            Copied::Name(parent.ino, r.name.to_bytes()),
            Copied::Name(new_parent.ino, r.new_name.to_bytes()),
            Copied::Attributes(parent.ino),
            Copied::Attributes(new_parent.ino),
            Copied::Attributes(moved.unwrap_or(parent.ino)),
            Copied::Attributes(replaced.unwrap_or(parent.ino)),
        ]);
        // SAFETY: likewise.
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
        let ((ceph, mount), name) = (parent.parts(), name(text)?.as_ptr());
        let _alone = parent.mount.taking_away([parent.ino; 2]);
        let gone = parent.number_of(text, &perms).unwrap_or(parent.ino);
        let _change = parent.mount.change(&[
            Copied::Name(parent.ino, text.to_bytes()),
            Copied::Attributes(parent.ino),
            Copied::Attributes(gone),
        ]);
        // SAFETY: all of them are held, and of one mount.
        done(unsafe { function(ceph)(mount, parent.raw, name, perms.raw()) })
    }
}
