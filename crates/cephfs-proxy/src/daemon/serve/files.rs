//! Requests for open files. libcephfs reads and writes the slot's data directly.

use std::{ptr, sync::Arc};

use super::{
    PERMISSIONS, Reply, RequestContext, changed_name, checked,
    data::{CachedRead, is_cacheable},
    done,
    inodes::{kind, number},
    weight,
};
use crate::{
    daemon::{
        coherence::Copied,
        handles::{self, HeldObject},
        written::FileWrites,
    },
    layout::LARGE,
    wire::*,
};

impl RequestContext<'_> {
    pub(super) fn create_file(&self, r: &CreateFile<'_>) -> Reply<Created> {
        self.room_for([weight::INODE, weight::FILE])?;
        let (parent, perms) = (self.parent(r.mount, r.parent)?, self.perms(r.perms)?);
        access(r.oflags)?;
        let ((ceph, mount), mut statx) = (parent.parts(), Statx::default());
        let (mut raw, mut file) = (ptr::null_mut(), ptr::null_mut());
        let (text, name) = (r.name.to_bytes(), changed_name(r.name)?.as_ptr());
        let named = parent.mount.naming(parent.ino);
        let before = if r.oflags & libc::O_EXCL == 0 { parent.attributes_of(r.name, &perms).ok() } else { None };
        match before.map(|statx| kind(&statx)) {
            Some(libc::S_IFDIR) => return Err(Errno::ISDIR),
            Some(other) => can_open(other)?,
            None => {}
        }
        let cut = r.oflags & libc::O_TRUNC != 0 && r.oflags & libc::O_EXCL == 0;
        let there = Copied::Attributes(before.filter(|_| cut).map_or(parent.ino, |statx| number(&statx)));
        let change = parent.mount.change(&[Copied::Name(parent.ino, text), Copied::Attributes(parent.ino), there]);
        // SAFETY: all objects are held, and the pointers to the results are valid.
        let result = unsafe {
            let (create, p) = (ceph.ceph_ll_create, perms.raw());
            let (inode, file) = (&mut raw, &mut file);
            create(mount, parent.raw, name, r.mode & PERMISSIONS, r.oflags, inode, file, &mut statx, r.want, r.flags, p)
        };
        if cut && result == 0 && !matches!(there, Copied::Attributes(ino) if ino == statx.ino) {
            drop(parent.mount.change(&[Copied::Attributes(statx.ino)]));
        }
        drop((change, named));
        let (result, found) = self.found(r.mount, parent.mount.clone(), result, raw, statx)?;
        if file.is_null() {
            return Err(Errno::IO);
        }
        let is_directory = kind(&statx) == libc::S_IFDIR;
        let (mount, ino, written) = (parent.mount.clone(), number(&statx), FileWrites::default());
        let is_cacheable = is_cacheable(r.oflags, kind(&statx), statx.dev);
        let file = Arc::new(handles::File { mount, raw: file, ino, is_directory, is_cacheable, inode: raw, written });
        Ok((result, Created { inode: found.inode, opened: self.hold_file(r.mount, r.oflags, file), statx }))
    }

    pub(super) fn open(&self, r: &Open) -> Reply<Opened> {
        self.room_for([weight::FILE])?;
        let (inode, perms) = (self.inode(r.mount, r.inode)?, self.perms(r.perms)?);
        // libcephfs asserts that O_CREAT is not set.
        if r.flags & libc::O_CREAT != 0 {
            return Err(Errno::INVAL);
        }
        access(r.flags)?;
        can_open(inode.kind)?;
        // Without O_DIRECTORY, a metadata server does not answer the opening of a directory (16.2).
        let flags = r.flags | if inode.is_directory() { libc::O_DIRECTORY } else { 0 };
        let ((ceph, mount), mut raw) = (inode.parts(), ptr::null_mut());
        let _change = (r.flags & libc::O_TRUNC != 0).then(|| inode.mount.change(&[Copied::Attributes(inode.ino)]));
        // SAFETY: both objects are held, and the pointer to the result is valid.
        let result = unsafe { (ceph.ceph_ll_open)(mount, inode.raw, flags, &mut raw, perms.raw()) };
        checked(result)?;
        if raw.is_null() {
            return Err(Errno::IO);
        }
        let (mount, ino, is_directory) = (inode.mount.clone(), inode.ino, inode.is_directory());
        let is_cacheable = is_cacheable(r.flags, inode.kind, inode.snapshot);
        let written = FileWrites::default();
        let file = Arc::new(handles::File { mount, raw, ino, is_directory, is_cacheable, inode: inode.raw, written });
        Ok((result.into(), self.hold_file(r.mount, r.flags, file)))
    }

    fn hold_file(&self, owner: Handle, flags: i32, file: Arc<handles::File>) -> Opened {
        let mut mark = ChangeMark::default();
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            file.mount.opened_for_writing(&file);
            mark = file.mark();
        }
        let lineage = file.mount.lineage;
        Opened { file: self.hold(owner, HeldObject::File(file)), mark, lineage }
    }

    pub(super) fn close(&self, r: &Close) -> Reply<()> {
        self.file(r.mount, r.file)?;
        let held = super::lock(&self.connection.handles).remove(r.mount, r.file)?;
        match held {
            // If another worker still reads or writes the file, that worker closes it afterwards.
            HeldObject::File(file) => done(Arc::try_unwrap(file).map_or(0, handles::File::give_back)),
            _ => Err(Errno::BADF),
        }
    }

    pub(super) fn read(&self, r: &Read) -> Reply<CachedData> {
        let file = self.file(r.mount, r.file)?;
        // libcephfs would wait for a capability that does not exist, and block the worker for ever.
        if file.is_directory {
            return Err(Errno::ISDIR);
        }
        let (ceph, mount, room) = (file.mount.ceph(), file.mount.raw(), self.room(r.length));
        let data = match self.read_cached(&file, r, room) {
            CachedRead::Done(count, data) => return Ok((count as i64, data)),
            CachedRead::NotThere(data) => data,
        };
        // SAFETY: the file is held, and the slot's data has at least `room` bytes.
        let count = checked(unsafe { (ceph.ceph_ll_read)(mount, file.raw, r.offset, room as u64, self.data.cast()) })?;
        Ok((count.into(), data))
    }

    pub(super) fn write(&self, r: &Write) -> Reply<ChangeMark> {
        let file = self.file(r.mount, r.file)?;
        let under_way = match self.length < LARGE {
            true => Some(self.connection.begin_write(self.shared, self.length)),
            false => self.connection.begin_large_write(self.shared, self.length),
        };
        // Without a mark, the client does not keep the write.
        let has_mark = under_way.is_some() && self.shared.limits.delegations > 0;
        let alone = if has_mark { file.alone() } else { None };
        let result = self.write_now(&file, r.offset);
        let mark = alone.and_then(|alone| alone.after_write());
        file.has_written();
        drop(under_way);
        checked(result).map(|count| (count.into(), mark.unwrap_or_default()))
    }

    fn write_now(&self, file: &handles::File, offset: i64) -> i32 {
        let (ceph, mount) = (file.mount.ceph(), file.mount.raw());
        let _change = file.mount.change(&[Copied::Attributes(file.ino)]);
        // SAFETY: the file is held, and the slot's data has the length. If the client changes the data meanwhile, the
        // changed data is written.
        unsafe { (ceph.ceph_ll_write)(mount, file.raw, offset, self.length as u64, self.data.cast()) }
    }

    /// Writes again what an earlier daemon has acknowledged.
    pub(super) fn rewrite(&self, r: &Rewrite) -> Reply<ChangeMark> {
        let file = self.file(r.mount, r.file)?;
        let _under_way = self.connection.begin_write(self.shared, self.length);
        let alone = file.alone().ok_or(Errno::AGAIN)?;
        let is_unchanged = || alone.before.version == r.version && file.mark() == alone.before;
        let write = || if is_unchanged() { checked(self.write_now(&file, r.offset)) } else { Err(Errno::IO) };
        let count = alone.write_again(&self.shared.rewrites, write).ok_or(Errno::AGAIN)??;
        file.has_written();
        alone.after_write().map(|mark| (count.into(), mark)).ok_or(Errno::IO)
    }

    pub(super) fn lseek(&self, r: &Lseek) -> Reply<()> {
        let file = self.file(r.mount, r.file)?;
        // SAFETY: the file is held.
        let to = unsafe { (file.mount.ceph().ceph_ll_lseek)(file.mount.raw(), file.raw, r.offset, r.whence) };
        if to < 0 { Err(errno_of(to)) } else { Ok((to, ())) }
    }

    /// Syncs data and attributes, also with `data_only`; see `File::sync`.
    pub(super) fn fsync(&self, r: &Fsync) -> Reply<()> {
        done(self.file(r.mount, r.file)?.sync())
    }

    pub(super) fn fallocate(&self, r: &Fallocate) -> Reply<()> {
        let file = self.file(r.mount, r.file)?;
        let (ceph, mount) = (file.mount.ceph(), file.mount.raw());
        let _change = file.mount.change(&[Copied::Attributes(file.ino)]);
        // SAFETY: the file is held.
        let result = unsafe { (ceph.ceph_ll_fallocate)(mount, file.raw, r.mode, r.offset, r.length) };
        file.has_written();
        done(result)
    }
}

/// Checks that an inode of this type can be opened. For other types, such as named pipes, metadata servers grant capabilities, and fail an
/// assertion when they take these capabilities back (`Locker::check_inode_max_size`, seen with 16.2).
fn can_open(kind: u32) -> Result<(), Errno> {
    match kind {
        libc::S_IFREG | libc::S_IFDIR => Ok(()),
        libc::S_IFLNK => Err(Errno::LOOP),
        _ => Err(Errno::NXIO),
    }
}

/// Checks that a file is opened for reading, for writing, or for both. If both bits are set, libcephfs does not check that a directory is not
/// opened for writing, and metadata servers fail the same assertion.
fn access(flags: i32) -> Result<(), Errno> {
    if flags & libc::O_ACCMODE == libc::O_ACCMODE { Err(Errno::INVAL) } else { Ok(()) }
}
