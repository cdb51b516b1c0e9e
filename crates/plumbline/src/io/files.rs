//! The files that were read and written, and in which order. They are recorded by process and file, and shown by file.

use std::collections::{BTreeMap, BTreeSet};

use probes::{Access, Transfers};
use serde::{Deserialize, Serialize};

/// The system calls of one process on one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    pub mount: String,
    pub inode: u64,
    /// The name without folders, at most 63 bytes.
    pub file: String,
    pub pid: u32,
    pub opens: u64,
    pub read: Transfers,
    pub written: Transfers,
}

impl FileUse {
    pub fn new(access: &Access, mount: &str) -> Self {
        Self {
            mount: mount.to_owned(),
            inode: access.inode,
            file: access.name.to_string(),
            pid: access.pid,
            opens: access.opens,
            read: access.read,
            written: access.written,
        }
    }
}

/// One file, with the sums of all processes that used it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OneFile {
    pub mount: String,
    pub file: String,
    pub processes: BTreeSet<u32>,
    pub opens: u64,
    pub read: Transfers,
    pub written: Transfers,
}

impl OneFile {
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.written.bytes
    }

    /// The end of the last access in the file, bytes.
    pub fn end(&self) -> u64 {
        self.read.end.max(self.written.end)
    }

    /// Whether more than one process opened, read or wrote it.
    pub fn is_shared(&self) -> bool {
        self.processes.len() > 1
    }

    /// How it was used.
    pub fn manner(&self) -> Manner {
        match (self.read.calls > 0, self.written.calls > 0) {
            (true, true) => Manner::Both,
            (true, false) => Manner::Read,
            (false, true) => Manner::Written,
            (false, false) => Manner::Opened,
        }
    }
}

/// How a file was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    Read,
    Written,
    Both,
    Opened,
}

impl Manner {
    pub const ALL: &[Self] = &[Self::Read, Self::Written, Self::Both, Self::Opened];

    pub fn phrase(self) -> &'static str {
        match self {
            Self::Read => "only read",
            Self::Written => "only written",
            Self::Both => "read and written",
            Self::Opened => "only opened",
        }
    }
}

/// The files without duplicates, those with most bytes first.
pub fn by_file(uses: &[FileUse]) -> Vec<OneFile> {
    let mut files: BTreeMap<(&str, u64), OneFile> = BTreeMap::new();
    for one in uses {
        let file = files.entry((&one.mount, one.inode)).or_default();
        if file.file.is_empty() {
            (file.mount, file.file) = (one.mount.clone(), one.file.clone());
        }
        file.processes.insert(one.pid);
        file.opens += one.opens;
        file.read.add(&one.read);
        file.written.add(&one.written);
    }
    let mut files: Vec<_> = files.into_values().collect();
    files.sort_by(|one, other| other.bytes().cmp(&one.bytes()).then_with(|| one.file.cmp(&other.file)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(inode: u64, pid: u32, read: u64, written: u64) -> FileUse {
        let order = |calls: u64| Transfers { calls, bytes: calls * 4096, end: calls * 4096, ..Transfers::default() };
        FileUse {
            inode,
            pid,
            file: format!("f{inode}"),
            read: order(read),
            written: order(written),
            ..FileUse::default()
        }
    }

    #[test]
    fn a_file_of_several_processes_is_one_file_and_shared() {
        let files = by_file(&[used(1, 7, 0, 2), used(2, 7, 9, 0), used(1, 8, 0, 3), used(3, 8, 0, 0)]);
        let seen: Vec<_> = files.iter().map(|file| (file.file.as_str(), file.is_shared(), file.manner())).collect();
        assert_eq!(seen, [("f2", false, Manner::Read), ("f1", true, Manner::Written), ("f3", false, Manner::Opened)]);
        assert_eq!((files[1].written.calls, files[1].bytes(), files[1].end()), (5, 5 * 4096, 3 * 4096));
    }
}
