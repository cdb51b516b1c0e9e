//! A command that is started to be watched.

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

/// Starts a command of at least one word, with no signal blocked: those are meant for it as well.
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

/// As [`start`]; what is started is followed from its first moment on.
///
/// # Errors
///
/// When there is no such program, or the kernel side cannot be told.
pub fn start_followed(followed: &Followed, command: &[OsString]) -> Result<Option<Child>> {
    // While we are followed, what we start is.
    followed.follow(std::process::id()).context("cannot follow the command")?;
    let child = start(command);
    followed.leave(std::process::id()).context("cannot stop following ourselves")?;
    child
}

/// Whether a signal ends the recording: with a command, that ends it. A terminal sends its interrupt to the command, too.
pub fn passed_on(signal: Signal, child: Option<&Child>) -> bool {
    let Some(pid) = child.and_then(|child| i32::try_from(child.id()).ok()) else { return true };
    if signal != Signal::SIGINT {
        // The command may have ended just now.
        let _ = kill(Pid::from_raw(pid), signal);
    }
    false
}
