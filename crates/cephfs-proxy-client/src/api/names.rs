//! Functions that create, rename and remove names.

use std::ffi::{c_char, c_int, c_uint};

use cephfs_proxy::wire::{Link, Mkdir, Mknod, Rename, Rmdir, Statx, Symlink, Unlink};

use super::{give, guard_int, not_null, text};
use crate::{session::target, tables::Pointer};

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_mknod(
    cmount: Pointer,
    parent: Pointer,
    name: *const c_char,
    mode: libc::mode_t,
    rdev: libc::dev_t,
    out: *mut Pointer,
    stx: *mut Statx,
    want: c_uint,
    flags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, out, stx) = (target(cmount)?, not_null(out)?, not_null(stx)?);
        let (mount, parent, perms) = (target.mount, target.inode(parent)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        let found = target.link.call(&Mknod { mount, parent, name, mode, rdev, want, flags, perms })?;
        // SAFETY: the caller's pointers are valid, and were checked for null.
        unsafe { give(&target, &found, out, stx) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_mkdir(
    cmount: Pointer,
    parent: Pointer,
    name: *const c_char,
    mode: libc::mode_t,
    out: *mut Pointer,
    stx: *mut Statx,
    want: c_uint,
    flags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, out, stx) = (target(cmount)?, not_null(out)?, not_null(stx)?);
        let (mount, parent, perms) = (target.mount, target.inode(parent)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        let found = target.link.call(&Mkdir { mount, parent, name, mode, want, flags, perms })?;
        // SAFETY: the caller's pointers are valid, and were checked for null.
        unsafe { give(&target, &found, out, stx) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_symlink(
    cmount: Pointer,
    parent: Pointer,
    name: *const c_char,
    value: *const c_char,
    out: *mut Pointer,
    stx: *mut Statx,
    want: c_uint,
    flags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, out, stx) = (target(cmount)?, not_null(out)?, not_null(stx)?);
        let (mount, parent, perms) = (target.mount, target.inode(parent)?, target.perms(perms)?);
        // SAFETY: the caller passes C strings or null.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        let found = target.link.call(&Symlink { mount, parent, name, target: value, want, flags, perms })?;
        // SAFETY: the caller's pointers are valid, and were checked for null.
        unsafe { give(&target, &found, out, stx) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_link(
    cmount: Pointer,
    inode: Pointer,
    newparent: Pointer,
    name: *const c_char,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, inode, parent) = (target.mount, target.inode(inode)?, target.inode(newparent)?);
        // SAFETY: the caller passes a C string or null.
        let (name, perms) = (unsafe { text(name)? }, target.perms(perms)?);
        target.link.call(&Link { mount, inode, parent, name, perms }).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_rename(
    cmount: Pointer,
    parent: Pointer,
    name: *const c_char,
    newparent: Pointer,
    newname: *const c_char,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, parent, new_parent) = (target.mount, target.inode(parent)?, target.inode(newparent)?);
        // SAFETY: the caller passes C strings or null.
        let (name, new_name) = unsafe { (text(name)?, text(newname)?) };
        let perms = target.perms(perms)?;
        target.link.call(&Rename { mount, parent, name, new_parent, new_name, perms }).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_unlink(cmount: Pointer, parent: Pointer, name: *const c_char, perms: Pointer) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, parent, perms) = (target.mount, target.inode(parent)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        target.link.call(&Unlink { mount, parent, name, perms }).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_rmdir(cmount: Pointer, parent: Pointer, name: *const c_char, perms: Pointer) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, parent, perms) = (target.mount, target.inode(parent)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        target.link.call(&Rmdir { mount, parent, name, perms }).map(|()| 0)
    })
}
