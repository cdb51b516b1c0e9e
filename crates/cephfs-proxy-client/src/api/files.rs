//! Functions for open files. Requests larger than a slot's data are split.

use std::{
    ffi::{c_char, c_int, c_uint},
    sync::Arc,
};

use cephfs_proxy::{
    layout::DATA_SIZE,
    wire::{
        ChangeMark, Close, CreateFile, Errno, Fallocate, FoundInode, Fsync, Handle, Lseek, Open, Opened, Read, Statx,
        Write,
    },
};

use super::{give, guard, guard_int, not_null, text};
use crate::{
    cache::{
        data::{self, FileData},
        now,
    },
    fork,
    link::{CallError, SlotClaim},
    session::{RequestTarget, identity, origin, target, target_if_there},
    tables::{FileObject, Identity, LogKey, Origin, Pointer},
    writes::{Fate, WriteLog},
};

/// The most bytes of a read or write, as the functions return an int.
const MOST: u64 = i32::MAX as u64;

fn open_file(target: &RequestTarget, opened: Opened, origin: Origin, flags: i32, identity: Arc<Identity>) -> Pointer {
    let (mount, link, remote) = (target.local, target.link.id, opened.file);
    let file =
        FileObject { mount, link, remote, origin, flags, identity, position: 0, data: FileData::Unknown, lost: false };
    fork::tables().add_file(file, &opened) as Pointer
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
            *fh = open_file(&target, created.opened, Origin::from(&created.statx), oflags, identity);
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
        // The flush comes first, since the caller learns of no error after the close.
        let flushed = flush(cmount, filehandle);
        if flushed.is_err_and(CallError::is_gone) {
            return Err(CallError::NotStarted);
        }
        let target = target_if_there(cmount)?;
        let (gone, is_parents) = {
            let mut tables = fork::tables();
            let parents = tables.parents;
            let found = tables.files.get(filehandle as u64)?;
            if found.mount != cmount as u64 {
                return Err(Errno::BADF.into());
            }
            let is_parents = found.link <= parents;
            (tables.remove_file(filehandle as u64)?, is_parents)
        };
        let closed = match &target {
            Some(target) if target.link.id == gone.link => close(target, gone.remote, flushed.is_ok()),
            // If the daemon is gone, the file is closed already.
            _ if is_parents => Err(Errno::IO.into()),
            _ => Ok(()),
        };
        if gone.lost { Err(Errno::IO.into()) } else { flushed.and(closed).map(|()| 0) }
    })
}

/// Flushes the writes to a file, if there are any.
fn flush(cmount: Pointer, file: Pointer) -> Result<(), CallError> {
    let is_unconfirmed = {
        let mut tables = fork::tables();
        let parents = tables.parents;
        let found = tables.files.get(file as u64)?;
        let (is_ours, link) = (found.mount == cmount as u64 && found.link > parents, found.link);
        // The daemon may have flushed it since the last write.
        if let Some(link) = tables.live(link) {
            tables.flushed(&link);
        }
        is_ours && tables.log(file)?.is_some_and(|log| log.is_unconfirmed())
    };
    if is_unconfirmed { sync(&target(cmount)?, file, 0).map(drop) } else { Ok(()) }
}

/// Closes a file. Its writes have been flushed, so nothing is lost if the daemon goes away now.
fn close(target: &RequestTarget, file: Handle, flushed: bool) -> Result<(), CallError> {
    if flushed && target.link.try_give_back(file) {
        // Closing can no longer fail, so the daemon is told later, with the next request.
        return Ok(());
    }
    let closed = target.link.call(&Close { mount: target.mount, file });
    closed.or_else(|error| if error.is_gone() { Ok(()) } else { Err(error) })
}

/// Reads into the caller's memory.
///
/// # Safety
/// `buf` must be good for `length` bytes.
unsafe fn read(
    target: &RequestTarget,
    file: Pointer,
    remote: Handle,
    offset: i64,
    length: usize,
    buf: *mut u8,
) -> Result<usize, CallError> {
    let mut done = 0;
    loop {
        let piece = (length - done).min(DATA_SIZE);
        let offset = offset.checked_add(done as i64).ok_or(Errno::INVAL)?;
        // SAFETY: the caller's buffer has room for all requested bytes.
        let result = unsafe {
            let to = buf.wrapping_add(done);
            match data::read(target.local as Pointer, file, offset, piece, to) {
                Some(count) => Ok(count),
                None => read_piece(target, file, remote, offset, piece, to),
            }
        };
        let count = match result {
            Ok(count) => count,
            Err(error) if done > 0 && !error.is_gone() => return Ok(done),
            Err(error) => return Err(error),
        };
        done += count;
        if count < piece || done == length {
            return Ok(done);
        }
    }
}

/// Reads at most DATA_SIZE bytes from the daemon.
///
/// # Safety
/// `to` must be good for `length` bytes.
unsafe fn read_piece(
    target: &RequestTarget,
    file: Pointer,
    remote: Handle,
    offset: i64,
    length: usize,
    to: *mut u8,
) -> Result<usize, CallError> {
    let (asked, mut memory) = (now(), data::mapped(file, &target.link));
    loop {
        let claim = target.link.claim()?;
        let request = Read { mount: target.mount, file: remote, offset, length: length as u32, memory };
        let (count, cached) = claim.call(&request, 0)?;
        let count = (count as usize).min(length);
        if !cached.is_only_there {
            // SAFETY: the caller guarantees its memory (see above).
            unsafe { claim.take(to, count) };
        }
        drop(claim);
        data::note(&target.link, file, cached, asked);
        data::map_wanted(target, file, remote);
        if !cached.is_only_there {
            return Ok(count);
        }
        // SAFETY: the caller guarantees its memory (see above).
        if let Some(count) = unsafe { data::read(target.local as Pointer, file, offset, length, to) } {
            return Ok(count);
        }
        // The data has changed meanwhile, or the memory is gone.
        memory = 0;
    }
}

/// A write under way.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    key: LogKey,
    /// The number of the log that counts the write; `None` if the file is not open for writing.
    log: Option<u64>,
    appends: bool,
}

/// Notes that a write begins.
pub fn begin_write(file: Pointer) -> Result<Ticket, Errno> {
    let mut tables = fork::tables();
    let found = tables.files.get(file as u64)?;
    if found.lost {
        return Err(Errno::IO);
    }
    let (key, appends) = (found.key(), found.appends());
    let log = tables.log(file)?.map(|log| {
        log.begin();
        log.number
    });
    Ok(Ticket { key, log, appends })
}

/// Notes that a write ends, at this offset. Returns the number of bytes. If it is not known whether the write was done, it has to be repeated. A
/// write at the end of the file cannot be repeated, and is lost.
pub fn end_write(
    ticket: Ticket,
    claim: &SlotClaim<'_>,
    offset: i64,
    result: Result<(i64, ChangeMark), CallError>,
) -> Result<i64, CallError> {
    let fate = match result {
        Ok((0, mark)) if !mark.is_known() => Fate::NotDone,
        Ok((count, mark)) => {
            let (length, flushes) = (count as usize, claim.link().flushes());
            let is_kept = mark.is_known() && !ticket.appends && WriteLog::has_room(length);
            let data = is_kept.then(|| claim.sent(length).to_vec());
            Fate::Written { mark, flushes, offset, data }
        }
        Err(CallError::Errno(_) | CallError::NotStarted) => Fate::NotDone,
        Err(CallError::Unknown) => Fate::Unknown,
    };
    let mut tables = fork::tables();
    // If the file was lost meanwhile, there may be another log.
    if let Some(log) = tables.logs.get_mut(&ticket.key).filter(|log| Some(log.number) == ticket.log) {
        log.end(fate);
    }
    tables.flushed(claim.link());
    match result {
        Err(CallError::Unknown) if ticket.appends => {
            tables.lose(ticket.key);
            Err(CallError::Unknown)
        }
        Err(CallError::Unknown) => Err(CallError::NotStarted),
        result => result.map(|(count, _)| count),
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
        match end_write(ticket, &claim, offset, result) {
            Ok(count) => {
                done += (count as usize).min(piece);
                if (count as usize) < piece || done == length {
                    return Ok(done);
                }
            }
            // A repetition would append the first part twice.
            Err(error) if done > 0 && error.is_gone() && ticket.appends => return Err(CallError::Unknown),
            Err(error) if done > 0 && !error.is_gone() => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_read(cmount: Pointer, filehandle: Pointer, off: i64, len: u64, buf: *mut c_char) -> c_int {
    let length = len.min(MOST) as usize;
    let part = libc::iovec { iov_base: buf.cast(), iov_len: length };
    guard_int(|| {
        // SAFETY: the caller's buffer is that long.
        match unsafe { data::read(cmount, filehandle, off, length, buf.cast()) } {
            Some(count) => Ok(count as i64),
            None => vectored(&target(cmount)?, filehandle, &[part], off, false),
        }
    })
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
    guard_int(|| vectored(&target(cmount)?, filehandle, &[part], off, true))
}

/// Whether writes to an open file go to its end.
fn appends(file: Pointer) -> bool {
    fork::tables().files.get(file as u64).is_ok_and(|file| file.appends())
}

/// Reads or writes the parts of the caller's memory one after the other. Returns the number of bytes.
pub fn vectored(
    target: &RequestTarget,
    file: Pointer,
    parts: &[libc::iovec],
    offset: i64,
    writes: bool,
) -> Result<i64, CallError> {
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
                write(target, file, remote, at, length, base)
            } else {
                read(target, file, remote, at, length, base)
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
            // A repetition would append the earlier parts twice.
            Err(error) if done > 0 && error.is_gone() && writes && appends(file) => return Err(CallError::Unknown),
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
    guard_int(|| sync(&target(cmount)?, fh, syncdataonly))
}

/// `ceph_ll_fsync`.
pub fn sync(target: &RequestTarget, fh: Pointer, data_only: c_int) -> Result<i64, CallError> {
    sync_at(target, fh, target.file(fh)?, data_only)?;
    Ok(0)
}

/// Flushes a file by its handle, and all other writes to its inode.
fn sync_at(target: &RequestTarget, fh: Pointer, file: Handle, data_only: c_int) -> Result<(), CallError> {
    let ended = fork::tables().log(fh)?.map(|log| log.ended());
    target.link.call(&Fsync { mount: target.mount, file, data_only })?;
    if let (Some(log), Some(ended)) = (fork::tables().log(fh)?, ended) {
        log.synced(ended);
    }
    Ok(())
}

/// Syncs the open files of a mount for which `which` holds and that have unconfirmed writes. Returns the first error, except that an error because
/// the daemon is gone takes precedence.
fn sync_those(target: &RequestTarget, which: impl Fn(&FileObject) -> bool) -> Result<(), CallError> {
    let (mount, link) = (target.local, target.link.id);
    let mut first = Ok(());
    let files = fork::tables()
        .files
        .numbers(|file| file.mount == mount && file.link == link && file.is_writer() && which(file));
    for number in files {
        let file = {
            let mut tables = fork::tables();
            match tables.log(number as Pointer) {
                Ok(Some(log)) if log.is_unconfirmed() => tables.files.get(number)?.remote,
                // Another thread may also have closed the file.
                _ => continue,
            }
        };
        match sync_at(target, number as Pointer, file, 0) {
            Err(error) if error.is_gone() => return Err(CallError::NotStarted),
            result => first = first.and(result),
        }
    }
    first
}

/// Syncs all open files of a mount that have unconfirmed writes.
pub fn sync_all(target: &RequestTarget) -> Result<(), CallError> {
    sync_those(target, |_| true)
}

/// Flushes this process's writes to an inode before it changes the inode in another way: after such a change, earlier writes could not be repeated.
/// Returns the key of the inode's log.
pub fn flush_before(target: &RequestTarget, inode: Pointer) -> Result<LogKey, CallError> {
    let key = (target.local, origin(inode)?);
    if fork::tables().logs.get(&key).is_some_and(WriteLog::is_unconfirmed) {
        sync_those(target, |file| file.key() == key)?;
    }
    Ok(key)
}

/// Notes the mark of a change other than a write.
pub fn changed(key: LogKey, mark: ChangeMark) {
    if let Some(log) = fork::tables().logs.get_mut(&key) {
        log.changed(mark);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_fallocate(cmount: Pointer, fh: Pointer, mode: c_int, offset: i64, length: i64) -> c_int {
    guard_int(|| {
        let target = target(cmount)?;
        let (mount, file) = (target.mount, target.file(fh)?);
        let ticket = begin_write(fh)?;
        // The operation cannot be repeated after a loss of the daemon, so it is flushed at once.
        let claim = target.link.claim()?;
        let result = claim.call(&Fallocate { mount, file, mode, offset, length }, 0);
        let ticket = Ticket { appends: true, ..ticket };
        // The operation counts as a write that changes something.
        end_write(ticket, &claim, offset, result.map(|_| (1, ChangeMark::default())))?;
        sync_at(&target, fh, file, 0)?;
        Ok(0)
    })
}
