//! The signals that end a process in order, and the one that has a new version take over.

use std::io;

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};

/// The signals that end a process.
pub const ENDING: &[Signal] = &[Signal::SIGTERM, Signal::SIGINT];
/// The signal on which the front starts its successor from the program that is installed now.
pub const UPGRADE: Signal = Signal::SIGUSR2;

/// Blocks these signals for this thread and for the threads that it starts later. Returns a descriptor from which to read them.
pub fn block(signals: &[Signal]) -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    signals.iter().for_each(|signal| set.add(*signal));
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}
