//! Where snapshots were seen. Clients look up inodes in snapshots by number, also after a restart of the daemon. If the snapshot does not exist,
//! libcephfs fails an assertion, which ends the daemon (seen with 16.2 and 18.2). So the daemon first checks whether the snapshot is still where it
//! was seen. The list is kept for the next daemon.

use std::{
    cmp::Reverse,
    ffi::{CStr, CString},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use super::{figures::MOST_MOUNTS, lock, mounts::SharedMount, serve::own};

/// The most snapshots whose places the daemon remembers.
const MOST: usize = 1024;
/// The most lists that are kept, one for each mount's configuration.
const MOST_LISTS: usize = MOST_MOUNTS;
/// The beginning of a list's name. An earlier version kept one list for all mounts, whose name is only this.
pub const LIST: &str = "snapshots";

/// A snapshot: its number, the inode of a directory whose directory of snapshots lists it, and its name there.
#[derive(Clone, PartialEq, Debug)]
struct SnapshotPlace {
    snapshot: u64,
    directory: u64,
    name: CString,
}

/// The snapshots of a mount. An entry only says where to look: the snapshot may no longer be there.
#[derive(Default)]
pub struct SnapshotPlaces {
    file: Option<PathBuf>,
    places: Mutex<Vec<SnapshotPlace>>,
}

impl SnapshotPlaces {
    /// The places that an earlier process has left in the folder for the mount with this number.
    pub fn open(folder: &Path, mount: u64) -> SnapshotPlaces {
        let file = folder.join(format!("{LIST}-{mount:016x}"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let places = text.lines().filter_map(parse).take(MOST).collect();
        SnapshotPlaces { file: Some(file), places: Mutex::new(places) }
    }

    /// Removes the lists beyond the limit that were not written for the longest time, and the list of an earlier version.
    pub fn prune(folder: &Path, list: &str) {
        let lists = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_old = name == list;
            (is_old || name.starts_with(&format!("{list}-"))).then_some(())?;
            Some((is_old, Reverse(entry.metadata().ok()?.modified().ok()?), entry.path()))
        });
        let mut lists: Vec<_> = lists.collect();
        lists.sort();
        let kept = lists.iter().filter(|(is_old, ..)| !is_old).count().min(MOST_LISTS);
        for (_, _, path) in lists.into_iter().skip(kept) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
    }

    /// Notes that a name in a directory led to an inode in a snapshot, if the directory lists that snapshot.
    pub fn note(&self, mount: &Arc<SharedMount>, snapshot: u64, directory: u64, name: &CStr) {
        let place = SnapshotPlace { snapshot, directory, name: name.to_owned() };
        let is_known = lock(&self.places).iter().any(|known| known.snapshot == snapshot);
        if !is_known && own::lists_snapshot(mount, directory, name, snapshot) {
            self.add(place);
        }
    }

    /// Notes that a path led to an inode in a snapshot.
    pub fn note_path(&self, mount: &Arc<SharedMount>, snapshot: u64, path: &CStr) {
        if let Ok((directory, name)) = own::snapshot_in(mount, path) {
            self.note(mount, snapshot, directory, &name);
        }
    }

    fn add(&self, place: SnapshotPlace) {
        let mut places = lock(&self.places);
        places.insert(0, place);
        places.truncate(MOST);
        let text: String = places.iter().map(line).collect();
        if let Some(file) = &self.file
            && let Err(error) =
                fs::write(file.with_extension("new"), text).and_then(|()| fs::rename(file.with_extension("new"), file))
        {
            tracing::warn!("cannot note a snapshot in {}: {error}", file.display());
        }
    }

    /// Whether the snapshot is still where it was seen.
    pub fn has(&self, mount: &Arc<SharedMount>, snapshot: u64) -> bool {
        let places = lock(&self.places).clone();
        places.iter().any(|at| at.snapshot == snapshot && own::lists_snapshot(mount, at.directory, &at.name, snapshot))
    }
}

fn line(place: &SnapshotPlace) -> String {
    let name: String = place.name.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} {} {name}\n", place.snapshot, place.directory)
}

fn parse(line: &str) -> Option<SnapshotPlace> {
    let mut parts = line.split(' ');
    let (snapshot, directory) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (pairs, rest) = parts.next()?.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let name = CString::new(pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?).ok()?;
    rest.is_empty().then_some(SnapshotPlace { snapshot, directory, name })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_next_daemon_knows_where_snapshots_were_and_no_more_than_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let place = |snapshot| SnapshotPlace { snapshot, directory: 1 << 40, name: c"an \xff\n name".to_owned() };
        let first = SnapshotPlaces::open(folder.path(), 7);
        first.add(place(2));
        first.add(place(3));
        let second = SnapshotPlaces::open(folder.path(), 7);
        assert_eq!(*lock(&second.places), [place(3), place(2)]);
        (4..2000).for_each(|snapshot| lock(&second.places).push(place(snapshot)));
        second.add(place(5));
        assert_eq!(lock(&SnapshotPlaces::open(folder.path(), 7).places).len(), MOST);
        for damaged in ["", "x", "1 2", "1 2 6", "1 2 zz", "1 2 00", "1 x 61"] {
            assert_eq!(parse(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn the_latest_lists_are_kept_and_other_files_are_let_alone() {
        let folder = tempfile::tempdir().unwrap();
        let list = |mount: u64| folder.path().join(format!("snapshots-{mount:016x}"));
        for mount in 0..MOST_LISTS as u64 + 3 {
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(mount);
            fs::File::create(list(mount)).unwrap().set_modified(written).unwrap();
        }
        for other in ["snapshots", "sessions", "lock"] {
            fs::write(folder.path().join(other), "").unwrap();
        }
        SnapshotPlaces::prune(folder.path(), LIST);
        let there: Vec<bool> = (0..5).map(|mount| list(mount).exists()).collect();
        assert_eq!(there, [false, false, false, true, true]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST_LISTS + 2);
        assert!(!folder.path().join("snapshots").exists());
    }
}
