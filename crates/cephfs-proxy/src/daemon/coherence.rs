//! Decides which answers clients may cache and for how long, and invalidates the copies. ../version_table.rs describes how clients check their
//! copies.

use std::{
    sync::{
        Arc, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{delegations, mounts::SharedMount};
use crate::{
    version_table::{self, COUNT, VersionTable},
    wire::{Statx, Validity},
};

/// The longest life of a directory's attributes, milliseconds: CephFS updates the recursive sizes in them with a delay.
const DIRECTORY_LIFE: u32 = 1000;

/// The most objects that one change touches.
const MOST: usize = 6;

/// Something that clients can cache.
#[derive(Clone, Copy)]
pub enum Copied<'a> {
    /// An inode's attributes, and a directory's list of names.
    Attributes(u64),
    /// An inode's permissions and extended attributes.
    Rights(u64),
    /// The inode of a name in a directory.
    Name(u64, &'a [u8]),
}

/// The state of clients' copies.
pub struct Coherence {
    versions: &'static VersionTable,
    /// Counts the beginnings and ends of changes, and the delegations.
    epoch: AtomicU64,
    /// How late copies may show changes by the cluster's other clients, milliseconds; 0: no copies without a delegation.
    stale: u32,
}

impl Coherence {
    /// Validity by this table. Without a delegation, copies are valid for `stale` milliseconds.
    pub fn new(versions: &'static VersionTable, stale: u32) -> Coherence {
        Coherence { versions, epoch: AtomicU64::new(0), stale }
    }
}

impl Coherence {
    /// Whether copies may be kept without a delegation.
    pub fn may_be_stale(&self) -> bool {
        self.stale > 0
    }

    /// The longest life of a copy.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.stale.max(delegations::LIFE).into())
    }
}

/// The versions before a call of libcephfs.
pub struct VersionsBefore {
    epoch: u64,
    name: Validity,
}

/// A change under way, which ends when this is dropped.
pub struct ChangeGuard<'m> {
    coherence: &'m Coherence,
    touched: [u32; MOST],
    count: usize,
}

/// The copies that a delegation covers. This value can invalidate them without access to the mount.
pub struct Copies {
    coherence: Arc<Coherence>,
    versions: [u32; 2],
}

impl Copies {
    /// Notes that a delegation covers copies from now on. The delegation does not cover earlier copies, and their versions alone do not show that
    /// they are earlier. So this also changes the epoch.
    pub fn delegated(&self) {
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Invalidates the copies.
    pub fn void(&self) {
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
        self.coherence.versions.begin(&self.versions);
        self.coherence.versions.end(&self.versions);
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.coherence.versions.end(&self.touched[..self.count]);
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl SharedMount {
    fn entry(&self, what: Copied<'_>) -> u32 {
        // FNV-1a over the parts; the upper bits are distributed better.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        match what {
            Copied::Attributes(ino) => add(&ino.to_le_bytes()),
            Copied::Rights(ino) => [&[1], &ino.to_le_bytes()[..]].into_iter().for_each(add),
            Copied::Name(ino, name) => [&[2], &ino.to_le_bytes()[..], name].into_iter().for_each(add),
        }
        (hash >> 40) as u32 % COUNT as u32
    }

    /// Begins a change of these objects. It ends when the returned value is dropped, which must be before the answer.
    pub fn change<const N: usize>(&self, what: &[Copied<'_>; N]) -> ChangeGuard<'_> {
        const { assert!(N <= MOST) };
        let mut change = ChangeGuard { coherence: &self.coherence, touched: [0; MOST], count: 0 };
        for (place, what) in change.touched.iter_mut().zip(what) {
            *place = self.entry(*what);
            change.count += 1;
        }
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
        self.coherence.versions.begin(&change.touched[..change.count]);
        change
    }

    /// Whether copies may be kept without a delegation.
    pub fn may_be_stale(&self) -> bool {
        self.coherence.may_be_stale()
    }

    /// The stamp of a copy that depends on these two objects. Take the stamp before the call of libcephfs.
    pub fn stamp(&self, first: Copied<'_>, second: Copied<'_>) -> Validity {
        let [first, second] = [first, second].map(|what| {
            let entry = self.entry(what);
            (entry, self.coherence.versions.value(entry))
        });
        let changing = version_table::is_changing(first.1) || version_table::is_changing(second.1);
        Validity { life: if changing { 0 } else { self.coherence.stale }, first, second }
    }

    /// The stamp of a copy that an inode's delegation covers.
    fn stamp_delegated(&self, ino: u64, what: Copied<'_>) -> Validity {
        let stamp = self.stamp(what, what);
        let delegated = stamp.life == 0 && !version_table::is_changing(stamp.first.1) && self.is_delegated(ino);
        Validity { life: if delegated { delegations::LIFE } else { stamp.life }, ..stamp }
    }

    /// The stamp of an inode's attributes.
    pub fn stamp_attributes(&self, ino: u64) -> Validity {
        self.stamp_delegated(ino, Copied::Attributes(ino))
    }

    /// The stamp of a directory's list of names, which also depends on the directory's permissions.
    pub fn stamp_list(&self, ino: u64) -> Validity {
        self.stamp(Copied::Attributes(ino), Copied::Rights(ino))
    }

    /// The stamp of an inode's extended attributes.
    pub fn stamp_rights(&self, ino: u64) -> Validity {
        self.stamp_delegated(ino, Copied::Rights(ino))
    }

    /// All copies that an inode's delegation covers.
    pub fn copies(&self, ino: u64) -> Copies {
        let versions = [Copied::Attributes(ino), Copied::Rights(ino)].map(|what| self.entry(what));
        Copies { coherence: self.coherence.clone(), versions }
    }

    /// The versions before a name is looked up.
    pub fn before(&self, parent: u64, name: &[u8]) -> VersionsBefore {
        let epoch = self.coherence.epoch.load(Ordering::SeqCst);
        let stamp = self.stamp(Copied::Name(parent, name), Copied::Rights(parent));
        // `..` changes when the directory itself is moved, so it is not cached.
        let life = if name == b".." { 0 } else { stamp.life };
        VersionsBefore { epoch, name: Validity { life, ..stamp } }
    }

    /// The stamp of the attributes that came with a name; `None` if anything has changed since `before`.
    pub fn since(&self, before: &VersionsBefore, ino: u64) -> Option<Validity> {
        let stamp = self.stamp_attributes(ino);
        (self.coherence.epoch.load(Ordering::SeqCst) == before.epoch).then_some(stamp)
    }

    /// The locks to hold while a name is moved from one of these directories to the other. If libcephfs removes or renames a name that it is
    /// already renaming, it crashes, or every look-up of a name waits for ever (16.2).
    pub fn renaming(&self, parents: [u64; 2]) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut places = parents.map(|ino| ino as usize % self.names.len()).to_vec();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| self.names[place].write().unwrap_or_else(|e| e.into_inner())).collect()
    }

    /// The lock to hold while names are created in this directory.
    pub fn naming(&self, parent: u64) -> RwLockReadGuard<'_, ()> {
        self.names[parent as usize % self.names.len()].read().unwrap_or_else(|e| e.into_inner())
    }

    /// The locks to hold while a name is removed from this directory: exclusive locks, if the name's inode has to be known before the removal.
    pub fn removing(
        &self,
        parent: u64,
        is_looked_up: bool,
    ) -> (Option<RwLockReadGuard<'_, ()>>, Vec<RwLockWriteGuard<'_, ()>>) {
        let alone = is_looked_up || self.may_be_stale();
        if alone { (None, self.renaming([parent; 2])) } else { (Some(self.naming(parent)), Vec::new()) }
    }
}

impl VersionsBefore {
    /// The stamp of the name.
    pub fn name(&self) -> Validity {
        self.name
    }
}

/// Limits the life of a directory's attributes to [`DIRECTORY_LIFE`].
pub fn limited(stamp: Validity, statx: &Statx) -> Validity {
    let directory = u32::from(statx.mode) & libc::S_IFMT == libc::S_IFDIR;
    if directory { Validity { life: stamp.life.min(DIRECTORY_LIFE), ..stamp } } else { stamp }
}
