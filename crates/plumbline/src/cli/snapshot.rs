//! `plumbline snapshot`: asks the running daemon for a bundle now.

use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Result;

use crate::daemon;

#[derive(clap::Args)]
pub struct Arguments {
    /// One JSON object: {"bundle": PATH}
    #[arg(long)]
    json: bool,
    /// Wait this long for it, seconds
    #[arg(long, value_name = "S", default_value_t = 120)]
    timeout: u64,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = daemon::request_snapshot(&daemon::runtime_dir(), Duration::from_secs(arguments.timeout.max(1)))?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::json!({ "bundle": path }))?;
    } else {
        writeln!(out, "{path}")?;
    }
    Ok(ExitCode::SUCCESS)
}
