//! Captures the output files of an operator's program, in a directory of their own. The program rotates its files itself.

use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use model::text::printable;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use super::running::Background;
use super::{Capture, CaptureSpan, Sink, since_epoch};
use crate::config::CommandConfig;
use crate::evidence::{ProcessGroup, command, exit_code, shown, trusted};
use crate::scope::Pattern;
use crate::watched;

/// The directory below OUTPUT_DIR.
const CAPTURES: &str = "captures";
/// How often the capture checks the directory's size, and whether the program still runs.
const LOOK: Duration = Duration::from_secs(1);
/// The first and the longest pause before a program that has ended is started again; the pause doubles each time.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
/// A program that ran at least this long did not fail at its start.
const WELL: Duration = Duration::from_secs(60);
/// The most files of the directory that are examined.
const MOST_FILES: usize = 1024;
/// The longest line of the program's standard error that is kept, bytes.
const LINE: u64 = 1024;

/// A capture by a program.
pub struct CommandCapture {
    name: String,
    argv: Vec<String>,
    files: Pattern,
    max_bytes: u64,
    directory: PathBuf,
    /// Why the program last stopped, and when.
    trouble: Mutex<Option<(String, Instant)>>,
}

/// A file of the program.
struct EvidenceFile {
    name: String,
    modified: SystemTime,
    bytes: u64,
}

impl CommandCapture {
    /// Creates the directory if it is missing, and empties it.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn new(name: &str, config: &CommandConfig, output_dir: &Path) -> Result<Self> {
        let directory = output_dir.join(CAPTURES).join(name);
        watched::refuse(&directory)?;
        for path in [output_dir.to_owned(), output_dir.join(CAPTURES), directory.clone()] {
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("cannot create {}", path.display()));
                }
                _ => trusted(&path)?,
            }
        }
        let capture = Self {
            name: name.to_owned(),
            argv: config.command.clone(),
            files: Pattern::new(&config.files),
            max_bytes: config.max_bytes,
            directory,
            trouble: Mutex::default(),
        };
        capture.empty()?;
        Ok(capture)
    }

    fn empty(&self) -> Result<()> {
        for entry in fs::read_dir(&self.directory)?.flatten() {
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// The regular files in the directory.
    fn all(&self) -> Result<Vec<EvidenceFile>> {
        let read =
            fs::read_dir(&self.directory).with_context(|| format!("cannot read {}", self.directory.display()))?;
        let mut found = Vec::new();
        for entry in read.flatten().take(MOST_FILES) {
            let Ok(about) = entry.metadata() else { continue };
            if let (true, Ok(name), Ok(modified)) = (about.is_file(), entry.file_name().into_string(), about.modified())
            {
                found.push(EvidenceFile { name, modified, bytes: about.len() });
            }
        }
        Ok(found)
    }

    /// The files that were written in a span, newest first.
    fn of(&self, span: CaptureSpan) -> Result<Vec<EvidenceFile>> {
        let mut found = self.all()?;
        found.retain(|file| self.files.matches(file.name.as_bytes()) && since_epoch(file.modified) > span.from);
        found.sort_by(|one, other| other.modified.cmp(&one.modified).then_with(|| one.name.cmp(&other.name)));
        Ok(found)
    }

    fn is_too_large(&self) -> bool {
        self.all().is_ok_and(|files| files.iter().map(|file| file.bytes).sum::<u64>() > self.max_bytes)
    }

    /// Runs the program until it ends or must be stopped. Returns the reason, or `None` if the capture ends.
    fn run_once(&self, stop: &EventFd) -> Result<Option<String>> {
        let (said, writer) = std::io::pipe().context("cannot create a pipe")?;
        // A program with much output must not wait for this thread.
        fcntl(&said, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut program = command(&self.argv)?;
        limit_files(&mut program, self.max_bytes);
        program.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
        let mut group = ProcessGroup::start(&mut program)?;
        drop(program);
        let mut said = BufReader::new(said);
        let mut last = String::new();
        loop {
            if wait(stop, LOOK)? {
                group.end()?;
                return Ok(None);
            }
            last_line(&mut said, &mut last);
            let ended = group.has_ended()?;
            if !ended && !self.is_too_large() {
                continue;
            }
            let status = group.end()?;
            last_line(&mut said, &mut last);
            if !ended || exit_code(status) == Some(128 + Signal::SIGXFSZ as i32) {
                let mb = self.max_bytes >> 20;
                self.empty()?;
                return Ok(Some(format!(
                    "it is stopped, and its files are removed: they have more than max_mb, {mb} MiB; have it rotate them"
                )));
            }
            let why = if last.is_empty() { String::new() } else { format!(": {last}") };
            return Ok(Some(format!("it has ended ({status}){why}")));
        }
    }

    /// Why the program last stopped, if it is not running or has been running only for a moment.
    fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(_, begun)| begun.elapsed() < WELL).map(|(why, _)| why.clone())
    }
}

impl Capture for CommandCapture {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("{} in {}", shown(&self.argv), self.directory.display())
    }

    fn cut(&self, span: CaptureSpan, sink: &mut dyn Sink) -> Result<()> {
        let files = self.of(span)?;
        let trouble = self.trouble();
        if files.is_empty() {
            let why = trouble.unwrap_or_else(|| "the program runs".to_owned());
            bail!("no file {} was written since then; {why}", self.files.as_str());
        }
        let (mut left, mut left_out) = (sink.limit(), 0);
        for file in files {
            if file.bytes > left {
                left_out += 1;
                continue;
            }
            left -= file.bytes;
            // The program may have deleted the file in the meantime.
            let Ok(opened) = File::open(self.directory.join(&file.name)) else { continue };
            let mut content = opened.take(file.bytes);
            sink.file(&format!(".{}", file.name), &mut |out| {
                std::io::copy(&mut content, out)?;
                Ok(())
            })?;
        }
        if left_out > 0 {
            bail!("{left_out} files are left out: all together exceed the limit of {} KiB", sink.limit() >> 10);
        }
        if let Some(trouble) = trouble {
            bail!("{trouble}");
        }
        Ok(())
    }
}

impl Background for CommandCapture {
    fn run(self: Arc<Self>, stop: &EventFd) -> Result<()> {
        let mut again = AGAIN[0];
        loop {
            let begun = Instant::now();
            let why = match self.run_once(stop) {
                Ok(None) => {
                    return self.empty();
                }
                Ok(Some(why)) => why,
                Err(error) => format!("{error:#}"),
            };
            if begun.elapsed() >= WELL {
                again = AGAIN[0];
            }
            tracing::warn!("the capture {}: {why}; it is started again in {} s", self.name, again.as_secs());
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some((why, Instant::now() + again));
            if wait(stop, again)? {
                return self.empty();
            }
            again = (again * 2).min(AGAIN[1]);
        }
    }
}

/// Makes the kernel end the program before one of its files exceeds the limit for all of them: otherwise a flood of data could fill the disk
/// between two checks.
fn limit_files(program: &mut process::Command, bytes: u64) {
    // SAFETY: setrlimit(2) is async-signal-safe and allocates nothing.
    unsafe {
        program.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?));
    }
}

/// Waits for the end of the capture, for at most `limit`. Returns whether the capture has ended.
fn wait(stop: &EventFd, limit: Duration) -> Result<bool> {
    match poll(&mut [PollFd::new(stop.as_fd(), PollFlags::POLLIN)], PollTimeout::try_from(limit)?) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// Reads the program's standard error, and keeps its last line.
fn last_line(said: &mut impl BufRead, last: &mut String) {
    // The rest of a flood is read at the next check.
    for _ in 0..256 {
        let mut line = Vec::new();
        match said.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) if line.is_empty() => return,
            _ => {}
        }
        let text = printable(line.trim_ascii());
        if !text.is_empty() {
            *last = text;
        }
    }
}
