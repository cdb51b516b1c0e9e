//! Runs a command of the operator's own as an action. It gets the incident on its standard input, may set labels, and is limited.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, write};

use super::actions::procfs::{numbers, small};
use super::command::{self, ProcessGroup, copy, in_memory, succeeded};
use super::labels;
use super::output::Output;

/// The input and the limits of a command of the operator's own.
#[derive(Clone, Copy, Default)]
pub struct CommandBounds<'a> {
    /// Its standard input.
    pub input: &'a [u8],
    /// The most memory of each of its processes, bytes, as RLIMIT_DATA counts it.
    pub memory: u64,
}

/// The environment variable that names the file for lines `key=value`.
const LABELS: &str = "PLUMBLINE_LABELS";
/// The most processes of a command of the operator's own.
const PROCESSES: usize = 32;

/// Runs a command of the operator's own like [`command::run`], but with an input, labels, and limits on memory and processes. If memory runs out,
/// the kernel kills the command rather than the daemon.
///
/// # Errors
/// As [`command::run`]; also if the command starts too many processes.
pub fn run(argv: &[String], own: &CommandBounds<'_>, out: &mut Output) -> Result<()> {
    let (mut reader, writer) = io::pipe().context("cannot create a pipe")?;
    let (labels, labels_writer) = io::pipe().context("cannot create a pipe")?;
    let mut command = command::command(argv)?;
    command.stdin(in_memory(own.input)?).stdout(writer.try_clone()?).stderr(writer);
    let (inherited, memory) = (labels_writer.as_raw_fd(), own.memory);
    // The number is not fixed: it may be that of a descriptor which the standard library needs in the child.
    command.env(LABELS, format!("/proc/self/fd/{inherited}"));
    // SAFETY: fcntl(2), setrlimit(2), open(2), write(2) and close(2) are async-signal-safe, and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            limit(memory)?;
            Errno::result(libc::fcntl(inherited, libc::F_SETFD, 0)).map(drop).map_err(io::Error::from)
        });
    }
    let mut group = ProcessGroup::start(&mut command)?;
    drop((command, labels_writer));
    let mut watch = CommandWatch { crowd: Crowd::now(), labels: LabelPipe::new(labels)? };
    let copied = copy(&mut group, &mut reader, out, |group| watch.look(group));
    let status = group.end()?;
    watch.labels.drain();
    out.labels = watch.labels.lines;
    copied?;
    succeeded(argv, status)
}

/// Limits the child process. Called between fork and exec.
fn limit(memory: u64) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_DATA, memory, memory)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // If this fails, the kernel chooses the process to kill by its size.
    if let Ok(file) = open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()) {
        let _ = write(&file, b"1000");
    }
    Ok(())
}

/// Checks a command while it runs: reads its labels, and limits the number of its processes.
struct CommandWatch {
    crowd: Crowd,
    labels: LabelPipe,
}

impl CommandWatch {
    fn look(&mut self, group: &ProcessGroup) -> Result<()> {
        self.labels.drain();
        if self.crowd.may_be_too_large() && processes_of(group.pid()) > PROCESSES {
            group.kill();
            bail!("it had more than {PROCESSES} processes at a time: it is killed, and what it has started");
        }
        Ok(())
    }
}

/// The longest time until processes are counted one by one, whatever the number of threads.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Decides when to count processes one by one: when this host's number of threads has grown, which is cheap to read, and once a second, since
/// other threads may end while a command starts processes.
struct Crowd {
    least: usize,
    counted: Instant,
}

impl Crowd {
    fn now() -> Self {
        Self { least: Self::threads(), counted: Instant::now() }
    }

    fn threads() -> usize {
        // `0.00 0.01 0.05 1/234 5678`: the fourth field is the number of running threads and of all, proc(5).
        let text = small(Path::new("/proc/loadavg"), 128);
        text.split(['/', ' ']).nth(4).and_then(|all| all.parse().ok()).unwrap_or(usize::MAX)
    }

    fn may_be_too_large(&mut self) -> bool {
        let now = Self::threads();
        self.least = self.least.min(now);
        let may_be = now == usize::MAX || now - self.least >= PROCESSES || self.counted.elapsed() >= COUNT_EVERY;
        if may_be {
            self.counted = Instant::now();
        }
        may_be
    }
}

/// The number of processes in a group, including those that have ended and were not reaped.
fn processes_of(group: Pid) -> usize {
    let group_of = |pid: u32| {
        let stat = small(&Path::new("/proc").join(pid.to_string()).join("stat"), 1024);
        // After the name, which may contain any characters: state, parent, group.
        stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
    };
    numbers(Path::new("/proc")).filter(|pid| group_of(*pid) == Some(group.as_raw())).count()
}

/// The reading end of the pipe on which a command writes labels.
struct LabelPipe {
    pipe: io::PipeReader,
    /// The bytes read so far. One byte beyond the limit shows that there are too many.
    lines: Vec<u8>,
}

impl LabelPipe {
    fn new(pipe: io::PipeReader) -> Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot read labels")?;
        Ok(Self { pipe, lines: Vec::new() })
    }

    /// Reads what is waiting, but at most a pipe's content, so that a command which writes all the time does not block this thread.
    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            let Ok(count) = self.pipe.read(&mut buffer) else { return };
            let room = (labels::LONGEST + 1).saturating_sub(self.lines.len());
            self.lines.extend(buffer.iter().take(count.min(room)));
            if count == 0 {
                return;
            }
        }
    }
}
