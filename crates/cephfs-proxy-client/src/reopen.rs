//! Maps the caller's objects to the current daemon's handles. An object that was opened at an earlier daemon is opened again at its next use.

use std::sync::Arc;

use cephfs_proxy::wire::{
    Close, Errno, Handle, LookupRoot, LookupVino, Lseek, Open, Opendir, Opened, Releasedir, Seekdir,
};

use crate::{
    cache::EntryBatch,
    fork,
    link::CallError,
    session::RequestTarget,
    tables::{Identity, Origin, Pointer},
};

/// Flags that only affect the first opening of the file.
const ONCE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

impl RequestTarget {
    /// Refuses an object of another mount, and an object that the parent process opened before a fork.
    fn own(&self, mount: u64, link: u64, parents: u64) -> Result<(), Errno> {
        match mount == self.local {
            true if link > parents => Ok(()),
            true => Err(Errno::IO),
            false => Err(Errno::BADF),
        }
    }

    /// The daemon's handle of an inode.
    pub fn inode(&self, inode: Pointer) -> Result<Handle, CallError> {
        let number = inode as u64;
        let origin = {
            let mut tables = fork::tables();
            let parents = tables.parents;
            let found = tables.inode(number)?;
            self.own(found.mount, found.link, parents)?;
            if found.link == self.link.id {
                return Ok(found.remote);
            }
            found.origin
        };
        let remote = self.find_again(origin)?;
        let mut tables = fork::tables();
        let found = tables.inode(number)?;
        if found.link == self.link.id {
            // Another thread was faster, and got the same handle.
            found.owed += 1;
            return Ok(found.remote);
        }
        (found.link, found.remote, found.owed) = (self.link.id, remote, 1);
        tables.known.entry((self.local, self.link.id, remote)).or_insert(number);
        Ok(remote)
    }

    fn find_again(&self, origin: Origin) -> Result<Handle, CallError> {
        match origin {
            Origin::Root => self.link.call(&LookupRoot { mount: self.mount }),
            Origin::Number { ino, snapshot } => self.link.call(&LookupVino { mount: self.mount, ino, snapshot }),
        }
    }

    /// The daemon's handle of a file. Fails if writes to the file may be lost.
    pub fn file(&self, file: Pointer) -> Result<Handle, CallError> {
        let number = file as u64;
        let (origin, flags, identity, position) = {
            let mut tables = fork::tables();
            let parents = tables.parents;
            let found = tables.files.get(number)?;
            self.own(found.mount, found.link, parents)?;
            match found.at(self.link.id)? {
                Some(remote) => return Ok(remote),
                None => (found.origin, found.flags, found.identity.clone(), found.position),
            }
        };
        let opened = self.open_again(origin, flags, &identity, position)?;
        let used = fork::tables().moved(number, self.link.id, &opened);
        if used != Ok(opened.file) {
            let _ = self.link.call(&Close { mount: self.mount, file: opened.file });
        }
        Ok(used?)
    }

    /// Opens a file again with its original flags.
    pub fn open_again(
        &self,
        origin: Origin,
        flags: i32,
        identity: &Arc<Identity>,
        position: i64,
    ) -> Result<Opened, CallError> {
        let (mount, flags) = (self.mount, flags & !ONCE);
        let inode = self.find_again(origin)?;
        let opened = self.as_before(identity, |perms| self.link.call(&Open { mount, inode, flags, perms }));
        // The caller has not seen this inode.
        self.link.give_back(inode, 1)?;
        let opened = opened?;
        if position != 0 {
            let request = Lseek { mount, file: opened.file, offset: position, whence: libc::SEEK_SET };
            self.link.claim()?.call(&request, 0)?;
        }
        Ok(opened)
    }

    /// Refuses a directory of another mount, or of the parent.
    pub fn owns_dir(&self, dir: Pointer) -> Result<(), Errno> {
        let mut tables = fork::tables();
        let parents = tables.parents;
        let found = tables.dirs.get(dir as u64)?;
        self.own(found.mount, found.link, parents)
    }

    /// The daemon's handle of a directory that is being read. The caller has locked `batch`.
    pub fn dir(&self, dir: Pointer, batch: &EntryBatch) -> Result<Handle, CallError> {
        let number = dir as u64;
        let (origin, identity) = {
            let mut tables = fork::tables();
            let parents = tables.parents;
            let found = tables.dirs.get(number)?;
            self.own(found.mount, found.link, parents)?;
            if found.link == self.link.id
                && let Some(remote) = found.remote
            {
                return Ok(remote);
            }
            (found.origin, found.identity.clone())
        };
        let inode = self.find_again(origin)?;
        let opened = self.as_before(&identity, |perms| {
            let request = Opendir { mount: self.mount, inode, room: 0, perms };
            self.link.call(&request).map(|opened| opened.dir)
        });
        // The caller has not seen this inode.
        self.link.give_back(inode, 1)?;
        let remote = opened?;
        if batch.position != 0 && !batch.rewind {
            self.link.call(&Seekdir { mount: self.mount, dir: remote, offset: batch.position })?;
        }
        match fork::tables().dirs.get(number) {
            Ok(found) => (found.link, found.remote) = (self.link.id, Some(remote)),
            Err(error) => {
                let _ = self.link.call(&Releasedir { mount: self.mount, dir: remote });
                return Err(error.into());
            }
        }
        Ok(remote)
    }

    /// Opens an object again with its original identity. If this is no longer permitted, the object must not be lost: so this opens the object as
    /// root, and the daemon decides whether this process may do that.
    fn as_before<T>(
        &self,
        identity: &Arc<Identity>,
        open: impl Fn(Handle) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        match open(self.register(identity)?) {
            Err(refused @ CallError::Errno(Errno::ACCESS | Errno::PERM)) => {
                let root = Arc::new(Identity { uid: 0, gid: 0, groups: Vec::new() });
                open(self.register(&root).map_err(|_| refused)?)
            }
            result => result,
        }
    }
}
