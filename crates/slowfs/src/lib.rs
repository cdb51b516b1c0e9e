//! slowfs: a FUSE file system in memory, as slow and as faulty as a control file says, for `plumbline prove`, the demo and the tests.

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

/// As many operations wait at once; one more waits for one of them.
const WORKERS: usize = 16;

/// A mounted file system that nobody serves yet.
pub struct Mounted(Session<SlowFs>);

impl Mounted {
    /// Mounts it. `mountpoint`: an existing directory. `control`: a file outside of it, read again for every operation. `name`: the source that
    /// /proc/mounts shows.
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

    /// Serves it until it is unmounted.
    ///
    /// # Errors
    ///
    /// When the connection to the kernel breaks.
    pub fn serve(self) -> Result<()> {
        self.0.run().context("the connection to the kernel broke")
    }
}

/// Mounts by hand rather than through `fuser`, which knows no subtype: users' mounts are `fuse.something` too.
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
