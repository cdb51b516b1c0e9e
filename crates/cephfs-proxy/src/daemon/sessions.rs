//! Names of the daemon's sessions with metadata servers. The sessions of a daemon that is killed keep their
//! capabilities for a minute. By the name, the next daemon ends such a session as soon as it mounts the same again.
//!
//! Only a random number is kept, in one file. A mount's name follows from it, from the host and from the mount's
//! configuration. One mount at a time has a name, since the front starts no second process for a place.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, bail};
use rustix::rand::GetRandomFlags;

use super::ceph::{Ceph, CephMount};
use crate::wire::{Errno, errno_of, hello::LOBBY};

/// CEPH_RECLAIM_RESET: end the earlier session instead of taking over its state.
const RESET: u32 = 1;
/// What it means that sessions have no names.
const UNNAMED: &str = "should this daemon be killed, the cluster will take a minute to notice";
/// The number of hexadecimal digits of the random number.
const DIGITS: usize = 32;

/// The random number. Without a directory that keeps it, there is none, and sessions have no names.
#[derive(Default)]
pub struct SessionNumber {
    /// Its digits.
    pub digits: Option<String>,
    /// Locked as long as the daemon runs: two daemons with the same names would end each other's sessions.
    _lock: Option<File>,
}

impl SessionNumber {
    /// The number in `folder`. If that fails, logs why, and returns none.
    pub fn open(folder: &Path) -> SessionNumber {
        SessionNumber::try_open(folder).unwrap_or_else(|error| {
            tracing::warn!("{UNNAMED}: {error:#}");
            SessionNumber::default()
        })
    }

    fn try_open(folder: &Path) -> anyhow::Result<SessionNumber> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}; see --state", folder.display()))?;
        let what = || format!("cannot use {}; see --state", folder.display());
        let lock =
            OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join("lock")).with_context(what)?;
        if lock.try_lock().is_err() {
            bail!("another daemon uses {}; see --state", folder.display());
        }
        let path = folder.join("sessions");
        let digits = match read(&path) {
            Some(digits) => digits,
            None => write(folder, &path).with_context(what)?,
        };
        Ok(SessionNumber { digits: Some(digits), _lock: Some(lock) })
    }
}

/// What follows from the random number and a mount's configuration.
pub struct SessionNames(pub Option<String>);

impl SessionNames {
    /// The number of the place of mounts with this configuration. Without the random number, others could find a
    /// configuration that has the place of another one.
    pub fn place(&self, configuration: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.0, configuration).hash(&mut hasher);
        hasher.finish().max(LOBBY + 1)
    }

    /// The name of the session of a mount with this configuration.
    fn session(&self, configuration: &[u8]) -> Option<CString> {
        let mut hasher = DefaultHasher::new();
        (self.0.as_ref()?, host(), configuration).hash(&mut hasher);
        CString::new(format!("libcephfsd-{:016x}", hasher.finish())).ok()
    }

    /// Logs if this libcephfs lacks what names of sessions need.
    pub fn check(ceph: &Ceph) {
        if ceph.ceph_start_reclaim.is_none() || ceph.ceph_finish_reclaim.is_none() || ceph.ceph_set_uuid.is_none() {
            tracing::warn!("{UNNAMED}: this libcephfs lacks ceph_start_reclaim, ceph_finish_reclaim or ceph_set_uuid");
        }
    }

    /// Ends the earlier session of this configuration's name, and gives the name to this mount. The mount must be
    /// initialised, or libcephfs crashes, and not mounted yet.
    pub fn begin(&self, ceph: &Ceph, mount: *mut CephMount, configuration: &[u8]) {
        let (Some(start), Some(finish), Some(set), Some(name)) =
            (ceph.ceph_start_reclaim, ceph.ceph_finish_reclaim, ceph.ceph_set_uuid, self.session(configuration))
        else {
            return;
        };
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
        let names = |number: &SessionNumber| SessionNames(number.digits.clone());
        let first = SessionNumber::try_open(folder.path()).unwrap();
        let (place, session) = (names(&first).place(b"a"), names(&first).session(b"a").unwrap());
        assert_ne!((names(&first).place(b"b"), names(&first).session(b"b").unwrap()), (place, session.clone()));
        assert!(SessionNumber::try_open(folder.path()).is_err());
        drop(first);
        let second = SessionNumber::try_open(folder.path()).unwrap();
        assert_eq!((names(&second).place(b"a"), names(&second).session(b"a").unwrap()), (place, session.clone()));
        drop(second);
        fs::write(folder.path().join("sessions"), "cut").unwrap();
        let third = SessionNumber::try_open(folder.path()).unwrap();
        assert_ne!(names(&third).session(b"a").unwrap(), session);
        assert!(SessionNames(None).session(b"a").is_none());
    }
}
