//! Functions for open files. Requests larger than a slot's data are split.

use std::{
    ffi::{c_char, c_int, c_uint},
    sync::Arc,
};

use cephfs_proxy::{
    layout::DATA_SIZE,
    wire::{Close, CreateFile, Errno, Fallocate, FoundInode, Fsync, Handle, Lseek, Open, Read, Statx, Write},
};

use super::{give, guard, guard_int, not_null, text};
use crate::{
    fork,
    link::CallError,
    session::{RequestTarget, identity, origin, target, target_if_there},
    tables::{FileObject, Identity, Origin, Pointer},
    writes::{Fate, Ticket, Writes},
};

/// The most bytes of a read or write, as the functions return an int.
const MOST: u64 = i32::MAX as u64;

fn open_file(target: &RequestTarget, remote: Handle, origin: Origin, flags: i32, identity: Arc<Identity>) -> Pointer {
    let (mount, link) = (target.local, target.link.id);
    let file = FileObject { mount, link, remote, origin, flags, identity, position: 0, writes: Writes::default() };
    fork::tables().files.add(file) as Pointer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_create(
    cmount: Pointer,
    parent: Pointer,
    name: *const c_char,
    mode: libc::mode_t,
    oflags: c_int,
    outp: *mut Pointer,
    fhp: *mut Pointer,
    stx: *mut Statx,
    want: c_uint,
    lflags: c_uint,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, out, fh, stx) = (target(cmount)?, not_null(outp)?, not_null(fhp)?, not_null(stx)?);
        let identity = identity(perms)?;
        let (mount, parent, perms) = (target.mount, target.inode(parent)?, target.register(&identity)?);
        // SAFETY: the caller passes a C string or null.
        let name = unsafe { text(name)? };
        let request = CreateFile { mount, parent, name, mode, oflags, want, flags: lflags, perms };
        let claim = target.link.claim()?;
        claim.submit(&request, 0, false)?;
        if oflags & libc::O_EXCL == 0 {
            claim.harmless();
        }
        let (_, created) = claim.finish::<CreateFile<'_>>()?;
        // SAFETY: the caller's pointers are valid, and were checked for null.
        unsafe {
            *fh = open_file(&target, created.file, Origin::from(&created.statx), oflags, identity);
            give(&target, &FoundInode { inode: created.inode, statx: created.statx, ..FoundInode::default() }, out, stx)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_open(
    cmount: Pointer,
    inode: Pointer,
    flags: c_int,
    fh: *mut Pointer,
    perms: Pointer,
) -> c_int {
    guard_int(|| {
        let (target, fh) = (target(cmount)?, not_null(fh)?);
        let (origin, identity) = (origin(inode)?, identity(perms)?);
        let (mount, inode, perms) = (target.mount, target.inode(inode)?, target.register(&identity)?);
        let file = target.link.call(&Open { mount, inode, flags, perms })?;
        // SAFETY: the caller's pointer is valid, and was checked for null.
        unsafe { *fh = open_file(&target, file, origin, flags, identity) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_close(cmount: Pointer, filehandle: Pointer) -> c_int {
    guard_int(|| {
        let target = target_if_there(cmount)?;
        let (mut gone, is_parents) = {
            let mut tables = fork::tables();
            let parents = tables.parents;
            let found = tables.files.get(filehandle as u64)?;
            if found.mount != cmount as u64 {
                return Err(Errno::BADF.into());
            }
            let is_parents = found.link <= parents;
            (tables.files.remove(filehandle as u64)?, is_parents)
        };
        // A file of a daemon that is gone is closed already. Writes that the daemon had not flushed are lost.
        let result = match &target {
            Some(target) if target.link.id == gone.link => close(target, &gone),
            _ => Err(CallError::NotStarted),
        };
        match result {
            Err(error) if error.is_gone() && is_parents => Err(Errno::IO.into()),
            Err(error) if error.is_gone() => {
                let settled = fork::tables().settled(gone.link);
                gone.writes.daemon_gone(settled);
                if gone.writes.lost() { Err(Errno::IO.into()) } else { Ok(0) }
            }
            result => result.map(|()| 0),
        }
    })
}

/// Closes a file. Flushes its writes first, since the caller learns of no error after that.
fn close(target: &RequestTarget, file: &FileObject) -> Result<(), CallError> {
    let mount = target.mount;
    let flushed = match file.writes.unconfirmed() {
        true => target.link.call(&Fsync { mount, file: file.remote, data_only: 0 }),
        false => Ok(()),
    };
    if flushed.is_err_and(CallError::is_gone) {
        return flushed;
    }
    if flushed.is_ok() && target.link.try_give_back(file.remote) {
        // Closing cannot fail any more, so the daemon is told later, with the next request.
        return Ok(());
    }
    let closed = target.link.call(&Close { mount, file: file.remote });
    // The writes are flushed, so a daemon that goes away now loses nothing.
    flushed.and(closed.or_else(|error| if error.is_gone() { Ok(()) } else { Err(error) }))
}

/// Reads into the caller's memory.
///
/// # Safety
/// `buf` must be good for `length` bytes.
unsafe fn read(
    target: &RequestTarget,
    file: Handle,
    offset: i64,
    length: usize,
    buf: *mut u8,
) -> Result<usize, CallError> {
    let (claim, mut done) = (target.link.claim()?, 0);
    loop {
        let piece = (length - done).min(DATA_SIZE);
        let offset = offset.checked_add(done as i64).ok_or(Errno::INVAL)?;
        let count = match claim.call(&Read { mount: target.mount, file, offset, length: piece as u32 }, 0) {
            Ok((count, ())) => (count as usize).min(piece),
            Err(error) if done > 0 && !error.is_gone() => return Ok(done),
            Err(error) => return Err(error),
        };
        // SAFETY: the caller's buffer has room for all requested bytes.
        unsafe { claim.take(buf.wrapping_add(done), count) };
        done += count;
        if count < piece || done == length {
            return Ok(done);
        }
    }
}

/// Notes that a write begins.
pub fn begin_write(file: Pointer) -> Result<Ticket, Errno> {
    Ok(fork::tables().files.get(file as u64)?.writes.begin())
}

/// Notes that a write ends, with this result.
pub fn end_write<T>(file: Pointer, ticket: Ticket, result: &Result<T, CallError>) {
    let fate = match result {
        Err(CallError::NotStarted) => Fate::Untouched,
        Err(CallError::Unknown) => Fate::Unknown,
        Ok(_) | Err(CallError::Errno(_)) => Fate::Answered,
    };
    if let Ok(file) = fork::tables().files.get(file as u64) {
        file.writes.end(ticket, fate);
    }
}

/// Writes from the caller's memory.
///
/// # Safety
/// `data` must be good for `length` bytes.
unsafe fn write(
    target: &RequestTarget,
    file: Pointer,
    remote: Handle,
    offset: i64,
    length: usize,
    data: *const u8,
) -> Result<usize, CallError> {
    let (claim, mut done) = (target.link.claim()?, 0);
    loop {
        let piece = (length - done).min(DATA_SIZE);
        let offset = offset.checked_add(done as i64).ok_or(Errno::INVAL)?;
        // SAFETY: the caller's data has that many bytes.
        unsafe { claim.give(data.wrapping_add(done), piece) };
        let ticket = begin_write(file)?;
        let result = claim.call(&Write { mount: target.mount, file: remote, offset }, piece);
        end_write(file, ticket, &result);
        match result {
            Ok((count, ())) => {
                done += (count as usize).min(piece);
                if (count as usize) < piece || done == length {
                    return Ok(done);
                }
            }
            Err(error) if done > 0 && !error.is_gone() => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_read(cmount: Pointer, filehandle: Pointer, off: i64, len: u64, buf: *mut c_char) -> c_int {
    let part = libc::iovec { iov_base: buf.cast(), iov_len: len.min(MOST) as usize };
    guard_int(|| vectored(cmount, filehandle, &[part], off, false))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_write(
    cmount: Pointer,
    filehandle: Pointer,
    off: i64,
    len: u64,
    data: *const c_char,
) -> c_int {
    let part = libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len.min(MOST) as usize };
    guard_int(|| vectored(cmount, filehandle, &[part], off, true))
}

/// Reads or writes the parts of the caller's memory one after the other. Returns the number of bytes.
pub fn vectored(
    cmount: Pointer,
    file: Pointer,
    parts: &[libc::iovec],
    offset: i64,
    writes: bool,
) -> Result<i64, CallError> {
    let target = target(cmount)?;
    let (remote, mut done) = (target.file(file)?, 0);
    for part in parts {
        let (base, length) = (part.iov_base.cast::<u8>(), part.iov_len.min(MOST as usize));
        if length > 0 {
            not_null(base)?;
        }
        let at = offset.checked_add(done).ok_or(Errno::INVAL)?;
        // SAFETY: the caller guarantees that each part has its length.
        let result = unsafe {
            if writes {
                write(&target, file, remote, at, length, base)
            } else {
                read(&target, remote, at, length, base)
            }
        };
        match result {
            Ok(count) => {
                done += count as i64;
                if count < length {
                    break;
                }
            }
            Err(error) if done > 0 && !error.is_gone() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_lseek(cmount: Pointer, filehandle: Pointer, offset: i64, whence: c_int) -> i64 {
    guard(|| {
        let target = target(cmount)?;
        let (mount, file) = (target.mount, target.file(filehandle)?);
        let (to, ()) = target.link.claim()?.call(&Lseek { mount, file, offset, whence }, 0)?;
        fork::tables().files.get(filehandle as u64)?.position = to;
        Ok(to)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_fsync(cmount: Pointer, fh: Pointer, syncdataonly: c_int) -> c_int {
    guard_int(|| sync(cmount, fh, syncdataonly))
}

/// `ceph_ll_fsync`.
pub fn sync(cmount: Pointer, fh: Pointer, data_only: c_int) -> Result<i64, CallError> {
    let target = target(cmount)?;
    let (mount, file) = (target.mount, target.file(fh)?);
    let sync = fork::tables().files.get(fh as u64)?.writes.sync();
    target.link.call(&Fsync { mount, file, data_only })?;
    fork::tables().files.get(fh as u64)?.writes.synced(sync);
    Ok(0)
}

/// Syncs all open files of a mount that have unconfirmed writes. Returns the first error, but that the daemon is
/// gone takes precedence.
pub fn sync_all(target: &RequestTarget) -> Result<(), CallError> {
    let (mount, link) = (target.local, target.link.id);
    let unsynced =
        fork::tables().files.numbers(|file| file.mount == mount && file.link == link && file.writes.unconfirmed());
    let mut first = Ok(());
    for number in unsynced {
        let (file, sync) = match fork::tables().files.get(number) {
            Ok(found) => (found.remote, found.writes.sync()),
            // Another thread has closed the file.
            Err(_) => continue,
        };
        match target.link.call(&Fsync { mount: target.mount, file, data_only: 0 }) {
            Err(error) if error.is_gone() => return Err(CallError::NotStarted),
            Err(error) => first = first.and(Err(error)),
            Ok(()) => {
                if let Ok(found) = fork::tables().files.get(number) {
                    found.writes.synced(sync);
                }
            }
        }
    }
    first
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_fallocate(cmount: Pointer, fh: Pointer, mode: c_int, offset: i64, length: i64) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, file) = (target.mount, target.file(fh)?);
        let ticket = begin_write(fh)?;
        let result = target.link.call(&Fallocate { mount, file, mode, offset, length });
        end_write(fh, ticket, &result);
        result.map(|()| 0)
    })
}
