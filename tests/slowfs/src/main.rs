//! slowfs: a FUSE file system in memory, as slow and as faulty as a control file says, for the demo and the tests.
//! This file mounts it and takes it down again.

mod control;
mod filesystem;
mod tree;

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::{process, thread};

use anyhow::{Context, Result};
use clap::Parser;
use fuser::{Config, Session, SessionACL};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getgid, getuid};

use crate::control::Control;
use crate::filesystem::SlowFs;

/// As many operations wait at once; one more waits for one of them.
const WORKERS: usize = 16;

/// A file system in memory whose operations are as slow as a control file says. Needs root and /dev/fuse; runs in the
/// foreground until SIGTERM, SIGINT or umount.
#[derive(Parser)]
#[command(version, after_help = control::HELP)]
struct Arguments {
    /// An existing directory
    mountpoint: PathBuf,
    /// The control file, outside the mount, read again for every operation; none: every operation is fast
    #[arg(long)]
    control: PathBuf,
    /// The source that /proc/mounts shows
    #[arg(long, default_value = "slowfs")]
    name: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mountpoint = arguments
        .mountpoint
        .canonicalize()
        .with_context(|| format!("cannot mount at {}", arguments.mountpoint.display()))?;

    // Before any thread starts, so that all of them leave these to the one that waits for them.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block signals")?;

    let device = mount_fuse(&mountpoint, &arguments.name)?;
    let mut config = Config::default();
    config.n_threads = Some(WORKERS);
    let filesystem = SlowFs::new(Control::new(arguments.control));
    let session =
        Session::from_fd(filesystem, device.into(), SessionACL::All, config).context("no answer from the kernel")?;

    thread::spawn(move || {
        let _ = signals.wait();
        // Lazily, and without waiting for slow operations: leaving closes the device, which ends them with ECONNABORTED.
        let status = match umount2(&mountpoint, MntFlags::MNT_DETACH) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("slowfs: cannot unmount {}: {error}", mountpoint.display());
                1
            }
        };
        process::exit(status);
    });
    session.run().context("the connection to the kernel broke")
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
