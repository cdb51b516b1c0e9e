//! slowfs as a foreground process: mounts the file system, and unmounts it at the end.

use std::{path::PathBuf, process, thread};

use anyhow::{Context, Result};
use clap::Parser;
use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{SigSet, Signal},
};

/// A file system in memory whose operations are as slow as a control file says. Needs root and /dev/fuse; runs in the
/// foreground until SIGTERM, SIGINT or umount.
#[derive(Parser)]
#[command(version, after_help = slowfs::HELP)]
struct SlowfsArguments {
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
    let arguments = SlowfsArguments::parse();
    let mountpoint = arguments
        .mountpoint
        .canonicalize()
        .with_context(|| format!("cannot mount at {}", arguments.mountpoint.display()))?;

    // Signals are blocked before any thread starts, so that all threads leave the signals to the thread that waits for them.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block signals")?;

    let mounted = slowfs::Mounted::new(&mountpoint, arguments.control, &arguments.name)?;
    thread::spawn(move || {
        let _ = signals.wait();
        // Unmounts lazily, without waiting for slow operations. The end of the process closes the device, so these operations fail with
        // ECONNABORTED.
        let status = match umount2(&mountpoint, MntFlags::MNT_DETACH) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("slowfs: cannot unmount {}: {error}", mountpoint.display());
                1
            }
        };
        process::exit(status);
    });
    mounted.serve()
}
