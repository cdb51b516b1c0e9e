//! Requests that find inodes, and that read or change their attributes.

use std::{ffi::CStr, mem, ptr, sync::Arc};

use super::{Reply, RequestContext, checked, done, name, weight};
use crate::{
    daemon::{
        ceph::{CephInode, Vino},
        coherence::{Copied, VersionsBefore, limited},
        handles::{self, Perms},
        mounts::SharedMount,
    },
    wire::*,
};

/// CEPH_SNAPDIR: a directory's directory of snapshots.
pub(super) const SNAPSHOT_DIRECTORY: u64 = u64::MAX;
/// CEPH_SETATTR_SIZE. On anything but a file, libcephfs divides by the zero in its layout (seen with 16.2).
const SET_SIZE: i32 = 1 << 5;
/// All CEPH_SETATTR flags of cephfs/libcephfs.h, except those of fscrypt, whose values a request does not contain.
const SETTABLE: i32 = 0x7FF | 1 << 13 | 1 << 14;

impl RequestContext<'_> {
    /// Adds the inode that libcephfs found, and pairs it with its attributes.
    pub(super) fn found(
        &self,
        owner: Handle,
        mount: Arc<SharedMount>,
        result: i32,
        raw: *mut CephInode,
        statx: Statx,
    ) -> Reply<FoundInode> {
        if let Err(error) = checked(result) {
            // `ceph_ll_create` also returns an inode, with a reference, if the file may not be opened.
            if !raw.is_null() {
                // SAFETY: libcephfs has just returned the inode.
                unsafe { (mount.ceph().ceph_ll_put)(mount.raw(), raw) };
            }
            return Err(error);
        }
        if raw.is_null() {
            return Err(Errno::IO);
        }
        let inode = handles::Inode { mount, raw, ino: number(&statx), kind: kind(&statx), snapshot: statx.dev };
        let inode = self.hold_inode(owner, inode);
        Ok((result.into(), FoundInode { inode, statx, ..FoundInode::default() }))
    }

    pub(super) fn lookup_root(&self, r: &LookupRoot) -> Reply<Handle> {
        self.room_for([weight::INODE])?;
        let (mount, mut raw) = (self.mount(r.mount)?, ptr::null_mut());
        // SAFETY: the mount works, and the pointer to the result is valid.
        let result = unsafe { (mount.ceph().ceph_ll_lookup_root)(mount.raw(), &mut raw) };
        let statx = known(&mount, raw);
        self.found(r.mount, mount, result, raw, statx).map(|(result, found)| (result, found.inode))
    }

    pub(super) fn lookup_inode(&self, r: &LookupInode) -> Reply<Handle> {
        if is_internal(r.ino) {
            return Err(Errno::STALE);
        }
        self.room_for([weight::INODE])?;
        let (mount, mut raw) = (self.mount(r.mount)?, ptr::null_mut());
        // SAFETY: the file system is mounted, and the pointer to the result is valid; an inodeno_t is passed as its
        // number.
        let result = unsafe { (mount.ceph().ceph_ll_lookup_inode)(mount.raw(), r.ino, &mut raw) };
        let statx = Statx { ino: r.ino, dev: NO_SNAPSHOT, ..known(&mount, raw) };
        self.found(r.mount, mount, result, raw, statx).map(|(result, found)| (result, found.inode))
    }

    pub(super) fn lookup_vino(&self, r: &LookupVino) -> Reply<Handle> {
        if is_internal(r.ino) {
            return Err(Errno::STALE);
        }
        if r.snapshot == NO_SNAPSHOT {
            return self.lookup_inode(&LookupInode { mount: r.mount, ino: r.ino });
        }
        self.room_for([weight::INODE])?;
        let (mount, mut raw) = (self.mount(r.mount)?, ptr::null_mut());
        let lookup = mount.ceph().ceph_ll_lookup_vino.ok_or(Errno::STALE)?;
        if r.snapshot != SNAPSHOT_DIRECTORY && !self.shared.snapshots.has(&mount, r.snapshot) {
            return Err(Errno::STALE);
        }
        // SAFETY: the file system is mounted, and the pointer to the result is valid.
        let result = unsafe { lookup(mount.raw(), Vino { ino: r.ino, snapshot: r.snapshot }, &mut raw) };
        let statx = Statx { ino: r.ino, dev: r.snapshot, ..known(&mount, raw) };
        self.found(r.mount, mount, result, raw, statx).map(|(result, found)| (result, found.inode))
    }

    pub(super) fn lookup(&self, r: &Lookup<'_>) -> Reply<FoundInode> {
        self.room_for([weight::INODE])?;
        let (parent, perms) = (self.inode(r.mount, r.parent)?, self.perms(r.perms)?);
        let ((ceph, mount), mut raw, mut statx) = (parent.parts(), ptr::null_mut(), Statx::default());
        let (text, name) = (r.name.to_bytes(), name(r.name)?.as_ptr());
        let before = parent.mount.before(parent.ino, text);
        // SAFETY: all objects are held, and the pointers to the results are valid.
        let result = unsafe {
            (ceph.ceph_ll_lookup)(mount, parent.raw, name, &mut raw, &mut statx, r.want, r.flags, perms.raw())
        };
        if result == -Errno::NOENT.raw_os_error() && before.name().life > 0 {
            return Ok((0, FoundInode { name: before.name(), ..FoundInode::default() }));
        }
        let (result, found) = self.found(r.mount, parent.mount.clone(), result, raw, statx)?;
        self.note_snapshot(&parent, r.name, &statx);
        let found =
            FoundInode { name: before.name(), ..self.stamped(found, &before, r.mount, (r.want, r.flags), &perms)? };
        Ok((result, found))
    }

    /// Notes where a snapshot is, if a name led to it.
    pub(super) fn note_snapshot(&self, parent: &handles::Inode, name: &CStr, statx: &Statx) {
        if parent.snapshot == SNAPSHOT_DIRECTORY {
            self.shared.snapshots.note(&parent.mount, statx.dev, parent.ino, name);
        }
    }

    /// Sets the stamp of the attributes that came with a name. Requests the attributes again if anything has changed
    /// meanwhile.
    fn stamped(
        &self,
        found: FoundInode,
        before: &VersionsBefore,
        owner: Handle,
        (want, flags): (u32, u32),
        perms: &Perms,
    ) -> Result<FoundInode, Errno> {
        let inode = self.inode(owner, found.inode)?;
        let mut statx = found.statx;
        let stamp = match inode.mount.since(before, inode.ino) {
            Some(stamp) => stamp,
            None => {
                let stamp = inode.mount.stamp_attributes(inode.ino);
                let (ceph, mount) = inode.parts();
                // SAFETY: both objects are held, and the pointer to the result is valid.
                checked(unsafe { (ceph.ceph_ll_getattr)(mount, inode.raw, &mut statx, want, flags, perms.raw()) })?;
                stamp
            }
        };
        Ok(FoundInode { statx, attributes: limited(stamp, &statx), ..found })
    }

    pub(super) fn walk(&self, r: &Walk<'_>) -> Reply<FoundInode> {
        self.room_for([weight::INODE])?;
        let (mount, perms) = (self.mount(r.mount)?, self.perms(r.perms)?);
        let (path, mut raw, mut statx) = (self.path(r.mount, r.path)?, ptr::null_mut(), Statx::default());
        let before = mount.before(0, b"");
        // SAFETY: the path is a C string, all objects are held, and the pointers to the results are valid.
        let result = unsafe {
            let walk = mount.ceph().ceph_ll_walk;
            walk(mount.raw(), path.as_ptr(), &mut raw, &mut statx, r.want, r.flags, perms.raw())
        };
        let (result, found) = self.found(r.mount, mount.clone(), result, raw, statx)?;
        if !matches!(statx.dev, NO_SNAPSHOT | SNAPSHOT_DIRECTORY) {
            self.shared.snapshots.note_path(&mount, statx.dev, &path);
        }
        Ok((result, self.stamped(found, &before, r.mount, (r.want, r.flags), &perms)?))
    }

    pub(super) fn getattr(&self, r: &Getattr) -> Reply<Attributes> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let ((ceph, mount), mut statx) = (inode.parts(), Statx::default());
        let stamp = inode.mount.stamp_attributes(inode.ino);
        // SAFETY: both objects are held, and the pointer to the result is valid.
        let result = unsafe { (ceph.ceph_ll_getattr)(mount, inode.raw, &mut statx, r.want, r.flags, perms.raw()) };
        checked(result)?;
        if stamp.life == 0 && self.delegated(&inode, &statx) {
            let stamp = inode.mount.stamp_attributes(inode.ino);
            // SAFETY: both objects are held, and the pointer to the result is valid.
            let result = unsafe { (ceph.ceph_ll_getattr)(mount, inode.raw, &mut statx, r.want, r.flags, perms.raw()) };
            return checked(result).map(|result| (result.into(), Attributes { statx, stamp }));
        }
        Ok((0, Attributes { statx, stamp: limited(stamp, &statx) }))
    }

    /// Requests a delegation of a file, since its attributes may be requested repeatedly. Returns whether it was
    /// granted now. Files in snapshots are left out, since what a delegation means there is not documented.
    fn delegated(&self, inode: &handles::Inode, statx: &Statx) -> bool {
        let most = self.shared.limits.delegations;
        kind(statx) == libc::S_IFREG
            && statx.dev == NO_SNAPSHOT
            && most > 0
            && !inode.mount.may_be_stale()
            && inode.mount.take_delegation(inode.ino, inode.raw, most, false)
    }

    pub(super) fn setattr(&self, r: &Setattr) -> Reply<Altered> {
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        if r.mask & !SETTABLE != 0 {
            return Err(Errno::INVAL);
        }
        if r.mask & SET_SIZE != 0 && inode.kind != libc::S_IFREG {
            return Err(if inode.is_directory() { Errno::ISDIR } else { Errno::INVAL });
        }
        let ((ceph, mount), mut statx) = (inode.parts(), r.statx);
        // CEPH_SETATTR_MODE, _UID and _GID
        let rights = if r.mask & 7 != 0 { Copied::Rights } else { Copied::Attributes };
        let _change = inode.mount.change(&[Copied::Attributes(inode.ino), rights(inode.ino)]);
        // SAFETY: both objects are held, and the pointer to the result is valid.
        let result = unsafe { (ceph.ceph_ll_setattr)(mount, inode.raw, &mut statx, r.mask, perms.raw()) };
        checked(result).map(|result| (result.into(), Altered { statx, mark: inode.mount.mark(inode.raw) }))
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
        // SAFETY: both objects are held, and the buffer has that many bytes.
        done(unsafe { (ceph.ceph_ll_readlink)(mount, inode.raw, self.data.cast(), room, perms.raw()) })
    }
}

/// The inode's type: S_IFREG, S_IFDIR and so on. libcephfs always fills it in.
pub(super) fn kind(statx: &Statx) -> u32 {
    u32::from(statx.mode) & libc::S_IFMT
}

/// Whether the number is one of the metadata servers' own inodes, below MDS_INO_SYSTEM_BASE (mds/mdstypes.h): all but
/// the root and lost+found. libcephfs divides by the zero in their layouts (seen with 16.2).
fn is_internal(ino: u64) -> bool {
    !matches!(ino, 1 | 4 | 0x1400..)
}

/// The number of an inode for versions and delegations. A file in a snapshot has the same number as the current file,
/// which can still change. So its number is combined with the snapshot's, beyond all numbers of CephFS. A directory in
/// a snapshot keeps its number, since it changes when snapshots are made and removed.
pub(super) fn number(statx: &Statx) -> u64 {
    if statx.dev == NO_SNAPSHOT || kind(statx) == libc::S_IFDIR {
        return statx.ino;
    }
    (statx.ino ^ statx.dev.rotate_left(40)) | 1 << 63
}

/// The number, snapshot and type of an inode that libcephfs has just returned. libcephfs knows these without a request.
pub(super) fn known(mount: &SharedMount, raw: *mut CephInode) -> Statx {
    let mut statx = Statx::default();
    if !raw.is_null() {
        // SAFETY: the inode is held, and the pointer to the result is valid.
        unsafe { (mount.ceph().ceph_ll_getattr)(mount.raw(), raw, &mut statx, 0, 0, mount.own.raw) };
    }
    statx
}

impl handles::Inode {
    /// The number of a name's inode. Use it for versions only: the number may be outdated.
    pub(super) fn number_of(&self, name: &CStr, perms: &Perms) -> Option<u64> {
        if !self.mount.may_be_stale() {
            return None;
        }
        self.attributes_of(name, perms).ok().map(|statx| number(&statx))
    }

    /// What libcephfs knows of a name's inode.
    pub(super) fn attributes_of(&self, name: &CStr, perms: &Perms) -> Result<Statx, Errno> {
        let ((ceph, mount), mut raw, mut statx) = (self.parts(), ptr::null_mut(), Statx::default());
        // SAFETY: all objects are held, the pointers to the results are valid, and the found inode is released.
        unsafe {
            let lookup = ceph.ceph_ll_lookup;
            checked(lookup(mount, self.raw, name.as_ptr(), &mut raw, &mut statx, 0, 0, perms.raw()))?;
            (ceph.ceph_ll_put)(mount, raw);
        }
        Ok(statx)
    }
}
