//! Lists of the names in a directory: the entries that an open directory reads from, and their copy for the next one.

use std::sync::Arc;

use cephfs_proxy::wire::{DirectoryEntry, Entries, Errno, Handle, Validity, Wire, WireReader};

use super::{CachedAnswer, Hint, now};
use crate::{fork, link::DaemonLink, session::RequestTarget, tables::Pointer};

/// The most bytes of a cached list, and of all cached lists.
const LARGEST: usize = 512 << 10;
const MOST: usize = 2 << 20;

/// A list, and the identity that read it.
pub struct List {
    perms: Handle,
    bytes: Arc<Vec<u8>>,
}

/// Entries of a directory that the daemon has sent.
#[derive(Default)]
pub struct EntryBatch {
    bytes: Arc<Vec<u8>>,
    at: usize,
    /// The daemon has no more entries.
    pub end: bool,
    /// The next request begins at the first entry again.
    pub rewind: bool,
    /// The position of the next entry, according to the last entry; 0: the beginning.
    pub position: i64,
    /// The entry to which `ceph_readdir` returned a pointer.
    pub current: Option<Box<libc::dirent>>,
    /// The number of the directory's inode.
    inode: u64,
    /// All entries so far, while the list may still be cached.
    whole: Option<Whole>,
}

/// A list that will be cached once it is complete.
struct Whole {
    inode: u64,
    perms: Handle,
    stamp: Validity,
    asked: u64,
    link: u64,
    bytes: Vec<u8>,
}

impl EntryBatch {
    /// The batch of a directory that is read from the beginning.
    pub fn begin(link: &DaemonLink, inode: u64, perms: Handle, asked: u64, stamp: Validity) -> EntryBatch {
        let whole = (stamp.life > 0).then_some(Whole { inode, perms, stamp, asked, link: link.id, bytes: Vec::new() });
        EntryBatch { whole, inode, ..EntryBatch::default() }
    }

    /// The batch of a directory whose list is cached.
    pub fn known(bytes: Arc<Vec<u8>>) -> EntryBatch {
        EntryBatch { bytes, end: true, ..EntryBatch::default() }
    }

    /// Takes the entries that the daemon has sent. If the list is now complete and its stamp has not changed, the list is cached.
    pub fn fill(&mut self, target: &RequestTarget, bytes: Vec<u8>, entries: Entries) {
        if let Some(mut whole) = self.whole.take() {
            let same = whole.link == target.link.id
                && (whole.stamp.first, whole.stamp.second) == (entries.stamp.first, entries.stamp.second);
            whole.bytes.extend_from_slice(&bytes);
            match entries.end {
                _ if !same || entries.stamp.life == 0 || whole.bytes.len() > LARGEST => {}
                true => target.learn_list(whole),
                false => self.whole = Some(whole),
            }
        }
        (self.bytes, self.at, self.end) = (Arc::new(bytes), 0, entries.end);
        target.hint(self.inode, &self.bytes);
    }

    /// Whether the next entry must be requested.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Starts again.
    pub fn rewind(&mut self) {
        *self = EntryBatch { inode: self.inode, rewind: true, current: self.current.take(), ..EntryBatch::default() };
    }

    /// The next entry; `None` if it must be requested.
    pub fn next(&mut self) -> Result<Option<(DirectoryEntry, &[u8])>, Errno> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let mut reader = WireReader::new(rest);
        let malformed = |_| Errno::PROTO;
        let entry = DirectoryEntry::take(&mut reader).map_err(malformed)?;
        let name = reader.bytes(entry.length.into()).map_err(malformed)?;
        self.at += DirectoryEntry::SIZE + name.len();
        self.position = entry.next;
        Ok(Some((entry, name)))
    }
}

impl RequestTarget {
    /// A directory's list from a copy; `None` if there is no valid copy.
    pub fn list(&self, inode: Pointer, perms: Handle) -> Option<Arc<Vec<u8>>> {
        let mut tables = fork::tables();
        let inode = tables.inode(inode as u64).ok().filter(|inode| inode.is_at(self.local, &self.link))?;
        let list = inode.list.as_ref()?.get(&self.link).filter(|list| list.perms == perms)?;
        let bytes = list.bytes.clone();
        inode.hint = Hint::new(bytes.clone());
        Some(bytes)
    }

    /// Remembers the names of a list, which are likely to be looked up next.
    fn hint(&self, inode: u64, bytes: &Arc<Vec<u8>>) {
        if self.link.keeps_names
            && !bytes.is_empty()
            && let Ok(inode) = fork::tables().inode(inode)
        {
            inode.hint = Hint::new(bytes.clone());
        }
    }

    fn learn_list(&self, whole: Whole) {
        let Whole { inode, perms, stamp, asked, bytes, .. } = whole;
        let Some(kept) = CachedAnswer::new(&self.link, List { perms, bytes: Arc::new(bytes) }, stamp, asked)
            .filter(|kept| kept.until > now())
        else {
            return;
        };
        let mut tables = fork::tables();
        let held: usize = tables.inodes.all().filter_map(|inode| Some(inode.list.as_ref()?.value.bytes.len())).sum();
        if held > MOST {
            tables.inodes.all().for_each(|inode| inode.list = None);
        }
        if let Ok(inode) = tables.inode(inode) {
            inode.list = Some(kept);
        }
    }
}
