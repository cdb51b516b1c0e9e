//! What other programs need to make sense of the pinned maps: their version, and what the mounts in their keys mean.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use libbpf_rs::{MapCore, MapFlags};
use model::{BUCKETS, Mount, MountKey, SIZES};

use crate::{
    generated::{Plain, counter, maps_layout, mount_entry},
    mounts::MountPoint,
    names::text,
    shared::SharedMaps,
};

/// `MAPS_VERSION` of bpf/event.h, an enumerator without a type of its own.
const VERSION: u32 = 1;
/// Entries of the map `mounts`.
const MOST_MOUNTS: usize = 4096;

/// Writes the part that does not change: the maps' version.
pub(crate) fn describe(shared: &SharedMaps) -> libbpf_rs::Result<()> {
    let layout = maps_layout {
        version: VERSION,
        histogram_buckets: u32::try_from(BUCKETS).unwrap_or_default(),
        size_buckets: u32::try_from(SIZES).unwrap_or_default(),
        counters: counter::MAX_COUNTERS.0,
    };
    shared.map("version")?.update(&0_u32.to_ne_bytes(), layout.as_bytes(), MapFlags::ANY)?;
    Ok(())
}

/// The map `mounts`, and what was written to it.
#[derive(Debug, Default)]
pub(crate) struct MountDirectory {
    /// A fingerprint of each entry, so that only what changed is written.
    written: HashMap<MountKey, u64>,
}

impl MountDirectory {
    /// Makes the map hold these mounts, as many as there is room for. If several mounts have the same key, the first is
    /// kept.
    pub fn publish<'a>(
        &mut self,
        shared: &SharedMaps,
        mounts: impl Iterator<Item = (MountKey, &'a MountPoint)>,
    ) -> libbpf_rs::Result<()> {
        let map = shared.map("mounts")?;
        let mut wanted = HashMap::new();
        for (key, point) in mounts.filter(|(key, _)| *key != MountKey::NONE) {
            if wanted.len() < MOST_MOUNTS {
                wanted.entry(key).or_insert(&point.mount);
            }
        }
        let gone: Vec<_> = self.written.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for key in gone {
            self.written.remove(&key);
            map.delete(&key.0.to_ne_bytes())?;
        }
        for (key, mount) in wanted {
            let now = fingerprint(mount);
            if self.written.get(&key) != Some(&now) {
                map.update(&key.0.to_ne_bytes(), entry(mount).as_bytes(), MapFlags::ANY)?;
                self.written.insert(key, now);
            }
        }
        Ok(())
    }
}

fn fingerprint(mount: &Mount) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&mount.fstype, &mount.mountpoint, &mount.source).hash(&mut hasher);
    hasher.finish()
}

fn entry(mount: &Mount) -> mount_entry {
    mount_entry { fstype: text(&mount.fstype), mountpoint: text(&mount.mountpoint), source: text(&mount.source) }
}
