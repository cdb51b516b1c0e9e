//! Starts a command that is to be watched.

use std::{
    ffi::OsString,
    process::{Child, Command},
};

use anyhow::{Context, Result};
use model::text::printable;
use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal, kill},
    unistd::Pid,
};
use probes::Followed;

/// Starts a command, unless it has no words, with no signal blocked: it must get its signals.
///
/// # Errors
///
/// When there is no such program.
pub fn start(command: &[OsString]) -> Result<Option<Child>> {
    let Some((program, words)) = command.split_first() else { return Ok(None) };
    let ours = SigSet::empty().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let child = Command::new(program).args(words).spawn();
    ours.thread_set_mask()?;
    let name = printable(program.as_encoded_bytes());
    child.map(Some).with_context(|| format!("cannot start {name}: give the path of a program that is there"))
}

/// As [`start`], but the command is followed from its first operation on.
///
/// # Errors
///
/// When there is no such program, or the kernel side's list cannot be changed.
pub fn start_followed(followed: &Followed, command: &[OsString]) -> Result<Option<Child>> {
    // A process that is started by a followed process is followed, too.
    followed.follow(std::process::id()).context("cannot follow the command")?;
    let child = start(command);
    followed.leave(std::process::id()).context("cannot stop following ourselves")?;
    child
}

/// Whether a signal ends the recording. With a command, the signal is passed to the command instead; a terminal sends SIGINT to it by itself.
pub fn passed_on(signal: Signal, child: Option<&Child>) -> bool {
    let Some(pid) = child.and_then(|child| i32::try_from(child.id()).ok()) else { return true };
    if signal != Signal::SIGINT {
        // The command may have just ended.
        let _ = kill(Pid::from_raw(pid), signal);
    }
    false
}
