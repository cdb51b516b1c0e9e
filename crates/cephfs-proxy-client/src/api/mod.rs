//! The exported functions, with the signatures of cephfs/libcephfs.h. A negative result is a negative errno.

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

use cephfs_proxy::wire::{Errno, FoundInode, Statx, result_of};

use crate::{
    link::CallError,
    reconnect::again,
    session::RequestTarget,
    tables::{Origin, Pointer},
};

pub use aio::Aio;

/// Runs a function's body, and repeats it if the daemon went away. A panic does not unwind into the caller.
fn guard(body: impl FnMut() -> Result<i64, CallError>) -> i64 {
    match catch_unwind(AssertUnwindSafe(|| again(body))) {
        Ok(Ok(result)) => result,
        Ok(Err(errno)) => result_of(errno),
        Err(_) => result_of(Errno::IO),
    }
}

/// [`guard`] for functions that return an int.
fn guard_int(body: impl FnMut() -> Result<i64, CallError>) -> c_int {
    guard(body) as c_int
}

/// The caller's text; EINVAL if it is null.
///
/// # Safety
/// `text` must be a C string, or null.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a CStr, Errno> {
    // SAFETY: the caller guarantees this (see above).
    unsafe { optional(text) }.ok_or(Errno::INVAL)
}

/// The caller's text; `None` if it is null.
///
/// # Safety
/// `text` must be a C string, or null.
unsafe fn optional<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller guarantees this (see above).
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The caller's memory for a result; EINVAL if the pointer is null.
///
/// # Safety
/// `place` must be valid for the result, or null.
unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: the caller guarantees this (see above).
    unsafe { place.as_mut() }.ok_or(Errno::INVAL)
}

/// Checks that a pointer is not null, before a request is made.
fn not_null<T>(place: *mut T) -> Result<*mut T, Errno> {
    if place.is_null() { Err(Errno::INVAL) } else { Ok(place) }
}

/// The result of closing an object. If the daemon went away meanwhile, the object is closed, too.
fn closed(error: CallError) -> Result<i64, CallError> {
    if error.is_gone() { Ok(0) } else { Err(error) }
}

/// Writes a found inode and its attributes to the caller's memory.
///
/// # Safety
/// Both pointers must be valid for the results.
unsafe fn give(
    target: &RequestTarget,
    found: &FoundInode,
    out: *mut Pointer,
    statx: *mut Statx,
) -> Result<i64, CallError> {
    // SAFETY: the caller guarantees this (see above).
    unsafe {
        *statx = found.statx;
        *out = target.hand_out(found.inode, Origin::from(&found.statx));
    }
    Ok(0)
}
