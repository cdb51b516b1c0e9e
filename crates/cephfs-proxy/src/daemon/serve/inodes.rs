//! Inodes: found, and asked about.

use std::{ffi::CStr, mem, ptr, sync::Arc};

use super::{Reply, Service, checked, done, name, weight};
use crate::{
    daemon::{
        ceph::{CephInode, Vino},
        coherence::{Before, Copied, limited},
        handles::{self, Perms},
        mounts::Mount,
    },
    wire::*,
};

/// CEPH_NOSNAP: an inode as it is.
const NO_SNAPSHOT: u64 = -2i64 as u64;

impl Service<'_> {
    /// Holds what libcephfs found, and pairs it with its attributes.
    pub(super) fn found(
        &self,
        owner: Handle,
        mount: Arc<Mount>,
        result: i32,
        raw: *mut CephInode,
        statx: Statx,
    ) -> Reply<Found> {
        checked(result)?;
        if raw.is_null() {
            return Err(Errno(libc::EIO));
        }
        let inode = handles::Inode { mount, raw, ino: number(&statx), is_directory: is(&statx, libc::S_IFDIR) };
        let inode = self.hold_inode(owner, inode);
        Ok((result.into(), Found { inode, statx, ..Found::default() }))
    }

    pub(super) fn lookup_root(&self, r: &LookupRoot) -> Reply<Handle> {
        self.room_for([weight::INODE])?;
        let (mount, mut raw) = (self.mount(r.mount)?, ptr::null_mut());
        // SAFETY: a mount that works, and a place for the result.
        let result = unsafe { (mount.ceph().ceph_ll_lookup_root)(mount.raw(), &mut raw) };
        let statx = known(&mount, raw);
        self.found(r.mount, mount, result, raw, statx).map(|(result, found)| (result, found.inode))
    }

    pub(super) fn lookup_inode(&self, r: &LookupInode) -> Reply<Handle> {
        self.room_for([weight::INODE])?;
        let (mount, mut raw) = (self.mount(r.mount)?, ptr::null_mut());
        // SAFETY: likewise; an inodeno_t is its number.
        let result = unsafe { (mount.ceph().ceph_ll_lookup_inode)(mount.raw(), r.ino, &mut raw) };
        let statx = Statx { ino: r.ino, dev: NO_SNAPSHOT, ..known(&mount, raw) };
        self.found(r.mount, mount, result, raw, statx).map(|(result, found)| (result, found.inode))
    }

    pub(super) fn lookup_vino(&self, r: &LookupVino) -> Reply<Handle> {
        if r.snapshot == NO_SNAPSHOT {
            return self.lookup_inode(&LookupInode { mount: r.mount, ino: r.ino });
        }
        self.room_for([weight::INODE])?;
        let (mount, mut raw) = (self.mount(r.mount)?, ptr::null_mut());
        let lookup = mount.ceph().ceph_ll_lookup_vino.ok_or(Errno(libc::ESTALE))?;
        // SAFETY: likewise.
        let result = unsafe { lookup(mount.raw(), Vino { ino: r.ino, snapshot: r.snapshot }, &mut raw) };
        let statx = Statx { ino: r.ino, dev: r.snapshot, ..known(&mount, raw) };
        self.found(r.mount, mount, result, raw, statx).map(|(result, found)| (result, found.inode))
    }

    pub(super) fn lookup(&self, r: &Lookup<'_>) -> Reply<Found> {
        self.room_for([weight::INODE])?;
        let (parent, perms) = (self.inode(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), mut raw, mut statx) = (parent.parts(), ptr::null_mut(), Statx::default());
        let (text, name) = (r.name.to_bytes(), name(r.name)?.as_ptr());
        let before = parent.mount.before(parent.ino, text);
        // SAFETY: all of them are held, and places for the results.
        let result = unsafe {
            (ceph.ceph_ll_lookup)(mount, parent.raw, name, &mut raw, &mut statx, r.want, r.flags, perms.raw())
        };
        if result == -libc::ENOENT && before.name().life > 0 {
            return Ok((0, Found { name: before.name(), ..Found::default() }));
        }
        let (result, found) = self.found(r.mount, parent.mount.clone(), result, raw, statx)?;
        let found = Found { name: before.name(), ..self.stamped(found, &before, r.mount, (r.want, r.flags), &perms)? };
        Ok((result, found))
    }

    /// Says for how long attributes are good that came with a name; asks again if something has changed meanwhile.
    fn stamped(
        &self,
        found: Found,
        before: &Before,
        owner: Handle,
        (want, flags): (u32, u32),
        perms: &Perms,
    ) -> Result<Found, Errno> {
        let inode = self.inode(owner, found.inode)?;
        let mut statx = found.statx;
        let stamp = match inode.mount.since(before, inode.ino) {
            Some(stamp) => stamp,
            None => {
                let stamp = inode.mount.stamp_attributes(inode.ino);
                let (ceph, mount) = inode.parts();
                // SAFETY: both are held, and a place for the result.
                checked(unsafe { (ceph.ceph_ll_getattr)(mount, inode.raw, &mut statx, want, flags, perms.raw()) })?;
                stamp
            }
        };
        Ok(Found { statx, attributes: limited(stamp, &statx), ..found })
    }

    pub(super) fn walk(&self, r: &Walk<'_>) -> Reply<Found> {
        self.room_for([weight::INODE])?;
        let (mount, perms) = (self.mount(r.mount)?, self.perms(r.perms)?);
        let (path, mut raw, mut statx) = (self.path(r.mount, r.path)?, ptr::null_mut(), Statx::default());
        let before = mount.before(0, b"");
        // SAFETY: likewise.
        let result = unsafe {
            let walk = mount.ceph().ceph_ll_walk;
            walk(mount.raw(), path.as_ptr(), &mut raw, &mut statx, r.want, r.flags, perms.raw())
        };
        let (result, found) = self.found(r.mount, mount, result, raw, statx)?;
        Ok((result, self.stamped(found, &before, r.mount, (r.want, r.flags), &perms)?))
    }

    pub(super) fn getattr(&self, r: &Getattr) -> Reply<Attributes> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), mut statx) = (inode.parts(), Statx::default());
        let stamp = inode.mount.stamp_attributes(inode.ino);
        // SAFETY: both are held, and a place for the result.
        let result = unsafe { (ceph.ceph_ll_getattr)(mount, inode.raw, &mut statx, r.want, r.flags, perms.raw()) };
        checked(result)?;
        if stamp.life == 0 && self.delegated(&inode, &statx) {
            let stamp = inode.mount.stamp_attributes(inode.ino);
            // SAFETY: likewise.
            let result = unsafe { (ceph.ceph_ll_getattr)(mount, inode.raw, &mut statx, r.want, r.flags, perms.raw()) };
            return checked(result).map(|result| (result.into(), Attributes { statx, stamp }));
        }
        Ok((0, Attributes { statx, stamp: limited(stamp, &statx) }))
    }

    /// Whether a file has just been promised, since its attributes may be asked for again and again. Nobody says what a delegation is worth
    /// in a snapshot.
    fn delegated(&self, inode: &handles::Inode, statx: &Statx) -> bool {
        let most = self.shared.limits.delegations;
        is(statx, libc::S_IFREG)
            && statx.dev == NO_SNAPSHOT
            && most > 0
            && !inode.mount.may_be_stale()
            && inode.mount.take_delegation(inode, most)
    }

    pub(super) fn setattr(&self, r: &Setattr) -> Reply<Statx> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), mut statx) = (inode.parts(), r.statx);
        // CEPH_SETATTR_MODE, _UID and _GID
        let rights = if r.mask & 7 != 0 { Copied::Rights } else { Copied::Attributes };
        let _change = inode.mount.change(&[Copied::Attributes(inode.ino), rights(inode.ino)]);
        // SAFETY: likewise.
        let result = unsafe { (ceph.ceph_ll_setattr)(mount, inode.raw, &mut statx, r.mask, perms.raw()) };
        checked(result).map(|result| (result.into(), statx))
    }

    pub(super) fn statfs(&self, r: &Statfs) -> Reply<Statvfs> {
        let inode = self.inode(r.mount, r.inode)?;
        let (ceph, mount) = inode.parts();
        // SAFETY: all zero is a valid statvfs; the inode is held.
        let (result, said) = unsafe {
            let mut said: libc::statvfs = mem::zeroed();
            ((ceph.ceph_ll_statfs)(mount, inode.raw, &mut said), said)
        };
        let answer = Statvfs {
            bsize: said.f_bsize,
            frsize: said.f_frsize,
            blocks: said.f_blocks,
            bfree: said.f_bfree,
            bavail: said.f_bavail,
            files: said.f_files,
            ffree: said.f_ffree,
            favail: said.f_favail,
            fsid: said.f_fsid,
            flag: said.f_flag,
            namemax: said.f_namemax,
        };
        checked(result).map(|result| (result.into(), answer))
    }

    pub(super) fn readlink(&self, r: &Readlink) -> Reply<()> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let (ceph, mount) = inode.parts();
        let room = self.room(r.room);
        // SAFETY: both are held, and there is that much room.
        done(unsafe { (ceph.ceph_ll_readlink)(mount, inode.raw, self.data.cast(), room, perms.raw()) })
    }
}

/// Whether it is one of that type, which libcephfs says whatever was asked for.
pub(super) fn is(statx: &Statx, kind: u32) -> bool {
    u32::from(statx.mode) & libc::S_IFMT == kind
}

/// The number by which versions and delegations know an inode. A file in a snapshot has the number of the one that it was taken of, which goes on changing;
/// for it, that and the snapshot's, beyond all numbers that CephFS gives. A directory's changes when snapshots are made and removed.
pub(super) fn number(statx: &Statx) -> u64 {
    if statx.dev == NO_SNAPSHOT || is(statx, libc::S_IFDIR) {
        return statx.ino;
    }
    (statx.ino ^ statx.dev.rotate_left(40)) | 1 << 63
}

/// Number, snapshot and type of an inode that libcephfs has just handed out, in attributes that it need not ask for.
fn known(mount: &Mount, raw: *mut CephInode) -> Statx {
    let mut statx = Statx::default();
    if !raw.is_null() {
        // SAFETY: it is ours, and a place for the result.
        unsafe { (mount.ceph().ceph_ll_getattr)(mount.raw(), raw, &mut statx, 0, 0, mount.own.raw) };
    }
    statx
}

impl handles::Inode {
    /// The number of what a name in this directory leads to. For versions only: the caller must not rely on it.
    pub(super) fn number_of(&self, name: &CStr, perms: &Perms) -> Option<u64> {
        if !self.mount.may_be_stale() {
            return None;
        }
        let ((ceph, mount), mut raw, mut statx) = (self.parts(), ptr::null_mut(), Statx::default());
        // SAFETY: all of them are held, and places for the results; what is found is given back.
        unsafe {
            if (ceph.ceph_ll_lookup)(mount, self.raw, name.as_ptr(), &mut raw, &mut statx, 0, 0, perms.raw()) < 0 {
                return None;
            }
            (ceph.ceph_ll_put)(mount, raw);
        }
        Some(number(&statx))
    }
}
