//! Which directories are safe to write evidence to.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::unistd::Uid;

/// Refuses a directory in which somebody else could put something in our way.
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
    // In a sticky directory such as /tmp others cannot replace what is ours.
    if about.mode() & 0o022 != 0 && about.mode() & 0o1000 == 0 {
        bail!("{shown} can be written by others (mode {:o}); chmod go-w it", about.mode() & 0o7777);
    }
    Ok(fd)
}
