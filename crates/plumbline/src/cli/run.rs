//! `plumbline run`: the daemon.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use probes::{Capability, Kernel, ProbeSet};

use super::{config_errors, doctor, usage_error};
use crate::{config, daemon, watched};

#[derive(clap::Args)]
pub struct RunArguments {
    /// Configuration file [default: /etc/plumbline/plumbline.yaml where it exists, else the compiled-in configuration]
    #[arg(long, value_name = "F")]
    config: Option<PathBuf>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Watch local file systems too (syscalls)
    #[arg(long)]
    all_filesystems: bool,
}

pub fn run(arguments: RunArguments, verbose: u8) -> Result<ExitCode> {
    if arguments.duration.is_some_and(|seconds| !(0.0..=1e9).contains(&seconds)) {
        return Ok(usage_error("--duration takes a number from 0 to 1000000000"));
    }
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the daemon must run as root: loading BPF programs takes CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN; \
             `plumbline check` works without"
        );
    }
    probes::watched_namespace::check().map_err(anyhow::Error::msg)?;
    daemon::log::start(verbose);
    let config_file = match arguments.config.as_deref().map(std::path::absolute).transpose() {
        Ok(path) => path.or_else(config::installed),
        Err(error) => return Ok(usage_error(format!("--config: {error}; give the whole path of the file"))),
    };
    // The present directory may be on a mount, which the daemon must neither keep busy nor hang with.
    std::env::set_current_dir("/").context("cannot change to /")?;
    let config = match config::check(config_file.as_deref(), &watched::never_touched()) {
        Ok(config) => config,
        Err(errors) => return Ok(config_errors(&errors)),
    };
    let (output_dir, config_name) = (config.output_dir.clone(), config::name_of(config_file.as_deref()));
    let setup = daemon::Setup {
        config,
        config_file,
        all_filesystems: arguments.all_filesystems,
        duration: arguments.duration.map(Duration::from_secs_f64),
    };
    daemon::run(setup, |probes, watch| {
        // The daemon also runs with a closed standard output.
        let _ = greet(probes, watch, &config_name, &output_dir);
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what the daemon can see, what it watches, and where incidents go.
fn greet(
    probes: &[Capability],
    watch: &ProbeSet,
    config_name: &str,
    output_dir: &std::path::Path,
) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "plumbline {} on kernel {}\n", env!("CARGO_PKG_VERSION"), Kernel::current().release)?;
    doctor::print_probes(&mut out, probes)?;
    let remote: Vec<_> = watch.mounts().iter().filter(|point| point.remote).collect();
    writeln!(out)?;
    match remote.len() {
        0 => writeln!(out, "no network or FUSE file system is mounted now; one that comes is watched at once")?,
        1 => writeln!(out, "watching 1 mount:")?,
        many => writeln!(out, "watching {many} mounts:")?,
    }
    for point in remote.iter().take(10) {
        writeln!(out, "  {}  {}  {}", point.mount.mountpoint, point.mount.source, point.mount.fstype)?;
    }
    if remote.len() > 10 {
        writeln!(out, "  and {} more", remote.len() - 10)?;
    }
    writeln!(out, "configuration: {config_name}")?;
    writeln!(out, "incidents go to {}/incidents; `plumbline incidents` lists them\n", output_dir.display())?;
    out.flush()
}
