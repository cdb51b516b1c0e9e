//! Where snapshots were seen. Clients look up inodes in snapshots by number, after a restart of the daemon also. libcephfs
//! fails an assertion, which ends the daemon, if such a snapshot does not exist (seen with 16.2 and 18.2). So the daemon
//! looks first whether it is still where it was seen. The list is kept for the next daemon.

use std::{
    ffi::{CStr, CString},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use super::{lock, mounts::SharedMount, serve::own};

/// The most snapshots of which the daemon knows where they are.
const MOST: usize = 1024;

/// A snapshot: its number, the inode of a directory whose directory of snapshots lists it, and its name there.
#[derive(Clone, PartialEq, Debug)]
struct SnapshotPlace {
    snapshot: u64,
    directory: u64,
    name: CString,
}

/// The snapshots of a mount. A place is only where to look.
#[derive(Default)]
pub struct SnapshotPlaces {
    file: Option<PathBuf>,
    places: Mutex<Vec<SnapshotPlace>>,
}

impl SnapshotPlaces {
    /// The places that an earlier process has left in the folder for the mount with this number.
    pub fn open(folder: &Path, mount: u64) -> SnapshotPlaces {
        let file = folder.join(format!("snapshots-{mount:016x}"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let places = text.lines().filter_map(parse).take(MOST).collect();
        SnapshotPlaces { file: Some(file), places: Mutex::new(places) }
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
}
