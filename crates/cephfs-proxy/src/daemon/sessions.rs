//! Names for our sessions with metadata servers that outlive us. A daemon that is killed leaves its sessions behind, and what those
//! hold is held for a minute; the next one gives each up by its name as soon as it mounts the same again.
//!
//! All that is kept is a random number, in one file; a mount's name follows from that, from the host and from its configuration.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use anyhow::{Context, bail};

use super::{
    ceph::{Ceph, CephMount},
    lock,
};
use crate::sys;

/// CEPH_RECLAIM_RESET: what the session before has is given up, not taken over.
const RESET: u32 = 1;
/// How long a mount waits until another one of that name is unmounted.
const PATIENCE: Duration = Duration::from_secs(10);
/// Hexadecimal digits of the random number.
const DIGITS: usize = 32;

/// All names. Without a folder to remember a number in, there are none.
#[derive(Default)]
pub struct Sessions {
    number: Option<String>,
    used: Mutex<HashSet<CString>>,
    freed: Condvar,
    /// Locked as long as we live: two daemons of the same name would end each other's sessions.
    _lock: Option<File>,
}

/// A mount's name while it is used.
pub struct Session {
    name: CString,
    sessions: Arc<Sessions>,
}

impl Sessions {
    /// Those of `folder`. Where that is of no use, says so, and goes without.
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
        // SAFETY: no pointers.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            bail!("another daemon uses {}; see --state", folder.display());
        }
        let path = folder.join("sessions");
        let number = match read(&path) {
            Some(number) => number,
            None => write(folder, &path).with_context(what)?,
        };
        Ok(Sessions { number: Some(number), _lock: Some(lock), ..Sessions::default() })
    }

    /// A name for a mount of this configuration, which no other mount of ours has at the moment.
    pub fn name(self: &Arc<Sessions>, configuration: &[u8]) -> Option<Session> {
        let mut hasher = DefaultHasher::new();
        (self.number.as_ref()?, host(), configuration).hash(&mut hasher);
        let name = CString::new(format!("libcephfsd-{:016x}", hasher.finish())).ok()?;
        let used = lock(&self.used);
        let taken = |used: &mut HashSet<CString>| used.contains(&name);
        let waited = self.freed.wait_timeout_while(used, PATIENCE, taken);
        let (mut used, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        let free = used.insert(name.clone());
        free.then(|| Session { name, sessions: self.clone() })
    }
}

impl Session {
    /// Ends the session that had this name before, and gives it to this mount, which is initialised and not mounted yet: libcephfs
    /// relies on the former, and crashes else.
    pub fn begin(&self, ceph: &Ceph, mount: *mut CephMount) {
        let (Some(start), Some(finish), Some(set)) =
            (ceph.ceph_start_reclaim, ceph.ceph_finish_reclaim, ceph.ceph_set_uuid)
        else {
            return;
        };
        let name: &CStr = &self.name;
        // SAFETY: the mount is ours alone until it is mounted; the name is a C string, which is copied.
        let result = unsafe {
            let result = start(mount, name.as_ptr(), RESET);
            finish(mount);
            set(mount, name.as_ptr());
            result
        };
        match result {
            0 => tracing::info!("gave up the session of a daemon that was killed"),
            // There is none, or this is another attempt to mount, and the one before has done it.
            error if error == -libc::ENOENT || error == -libc::EINVAL => {}
            error => tracing::warn!(
                "cannot give up the session of a daemon that was killed, if there is one: {}",
                io::Error::from_raw_os_error(-error)
            ),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.sessions.used).remove(&self.name);
        self.sessions.freed.notify_all();
    }
}

/// A folder may have been copied to another host with its disk.
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

/// A new number, on disk whole or not at all.
fn write(folder: &Path, path: &Path) -> anyhow::Result<String> {
    let mut random = [0u8; DIGITS / 2];
    // SAFETY: room for as many as are asked for.
    let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if sys::checked(got as libc::c_int)? as usize != random.len() {
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
