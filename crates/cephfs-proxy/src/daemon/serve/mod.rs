//! Serves requests: each is one call of libcephfs, after a check that all handles in the request are the client's own.

mod data;
mod dirs;
mod files;
mod inodes;
mod many;
mod mount;
mod names;
pub mod own;
mod xattrs;

use std::{
    ffi::CStr,
    sync::{Arc, Mutex},
};

use super::{
    DaemonState,
    ceph::{Ceph, CephMount, CephPerms},
    connection::ClientConnection,
    handles::{ClientMount, Dir, File, HeldObject, Inode, Perms},
    lock,
    mounts::{SharedMount, checked},
    weight,
};
use crate::{
    layout::DATA_SIZE,
    memory::copy_from_peer,
    wire::{Errno, Handle, Malformed, Request, Wire, WireWriter, result_of},
};

/// A result and an answer, or an errno.
type Reply<A> = Result<(i64, A), Errno>;

/// The bits of a mode that a request may set. A metadata server adds a type to the mode, so other bits could result in a wrong type of the object.
const PERMISSIONS: u32 = 0o7777;

/// One request.
struct RequestContext<'c> {
    connection: &'c Arc<ClientConnection>,
    shared: &'c DaemonState,
    /// The slot's data. The client can change it at any time, so it is passed to libcephfs, or copied once before use.
    data: *mut u8,
    /// The length of the request's data, bytes.
    length: usize,
}

/// Serves one request, puts the answer into the slot, and returns the result.
pub fn serve(connection: &Arc<ClientConnection>, shared: &DaemonState, slot: usize, message: &[u8], data: u32) -> i64 {
    let length = (data as usize).min(DATA_SIZE);
    let service = RequestContext { connection, shared, data: connection.mapping.data(slot), length };
    let Ok(request) = Request::decode(message) else { return result_of(Errno::BADMSG) };
    tracing::trace!("client {}: {request:?}", connection.id);
    let mut room = [0; 512];
    match service.dispatch(&request, &mut room) {
        Ok((result, answer)) if connection.mapping.put_message(slot, answer) => result,
        Ok(_) => result_of(Errno::IO),
        Err(errno) => result_of(errno),
    }
}

impl RequestContext<'_> {
    fn dispatch<'b>(&self, request: &Request<'_>, room: &'b mut [u8]) -> Result<(i64, &'b [u8]), Errno> {
        let to = WireWriter::new(room);
        match request {
            Request::Nop(_) => put(Ok((0, ())), to),
            Request::Create(r) => put(self.create(r), to),
            Request::ConfReadFile(r) => put(self.conf_read_file(r), to),
            Request::ConfSet(r) => put(self.conf_set(r), to),
            Request::ConfGet(r) => put(self.conf_get(r), to),
            Request::Init(r) => put(self.init(r), to),
            Request::SelectFilesystem(r) => put(self.select_filesystem(r), to),
            Request::Mount(r) => put(self.mount_it(r), to),
            Request::Unmount(r) => put(self.unmount(r), to),
            Request::Release(r) => put(self.release(r), to),
            Request::Chdir(r) => put(self.chdir(r), to),
            Request::Identify(r) => put(self.identify(r), to),
            Request::LookupRoot(r) => put(self.lookup_root(r), to),
            Request::LookupInode(r) => put(self.lookup_inode(r), to),
            Request::Lookup(r) => put(self.lookup(r), to),
            Request::Walk(r) => put(self.walk(r), to),
            Request::Getattr(r) => put(self.getattr(r), to),
            Request::Setattr(r) => put(self.setattr(r), to),
            Request::Statfs(r) => put(self.statfs(r), to),
            Request::Readlink(r) => put(self.readlink(r), to),
            Request::Mknod(r) => put(self.mknod(r), to),
            Request::Mkdir(r) => put(self.mkdir(r), to),
            Request::Symlink(r) => put(self.symlink(r), to),
            Request::Link(r) => put(self.link(r), to),
            Request::Rename(r) => put(self.rename(r), to),
            Request::Unlink(r) => put(self.unlink(r), to),
            Request::Rmdir(r) => put(self.rmdir(r), to),
            Request::CreateFile(r) => put(self.create_file(r), to),
            Request::Open(r) => put(self.open(r), to),
            Request::Close(r) => put(self.close(r), to),
            Request::Read(r) => put(self.read(r), to),
            Request::Write(r) => put(self.write(r), to),
            Request::Lseek(r) => put(self.lseek(r), to),
            Request::Fsync(r) => put(self.fsync(r), to),
            Request::Fallocate(r) => put(self.fallocate(r), to),
            Request::Rewrite(r) => put(self.rewrite(r), to),
            Request::MapData(r) => put(self.map_data(r), to),
            Request::Opendir(r) => put(self.opendir(r), to),
            Request::Readdir(r) => put(self.readdir(r), to),
            Request::Releasedir(r) => put(self.releasedir(r), to),
            Request::LookupMany(r) => put(self.lookup_many(r), to),
            Request::Getxattr(r) => put(self.getxattr(r), to),
            Request::Setxattr(r) => put(self.setxattr(r), to),
            Request::Listxattr(r) => put(self.listxattr(r), to),
            Request::Removexattr(r) => put(self.removexattr(r), to),
            Request::LookupVino(r) => put(self.lookup_vino(r), to),
            Request::Seekdir(r) => put(self.seekdir(r), to),
        }
    }

    fn get(&self, owner: Handle, handle: Handle) -> Result<HeldObject, Errno> {
        lock(&self.connection.handles).get(owner, handle)
    }

    fn client_mount(&self, handle: Handle) -> Result<Arc<ClientMount>, Errno> {
        match self.get(Handle(0), handle)? {
            HeldObject::Mount(mount) => Ok(mount),
            _ => Err(Errno::BADF),
        }
    }

    fn mount(&self, handle: Handle) -> Result<Arc<SharedMount>, Errno> {
        lock(&self.client_mount(handle)?.mounted).clone().ok_or(Errno::NOTCONN)
    }

    fn inode(&self, mount: Handle, handle: Handle) -> Result<Arc<Inode>, Errno> {
        match self.get(mount, handle)? {
            HeldObject::Inode(inode) => Ok(inode),
            _ => Err(Errno::BADF),
        }
    }

    /// An inode that is a directory. libcephfs would treat any inode as a directory, and fail an assertion if the inode has several names.
    fn parent(&self, mount: Handle, handle: Handle) -> Result<Arc<Inode>, Errno> {
        let inode = self.inode(mount, handle)?;
        if inode.is_directory() { Ok(inode) } else { Err(Errno::NOTDIR) }
    }

    fn file(&self, mount: Handle, handle: Handle) -> Result<Arc<File>, Errno> {
        match self.get(mount, handle)? {
            HeldObject::File(file) => Ok(file),
            _ => Err(Errno::BADF),
        }
    }

    fn dir(&self, mount: Handle, handle: Handle) -> Result<Arc<Mutex<Dir>>, Errno> {
        match self.get(mount, handle)? {
            HeldObject::Dir(dir) => Ok(dir),
            _ => Err(Errno::BADF),
        }
    }

    fn perms(&self, handle: Handle) -> Result<Arc<Perms>, Errno> {
        match self.get(Handle(0), handle)? {
            HeldObject::Perms(perms) => Ok(perms),
            _ => Err(Errno::BADF),
        }
    }

    /// Checks, before a call, that new objects of these weights stay within the limits.
    fn room_for<const N: usize>(&self, things: [usize; N]) -> Result<(), Errno> {
        let (limits, handles) = (&self.shared.limits, lock(&self.connection.handles));
        if handles.len() + N > limits.handles {
            return Err(Errno::MFILE);
        }
        if handles.weight() + things.iter().sum::<usize>() > limits.memory { Err(Errno::NOMEM) } else { Ok(()) }
    }

    fn hold(&self, owner: Handle, held: HeldObject) -> Handle {
        lock(&self.connection.handles).add(owner, held)
    }

    /// Adds an inode that libcephfs has just returned, and returns its handle.
    fn hold_inode(&self, owner: Handle, inode: Inode) -> Handle {
        let (handle, surplus) = lock(&self.connection.handles).add_inode(owner, inode);
        drop(surplus);
        handle
    }

    /// How many bytes of the slot's data the answer may fill.
    fn room(&self, asked: u32) -> usize {
        (asked as usize).min(DATA_SIZE)
    }

    /// A copy of the data that came with the request.
    fn copy(&self) -> Vec<u8> {
        let mut copy = vec![0; self.length];
        // SAFETY: the slot's data is at least as long, and aligned to its size.
        unsafe { copy_from_peer(self.data, &mut copy) };
        copy
    }

    /// Fills the slot's data from its beginning.
    fn fill(&self, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.len() > DATA_SIZE {
            return Err(Errno::NAMETOOLONG);
        }
        // SAFETY: the length was checked, and the memory does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, bytes.len()) };
        Ok(())
    }
}

impl Inode {
    /// The library and the mount's pointer.
    fn parts(&self) -> (&'static Ceph, *mut CephMount) {
        (self.mount.ceph(), self.mount.raw())
    }
}

impl Perms {
    fn raw(&self) -> *const CephPerms {
        self.raw
    }
}

/// Writes a reply.
fn put<'b, A: for<'m> Wire<'m>>(reply: Reply<A>, mut to: WireWriter<'b>) -> Result<(i64, &'b [u8]), Errno> {
    let (result, answer) = reply?;
    answer.put(&mut to).map_err(|_: Malformed| Errno::IO)?;
    Ok((result, to.written()))
}

/// A reply without an answer: libcephfs's result, or its errno.
fn done(result: i32) -> Reply<()> {
    checked(result).map(|count| (count.into(), ()))
}

/// Checks a name in a directory. A metadata server treats a name with a slash as a path.
fn name(text: &CStr) -> Result<&CStr, Errno> {
    match text.to_bytes() {
        long if long.len() > 255 => Err(Errno::NAMETOOLONG),
        path if path.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(text),
    }
}

/// Checks a name to be created, renamed or removed. `.` and `..` are refused.
fn changed_name(text: &CStr) -> Result<&CStr, Errno> {
    match text.to_bytes() {
        b"" | b"." | b".." => Err(Errno::INVAL),
        _ => name(text),
    }
}
