//! Names of the daemon's sessions with metadata servers. The sessions of a daemon that is killed keep their
//! capabilities for a minute. By the name, the next daemon ends such a session as soon as it mounts the same again.
//!
//! Only a random number is kept, in one file. A mount's name follows from it, from the host and from the mount's
//! configuration.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::rand::GetRandomFlags;

use super::{
    ceph::{Ceph, CephMount},
    lock,
    snapshots::SnapshotPlaces,
};
use crate::wire::{Errno, errno_of};

/// CEPH_RECLAIM_RESET: end the earlier session instead of taking over its state.
const RESET: u32 = 1;
/// How long a mount waits until another mount of the same name is unmounted.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of hexadecimal digits of the random number.
const DIGITS: usize = 32;

/// The names of all sessions. Without a directory that keeps the random number, there are no names.
#[derive(Default)]
pub struct Sessions {
    number: Option<String>,
    used: Mutex<HashSet<CString>>,
    freed: Condvar,
    /// Where snapshots were seen.
    pub snapshots: SnapshotPlaces,
    /// Locked as long as the daemon runs: two daemons with the same names would end each other's sessions.
    _lock: Option<File>,
}

/// A mount's name while it is in use.
pub struct MountSession {
    name: CString,
    sessions: Arc<Sessions>,
}

impl Sessions {
    /// The names by the random number in `folder`. If that fails, logs why, and returns no names.
    pub fn open(ceph: &Ceph, folder: &Path) -> Arc<Sessions> {
        let opened = if ceph.ceph_start_reclaim.is_some()
            && ceph.ceph_finish_reclaim.is_some()
            && ceph.ceph_set_uuid.is_some()
        {
            Sessions::try_open(folder)
        } else {
            Err(anyhow::anyhow!("this libcephfs lacks ceph_start_reclaim, ceph_finish_reclaim or ceph_set_uuid"))
        };
        Arc::new(opened.unwrap_or_else(|error| {
            tracing::warn!("should this daemon be killed, the cluster will take a minute to notice: {error:#}");
            Sessions::default()
        }))
    }

    fn try_open(folder: &Path) -> anyhow::Result<Sessions> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}; see --state", folder.display()))?;
        let what = || format!("cannot use {}; see --state", folder.display());
        let lock =
            OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join("lock")).with_context(what)?;
        if lock.try_lock().is_err() {
            bail!("another daemon uses {}; see --state", folder.display());
        }
        let path = folder.join("sessions");
        let number = match read(&path) {
            Some(number) => number,
            None => write(folder, &path).with_context(what)?,
        };
        Ok(Sessions {
            number: Some(number),
            snapshots: SnapshotPlaces::open(folder),
            _lock: Some(lock),
            ..Sessions::default()
        })
    }

    /// A name for a mount of this configuration that no other mount of this daemon uses; `None` without names.
    pub fn name(self: &Arc<Sessions>, configuration: &[u8]) -> Option<MountSession> {
        let mut hasher = DefaultHasher::new();
        (self.number.as_ref()?, host(), configuration).hash(&mut hasher);
        let name = CString::new(format!("libcephfsd-{:016x}", hasher.finish())).ok()?;
        let used = lock(&self.used);
        let taken = |used: &mut HashSet<CString>| used.contains(&name);
        let waited = self.freed.wait_timeout_while(used, UNMOUNT_TIMEOUT, taken);
        let (mut used, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        let free = used.insert(name.clone());
        free.then(|| MountSession { name, sessions: self.clone() })
    }
}

impl MountSession {
    /// Ends the earlier session of this name, and gives the name to this mount. The mount must be initialised, or
    /// libcephfs crashes, and not mounted yet.
    pub fn begin(&self, ceph: &Ceph, mount: *mut CephMount) {
        let (Some(start), Some(finish), Some(set)) =
            (ceph.ceph_start_reclaim, ceph.ceph_finish_reclaim, ceph.ceph_set_uuid)
        else {
            return;
        };
        let name: &CStr = &self.name;
        // SAFETY: no other thread uses the mount until it is mounted; the name is a C string, which libcephfs copies.
        let result = unsafe {
            let result = start(mount, name.as_ptr(), RESET);
            finish(mount);
            set(mount, name.as_ptr());
            result
        };
        match result {
            0 => tracing::info!("gave up the session of a daemon that was killed"),
            // There is no earlier session, or an earlier attempt to mount has ended it.
            error if matches!(errno_of(error.into()), Errno::NOENT | Errno::INVAL) => {}
            error => tracing::warn!(
                "cannot give up the session of a daemon that was killed, if there is one: {}",
                io::Error::from_raw_os_error(-error)
            ),
        }
    }
}

impl Drop for MountSession {
    fn drop(&mut self) {
        lock(&self.sessions.used).remove(&self.name);
        self.sessions.freed.notify_all();
    }
}

/// The host's identity, since the directory may have been copied to another host with its disk.
fn host() -> (Vec<u8>, Vec<u8>) {
    let read = |path| fs::read(path).unwrap_or_default();
    (read("/etc/machine-id"), read("/proc/sys/kernel/hostname"))
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(2 * DIGITS as u64).read_to_string(&mut text).ok()?;
    let number = text.trim();
    (number.len() == DIGITS && number.bytes().all(|digit| digit.is_ascii_hexdigit())).then(|| number.to_owned())
}

/// Makes a new random number and writes it to disk atomically.
fn write(folder: &Path, path: &Path) -> anyhow::Result<String> {
    let mut random = [0u8; DIGITS / 2];
    if rustix::rand::getrandom(&mut random, GetRandomFlags::empty())? != random.len() {
        bail!("the kernel has no random numbers");
    }
    let number: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let draft = folder.join("sessions.new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(file, "{number}")?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_daemon_has_the_same_names_and_two_at_once_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let name = |sessions: &Arc<Sessions>, of: &[u8]| sessions.name(of).map(|session| session.name.clone());
        let first = Arc::new(Sessions::try_open(folder.path()).unwrap());
        let named = name(&first, b"a").unwrap();
        assert_ne!(name(&first, b"b").unwrap(), named);
        assert_eq!(name(&first, b"a").unwrap(), named);
        assert!(Sessions::try_open(folder.path()).is_err());
        drop(first);
        let second = Arc::new(Sessions::try_open(folder.path()).unwrap());
        assert_eq!(name(&second, b"a").unwrap(), named);
        drop(second);
        fs::write(folder.path().join("sessions"), "cut").unwrap();
        let third = Arc::new(Sessions::try_open(folder.path()).unwrap());
        assert_ne!(name(&third, b"a").unwrap(), named);
        assert!(name(&Arc::default(), b"a").is_none());
    }

    #[test]
    fn a_name_is_free_again_when_its_mount_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = Arc::new(Sessions::try_open(folder.path()).unwrap());
        let held = sessions.name(b"a").unwrap();
        let waiting = {
            let sessions = sessions.clone();
            std::thread::spawn(move || sessions.name(b"a").is_some())
        };
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
        assert!(waiting.join().unwrap());
    }
}
