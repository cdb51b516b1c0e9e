//! `plumbline check`: is this configuration good?

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Result;
use probes::mounts::Mounts;

use super::EXIT_USAGE;
use crate::{config, watched};

#[derive(clap::Args)]
pub struct Arguments {
    /// The file [default: /etc/plumbline/plumbline.yaml where it exists, else the compiled-in configuration]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mounts = Mounts::current().unwrap_or_default();
    let file = arguments.file.clone().or_else(config::installed);
    match config::check(file.as_deref(), &watched::remote_mount_points(&mounts)) {
        Ok(config) => {
            let mut out = std::io::stdout().lock();
            writeln!(out, "configuration: {}", config::name_of(file.as_deref()))?;
            for notice in &config.notices {
                writeln!(out, "note: {notice}")?;
            }
            for configured in &config.rules {
                writeln!(out, "{}", configured.rule.describe(config.watch_interval))?;
            }
            for rule in &config.not_yet {
                writeln!(
                    out,
                    "{}: {} of {}, which this version does not detect yet",
                    rule.name, rule.kind, rule.probe
                )?;
            }
            writeln!(out, "ok")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            for error in errors {
                eprintln!("{error}");
            }
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}
