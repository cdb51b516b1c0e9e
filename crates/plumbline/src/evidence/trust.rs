//! Which directories are safe to write evidence to.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::Uid;

/// Checks a directory by its path; see [`checked`].
///
/// # Errors
/// Those of [`checked`].
pub fn trusted(path: &Path) -> Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    checked(open(path, flags, Mode::empty()), path).map(drop)
}

/// Checks a directory that was opened: it must belong to this user, and others must not be able to replace files in it.
/// Returns its descriptor.
///
/// # Errors
///
/// If it could not be opened, is a symbolic link or no directory, or fails these checks; the message says what to do.
pub fn checked(opened: nix::Result<OwnedFd>, path: &Path) -> Result<OwnedFd> {
    let shown = path.display();
    let fd = match opened {
        Ok(fd) => fd,
        Err(Errno::ELOOP | Errno::ENOTDIR) if path.is_symlink() => {
            bail!("{shown} is a symbolic link; name the directory itself")
        }
        Err(Errno::ENOTDIR) => bail!("{shown} is not a directory; move it away or choose another output directory"),
        Err(errno) => return Err(io::Error::from(errno)).with_context(|| format!("cannot open {shown}")),
    };
    let about = File::from(fd.try_clone()?).metadata().with_context(|| format!("cannot look at {shown}"))?;
    let me = Uid::effective().as_raw();
    if about.uid() != me {
        bail!("{shown} belongs to user {}, not to {me}; chown it or choose another output directory", about.uid());
    }
    // In a sticky directory such as /tmp, other users cannot replace this user's files.
    if about.mode() & 0o022 != 0 && about.mode() & 0o1000 == 0 {
        bail!("{shown} can be written by others (mode {:o}); chmod go-w it", about.mode() & 0o7777);
    }
    Ok(fd)
}
