//! Functions for extended attributes.

use std::ffi::{c_char, c_int, c_void};

use cephfs_proxy::{
    layout::DATA_SIZE,
    wire::{Errno, Getxattr, Handle, Listxattr, Removexattr, Setxattr, Xattr, errno_of},
};

use super::{files, guard_int, not_null, text};
use crate::{
    cache::{self, LARGEST},
    link::{CallError, SlotClaim},
    session::{RequestTarget, target},
    tables::Pointer,
};

/// Copies a value to the caller's buffer, from the cache or from the daemon (by `ask`). Returns the value's length.
///
/// # Safety
/// `to` must be valid for `size` bytes.
unsafe fn known_or<'l>(
    target: &RequestTarget,
    inode: Pointer,
    (name, perms): (&[u8], Handle),
    (to, size): (*mut u8, usize),
    ask: impl Fn(u32) -> Result<(i64, SlotClaim<'l>, Xattr), CallError>,
) -> Result<i64, CallError> {
    let (known, asked) = (target.xattr(inode, name, perms), cache::now());
    if known.is_none() {
        target.wanted_xattr(name);
    }
    let value = match known {
        Some(known) => known?,
        // Requests more bytes than the caller has room for, so that the value can be cached.
        None => match ask(size.clamp(LARGEST, DATA_SIZE) as u32) {
            Ok((_, _, Xattr { errno, stamp })) if errno != 0 => {
                let error = errno_of(-i64::from(errno));
                target.learn_xattr(inode as u64, (name, perms), Err(error), stamp, asked);
                return Err(error.into());
            }
            Ok((length, claim, Xattr { stamp, .. })) => {
                let value = claim.copy(length as usize);
                target.learn_xattr(inode as u64, (name, perms), Ok(&value), stamp, asked);
                value.into()
            }
            Err(CallError::Errno(Errno::RANGE)) if size == 0 => return ask(0).map(|(length, ..)| length),
            Err(error) => return Err(error),
        },
    };
    if size > 0 && value.len() > size {
        return Err(Errno::RANGE.into());
    }
    if size > 0 {
        // SAFETY: the caller's buffer has that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to, value.len()) };
    }
    Ok(value.len() as i64)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_getxattr(
    cmount: Pointer,
    inode: Pointer,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, remote, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        let value = if size == 0 { value } else { not_null(value)? };
        let ask = |room| {
            let claim = target.link.claim()?;
            let (length, about) = claim.call(&Getxattr { mount, inode: remote, name, room, perms }, 0)?;
            Ok((length, claim, about))
        };
        // SAFETY: the caller's buffer has that many bytes.
        unsafe { known_or(&target, inode, (name.to_bytes(), perms), (value.cast(), size), ask) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_setxattr(
    cmount: Pointer,
    inode: Pointer,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let key = files::flush_before(&target, inode)?;
        let (mount, inode, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        if size > DATA_SIZE {
            // The metadata server's limit is smaller than this, and it returns ENOSPC for larger values.
            return Err(Errno::NOSPC.into());
        }
        let value = if size == 0 { value } else { not_null(value.cast_mut())?.cast_const() };
        let claim = target.link.claim()?;
        if size > 0 {
            // SAFETY: the caller's value has that many bytes.
            unsafe { claim.give(value.cast(), size) };
        }
        let request = Setxattr { mount, inode, name, flags, perms };
        claim.submit(&request, size, false)?;
        if flags == 0 {
            claim.harmless();
        }
        let (result, mark) = claim.finish::<Setxattr<'_>>()?;
        files::changed(key, mark);
        Ok(result)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_listxattr(
    cmount: Pointer,
    inode: Pointer,
    list: *mut c_char,
    buf_size: usize,
    list_size: *mut usize,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, list_size) = (target(cmount)?, not_null(list_size)?);
        let (mount, remote, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        let list = if buf_size == 0 { list } else { not_null(list)? };
        let ask = |room| {
            let claim = target.link.claim()?;
            let (length, about) = claim.call(&Listxattr { mount, inode: remote, room, perms }, 0)?;
            Ok((length, claim, about))
        };
        // SAFETY: the caller has that much room, and a place for the size.
        unsafe { *list_size = known_or(&target, inode, (b"", perms), (list.cast(), buf_size), ask)? as usize };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_removexattr(
    cmount: Pointer,
    inode: Pointer,
    name: *const c_char,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let key = files::flush_before(&target, inode)?;
        let (mount, inode, perms) = (target.mount, target.inode(inode)?, target.perms(perms)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        files::changed(key, target.link.call(&Removexattr { mount, inode, name, perms })?);
        Ok(0)
    })
}
