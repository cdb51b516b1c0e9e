//! Reads files of the host in which container runtimes and the kubelet write names. The reads cannot hang: paths over symbolic links or other mounts
//! are not followed, and only regular files are read.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    dir::Dir,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::{Mode, SFlag, fstat},
};
use probes::{
    mounts::{Mounts, is_below},
    watched_namespace,
};

/// The most bytes of a file that are read. A container's file has some 10 KiB; in a namespace with thousands of services, some MiB.
const MOST_BYTES: u64 = 4 << 20;
/// The most entries of a directory that are read.
const MOST_ENTRIES: usize = 20_000;
/// The table of mounts is read at most this often.
const MOUNTS_EVERY: Duration = Duration::from_secs(2);

/// The root directory of the processes whose mounts are watched, which is the host's.
#[derive(Debug, Default)]
pub struct HostFiles {
    root: Option<OwnedFd>,
    /// The mount points of remote file systems, and when they were read.
    remote: Option<(Instant, Vec<Vec<u8>>)>,
}

impl HostFiles {
    /// Opens a regular file in a directory of the host.
    ///
    /// # Errors
    /// When the file does not exist or is not a regular file, or the directory is on a remote file system.
    pub fn read(&mut self, directory: &str, name: &str) -> io::Result<impl Read + use<>> {
        let directory = self.directory(directory)?;
        let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV;
        // The type of the file is checked before it is opened: opening a FIFO would block, and opening a device may have effects.
        let found = openat2(&directory, name, how(OFlag::O_PATH | OFlag::O_CLOEXEC, resolve))?;
        let kind = SFlag::from_bits_truncate(fstat(&found)?.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFREG {
            return Err(io::Error::other("this is no regular file"));
        }
        Ok(File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?.take(MOST_BYTES))
    }

    /// The first name in a directory of the host for which `wanted` returns a value.
    ///
    /// # Errors
    /// When the directory does not exist, or is on a remote file system.
    pub fn find<T>(&mut self, directory: &str, wanted: impl Fn(&str) -> Option<T>) -> io::Result<Option<T>> {
        let directory = self.directory(directory)?;
        let readable = openat2(&directory, ".", how(OFlag::O_RDONLY | OFlag::O_DIRECTORY, ResolveFlag::empty()))?;
        let mut entries = Dir::from_fd(readable)?;
        let mut names = entries.iter().take(MOST_ENTRIES).filter_map(Result::ok);
        Ok(names.find_map(|entry| wanted(entry.file_name().to_str().ok()?)))
    }

    fn directory(&mut self, path: &str) -> io::Result<OwnedFd> {
        if self.is_remote(path)? {
            return Err(io::Error::other("this is on a server"));
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if self.root.is_none() {
            self.root = Some(open(&watched_namespace::root(), flags, Mode::empty())?);
        }
        let root = self.root.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(openat2(root, path.trim_start_matches('/'), how(flags, ResolveFlag::RESOLVE_NO_SYMLINKS))?)
    }

    /// Whether a remote file system is mounted on the path. The root itself is not checked: if it is remote, the host hangs with it anyway.
    fn is_remote(&mut self, path: &str) -> io::Result<bool> {
        let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < MOUNTS_EVERY;
        if !self.remote.as_ref().is_some_and(is_fresh) {
            let mounts = Mounts::current()?;
            let remote = mounts.iter().filter(|point| point.remote && point.path != b"/");
            // Only mount points above one of the directories matter, and there are few of these.
            let above =
                remote.filter(|point| super::DIRECTORIES.iter().any(|path| is_below(path.as_bytes(), &point.path)));
            self.remote = Some((Instant::now(), above.map(|point| point.path.clone()).collect()));
        }
        let remote = self.remote.iter().flat_map(|(_, remote)| remote);
        Ok(remote.into_iter().any(|above| is_below(path.as_bytes(), above)))
    }
}

fn how(flags: OFlag, resolve: ResolveFlag) -> OpenHow {
    OpenHow::new().flags(flags).resolve(resolve)
}

#[cfg(test)]
impl HostFiles {
    /// Another root directory.
    pub fn below(root: &std::path::Path) -> Self {
        let root = open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
        Self { root: Some(root), remote: None }
    }

    /// Whether nothing was asked for.
    pub fn is_untouched(&self) -> bool {
        self.root.is_none() && self.remote.is_none()
    }
}
