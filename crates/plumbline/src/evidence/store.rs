//! The directory of the bundles. All access goes through its descriptor, so that no name or symbolic link can lead to
//! files outside of it.

use std::collections::BinaryHeap;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};

use super::id::IncidentId;
use super::trust::checked;
use crate::watched;

/// The directory of incidents below OUTPUT_DIR.
pub const INCIDENTS: &str = "incidents";
/// The directory of observations, which are collected at intervals without an incident.
pub const OBSERVATIONS: &str = "observations";
/// How many of the oldest bundles a census lists. This bounds memory, and the bundles that one pass of retention
/// deletes.
pub const OLDEST: usize = 1024;
/// The block size of file systems, bytes. Sizes are rounded up to blocks, so that `du` agrees with the limit.
const BLOCK: u64 = 4096;

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// The bytes on disk of a file of this length.
pub fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// A bundle on disk. Ordered by age, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// When it was last written.
    pub modified: SystemTime,
    /// Its name.
    pub id: IncidentId,
    /// Its bytes on disk.
    pub bytes: u64,
}

/// The content of the directory at one time.
#[derive(Debug, Default)]
pub struct Census {
    /// The bytes on disk of all bundles, including half-written ones.
    pub bytes: u64,
    /// The oldest bundles, at most [`OLDEST`], oldest first.
    pub oldest: Vec<Stored>,
}

/// A directory of bundles below OUTPUT_DIR, open.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    dir: OwnedFd,
}

impl Store {
    /// Opens OUTPUT_DIR and this folder in it. Missing directories are created, with mode 0700.
    ///
    /// # Errors
    /// If a directory cannot be created, or fails the checks of [`Store::existing`].
    pub fn open(output_dir: &Path, folder: &str) -> Result<Self> {
        watched::refuse(&output_dir.join(folder))?;
        let parent = output_dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        match DirBuilder::new().mode(0o700).create(output_dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot create {}", output_dir.display()));
            }
            _ => {}
        }
        let top = checked(open(output_dir, DIRECTORY, Mode::empty()), output_dir)?;
        match mkdirat(&top, folder, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => {
                let shown = output_dir.join(folder);
                return Err(io::Error::from(errno)).with_context(|| format!("cannot create {}", shown.display()));
            }
        }
        let store = Self::as_it_is(output_dir, folder)?;
        // The folder has our name and owner, so restricting its mode is safe. OUTPUT_DIR itself may be shared and
        // keeps its mode. On a read-only disk, the old mode stays.
        let _ = fchmod(&store.dir, Mode::S_IRWXU);
        Ok(store)
    }

    /// Opens OUTPUT_DIR and this folder in it without creating them.
    ///
    /// # Errors If either is missing, a symbolic link, no directory, owned by another user, writable by others, or on a
    /// watched mount (which may have been mounted there since the last check).
    pub fn existing(output_dir: &Path, folder: &str) -> Result<Self> {
        watched::refuse(&output_dir.join(folder))?;
        Self::as_it_is(output_dir, folder)
    }

    fn as_it_is(output_dir: &Path, folder: &str) -> Result<Self> {
        let top = checked(open(output_dir, DIRECTORY, Mode::empty()), output_dir)?;
        let path = output_dir.join(folder);
        let dir = checked(openat(&top, folder, DIRECTORY, Mode::empty()), &path)?;
        Ok(Self { path, dir })
    }

    /// The path of a bundle, for messages.
    pub fn path_of(&self, id: &IncidentId) -> PathBuf {
        self.path.join(id.bundle())
    }

    /// Deletes half-written bundles of an earlier run. Returns how many it deleted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn remove_leftovers(&self) -> io::Result<usize> {
        let mut leftovers = Vec::new();
        self.each_file(|name, _| leftovers.extend(IncidentId::of_temporary(name)))?;
        Ok(leftovers.iter().filter(|id| self.unlink(&id.temporary()).is_ok()).count())
    }

    /// Sums up the sizes in the directory and lists its oldest bundles, without `except`.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn census(&self, except: Option<&IncidentId>) -> io::Result<Census> {
        let mut bytes = 0_u64;
        let mut oldest = BinaryHeap::new();
        self.each_file(|name, stat| {
            let size = size(stat);
            let bundle = IncidentId::of_bundle(name);
            if bundle.is_some() || IncidentId::of_temporary(name).is_some() {
                bytes = bytes.saturating_add(size);
            }
            if let Some(id) = bundle.filter(|id| Some(id) != except) {
                oldest.push(Stored { modified: modified(stat), id, bytes: size });
                if oldest.len() > OLDEST {
                    oldest.pop();
                }
            }
        })?;
        Ok(Census { bytes, oldest: oldest.into_sorted_vec() })
    }

    /// All bundles, newest first. The daemon must not use this: the list may be long.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<Stored>> {
        let mut bundles = Vec::new();
        self.each_file(|name, stat| {
            bundles.extend(IncidentId::of_bundle(name).map(|id| Stored {
                modified: modified(stat),
                id,
                bytes: size(stat),
            }));
        })?;
        bundles.sort_unstable_by(|one, other| other.cmp(one));
        Ok(bundles)
    }

    /// The highest sequence number of a bundle, from which numbers continue after a restart; 0 without bundles.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn last_sequence(&self) -> io::Result<u64> {
        let mut last = 0;
        self.each_file(|name, _| last = IncidentId::of_bundle(name).map_or(last, |id| last.max(id.sequence())))?;
        Ok(last)
    }

    /// Creates the temporary file that becomes the bundle. An old one of the same name is deleted.
    ///
    /// # Errors
    /// As open(2).
    pub fn create_temporary(&self, id: &IncidentId) -> io::Result<File> {
        let name = id.temporary();
        let _ = self.unlink(&name);
        Ok(openat(&self.dir, name.as_str(), created(), Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    /// Creates a file without a name, which the kernel deletes when it is closed, even by a crash.
    ///
    /// # Errors
    /// As open(2).
    pub fn create_unnamed(&self) -> io::Result<File> {
        let owner = Mode::S_IRUSR | Mode::S_IWUSR;
        match openat(&self.dir, ".", OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC, owner) {
            Ok(fd) => return Ok(fd.into()),
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL | Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        // overlayfs before 6.2 and NFS have no O_TMPFILE.
        self.create_and_unlink()
    }

    fn create_and_unlink(&self) -> io::Result<File> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // If the process is killed between the two calls, the next start deletes the file.
        let id = IncidentId::new(jiff::Timestamp::now(), "spool", "part", COUNT.fetch_add(1, Ordering::Relaxed));
        let file = self.create_temporary(&id)?;
        self.remove_temporary(&id)?;
        Ok(file)
    }

    /// Opens a bundle for reading.
    ///
    /// # Errors
    /// As open(2): `NotFound` if it is gone.
    pub fn open_bundle(&self, id: &IncidentId) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(openat(&self.dir, id.bundle().as_str(), flags, Mode::empty())?.into())
    }

    /// Syncs the temporary file and renames it to the bundle's name. `replacing`: an existing bundle may be replaced.
    ///
    /// # Errors Those of fsync(2) and rename(2); then the temporary file is still there. If only the directory cannot
    /// be synced, the bundle is there, and the log has a warning.
    pub fn commit(&self, file: &File, id: &IncidentId, replacing: bool) -> io::Result<()> {
        file.sync_all()?;
        let (from, to) = (id.temporary(), id.bundle());
        let renamed = if replacing {
            Err(Errno::EINVAL)
        } else {
            renameat2(&self.dir, from.as_str(), &self.dir, to.as_str(), RenameFlags::RENAME_NOREPLACE)
        };
        match renamed {
            // EINVAL: the file system does not support RENAME_NOREPLACE.
            Err(Errno::EINVAL) => renameat(&self.dir, from.as_str(), &self.dir, to.as_str())?,
            other => other?,
        }
        if let Err(error) = fsync(&self.dir) {
            tracing::warn!(%error, "a power failure may lose {to}: its directory cannot be synced");
        }
        Ok(())
    }

    /// Deletes a bundle.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_bundle(&self, id: &IncidentId) -> io::Result<()> {
        self.unlink(&id.bundle())
    }

    /// Deletes a half-written bundle.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_temporary(&self, id: &IncidentId) -> io::Result<()> {
        self.unlink(&id.temporary())
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Calls `see` for every regular file whose name is UTF-8. Files that vanish meanwhile are skipped.
    fn each_file(&self, mut see: impl FnMut(&str, &FileStat)) -> io::Result<()> {
        // Opens a new descriptor, since a directory stream moves the offset of its descriptor.
        let mut listing = Dir::openat(&self.dir, ".", DIRECTORY, Mode::empty())?;
        for entry in listing.iter() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Ok(stat) = fstatat(&self.dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG {
                see(name, &stat);
            }
        }
        Ok(())
    }
}

fn created() -> OFlag {
    OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn size(stat: &FileStat) -> u64 {
    on_disk(u64::try_from(stat.st_size).unwrap_or(0))
}

fn modified(stat: &FileStat) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_file_without_a_name_can_be_had_where_the_file_system_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), INCIDENTS).unwrap();
        let mut files = [store.create_and_unlink().unwrap(), store.create_and_unlink().unwrap()];
        assert_eq!(std::fs::read_dir(dir.path().join(INCIDENTS)).unwrap().count(), 0);
        for file in &mut files {
            file.write_all(b"spool").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "spool");
        }
    }
}
