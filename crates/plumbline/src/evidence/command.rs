//! Runs one command for an action, without a shell. The command has a process group of its own, which is killed as a
//! whole.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{Id as WaitId, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::output::Output;

/// The search path of programs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// How often a silent command is checked, milliseconds.
const LOOK: u8 = 50;

/// The command ran, and ended with an error.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {status}")]
pub struct Failed {
    program: String,
    /// How it ended.
    pub status: ExitStatus,
}

/// Runs `argv` without standard input; its standard output and error go to `out`. Returns when the command has ended,
/// or `out` takes no more. No process of its group is left then.
///
/// # Errors
/// [`Failed`] if it ends with another status than 0; an I/O error if it cannot be started, or a write to `out` fails.
pub fn run(argv: &[String], out: &mut Output) -> Result<()> {
    let (mut reader, writer) = io::pipe().context("cannot create a pipe")?;
    let mut command = command(argv)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut group = ProcessGroup::start(&mut command)?;
    // `command` holds copies of the pipe's writing end, which would prevent the end of file.
    drop(command);
    let copied = copy(&mut group, &mut reader, out, |_| Ok(()));
    let status = group.end()?;
    copied?;
    succeeded(argv, status)
}

/// A file in memory with this content, at its start: no thread must wait for a program that does not read its input.
pub(super) fn in_memory(content: &[u8]) -> Result<File> {
    let mut file =
        File::from(memfd_create(c"incident", MFdFlags::MFD_CLOEXEC).context("cannot create a file in memory")?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Runs `argv` with `input` as its standard input, and discards its output. Returns when the command has ended, or has run for `limit`. No process
/// of its group is left then.
///
/// # Errors
/// [`Failed`] if it ends with another status than 0; an error if it runs for longer, or cannot be started.
pub fn run_with_input(argv: &[String], input: &[u8], limit: Duration) -> Result<()> {
    let mut command = command(argv)?;
    command.stdin(in_memory(input)?).stdout(Stdio::null()).stderr(Stdio::null());
    let mut group = ProcessGroup::start(&mut command)?;
    let deadline = Instant::now() + limit;
    while !group.has_ended()? {
        if Instant::now() >= deadline {
            let program = argv.first().map_or("", String::as_str);
            bail!("{program} did not end within {} s: it is killed, and what it has started", limit.as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(u64::from(LOOK)));
    }
    succeeded(argv, group.end()?)
}

pub(super) fn succeeded(argv: &[String], status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!(Failed { program: argv.first().cloned().unwrap_or_default(), status });
    }
    Ok(())
}

/// A command in an environment that depends on no mount, in a process group of its own.
///
/// # Errors
/// If there is no program in `argv`.
pub fn command(argv: &[String]) -> Result<Command> {
    let Some((program, args)) = argv.split_first() else { bail!("there is no command to run") };
    let mut command = Command::new(program);
    command
        .args(args)
        // The daemon's current directory may be on a mount that hangs.
        .current_dir("/")
        // Root's PATH may have directories on a mount that hangs. Programs in other directories need their full path.
        .env("PATH", PATH)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .env("LC_ALL", "C")
        .env_remove("NOTIFY_SOCKET")
        .process_group(0);
    // SAFETY: prctl(2) and sigprocmask(2) are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(|| {
            // If the daemon is killed, the kernel kills the command, too. The signal is sent when the parent thread
            // ends; that thread waits for the command.
            set_pdeathsig(Signal::SIGKILL)?;
            // The daemon blocks its signals, as it reads them from a descriptor; the command must not inherit that.
            Ok(SigSet::empty().thread_set_mask()?)
        });
    }
    Ok(command)
}

/// Copies the command's output until the command has ended and all output is read. Calls `look` 20 times a second or more.
pub(super) fn copy(
    group: &mut ProcessGroup,
    reader: &mut io::PipeReader,
    out: &mut Output,
    mut look: impl FnMut(&ProcessGroup) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; 16 << 10];
    let mut open = true;
    loop {
        out.check()?;
        look(group)?;
        let ended = group.has_ended()?;
        if ended {
            // Processes of the group that still hold the pipe are not waited for.
            group.kill();
        }
        if open && readable(reader)? {
            let count = reader.read(&mut buffer)?;
            out.write_all(buffer.get(..count).unwrap_or_default())?;
            open = count > 0;
        } else if ended {
            return Ok(());
        } else if !open {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn readable(reader: &io::PipeReader) -> io::Result<bool> {
    let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, LOOK) {
        Err(Errno::EINTR) => Ok(false),
        polled => Ok(polled? > 0),
    }
}

/// A child process and its descendants that stayed in its process group.
pub struct ProcessGroup {
    child: Child,
    /// Whether the child was reaped. Its id may then belong to another process.
    reaped: bool,
}

impl ProcessGroup {
    /// Starts the command.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn start(command: &mut Command) -> Result<Self> {
        let cannot = |command: &Command| format!("cannot run {}; is it installed?", command.get_program().display());
        let child = command.spawn().with_context(|| cannot(command))?;
        Ok(Self { child, reaped: false })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether the child has ended. It is not reaped: that would free its id for another process.
    ///
    /// # Errors
    /// If the kernel returns an error.
    pub fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(WaitId::Pid(self.pid()), flags)? != WaitStatus::StillAlive)
    }

    pub(super) fn kill(&self) {
        // The call fails if no process of the group is left.
        let _ = killpg(self.pid(), Signal::SIGKILL);
    }

    /// Kills the group and waits for the child. If the child hangs in the kernel, this waits as long as it hangs; the
    /// runner leaves this thread behind then.
    ///
    /// # Errors
    /// If the child cannot be waited for.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.reaped {
            self.kill();
        }
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A command line, quoted for a shell.
pub fn shown(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = argv.iter().map(|arg| {
        if !arg.is_empty() && arg.chars().all(plain) {
            arg.clone()
        } else {
            format!("'{}'", arg.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The exit code of a command; 128 plus the signal if it was killed, as in a shell.
pub fn exit_code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}
