//! `plumbline report`: a bundle as one self-contained page.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};

use super::incidents::read_incident;
use crate::view::report;

#[derive(clap::Args)]
pub struct Arguments {
    /// The bundle, a .tar.zst
    bundle: PathBuf,
    /// Where the page goes; without it, standard output
    #[arg(short, long, value_name = "F.html")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let shown = || format!("cannot read {}", arguments.bundle.display());
    let incident = File::open(&arguments.bundle).map_err(Into::into).and_then(read_incident).with_context(shown)?;
    let page = report::page(&incident);
    match &arguments.output {
        Some(path) => fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?,
        None => std::io::stdout().lock().write_all(page.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
