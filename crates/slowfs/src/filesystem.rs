//! The operations that the kernel requests. Each waits as the control file says, and then runs on the tree without a delay.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;

use crate::control::ControlFile;
use crate::tree::{BYTES_LIMIT, Content, FileTree, NODES_LIMIT};

/// The kernel caches nothing, so that every operation reaches this file system.
const UNCACHED: Duration = Duration::ZERO;
const BLOCK: u32 = 4096;
const NO_HANDLE: FileHandle = FileHandle(0);

/// The tree, and the control file that delays its operations.
pub struct SlowFs {
    control: ControlFile,
    tree: Mutex<FileTree>,
}

impl SlowFs {
    /// An empty file system.
    pub fn new(control: ControlFile) -> Self {
        Self { control, tree: Mutex::new(FileTree::new()) }
    }

    /// Waits before it locks the tree, so that a slow operation delays no other one.
    fn tree(&self, operation: &str) -> Result<MutexGuard<'_, FileTree>, Errno> {
        self.control.wait(operation)?;
        Ok(self.tree.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn create_node(
        &self,
        operation: &str,
        request: &Request,
        place: (INodeNo, &OsStr),
        content: Content,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let mut tree = self.tree(operation)?;
        let number = tree.create(place.0.0, place.1, content, mode, (request.uid(), request.gid()))?;
        attributes(&tree, number)
    }
}

fn attributes(tree: &FileTree, number: u64) -> Result<FileAttr, Errno> {
    let node = tree.node(number)?;
    let directory = matches!(node.content, Content::Directory(_));
    Ok(FileAttr {
        ino: INodeNo(number),
        size: node.size(),
        blocks: node.size().div_ceil(512),
        atime: node.modified,
        mtime: node.modified,
        ctime: node.modified,
        crtime: node.modified,
        kind: if directory { FileType::Directory } else { FileType::RegularFile },
        perm: node.mode,
        nlink: node.links(),
        uid: node.owner.0,
        gid: node.owner.1,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    })
}

fn code(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error as i32)
}

/// Replies with success or the error, without data.
fn acknowledge(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(code(error)),
    }
}

fn answer_entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.entry(&UNCACHED, &attributes, Generation(0)),
        Err(error) => reply.error(code(error)),
    }
}

fn answer_attributes(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.attr(&UNCACHED, &attributes),
        Err(error) => reply.error(code(error)),
    }
}

impl Filesystem for SlowFs {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree("lookup").and_then(|tree| attributes(&tree, tree.lookup(parent.0, name)?));
        answer_entry(reply, found);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(reply, self.tree("getattr").and_then(|tree| attributes(&tree, ino.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let result = self.tree("setattr").and_then(|mut tree| {
            if let Some(size) = size {
                tree.truncate(ino.0, size)?;
            }
            let node = tree.node_mut(ino.0)?;
            node.mode = mode.map_or(node.mode, |mode| (mode & 0o7777) as u16);
            node.owner = (uid.unwrap_or(node.owner.0), gid.unwrap_or(node.owner.1));
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => node.modified = time,
                Some(TimeOrNow::Now) => node.modified = SystemTime::now(),
                None => {}
            }
            attributes(&tree, ino.0)
        });
        answer_attributes(reply, result);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let content = Content::Directory(BTreeMap::new());
        answer_entry(reply, self.create_node("mkdir", request, (parent, name), content, mode & !umask));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let content = Content::File(Vec::new());
        let created =
            self.create_node("create", request, (parent, name), content, mode & !umask).and_then(|attributes| {
                self.tree.lock().unwrap_or_else(PoisonError::into_inner).open(attributes.ino.0)?;
                Ok(attributes)
            });
        match created {
            Ok(attributes) => {
                reply.created(&UNCACHED, &attributes, Generation(0), NO_HANDLE, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree("open").and_then(|mut tree| tree.open(ino.0)) {
            Ok(()) => reply.opened(NO_HANDLE, FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(code(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree("read").and_then(|tree| tree.read(ino.0, offset, size).map(<[u8]>::to_vec)) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(code(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.tree("write").and_then(|mut tree| tree.write(ino.0, offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(code(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        acknowledge(reply, self.control.wait("flush"));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        acknowledge(reply, self.control.wait("fsync"));
    }

    /// No program waits for `release`: a close waits for `flush`.
    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        acknowledge(reply, self.tree.lock().unwrap_or_else(PoisonError::into_inner).release(ino.0));
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let result = self.tree("readdir").and_then(|tree| {
            let own = [(OsStr::new("."), ino.0), (OsStr::new(".."), ino.0)];
            let entries = tree.entries(ino.0)?.iter().map(|(name, number)| (name.as_os_str(), *number));
            let skip = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
            for (index, (name, number)) in own.into_iter().chain(entries).enumerate().skip(skip) {
                if reply.add(INodeNo(number), index as u64 + 1, attributes(&tree, number)?.kind, name) {
                    break;
                }
            }
            Ok(())
        });
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        acknowledge(reply, self.tree("unlink").and_then(|mut tree| tree.remove(parent.0, name, false)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        acknowledge(reply, self.tree("rmdir").and_then(|mut tree| tree.remove(parent.0, name, true)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = if flags.is_empty() {
            self.tree("rename").and_then(|mut tree| tree.rename((parent.0, name), (newparent.0, newname)))
        } else {
            Err(Errno::EINVAL)
        };
        acknowledge(reply, result);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (bytes, nodes) = self.tree.lock().unwrap_or_else(PoisonError::into_inner).free();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        reply.statfs(blocks(BYTES_LIMIT), blocks(bytes), blocks(bytes), NODES_LIMIT, nodes, BLOCK, 255, BLOCK);
    }
}
