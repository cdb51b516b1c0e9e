//! Functions that find inodes, read or change their attributes, and release them.

use std::{
    ffi::{c_char, c_int, c_uint},
    mem,
};

use cephfs_proxy::{
    layout::DATA_SIZE,
    wire::{Getattr, LookupInode, LookupRoot, NO_SNAPSHOT, Readlink, Setattr, Statfs, Statx, Walk},
};

use super::{files, give, guard_int, not_null, place, text};
use crate::{
    cache::{self, COMMON, Question},
    session::{put_back, target},
    tables::{Origin, Pointer},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_lookup_root(cmount: Pointer, parent: *mut Pointer) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes a valid pointer or null.
        let (target, parent) = (target(cmount)?, unsafe { place(parent)? });
        let root = target.link.call(&LookupRoot { mount: target.mount })?;
        *parent = target.hand_out(root, Origin::Root);
        Ok(0)
    })
}

/// `struct inodeno_t`, which is passed as its number.
#[repr(C)]
struct InodeNumber {
    val: u64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_lookup_inode(cmount: Pointer, ino: InodeNumber, inode: *mut Pointer) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes a valid pointer or null.
        let (target, inode) = (target(cmount)?, unsafe { place(inode)? });
        let found = target.link.call(&LookupInode { mount: target.mount, ino: ino.val })?;
        *inode = target.hand_out(found, Origin::Number { ino: ino.val, snapshot: NO_SNAPSHOT });
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_lookup(
    cmount: Pointer,
    parent: Pointer,
    name: *const c_char,
    out: *mut Pointer,
    stx: *mut Statx,
    want: c_uint,
    flags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, out, stx) = (target(cmount)?, not_null(out)?, not_null(stx)?);
        target.inode(parent)?;
        let perms = target.perms(perms)?;
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        let question = Question { parent, name: name.to_bytes(), perms, want, flags, asked: cache::now() };
        let (inode, statx) = target.find(&question)?;
        // SAFETY: the caller's pointers are valid, and were checked for null.
        unsafe { (*out, *stx) = (inode, statx) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_walk(
    cmount: Pointer,
    name: *const c_char,
    i: *mut Pointer,
    stx: *mut Statx,
    want: c_uint,
    flags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, out, stx) = (target(cmount)?, not_null(i)?, not_null(stx)?);
        let (mount, perms) = (target.mount, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let (path, asked) = (unsafe { text(name)? }, cache::now());
        if let Some(known) = target.walk(path.to_bytes(), want, flags, perms) {
            let (inode, statx) = known?;
            // SAFETY: the caller's pointers are valid, and were checked for null.
            unsafe { (*out, *stx) = (inode, statx) };
            return Ok(0);
        }
        let found = target.link.call(&Walk { mount, path, want: want | COMMON, flags, perms })?;
        // SAFETY: the caller's pointers are valid, and were checked for null.
        unsafe {
            give(&target, &found, out, stx)?;
            target.learn_attributes(*out, want | COMMON, found.statx, found.attributes, asked);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_getattr(
    cmount: Pointer,
    inode: Pointer,
    stx: *mut Statx,
    want: c_uint,
    flags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes a valid pointer or null.
        let stx = unsafe { place(stx)? };
        if let Some(known) = cache::attributes(cmount, inode, want, flags, perms) {
            *stx = known;
            return Ok(0);
        }
        let (target, asked) = (target(cmount)?, cache::now());
        let (mount, remote, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        let found = target.link.call(&Getattr { mount, inode: remote, want, flags, perms })?;
        target.learn_attributes(inode, want, found.statx, found.stamp, asked);
        *stx = found.statx;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_setattr(
    cmount: Pointer,
    inode: Pointer,
    stx: *mut Statx,
    mask: c_int,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        // SAFETY: the caller passes a valid pointer or null.
        let (target, stx) = (target(cmount)?, unsafe { place(stx)? });
        let key = files::flush_before(&target, inode)?;
        let (mount, inode, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        let altered = target.link.call(&Setattr { mount, inode, statx: *stx, mask, perms })?;
        files::changed(key, altered.mark);
        *stx = altered.statx;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_statfs(cmount: Pointer, inode: Pointer, stbuf: *mut libc::statvfs) -> c_int {
    guard_int(|| {
        // SAFETY: a place or null; all zero is a valid statvfs.
        let (target, stbuf, zero) = unsafe { (target(cmount)?, place(stbuf)?, mem::zeroed()) };
        let said = target.link.call(&Statfs { mount: target.mount, inode: target.inode(inode)? })?;
        *stbuf = zero;
        stbuf.f_bsize = said.bsize;
        stbuf.f_frsize = said.frsize;
        stbuf.f_blocks = said.blocks;
        stbuf.f_bfree = said.bfree;
        stbuf.f_bavail = said.bavail;
        stbuf.f_files = said.files;
        stbuf.f_ffree = said.ffree;
        stbuf.f_favail = said.favail;
        stbuf.f_fsid = said.fsid;
        stbuf.f_flag = said.flag;
        stbuf.f_namemax = said.namemax;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_readlink(
    cmount: Pointer,
    inode: Pointer,
    buf: *mut c_char,
    bufsize: usize,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, buf) = (target(cmount)?, not_null(buf)?);
        let (mount, inode, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        let claim = target.link.claim()?;
        let room = bufsize.min(DATA_SIZE) as u32;
        let (length, ()) = claim.call(&Readlink { mount, inode, room, perms }, 0)?;
        // SAFETY: the caller's buffer has room for all requested bytes.
        unsafe { claim.take(buf.cast(), (length as usize).min(bufsize)) };
        Ok(length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_put(cmount: Pointer, inode: Pointer) -> c_int {
    guard_int(|| put_back(cmount, inode).map(i64::from))
}
