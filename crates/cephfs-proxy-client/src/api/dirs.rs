//! Functions for open directories. The daemon sends many entries at a time; the caller gets them one by one.

use std::{
    ffi::{c_char, c_int},
    mem, ptr,
    sync::{Arc, Mutex},
};

use cephfs_proxy::wire::{Errno, Handle, Opendir, Readdir, Releasedir};

use super::{closed, guard_int, not_null};
use crate::{
    cache::{self, EntryBatch},
    fork,
    link::CallError,
    session::{RequestTarget, identity, origin, target, target_if_there},
    tables::{Dir, Pointer},
};

/// The bytes of entries in one request: some hundreds of entries.
const BATCH: u32 = 32 << 10;

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_opendir(cmount: Pointer, inode: Pointer, dirpp: *mut Pointer, perms: Pointer) -> c_int {
    guard_int(|| {
        let (target, out) = (target(cmount)?, not_null(dirpp)?);
        let (origin, identity) = (origin(inode)?, identity(perms)?);
        let (remote, perms) = (target.inode(inode)?, target.register(&identity)?);
        let (remote, batch) = match target.list(inode, perms) {
            Some(list) => (None, EntryBatch::known(list)),
            None => {
                let (dir, batch) = open(&target, (inode as u64, remote), perms)?;
                (Some(dir), batch)
            }
        };
        let (mount, link, batch) = (target.local, target.link.id, Arc::new(Mutex::new(batch)));
        let dir = Dir { mount, link, remote, origin, identity, batch };
        // SAFETY: the caller's pointer is valid, and was checked for null.
        unsafe { *out = fork::tables().dirs.add(dir) as Pointer };
        Ok(0)
    })
}

/// Has the daemon open a directory. Returns its handle and the first entries.
fn open(
    target: &RequestTarget,
    (number, inode): (u64, Handle),
    perms: Handle,
) -> Result<(Handle, EntryBatch), CallError> {
    let (claim, asked) = (target.link.claim()?, cache::now());
    let (length, opened) = claim.call(&Opendir { mount: target.mount, inode, room: BATCH, perms }, 0)?;
    let mut batch = EntryBatch::begin(&target.link, number, perms, asked, opened.entries.stamp);
    batch.fill(target, claim.copy(length as usize), opened.entries);
    Ok((opened.dir, batch))
}

/// The batch of a directory. A parent's directory is refused before its batch is locked: if the parent was reading when
/// it forked, the batch stays locked in the child.
fn batch(dirp: Pointer) -> Result<Arc<Mutex<EntryBatch>>, Errno> {
    let mut tables = fork::tables();
    let parents = tables.parents;
    let found = tables.dirs.get(dirp as u64)?;
    if found.link > parents { Ok(found.batch.clone()) } else { Err(Errno::IO) }
}

/// Reads the next entry into `to`. Returns false at the end.
fn next(cmount: Pointer, dirp: Pointer, to: &mut libc::dirent, batch: &mut EntryBatch) -> Result<bool, CallError> {
    let target = target(cmount)?;
    if !batch.is_empty() {
        target.owns_dir(dirp)?;
    }
    while batch.is_empty() && !batch.end {
        let dir = target.dir(dirp, batch)?;
        let claim = target.link.claim()?;
        let request = Readdir { mount: target.mount, dir, rewind: batch.rewind, room: BATCH };
        let (length, entries) = claim.call(&request, 0)?;
        batch.rewind = false;
        batch.fill(&target, claim.copy(length as usize), entries);
    }
    let Some((entry, name)) = batch.next()? else { return Ok(false) };
    // SAFETY: all zero is a valid dirent.
    *to = unsafe { mem::zeroed() };
    let length = record_length(target.link.version, name.len());
    (to.d_ino, to.d_off, to.d_reclen, to.d_type) = (entry.ino, entry.next, length, entry.kind);
    for (to, from) in to.d_name.iter_mut().zip(name) {
        *to = *from as c_char;
    }
    Ok(true)
}

/// `d_reclen` as this version of libcephfs sets it: 16.2 and 18.2 set 1, 20.2 the C library's value.
fn record_length(version: [i32; 3], name: usize) -> u16 {
    match version {
        [..20, _, _] => 1,
        _ => (mem::offset_of!(libc::dirent, d_name) + name + 1).next_multiple_of(8) as u16,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_readdir_r(cmount: Pointer, dirp: Pointer, de: *mut libc::dirent) -> c_int {
    guard_int(|| {
        let (batch, de) = (batch(dirp)?, not_null(de)?);
        let mut batch = batch.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: the caller's pointer is valid, and was checked for null.
        next(cmount, dirp, unsafe { &mut *de }, &mut batch).map(i64::from)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_readdir(cmount: Pointer, dirp: Pointer) -> *mut libc::dirent {
    let mut found = ptr::null_mut();
    guard_int(|| {
        let batch = batch(dirp)?;
        let mut batch = batch.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: all zero is a valid dirent.
        let mut entry = batch.current.take().unwrap_or_else(|| Box::new(unsafe { mem::zeroed() }));
        let result = next(cmount, dirp, &mut entry, &mut batch);
        let entry = batch.current.insert(entry);
        if result? {
            found = &raw mut **entry;
        }
        Ok(0)
    });
    found
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_rewinddir(cmount: Pointer, dirp: Pointer) {
    guard_int(|| {
        target(cmount)?;
        let batch = batch(dirp)?;
        let mut batch = batch.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        batch.rewind();
        Ok(0)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_releasedir(cmount: Pointer, dir: Pointer) -> c_int {
    guard_int(|| {
        let target = target_if_there(cmount)?;
        let gone = {
            let mut tables = fork::tables();
            if tables.dirs.get(dir as u64)?.mount != cmount as u64 {
                return Err(Errno::BADF.into());
            }
            tables.dirs.remove(dir as u64)?
        };
        match (target.filter(|target| target.link.id == gone.link), gone.remote) {
            // Closing a directory cannot fail, so the daemon is told later, with the next request.
            (Some(target), Some(dir)) if !target.link.try_give_back(dir) => {
                target.link.call(&Releasedir { mount: target.mount, dir }).map(|()| 0).or_else(closed)
            }
            _ => Ok(0),
        }
    })
}
