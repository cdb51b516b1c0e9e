//! Finds the directory of incidents: that of the running daemon, of a configuration, or of the command line.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Result, bail};

use super::config_errors;
use crate::{
    config::{self, ConfigError},
    daemon,
    evidence::{INCIDENTS, Store},
};

#[derive(clap::Args)]
#[group(skip)] // it would have the name of the group that it is a part of
pub struct FolderArguments {
    /// The folder of the incidents; without it, the running daemon's or the configuration's
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// The configuration that names the folder
    #[arg(long, value_name = "F", conflicts_with = "output_dir")]
    config: Option<PathBuf>,
}

/// The directory, and its bundles if it exists. Reading creates and changes nothing.
pub struct Folder {
    pub path: PathBuf,
    pub store: Option<Store>,
}

impl FolderArguments {
    /// Finds the directory. The inner error is the exit code for an invalid configuration, whose errors were printed.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read, or `--output-dir` names one that does not exist.
    pub fn find(&self) -> Result<Result<Folder, ExitCode>> {
        let asks_the_daemon = self.output_dir.is_none() && self.config.is_none();
        if asks_the_daemon && !is_root() && daemon::runtime_dir().exists() {
            bail!("cannot read where the daemon puts incidents: run as root, or give --output-dir or --config");
        }
        let path = match self.path() {
            Ok(path) => path,
            Err(errors) => return Ok(Err(config_errors(&errors))),
        };
        let store = existing(&path)?;
        if self.output_dir.is_some() && store.is_none() {
            bail!(
                "there are no incidents in {}: it has no directory `incidents`; give the daemon's output_dir",
                path.display()
            );
        }
        Ok(Ok(Folder { path, store }))
    }

    fn path(&self) -> Result<PathBuf, Vec<ConfigError>> {
        if let Some(dir) = &self.output_dir {
            return Ok(dir.clone());
        }
        if let Some(file) = &self.config {
            return config::read(Some(file), &[]).map(|config| config.output_dir);
        }
        match daemon::output_dir_of_running(&daemon::runtime_dir()) {
            Some(dir) => Ok(dir),
            None => config::read(config::installed().as_deref(), &[]).map(|config| config.output_dir),
        }
    }
}

fn existing(output_dir: &Path) -> Result<Option<Store>> {
    let not_found = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    match Store::existing(output_dir, INCIDENTS) {
        Ok(store) => Ok(Some(store)),
        Err(error) if error.chain().any(not_found) => Ok(None),
        Err(error) if is_root() => Err(error),
        Err(error) => bail!("cannot read the incidents in {}: {error:#}; run as root", output_dir.display()),
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
