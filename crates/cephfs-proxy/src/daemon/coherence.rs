//! What clients may keep copies of, for how long, and what makes them void: ../version_table.rs says how they see it.

use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{delegations, lock, mounts::Mount};
use crate::{
    version_table::{self, COUNT, VersionTable},
    wire::{Stamp, Statx},
};

/// Milliseconds for which a directory's attributes are kept, at most: CephFS adds up the sizes of what is below when it finds the time.
const DIRECTORY_LIFE: u32 = 1000;

/// Things that one change touches, at most.
const MOST: usize = 6;

/// Something that can be copied.
#[derive(Clone, Copy)]
pub enum Copied<'a> {
    /// An inode's attributes; of a directory, also its list of names.
    Attributes(u64),
    /// Who may do what with an inode, and its extended attributes.
    Rights(u64),
    /// What a name in a directory leads to.
    Name(u64, &'a [u8]),
}

/// What the daemon's mounts have in common.
pub struct Coherence {
    versions: &'static VersionTable,
    /// Goes up with each beginning and each end of a change, and with each delegation.
    epoch: AtomicU64,
    /// Milliseconds by which copies may be late to show what other clients of the cluster change; 0: not at all.
    stale: u32,
}

impl Coherence {
    /// Validity by this table; without a delegation, copies are valid for `stale` milliseconds.
    pub fn new(versions: &'static VersionTable, stale: u32) -> Coherence {
        Coherence { versions, epoch: AtomicU64::new(0), stale }
    }
}

impl Coherence {
    /// Whether copies may be kept without a delegation.
    pub fn may_be_stale(&self) -> bool {
        self.stale > 0
    }

    /// How long a copy is kept, at most.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.stale.max(delegations::LIFE).into())
    }
}

/// How things were before libcephfs was asked.
pub struct Before {
    epoch: u64,
    name: Stamp,
}

/// A change under way.
pub struct Change<'m> {
    coherence: &'m Coherence,
    touched: [u32; MOST],
    count: usize,
}

/// Copies that can be made void without their mount.
pub struct Copies {
    coherence: Arc<Coherence>,
    versions: [u32; 2],
}

impl Copies {
    /// A delegation covers the copies from now on. It does not cover those made before, which the versions alone cannot show.
    pub fn delegated(&self) {
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// What they say may be wrong from now on.
    pub fn void(&self) {
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
        self.coherence.versions.begin(&self.versions);
        self.coherence.versions.end(&self.versions);
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.coherence.versions.end(&self.touched[..self.count]);
        self.coherence.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl Mount {
    fn entry(&self, what: Copied<'_>) -> u32 {
        // FNV-1a over the parts; the upper bits are the better ones.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.number;
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

    /// A change of all this begins. It is over when what is returned is dropped: before the client is answered.
    pub fn change<const N: usize>(&self, what: &[Copied<'_>; N]) -> Change<'_> {
        const { assert!(N <= MOST) };
        let mut change = Change { coherence: &self.coherence, touched: [0; MOST], count: 0 };
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

    /// What a copy of these two would be stamped with, now, before libcephfs is asked for it.
    pub fn stamp(&self, first: Copied<'_>, second: Copied<'_>) -> Stamp {
        let [first, second] = [first, second].map(|what| {
            let entry = self.entry(what);
            (entry, self.coherence.versions.value(entry))
        });
        let changing = version_table::is_changing(first.1) || version_table::is_changing(second.1);
        Stamp { life: if changing { 0 } else { self.coherence.stale }, first, second }
    }

    /// Likewise, for what an inode's delegation covers.
    fn stamp_delegated(&self, ino: u64, what: Copied<'_>) -> Stamp {
        let stamp = self.stamp(what, what);
        let delegated = stamp.life == 0 && !version_table::is_changing(stamp.first.1) && self.is_delegated(ino);
        Stamp { life: if delegated { delegations::LIFE } else { stamp.life }, ..stamp }
    }

    /// Likewise, of an inode's attributes.
    pub fn stamp_attributes(&self, ino: u64) -> Stamp {
        self.stamp_delegated(ino, Copied::Attributes(ino))
    }

    /// Likewise, of a directory's list of names, for who may see it.
    pub fn stamp_list(&self, ino: u64) -> Stamp {
        self.stamp(Copied::Attributes(ino), Copied::Rights(ino))
    }

    /// Likewise, of an inode's extended attributes.
    pub fn stamp_rights(&self, ino: u64) -> Stamp {
        self.stamp_delegated(ino, Copied::Rights(ino))
    }

    /// All copies that an inode's delegation covers.
    pub fn copies(&self, ino: u64) -> Copies {
        let versions = [Copied::Attributes(ino), Copied::Rights(ino)].map(|what| self.entry(what));
        Copies { coherence: self.coherence.clone(), versions }
    }

    /// To be asked before a name is looked up.
    pub fn before(&self, parent: u64, name: &[u8]) -> Before {
        let epoch = self.coherence.epoch.load(Ordering::SeqCst);
        let stamp = self.stamp(Copied::Name(parent, name), Copied::Rights(parent));
        // That one changes when the directory itself is moved.
        let life = if name == b".." { 0 } else { stamp.life };
        Before { epoch, name: Stamp { life, ..stamp } }
    }

    /// The stamp for the attributes that came with a name, unless something has changed since `before`.
    pub fn since(&self, before: &Before, ino: u64) -> Option<Stamp> {
        let stamp = self.stamp_attributes(ino);
        (self.coherence.epoch.load(Ordering::SeqCst) == before.epoch).then_some(stamp)
    }

    /// Held while names in these directories are taken away, so that what they lead to is known before.
    pub fn taking_away(&self, parents: [u64; 2]) -> Vec<MutexGuard<'_, ()>> {
        if !self.may_be_stale() {
            return Vec::new();
        }
        let mut places = parents.map(|ino| ino as usize % self.names.len()).to_vec();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| lock(&self.names[place])).collect()
    }
}

impl Before {
    /// For what the name leads to.
    pub fn name(&self) -> Stamp {
        self.name
    }
}

/// What is said of attributes, once they are known.
pub fn limited(stamp: Stamp, statx: &Statx) -> Stamp {
    let directory = u32::from(statx.mode) & libc::S_IFMT == libc::S_IFDIR;
    if directory { Stamp { life: stamp.life.min(DIRECTORY_LIFE), ..stamp } } else { stamp }
}
