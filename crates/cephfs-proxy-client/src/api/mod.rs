//! The exported functions, with the signatures of cephfs/libcephfs.h: results are not negative, or an errno's negative.

mod aio;
mod dirs;
mod files;
mod inodes;
mod mounts;
mod names;
mod xattrs;

use std::{
    ffi::{CStr, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use cephfs_proxy::wire::{Errno, Found, Statx};

use crate::{
    link::{GONE, UNKNOWN},
    reconnect::again,
    session::Target,
    tables::{Origin, Pointer},
};

pub use aio::Aio;

/// Runs a function's body; again, if the daemon went away below it. Nothing that goes wrong in here unwinds into the caller.
fn guard(body: impl FnMut() -> Result<i64, Errno>) -> i64 {
    match catch_unwind(AssertUnwindSafe(|| again(body))) {
        Ok(Ok(result)) => result,
        Ok(Err(Errno(errno))) => -i64::from(errno),
        Err(_) => -i64::from(libc::EIO),
    }
}

/// Likewise, of a function that returns an int.
fn guard_int(body: impl FnMut() -> Result<i64, Errno>) -> c_int {
    guard(body) as c_int
}

/// A text of the caller's.
///
/// # Safety
/// It must be a C string, or null.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a CStr, Errno> {
    // SAFETY: the caller's promise.
    unsafe { optional(text) }.ok_or(Errno(libc::EINVAL))
}

/// A text of the caller's, or none.
///
/// # Safety
/// It must be a C string, or null.
unsafe fn optional<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// A place of the caller's for something.
///
/// # Safety
/// It must be good for that, or null.
unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: the caller's promise.
    unsafe { place.as_mut() }.ok_or(Errno(libc::EINVAL))
}

/// Refuses a place that is null, before anything is asked for.
fn not_null<T>(place: *mut T) -> Result<*mut T, Errno> {
    if place.is_null() { Err(Errno(libc::EINVAL)) } else { Ok(place) }
}

/// What is closed with a daemon that goes away meanwhile is closed.
fn closed(error: Errno) -> Result<i64, Errno> {
    if matches!(error, GONE | UNKNOWN) { Ok(0) } else { Err(error) }
}

/// Gives the caller what was found.
///
/// # Safety
/// Both places must be good for that.
unsafe fn give(target: &Target, found: &Found, out: *mut Pointer, statx: *mut Statx) -> Result<i64, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        *statx = found.statx;
        *out = target.hand_out(found.inode, Origin::from(&found.statx));
    }
    Ok(0)
}
