//! Names of the daemon's sessions with metadata servers. When a daemon is killed, its sessions keep their capabilities for a minute. By the name,
//! the next daemon ends such a session as soon as it mounts with the same configuration.
//!
//! Only a random number is kept, in one file. A mount's name is derived from this number, the host and the mount's configuration. Only one mount at
//! a time uses a name: the front starts no second process for a place, and daemons that take over from one another alternate between two kinds of
//! names.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use rustix::rand::GetRandomFlags;

use super::ceph::{Ceph, CephMount};
use crate::wire::{Errno, errno_of, hello::LOBBY};

/// CEPH_RECLAIM_RESET: end the earlier session instead of taking over its state.
const RESET: u32 = 1;
/// The consequence of sessions without names.
const UNNAMED: &str = "if this daemon is killed, the cluster keeps its sessions for a minute";
/// The files with the number that a mount's processes have in common, one for each mount's place.
pub const LINEAGE: &str = "lineage";
/// The number of hexadecimal digits of the random number.
const DIGITS: usize = 32;

/// The random number. Without a directory that keeps the number, there is none, and sessions have no names.
pub struct SessionNumber {
    /// What processes need to derive the names.
    pub names: SessionNames,
    /// Locked as long as the daemon runs: two daemons with the same names would end each other's sessions. A daemon that
    /// takes over gets the locked file.
    pub lock: Option<OwnedFd>,
}

impl SessionNumber {
    /// The number in `folder`. If that fails, logs why, and returns none.
    pub fn open(folder: &Path) -> SessionNumber {
        SessionNumber::try_open(folder).unwrap_or_else(|error| {
            tracing::warn!("{UNNAMED}: {error:#}");
            SessionNumber { names: SessionNames { number: None, turn: 0, alone: true }, lock: None }
        })
    }

    /// The number in `folder`, which the daemon of the other turn still uses.
    pub fn share(folder: &Path, turn: u8) -> anyhow::Result<SessionNumber> {
        let digits = read(&folder.join("sessions"))
            .with_context(|| format!("there is no number of sessions in {}", folder.display()))?;
        Ok(SessionNumber { names: SessionNames { number: Some(digits), turn, alone: false }, lock: None })
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
        let names = SessionNames { number: Some(digits), turn: 0, alone: true };
        Ok(SessionNumber { names, lock: Some(lock.into()) })
    }
}

/// Derives names and places from the random number and a mount's configuration.
#[derive(Clone, Default)]
pub struct SessionNames {
    /// The digits of the random number.
    pub number: Option<String>,
    /// Which of the two kinds of names this daemon uses: 0 or 1.
    pub turn: u8,
    /// Whether no daemon that uses the other kind of names is alive.
    pub alone: bool,
}

impl SessionNames {
    /// The number of the place of mounts with this configuration. The random number keeps others from finding a configuration that has the place of
    /// another configuration.
    pub fn place(&self, configuration: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.number, configuration).hash(&mut hasher);
        hasher.finish().max(LOBBY + 1)
    }

    /// The name of the session of a mount with this configuration, for a daemon of this turn.
    fn session(&self, configuration: &[u8], turn: u8) -> Option<CString> {
        let mut hasher = DefaultHasher::new();
        (self.number.as_ref()?, host(), configuration).hash(&mut hasher);
        let turn = if turn == 0 { "" } else { "-b" };
        CString::new(format!("libcephfsd-{:016x}{turn}", hasher.finish())).ok()
    }

    /// Logs a message if this libcephfs lacks the functions that names of sessions need.
    pub fn check(ceph: &Ceph) {
        if ceph.ceph_start_reclaim.is_none() || ceph.ceph_finish_reclaim.is_none() || ceph.ceph_set_uuid.is_none() {
            tracing::warn!("{UNNAMED}: this libcephfs lacks ceph_start_reclaim, ceph_finish_reclaim or ceph_set_uuid");
        }
    }

    /// Ends earlier sessions with this configuration's names, and gives the name to this mount. The mount must be initialised, or libcephfs
    /// crashes, and not mounted yet. The other turn's session is left alone while its daemon lives. Calls `ended` at once with whether there was an
    /// earlier session of this mount's own name: if this process is killed afterwards, the next process has to know that the earlier session was
    /// ended.
    pub fn begin(&self, ceph: &Ceph, mount: *mut CephMount, configuration: &[u8], ended: impl Fn(bool)) {
        let (Some(start), Some(finish), Some(set), Some(name)) = (
            ceph.ceph_start_reclaim,
            ceph.ceph_finish_reclaim,
            ceph.ceph_set_uuid,
            self.session(configuration, self.turn),
        ) else {
            return ended(false);
        };
        let other = self.session(configuration, self.turn ^ 1).filter(|_| self.alone);
        let mut results = Vec::new();
        // libcephfs returns 0 for every name after the first that had a session.
        for name in [Some(&name), other.as_ref()].into_iter().flatten() {
            // SAFETY: no other thread uses the mount until it is mounted; the name is a C string, which libcephfs copies.
            results.push(unsafe { start(mount, name.as_ptr(), RESET) });
            if let [own] = *results {
                ended(own == 0);
            }
            // SAFETY: no other thread uses the mount until it is mounted.
            unsafe { finish(mount) };
        }
        // SAFETY: no other thread uses the mount until it is mounted; the name is a C string, which libcephfs copies.
        unsafe { set(mount, name.as_ptr()) };
        match results.last().copied().unwrap_or_default() {
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

fn lineage_path(folder: &Path, place: u64, turn: u8) -> PathBuf {
    folder.join(format!("{LINEAGE}-{place:016x}-{turn}"))
}

/// Whether an earlier process of the place may have been killed and may have left a session.
pub fn may_follow(folder: &Path, place: u64, turn: u8) -> bool {
    lineage_path(folder, place, turn).exists()
}

/// Notes that this process has ended its session in order, so that the next process does not look for the session.
pub fn has_ended(folder: &Path, place: u64, turn: u8) {
    let _ = fs::remove_file(lineage_path(folder, place, turn));
}

/// The number that a mount's process has in common with the previous process, if it `follows` that process: if it has itself ended the previous
/// process's session. If the cluster had ended the session earlier, other clients may have changed files to which the previous process believed to
/// have exclusive access. 0: not known.
pub fn lineage(folder: &Path, place: u64, turn: u8, follows: bool) -> u64 {
    let path = lineage_path(folder, place, turn);
    // The previous process may have ended before it had a session, and so had nothing open.
    let mounting = path.with_extension("mounting");
    let number = read(&path).filter(|_| follows || mounting.exists()).map_or_else(|| write(folder, &path), Ok);
    let number = number.unwrap_or_else(|error| {
        // Without this removal, the next process would find the number of the earlier processes.
        let _ = fs::remove_file(&path);
        tracing::warn!("what is not flushed cannot be written again after a crash: {}: {error:#}", path.display());
        String::new()
    });
    let _ = fs::write(mounting, "");
    number.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

/// Notes that this process of the place has a session, which the next process has to find. Returns whether that could be noted.
pub fn has_session(folder: &Path, place: u64, turn: u8) -> bool {
    let mounting = lineage_path(folder, place, turn).with_extension("mounting");
    fs::remove_file(&mounting).is_ok() || !mounting.exists()
}

/// The host's identity. It is part of the names, since the directory may have been copied to another host with its disk.
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
    let draft = path.with_extension("new");
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
    fn only_who_follows_a_process_has_its_lineage() {
        let folder = tempfile::tempdir().unwrap();
        let lineage = |place, follows| lineage(folder.path(), place, 0, follows);
        let first = lineage(7, false);
        assert_eq!([lineage(7, true), lineage(7, false)], [first, first], "the second one had no session");
        assert!(has_session(folder.path(), 7, 0));
        assert_ne!(lineage(8, true), first);
        let other = lineage(7, false);
        assert!(other != first && other != 0 && lineage(7, true) == other);
        assert_eq!(super::lineage(&folder.path().join("no folder"), 7, 0, true), 0);
        assert!(may_follow(folder.path(), 7, 0) && !may_follow(folder.path(), 7, 1));
        has_ended(folder.path(), 7, 0);
        assert!(!may_follow(folder.path(), 7, 0) && lineage(7, true) != other);
    }

    #[test]
    fn the_next_daemon_has_the_same_names_and_two_at_once_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let both = |number: &SessionNumber, of| (number.names.place(of), number.names.session(of, 0).unwrap());
        let first = SessionNumber::try_open(folder.path()).unwrap();
        let (place, session) = both(&first, b"a");
        let (another, theirs) = both(&first, b"b");
        assert!(another != place && theirs != session);
        assert_ne!(first.names.session(b"a", 1).unwrap(), session, "who takes over has a session beside it");
        let shared = SessionNumber::share(folder.path(), 1).unwrap();
        assert_eq!(both(&shared, b"a"), (place, session.clone()));
        assert!(SessionNumber::try_open(folder.path()).is_err());
        drop(first);
        let second = SessionNumber::try_open(folder.path()).unwrap();
        assert_eq!(both(&second, b"a"), (place, session.clone()));
        drop(second);
        fs::write(folder.path().join("sessions"), "cut").unwrap();
        let third = SessionNumber::try_open(folder.path()).unwrap();
        assert_ne!(both(&third, b"a").1, session);
        assert!(SessionNames::default().session(b"a", 0).is_none());
    }
}
