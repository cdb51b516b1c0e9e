//! The files and directories, in memory and limited in size. No function here waits.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use nix::errno::Errno;

/// The most bytes of all files together.
pub const BYTES_LIMIT: u64 = 64 << 20;
/// The most files and directories.
pub const NODES_LIMIT: u64 = 1 << 16;
/// The number of the root directory.
pub const ROOT: u64 = 1;

/// A file's bytes, or a directory's entries.
pub enum Content {
    /// A regular file.
    File(Vec<u8>),
    /// A directory: name to number.
    Directory(BTreeMap<OsString, u64>),
}

/// A file or a directory.
pub struct FileNode {
    /// The contents.
    pub content: Content,
    /// Permission bits.
    pub mode: u16,
    /// Owner: user and group.
    pub owner: (u32, u32),
    /// When the contents last changed.
    pub modified: SystemTime,
    /// The number of names of the node. A node without a name exists as long as it is open.
    links: u32,
    opens: u32,
}

impl FileNode {
    /// The bytes of a file; 0 for a directory.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::File(bytes) => bytes.len() as u64,
            Content::Directory(_) => 0,
        }
    }

    /// The number of names, as stat shows it.
    pub fn links(&self) -> u32 {
        self.links
    }
}

/// All files and directories of the file system.
pub struct FileTree {
    nodes: BTreeMap<u64, FileNode>,
    next: u64,
    bytes: u64,
}

impl FileTree {
    /// An empty root directory.
    pub fn new() -> Self {
        let root = FileNode {
            content: Content::Directory(BTreeMap::new()),
            mode: 0o777,
            owner: (0, 0),
            modified: SystemTime::now(),
            links: 1,
            opens: 0,
        };
        Self { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, bytes: 0 }
    }

    /// The numbers of bytes and nodes that can still be added.
    pub fn free(&self) -> (u64, u64) {
        (BYTES_LIMIT.saturating_sub(self.bytes), NODES_LIMIT.saturating_sub(self.nodes.len() as u64))
    }

    /// The node with this number.
    pub fn node(&self, number: u64) -> Result<&FileNode, Errno> {
        self.nodes.get(&number).ok_or(Errno::ESTALE)
    }

    /// The node with this number, to change.
    pub fn node_mut(&mut self, number: u64) -> Result<&mut FileNode, Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::ESTALE)
    }

    /// A directory's entries.
    pub fn entries(&self, directory: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.node(directory)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn entries_mut(&mut self, directory: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.node_mut(directory)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn bytes_mut(&mut self, file: u64) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.node_mut(file)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory(_) => Err(Errno::EISDIR),
        }
    }

    /// The number of the node with this name.
    pub fn lookup(&self, directory: u64, name: &OsStr) -> Result<u64, Errno> {
        self.entries(directory)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// Adds a node with this name and content, and returns its number.
    pub fn create(
        &mut self,
        directory: u64,
        name: &OsStr,
        content: Content,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<u64, Errno> {
        if self.free().1 == 0 {
            return Err(Errno::ENOSPC);
        }
        let number = self.next;
        let entries = self.entries_mut(directory)?;
        if entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        entries.insert(name.to_owned(), number);
        self.next += 1;
        let mode = (mode & 0o7777) as u16;
        self.nodes.insert(number, FileNode { content, mode, owner, modified: SystemTime::now(), links: 1, opens: 0 });
        Ok(number)
    }

    /// Removes a name: of an empty directory if `of_directory`, otherwise of a file.
    pub fn remove(&mut self, directory: u64, name: &OsStr, of_directory: bool) -> Result<(), Errno> {
        let number = self.lookup(directory, name)?;
        match (&self.node(number)?.content, of_directory) {
            (Content::Directory(_), false) => return Err(Errno::EISDIR),
            (Content::File(_), true) => return Err(Errno::ENOTDIR),
            (Content::Directory(entries), true) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.entries_mut(directory)?.remove(name);
        self.node_mut(number)?.links = 0;
        self.forget_unused(number);
        Ok(())
    }

    /// Moves `from` to `to`, and replaces an existing file or empty directory.
    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<(), Errno> {
        let number = self.lookup(from.0, from.1)?;
        match self.lookup(to.0, to.1) {
            Ok(there) if there == number => return Ok(()),
            Ok(_) => self.remove(to.0, to.1, matches!(self.node(number)?.content, Content::Directory(_)))?,
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.entries_mut(from.0)?.remove(from.1);
        self.entries_mut(to.0)?.insert(to.1.to_owned(), number);
        Ok(())
    }

    /// Counts one more open handle of the node.
    pub fn open(&mut self, number: u64) -> Result<(), Errno> {
        self.node_mut(number)?.opens += 1;
        Ok(())
    }

    /// Counts one open handle less.
    pub fn release(&mut self, number: u64) -> Result<(), Errno> {
        let node = self.node_mut(number)?;
        node.opens = node.opens.saturating_sub(1);
        self.forget_unused(number);
        Ok(())
    }

    fn forget_unused(&mut self, number: u64) {
        if self.node(number).is_ok_and(|node| node.links == 0 && node.opens == 0)
            && let Some(node) = self.nodes.remove(&number)
        {
            self.bytes -= node.size();
        }
    }

    /// Reads at most `size` bytes from `offset`.
    pub fn read(&self, file: u64, offset: u64, size: u32) -> Result<&[u8], Errno> {
        match &self.node(file)?.content {
            Content::File(bytes) => {
                let start = usize::try_from(offset).map_err(|_| Errno::EINVAL)?.min(bytes.len());
                let end = start.saturating_add(size as usize).min(bytes.len());
                Ok(bytes.get(start..end).unwrap_or_default())
            }
            Content::Directory(_) => Err(Errno::EISDIR),
        }
    }

    /// Writes `data` at `offset`. If the file was shorter, zeros fill the gap.
    pub fn write(&mut self, file: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > self.node(file)?.size() {
            self.truncate(file, end)?;
        }
        let start = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let place = self.bytes_mut(file)?.get_mut(start..start + data.len()).ok_or(Errno::EIO)?;
        place.copy_from_slice(data);
        self.node_mut(file)?.modified = SystemTime::now();
        Ok(())
    }

    /// Sets the file's size to `size` bytes.
    pub fn truncate(&mut self, file: u64, size: u64) -> Result<(), Errno> {
        let others = self.bytes - self.node(file)?.size();
        let total = others.checked_add(size).filter(|total| *total <= BYTES_LIMIT).ok_or(Errno::ENOSPC)?;
        self.bytes_mut(file)?.resize(usize::try_from(size).map_err(|_| Errno::EFBIG)?, 0);
        self.bytes = total;
        self.node_mut(file)?.modified = SystemTime::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(name: &str) -> (FileTree, u64) {
        let mut tree = FileTree::new();
        let file = tree.create(ROOT, name.as_ref(), Content::File(Vec::new()), 0o644, (0, 0)).unwrap();
        (tree, file)
    }

    #[test]
    fn a_full_file_system_says_so_and_removing_makes_room() {
        let (mut tree, file) = with_file("big");
        tree.truncate(file, BYTES_LIMIT).unwrap();
        assert_eq!(tree.write(file, BYTES_LIMIT, b"x"), Err(Errno::ENOSPC));
        assert_eq!(tree.write(file, u64::MAX, b"x"), Err(Errno::EFBIG));
        tree.remove(ROOT, "big".as_ref(), false).unwrap();
        assert_eq!(tree.free(), (BYTES_LIMIT, NODES_LIMIT - 1));
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let (mut tree, file) = with_file("a");
        tree.open(file).unwrap();
        tree.remove(ROOT, "a".as_ref(), false).unwrap();
        tree.write(file, 2, b"x").unwrap();
        assert_eq!(tree.read(file, 0, 10), Ok(&b"\0\0x"[..]));
        tree.release(file).unwrap();
        assert_eq!(tree.read(file, 0, 10), Err(Errno::ESTALE));
        assert_eq!(tree.free().0, BYTES_LIMIT);
    }

    #[test]
    fn renaming_replaces_a_file_but_no_full_directory() {
        let (mut tree, file) = with_file("a");
        tree.create(ROOT, "b".as_ref(), Content::File(vec![]), 0o644, (0, 0)).unwrap();
        tree.rename((ROOT, "a".as_ref()), (ROOT, "b".as_ref())).unwrap();
        assert_eq!(tree.lookup(ROOT, "b".as_ref()), Ok(file));
        assert_eq!(tree.lookup(ROOT, "a".as_ref()), Err(Errno::ENOENT));
        let directory = tree.create(ROOT, "d".as_ref(), Content::Directory(BTreeMap::new()), 0o755, (0, 0)).unwrap();
        tree.rename((ROOT, "b".as_ref()), (directory, "b".as_ref())).unwrap();
        assert_eq!(tree.remove(ROOT, "d".as_ref(), true), Err(Errno::ENOTEMPTY));
        assert_eq!(tree.remove(ROOT, "d".as_ref(), false), Err(Errno::EISDIR));
    }
}
