//! A helper process of this program. It obeys lines on its standard input, and ends with the process that sends them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The longest time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// The longest time for the end of a helper process.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time for a program.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// The beginning of an answer.
const DONE: &str = "done";
const FAILED: &str = "failed";

/// A helper process. It ends when this is dropped.
pub struct HelperProcess {
    name: &'static str,
    child: Child,
    to: Option<ChildStdin>,
    from: ChildStdout,
}

impl HelperProcess {
    /// Starts `command`, which [`obey`]s.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let shown = command.get_program().display().to_string();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}: {shown}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot talk with {name}")
        };
        Ok(Self { name, child, to: Some(to), from })
    }

    /// The process id, as this process sees it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line, and waits for the answer, which is returned.
    ///
    /// # Errors
    ///
    /// The helper's error message, or that it does not answer.
    pub fn request(&mut self, line: &str) -> Result<String> {
        let to = self.to.as_mut().context("it was ended")?;
        writeln!(to, "{line}").and_then(|()| to.flush()).with_context(|| format!("{} is gone", self.name))?;
        let answer = match self.answer() {
            Ok(answer) => answer,
            Err(error) => {
                // A late answer would be taken for the answer to another line.
                self.to = None;
                return Err(error).with_context(|| format!("{} does not {line}", self.name));
            }
        };
        if let Some(said) = answer.strip_prefix(DONE) {
            return Ok(said.trim().to_owned());
        }
        bail!("{}", answer.strip_prefix(FAILED).unwrap_or(&answer).trim())
    }

    fn answer(&mut self) -> Result<String> {
        let until = Instant::now() + ANSWER_TIMEOUT;
        let mut answer = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut wanted = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
            match poll(&mut wanted, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) => bail!("no answer within {ANSWER_TIMEOUT:?}"),
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let mut byte = [0];
            match self.from.read(&mut byte)? {
                0 => bail!("it has ended"),
                _ if byte == [b'\n'] => return Ok(String::from_utf8_lossy(&answer).into_owned()),
                _ => answer.extend(byte),
            }
        }
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // The helper ends after the end of its input, when it has cleaned up.
        drop(self.to.take());
        let until = Instant::now() + END_TIMEOUT;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The process is not waited for, since it may be unable to end.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

/// The helper's side: obeys each line of standard input until it ends, and answers each.
pub fn obey(mut act: impl FnMut(&[&str]) -> Result<String>) {
    for line in BufReader::new(std::io::stdin()).lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match act(&words) {
            Ok(said) => format!("{DONE} {said}"),
            Err(error) => format!("{FAILED} {error:#}").replace('\n', "; "),
        };
        if writeln!(std::io::stdout(), "{answer}").is_err() {
            return;
        }
    }
}

/// Runs a program to its end, and returns what it printed.
///
/// # Errors
///
/// When the program does not exist or fails; the error has its output.
pub fn run(words: &[&str]) -> Result<String> {
    run_with(words, "")
}

/// Runs a program with `input` on its standard input, as [`run`] does.
pub fn run_with(words: &[&str], input: &str) -> Result<String> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    // In another process group: Ctrl-C must reach only the process that controls the helpers.
    command.args(arguments).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The administrator's programs are not in every user's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")).env("LC_ALL", "C");
    let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    if let Some(mut to) = child.stdin.take() {
        // The program need not read its input.
        let _ = to.write_all(input.as_bytes());
    }
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let (done, wait) = mpsc::sync_channel(1);
    // A daemon that the program started may keep the output open.
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = wait.recv_timeout(RUN_TIMEOUT) else {
        let _ = kill(pid, Signal::SIGKILL);
        bail!("`{}` does not end within {RUN_TIMEOUT:?}", words.join(" "));
    };
    let output = output?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}", words.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
