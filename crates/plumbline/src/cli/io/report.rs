//! `plumbline io report`: a recording as one self-contained page.

use std::{fs, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};

use crate::cli::kind::FileFormat;
use crate::io::{page, record, summary::IoSummary};

#[derive(clap::Args)]
pub struct IoReportArguments {
    /// What `plumbline io --record` has written
    recording: PathBuf,
    /// Where the page goes; without it, standard output
    #[arg(short, long, value_name = "F.html")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &IoReportArguments) -> Result<ExitCode> {
    let mut summary = IoSummary::default();
    let explain = |error| FileFormat::explain(&arguments.recording, FileFormat::IoRecording, error);
    let (header, whole) = record::read(&arguments.recording, |line| summary.add(line)).map_err(explain)?;
    let page = page::page(&header, &summary, whole);
    match &arguments.output {
        Some(path) => fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?,
        None => std::io::stdout().lock().write_all(page.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
