//! `plumbline join`: the two ends of requests as one story.

use std::{
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;

use super::kind::FileFormat;
use crate::{
    join::{join, print},
    view::table::Wide,
};

#[derive(clap::Args)]
pub struct JoinArguments {
    /// The bundle of an incident of the client
    #[arg(value_name = "CLIENT-BUNDLE")]
    client: PathBuf,
    /// A bundle of the server of that time (an incident's, or of `plumbline snapshot`), a recording, or the directory of its recorder
    #[arg(value_name = "SERVER-BUNDLE|RECORDING")]
    server: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: Wide,
}

pub fn run(arguments: &JoinArguments) -> Result<ExitCode> {
    let report = join(&arguments.client, &arguments.server)?;
    report.notes.iter().for_each(|note| eprintln!("plumbline: {note}"));
    let mut out = BufWriter::new(io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report, arguments.wide.room())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is a recording, by its first bytes.
pub fn is_recording(path: &Path) -> bool {
    FileFormat::of(path) == Some(FileFormat::Recording)
}
