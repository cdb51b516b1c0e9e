//! `plumbline io`: how much I/O there is at each layer, in which sizes, how fast, and for whom.

mod record;
mod report;
mod session;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use model::Direction;

use super::{permitted, trace, usage_error};
use crate::{
    io::{
        layers::{LAYERS, LayerBytes},
        meter::IoSample,
        rows::{Dimension, IoSort, RowOptions, Rows},
    },
    view::{clock::Clock, table::Wide},
};
use session::IoSession;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct IoArguments {
    #[command(subcommand)]
    report: Option<Subcommand>,
    /// Length of an interval, seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
    /// Stop after this many intervals
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// The keys that separate rows
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "fstype,mount,layer,op")]
    by: Vec<Dimension>,
    /// The order of rows
    #[arg(long, value_enum, default_value_t = IoSort::Load)]
    sort: IoSort,
    /// Below each row, show the histograms of sizes and durations
    #[arg(long)]
    histograms: bool,
    /// One JSON object a line, for each row
    #[arg(long, conflicts_with = "histograms")]
    json: bool,
    #[command(flatten)]
    wide: Wide,
    /// Only operations of this process and its descendants, present and future
    #[arg(long, value_name = "P")]
    pid: Option<u32>,
    /// Only the mount at this mount point
    #[arg(long, value_name = "M")]
    mount: Option<OsString>,
    /// Only these layers: mpiio, syscalls, vfs, smb, nfs, fuse, ceph
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    layers: Vec<String>,
    /// Watch local file systems too
    #[arg(long)]
    all_filesystems: bool,
    /// How many combinations of operation, mount and requester are counted separately; operations beyond that are counted without a requester
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    keys: u32,
    /// Print nothing, and record everything by process in this file, for `plumbline io report`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["by", "histograms", "json"])]
    record: Option<PathBuf>,
    /// The least duration, in milliseconds, of the operations that a recording lists by file
    #[arg(long, value_name = "N", default_value_t = 1.0, requires = "record")]
    slow_ms: f64,
    /// Start this command, record it and all that it starts, and end with it
    #[arg(last = true, value_name = "COMMAND", requires = "record", conflicts_with = "pid")]
    command: Vec<OsString>,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Make one self-contained page of a recording
    Report(report::IoReportArguments),
}

pub fn run(arguments: &IoArguments) -> Result<ExitCode> {
    if let Some(Subcommand::Report(arguments)) = &arguments.report {
        return report::run(arguments);
    }
    if !(0.01..=86_400.0).contains(&arguments.interval) || !(0.0..=1e9).contains(&arguments.slow_ms) {
        return Ok(usage_error(
            "--interval takes seconds from 0.01 to 86400, --slow-ms milliseconds from 0 to 1000000000",
        ));
    }
    if !(1..=1_000_000).contains(&arguments.keys) {
        return Ok(usage_error("--keys takes a number from 1 to 1000000"));
    }
    if let Some(unknown) = arguments.layers.iter().find(|name| !LAYERS.iter().any(|(layer, _)| layer == name)) {
        let known: Vec<_> = LAYERS.iter().map(|(layer, _)| *layer).collect();
        return Ok(usage_error(format!("there is no layer {unknown}; there are: {}", known.join(", "))));
    }
    if let Some(pid) = arguments.pid.filter(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
        return Ok(usage_error(format!("there is no process {pid}")));
    }
    permitted()?;
    let stop = trace::stop_signals()?;
    let mut session = IoSession::start(arguments)?;
    if let Some(path) = &arguments.mount
        && session.watch.mounts().at(path.as_bytes()).is_none()
    {
        return Ok(usage_error(trace::no_such_mount(&session.watch, path)));
    }
    match &arguments.record {
        Some(path) => record::run(arguments, path, session, &stop),
        None => {
            follow(arguments, &mut session, &stop)?;
            session.losses().iter().for_each(|(cause, lost)| eprintln!("plumbline: {cause}: {lost} operations"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn follow(arguments: &IoArguments, session: &mut IoSession, stop: &nix::sys::signalfd::SignalFd) -> Result<()> {
    let mut out = BufWriter::new(io::stdout());
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut began = Instant::now();
    while left > 0 {
        let stopped = session.wait(began + Duration::from_secs_f64(arguments.interval), stop, |_| ())?.is_some();
        let (now, samples) = (Instant::now(), session.read()?);
        show(&mut out, arguments, session, &samples, now.duration_since(began))?;
        out.flush()?;
        (began, left) = (now, left - 1);
        if stopped {
            break;
        }
    }
    Ok(())
}

fn show(
    out: &mut impl Write,
    arguments: &IoArguments,
    session: &mut IoSession,
    samples: &[IoSample],
    lasted: Duration,
) -> Result<()> {
    let (mut rows, mut flows) = (Rows::new(&arguments.by), BTreeMap::new());
    for sample in samples {
        let (mount, owner) = session.names(sample);
        rows.add(sample, mount, owner);
        let flow: &mut LayerBytes = flows.entry((mount.fstype.clone(), mount.label().to_owned())).or_default();
        flow.add(sample.operation, &sample.amounts);
    }
    let clock = Clock::now();
    let now = crate::daemon::nanos(probes::monotonic());
    if arguments.json {
        rows.print_json(out, &clock.iso(now), lasted.as_secs_f64())?;
        return Ok(());
    }
    writeln!(out, "{}", clock.time_of_day(now))?;
    if rows.is_empty() {
        return Ok(());
    }
    let look = RowOptions {
        room: arguments.wide.room(),
        seconds: lasted.as_secs_f64(),
        sort: arguments.sort,
        histograms: arguments.histograms,
    };
    rows.print(out, &look)?;
    for ((_, mount), flow) in &flows {
        for (direction, word) in [(Direction::Read, "read"), (Direction::Written, "written")] {
            if let Some(line) = flow.line(direction, &session.depths) {
                writeln!(out, "{mount}: bytes {word}: {line}")?;
            }
        }
    }
    writeln!(out)?;
    Ok(())
}
