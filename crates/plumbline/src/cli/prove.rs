//! `plumbline prove`: makes faults of known cause, and checks the verdicts on them.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};

use super::{permitted, trace};
use crate::{
    prove::{self, ProvePrinter, ProveSelection},
    view::table::Wide,
};

#[derive(clap::Args)]
#[command(after_help = "\
The command makes faults of known cause, one after the other. For each fault, it shows Plumbline's verdict and the time until the verdict. Server, router and \
mounts are in namespaces of their own: nothing else on this machine is touched, and nothing stays but kernel modules that were loaded.

It takes the kernel's NFS server and client (nfs-kernel-server, nfs-common), Samba where that is installed (samba, cifs-utils), ip and tc (iproute2), and \
128 MiB of memory. Where there is no server, it tries a FUSE file system. A daemon that runs meanwhile reports these faults, too.

Exit status: 0 if no verdict named a wrong layer and there was no false alarm, 1 otherwise.")]
pub struct ProveArguments {
    /// Try a FUSE file system only
    #[arg(long)]
    fuse: bool,
    /// Only cases whose names have this in them; may be given several times
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// One JSON array: what was done and what was said of it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: Wide,
}

#[derive(clap::Args)]
pub struct PartArguments {
    name: String,
    words: Vec<PathBuf>,
}

pub fn run(arguments: &ProveArguments) -> Result<ExitCode> {
    permitted()?;
    let stop = trace::stop_signals()?;
    let choice = ProveSelection { fuse_only: arguments.fuse, only: arguments.only.clone() };
    let mut printer = ProvePrinter::new(arguments.wide);
    let is_whole = prove::run(stop, &choice, &mut |said| printer.print(said, arguments.json))?;
    printer.finish(arguments.json)?;
    if !is_whole {
        bail!("stopped early; its mounts and namespaces were removed");
    }
    Ok(if printer.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a helper process of `prove`.
pub fn part(arguments: &PartArguments) -> Result<ExitCode> {
    prove::part(&arguments.name, &arguments.words)?;
    Ok(ExitCode::SUCCESS)
}
