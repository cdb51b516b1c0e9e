//! slowfs: a FUSE file system in memory for `plumbline prove`, the demo and the tests. A control file says how slow its operations are, and which
//! fail.

mod control;
mod filesystem;
mod tree;

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use fuser::{Config, Session, SessionACL};
use nix::{
    mount::{MsFlags, mount},
    unistd::{getgid, getuid},
};

use control::ControlFile;
pub use control::HELP;
use filesystem::SlowFs;

/// The number of operations that can wait at once. Further operations wait for a free worker.
const WORKERS: usize = 16;

/// A mounted file system that is not served yet.
pub struct Mounted(Session<SlowFs>);

impl Mounted {
    /// Mounts the file system. `mountpoint`: an existing directory. `control`: a file outside the mount, read again for every operation. `name`:
    /// the source that /proc/mounts shows.
    ///
    /// # Errors
    ///
    /// When there is no FUSE, or no permission to mount.
    pub fn new(mountpoint: &Path, control: PathBuf, name: &str) -> Result<Self> {
        let device = mount_fuse(mountpoint, name)?;
        let mut config = Config::default();
        config.n_threads = Some(WORKERS);
        let filesystem = SlowFs::new(ControlFile::new(control));
        let session = Session::from_fd(filesystem, device.into(), SessionACL::All, config)
            .context("no answer from the kernel")?;
        Ok(Self(session))
    }

    /// Serves the file system until it is unmounted.
    ///
    /// # Errors
    ///
    /// When the connection to the kernel breaks.
    pub fn serve(self) -> Result<()> {
        self.0.run().context("the connection to the kernel broke")
    }
}

/// Mounts directly rather than through `fuser`, which cannot set a subtype: users' mounts have a type `fuse.something`, too.
fn mount_fuse(mountpoint: &Path, name: &str) -> Result<File> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context("cannot open /dev/fuse; as root, `modprobe fuse` brings it where the kernel has it as a module")?;
    let options =
        format!("fd={},rootmode=40000,user_id={},group_id={},allow_other", device.as_raw_fd(), getuid(), getgid());
    mount(Some(name), mountpoint, Some("fuse.slowfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options.as_str()))
        .with_context(|| format!("cannot mount at {}: it takes root", mountpoint.display()))?;
    Ok(device)
}
