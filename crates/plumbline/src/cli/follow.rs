//! `plumbline follow`: each operation of some processes through all layers, as one tree.

mod recorded;
mod session;
mod sinks;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::Result;
use model::Level;

use self::session::FollowSession;
use super::{permitted, trace, usage_error};
use crate::{config::Otlp, evidence::exit_code, follow::FollowedProcesses, view::table::Wide, watched};

/// Whether operations at this level belong to followed processes. Events of connections and requests that this host serves do not. TCP's sends are
/// made by the kernel, and are shown as a part of their requests.
fn is_followed(level: Level) -> bool {
    !matches!(level, Level::Transport | Level::Connection | Level::Served)
}

#[derive(clap::Args)]
pub struct FollowArguments {
    /// Follow this process and its descendants, present and future, until all have ended
    #[arg(long, value_name = "P", conflicts_with_all = ["job", "command"])]
    pid: Option<u32>,
    /// Follow the processes of this job, as `plumbline io --by job` names it; `slurm:1234` means all of its steps
    #[arg(long, value_name = "J", conflicts_with = "command")]
    job: Option<String>,
    /// Show the trees of a recording (of `plumbline record` or a daemon's recorder): of all processes, or of those that --pid or --job selects
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "duration", "all_filesystems"])]
    recording: Option<PathBuf>,
    /// Show only trees that took at least this many milliseconds
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    min_ms: f64,
    /// Show only trees that have this operation in them; may be given more than once
    #[arg(long, value_name = "NAME")]
    op: Vec<String>,
    /// Show only trees that have an operation on the mount at this mount point
    #[arg(long, value_name = "M")]
    mount: Option<OsString>,
    /// Show only trees that have an operation that failed
    #[arg(long)]
    errors: bool,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Follow on local file systems too (syscalls, vfs)
    #[arg(long)]
    all_filesystems: bool,
    /// Show at most this many operations below each operation
    #[arg(long, value_name = "N", default_value_t = 16)]
    children: usize,
    /// One JSON object a line, for each tree
    #[arg(long)]
    json: bool,
    /// Write to this file, and leave standard output to the command. An existing file is not replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the trees to this file too, as a trace that ui.perfetto.dev and chrome://tracing show; an existing file is not replaced
    #[arg(long, value_name = "F")]
    perfetto: Option<PathBuf>,
    /// The most MiB to write to the --perfetto file
    #[arg(long, value_name = "M", default_value_t = 256.0, requires = "perfetto")]
    max_size: f64,
    /// Send the trees to an OpenTelemetry collector too, as traces: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// The protocol of the collector
    #[arg(long, value_enum, default_value_t = FollowProtocol::Grpc, requires = "otlp")]
    otlp_protocol: FollowProtocol,
    #[command(flatten)]
    wide: Wide,
    /// Start this command, follow it and all that it starts, and end with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FollowProtocol {
    Grpc,
    Http,
}

pub fn run(arguments: &FollowArguments) -> Result<ExitCode> {
    let limits = [Some(arguments.min_ms), arguments.duration];
    if limits.into_iter().flatten().any(|value| !(0.0..=1e9).contains(&value)) {
        return Ok(usage_error("--min-ms and --duration take numbers from 0 to 1000000000"));
    }
    if !(1..=65_536).contains(&arguments.children) {
        return Ok(usage_error("--children takes a number from 1 to 65536"));
    }
    if !(0.1..=1_048_576.0).contains(&arguments.max_size) {
        return Ok(usage_error("--max-size takes MiB from 0.1 to 1048576"));
    }
    if let Err(unknown) = sinks::known_operations(&arguments.op) {
        return Ok(usage_error(unknown));
    }
    if let Some(recording) = &arguments.recording {
        return match outputs(arguments) {
            Ok(otlp) => recorded::run(arguments, recording, otlp.as_ref()),
            Err(message) => Ok(usage_error(message)),
        };
    }
    if arguments.pid.is_none() && arguments.job.is_none() && arguments.command.is_empty() {
        return Ok(usage_error("say whom to follow: --pid P, --job J or -- COMMAND; or show a --recording"));
    }
    if let Some(pid) = arguments.pid.filter(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
        return Ok(usage_error(format!("there is no process {pid}")));
    }
    let otlp = match outputs(arguments) {
        Ok(otlp) => otlp,
        Err(message) => return Ok(usage_error(message)),
    };
    permitted()?;
    let stop = trace::stop_signals()?;
    let processes = FollowedProcesses::start(arguments.pid, arguments.job.as_deref())?;
    let mut session = FollowSession::start(arguments, processes, otlp.as_ref())?;
    if let Some(message) = session.no_such_mount() {
        return Ok(usage_error(message));
    }
    let status = session.follow(&stop)?;
    session.finish()?;
    Ok(ExitCode::from(status.and_then(exit_code).map_or(0, |code| u8::try_from(code).unwrap_or(1))))
}

/// Checks the options of outputs. Returns the collector, if one is configured, or the error.
fn outputs(arguments: &FollowArguments) -> Result<Option<Otlp>, String> {
    let never_touch = watched::never_touched();
    for path in [&arguments.output, &arguments.perfetto].into_iter().flatten() {
        watched::check(path, &never_touch).map_err(|watched| format!("{watched}; write to a local file"))?;
    }
    sinks::collector(arguments)
}
