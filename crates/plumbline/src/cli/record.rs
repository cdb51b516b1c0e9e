//! `plumbline record`: writes everything that detection sees to a file, for `plumbline replay`.

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Child, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use model::text::printable;
use nix::sys::signalfd::SignalFd;
use probes::Filter;

use super::{EXIT_USAGE, child, permitted, trace, usage_error};
use crate::{
    config::{self, Config},
    daemon::{recording_header, refuse_to_be_blind, start_watch},
    detection::ActiveRules,
    evidence::exit_code,
    recording::{Limit, RecordingWriter, Written},
    source::{EventSource, KernelSource, Tap},
    watched,
};

/// How often the tables of mounts and modules are updated.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);
/// How often the recording checks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub struct RecordArguments {
    /// The file to write; an existing file is not replaced
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Stop before the file is larger than this many MiB
    #[arg(long, value_name = "M", default_value_t = 1024.0)]
    max_size: f64,
    /// The configuration that names the probes, and the thresholds above which an operation is recorded in detail [default: /etc/plumbline/plumbline.yaml where it exists, else the compiled-in configuration]
    #[arg(long, value_name = "F")]
    config: Option<PathBuf>,
    /// Watch local file systems too (syscalls)
    #[arg(long)]
    all_filesystems: bool,
    /// Start this command, and stop when it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(arguments: &RecordArguments) -> Result<ExitCode> {
    if arguments.duration.is_some_and(|seconds| !(0.0..=1e9).contains(&seconds)) {
        return Ok(usage_error("--duration takes a number from 0 to 1000000000"));
    }
    if !(0.1..=1_048_576.0).contains(&arguments.max_size) {
        return Ok(usage_error("--max-size takes MiB from 0.1 to 1048576"));
    }
    permitted()?;
    let never_touch = watched::never_touched();
    if let Err(watched) = watched::check(&arguments.output, &never_touch) {
        return Ok(usage_error(format!("{watched}; record to a local file")));
    }
    let config = match config::read(arguments.config.clone().or_else(config::installed).as_deref(), &never_touch) {
        Ok(config) => config,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let stop = trace::stop_signals()?;
    let mut session = RecordingSession::start(arguments, &config)?;
    let mut child = child::start(&arguments.command)?;
    let status = session.follow(&stop, arguments.duration, child.as_mut());
    let (written, seconds) = session.finish();
    let status = status?;
    say_what_was_written(&arguments.output, &written, seconds, arguments.max_size)?;
    Ok(ExitCode::from(status.and_then(exit_code).map_or(0, |code| u8::try_from(code).unwrap_or(1))))
}

/// The attached probes, and the recording.
struct RecordingSession {
    source: KernelSource,
    interval: Duration,
    began: Instant,
    maintained: Instant,
}

impl RecordingSession {
    fn start(arguments: &RecordArguments, config: &Config) -> Result<Self> {
        let mut watch = start_watch(config)?;
        refuse_to_be_blind(&watch.state())?;
        let rules = ActiveRules::new(config, 0);
        let all_filesystems = arguments.all_filesystems || config.all_filesystems;
        watch
            .set_filter(&Filter { all_filesystems, ..rules.filter() })
            .context("cannot set the filter of the BPF programs")?;
        let command = arguments.command.iter().map(|word| printable(word.as_encoded_bytes())).collect();
        let limit = Limit((arguments.max_size * 1_048_576.0) as u64);
        let header = recording_header(config, command);
        let mut source = KernelSource::new(watch);
        let begin = |header| RecordingWriter::to_file(&arguments.output, limit, header);
        let finished = source.histograms().unwrap_or_default();
        let mut tap = Tap::new(source.watch(), source.now(), &finished, header, begin)?;
        tap.set_reported(rules.reported());
        source.set_tap(Some(tap));
        let now = Instant::now();
        Ok(Self { source, interval: config.watch_interval, began: now, maintained: now })
    }

    /// Records until the time is over, the command has ended, a signal arrives, or the file is full.
    fn follow(
        &mut self,
        stop: &SignalFd,
        duration: Option<f64>,
        mut child: Option<&mut Child>,
    ) -> Result<Option<ExitStatus>> {
        let end = duration.map(|seconds| self.began + Duration::from_secs_f64(seconds));
        let mut next = self.began + self.interval;
        let mut progress = ProgressLine::default();
        loop {
            let until = end.map_or(next, |end| end.min(next));
            let until = if child.is_some() { until.min(Instant::now() + LOOK_EVERY) } else { until };
            let signal = self.source.wait(stop, until, &mut |source| {
                source.drain(&mut |_| ());
            })?;
            let stopped = signal.is_some_and(|signal| child::passed_on(signal, child.as_deref()));
            let status = child.as_mut().map(|child| child.try_wait()).transpose()?.flatten();
            let now = Instant::now();
            let over = stopped || status.is_some() || end.is_some_and(|end| now >= end) || self.written().full;
            if now >= next || over {
                self.take_interval();
                next = (next + self.interval).max(now);
                progress.show(&self.written(), self.began.elapsed());
            }
            if over {
                return Ok(status);
            }
        }
    }

    fn take_interval(&mut self) {
        while self.source.drain(&mut |_| ()) {}
        self.source.begin_interval();
        self.source.end_interval(false);
        if self.maintained.elapsed() >= MAINTAIN_EVERY {
            self.maintained = Instant::now();
            for probe in self.source.maintain() {
                eprintln!("plumbline: {} is {:?} now {}", probe.probe, probe.state, probe.reason);
            }
        }
    }

    fn written(&self) -> Written {
        self.source.tap().map(|tap| tap.writer().written()).unwrap_or_default()
    }

    fn finish(mut self) -> (Written, f64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let written = self.source.set_tap(None).map(|tap| tap.into_writer().finish()).unwrap_or_default();
        (written, seconds)
    }
}

/// A line on a terminal that is overwritten during the recording.
#[derive(Default)]
struct ProgressLine(Option<Instant>);

impl ProgressLine {
    fn show(&mut self, written: &Written, lasted: Duration) {
        let is_time = self.0.is_none_or(|shown| shown.elapsed() >= Duration::from_secs(1));
        if !is_time || !std::io::stderr().is_terminal() {
            return;
        }
        self.0 = Some(Instant::now());
        eprint!("\r\x1b[Krecording: {:.0} s, {}; Ctrl-C ends it", lasted.as_secs_f64(), amounts(written));
        let _ = std::io::stderr().flush();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.0.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

fn amounts(written: &Written) -> String {
    let mib = written.bytes as f64 / 1_048_576.0;
    format!("{} operations, {} slow or failed, {mib:.1} MiB", written.operations, written.events)
}

fn say_what_was_written(path: &Path, written: &Written, seconds: f64, max_size: f64) -> Result<()> {
    let shown = path.display();
    if !written.error.is_empty() {
        bail!(
            "the recording ended early: cannot write {shown}: {}; the part that was written is whole and can be replayed",
            written.error
        );
    }
    eprintln!("plumbline: {shown}: {seconds:.1} s, {}", amounts(written));
    if written.full {
        eprintln!(
            "plumbline: the recording ended early, at the limit of {max_size} MiB; a larger --max-size allows more"
        );
    }
    eprintln!("plumbline: `plumbline replay {shown}` says what would have been reported");
    Ok(())
}
