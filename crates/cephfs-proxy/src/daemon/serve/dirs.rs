//! Requests for open directories, whose entries are sent in batches.

use std::{
    ffi::CStr,
    mem, ptr,
    sync::{Arc, Mutex},
};

use super::{Reply, RequestContext, checked, done, lock, weight};
use crate::{
    daemon::handles::{self, HeldObject},
    wire::*,
};

/// The most bytes of an entry: an `DirectoryEntry` and the longest name.
const LARGEST: usize = DirectoryEntry::SIZE + 255;

impl RequestContext<'_> {
    pub(super) fn opendir(&self, r: &Opendir) -> Reply<OpenDirectory> {
        self.room_for([weight::DIRECTORY])?;
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        let stamp = inode.mount.stamp_list(inode.ino);
        let ((ceph, mount), mut raw) = (inode.parts(), ptr::null_mut());
        // SAFETY: both objects are held, and the pointer to the result is valid.
        checked(unsafe { (ceph.ceph_ll_opendir)(mount, inode.raw, &mut raw, perms.raw()) })?;
        if raw.is_null() {
            return Err(Errno::IO);
        }
        let dir = handles::Dir { mount: inode.mount.clone(), raw, ino: inode.ino };
        // An error of the first batch is ignored: the error will occur again when the client requests the next batch.
        let (batch, end) = self.entries(&dir, r.room).unwrap_or_default();
        self.fill(&batch)?;
        let dir = self.hold(r.mount, HeldObject::Dir(Arc::new(Mutex::new(dir))));
        Ok((batch.len() as i64, OpenDirectory { dir, entries: Entries { end, stamp } }))
    }

    pub(super) fn readdir(&self, r: &Readdir) -> Reply<Entries> {
        let dir = self.dir(r.mount, r.dir)?;
        let dir = lock(&dir);
        let stamp = dir.mount.stamp_list(dir.ino);
        if r.rewind {
            // SAFETY: the directory is held and locked.
            unsafe { (dir.mount.ceph().ceph_rewinddir)(dir.mount.raw(), dir.raw) };
        }
        let (batch, end) = self.entries(&dir, r.room)?;
        self.fill(&batch)?;
        Ok((batch.len() as i64, Entries { end, stamp }))
    }

    /// The next entries, at most `room` bytes, and whether they are the last.
    fn entries(&self, dir: &handles::Dir, room: u32) -> Result<(Vec<u8>, bool), Errno> {
        let (ceph, mount) = (dir.mount.ceph(), dir.mount.raw());
        let mut batch = Vec::new();
        while batch.len() + LARGEST <= self.room(room) {
            // SAFETY: all zero is a valid dirent; the directory is held.
            let (result, entry) = unsafe {
                let mut entry: libc::dirent = mem::zeroed();
                ((ceph.ceph_readdir_r)(mount, dir.raw, &mut entry), entry)
            };
            match checked(result) {
                Ok(0) => return Ok((batch, true)),
                // The entries before the error are returned; the error will occur again.
                Err(_) if !batch.is_empty() => break,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            // SAFETY: libcephfs ends the name with a NUL, within its array.
            let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) }.to_bytes();
            let Ok(length) = u8::try_from(name.len()) else { continue };
            let about = DirectoryEntry { ino: entry.d_ino, next: entry.d_off, kind: entry.d_type, length };
            let mut room = [0; LARGEST];
            let mut writer = WireWriter::new(&mut room);
            about.put(&mut writer).and_then(|()| writer.bytes(name)).map_err(|_| Errno::IO)?;
            batch.extend_from_slice(writer.written());
        }
        Ok((batch, false))
    }

    pub(super) fn seekdir(&self, r: &Seekdir) -> Reply<()> {
        let dir = self.dir(r.mount, r.dir)?;
        let dir = lock(&dir);
        // SAFETY: the directory is held and locked.
        unsafe { (dir.mount.ceph().ceph_seekdir)(dir.mount.raw(), dir.raw, r.offset) };
        Ok((0, ()))
    }

    pub(super) fn releasedir(&self, r: &Releasedir) -> Reply<()> {
        self.dir(r.mount, r.dir)?;
        let held = lock(&self.connection.handles).remove(r.mount, r.dir)?;
        let HeldObject::Dir(dir) = held else { return Err(Errno::BADF) };
        let dir = Arc::try_unwrap(dir).map(|dir| dir.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()));
        done(dir.map_or(0, handles::Dir::give_back))
    }
}
