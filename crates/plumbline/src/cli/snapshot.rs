//! `plumbline snapshot`: asks the running daemon for a bundle now.

use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{config, daemon, view::screen::StatusLine};

#[derive(clap::Args)]
pub struct SnapshotArguments {
    /// One JSON object: {"bundle": PATH}
    #[arg(long)]
    json: bool,
    /// Make the bundle of the coming time instead of the past: 60s or 5m, for example, an hour at most. The bundle has each operation of that time, and how mounts were used
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    span: Option<Duration>,
    /// How long to wait for the bundle, seconds; with --for, beyond that time
    #[arg(long, value_name = "S", default_value_t = 120)]
    timeout: u64,
}

pub fn run(arguments: &SnapshotArguments) -> Result<ExitCode> {
    let timeout = Duration::from_secs(arguments.timeout.max(1));
    let mut line = StatusLine::new(true);
    let show = |passed: Duration| {
        let span = arguments.span.unwrap_or_default();
        line.show(&format!("collecting: {} of {} s", passed.min(span).as_secs(), span.as_secs_f64()));
    };
    let path = daemon::request_snapshot(&daemon::runtime_dir(), arguments.span, timeout, show);
    line.clear();
    let path = path?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::json!({ "bundle": path }))?;
    } else {
        writeln!(out, "{path}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn span(text: &str) -> Result<Duration, String> {
    let span = config::span(text).filter(|span| !span.is_zero() && *span <= daemon::LONGEST_SNAPSHOT);
    span.ok_or_else(|| "no time up to an hour, such as 60s or 5m".to_owned())
}
