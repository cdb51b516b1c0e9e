//! `plumbline ps --pin`: the process table as a file in bpffs, for monitors that are not root.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use probes::tasks;

use super::super::{permitted, usage_error};
use crate::watched::{self, shown};

#[derive(clap::Args)]
#[group(skip)] // it would have the name of the group that it is a part of
pub struct PsPinArguments {
    /// Pin the process table as a file that the kernel makes anew at each read: a name in /sys/fs/bpf, or a path in another bpffs
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "plumbline-ps",
        conflicts_with_all = ["threads", "files", "maps", "json", "pid", "ppid", "comm", "uid", "state", "cgroup", "container"])]
    pin: Option<PathBuf>,
    /// The mode of the pinned file, such as 0444; without this option, only root may read the file
    #[arg(long, value_name = "MODE", requires = "pin", value_parser = mode)]
    mode: Option<u32>,
    /// The pinned file has records of 128 bytes instead of text (docs/processes.md)
    #[arg(long, requires = "pin")]
    binary: bool,
    /// Remove the pinned file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "plumbline-ps", conflicts_with = "pin")]
    unpin: Option<PathBuf>,
}

/// Creates or removes a pin if the options ask for it; `None` if they do not.
pub fn run(arguments: &PsPinArguments) -> Option<Result<ExitCode>> {
    match (&arguments.pin, &arguments.unpin) {
        (Some(name), _) => Some(pin(&path_of(name), arguments)),
        (_, Some(name)) => Some(unpin(&path_of(name))),
        _ => None,
    }
}

fn pin(path: &Path, arguments: &PsPinArguments) -> Result<ExitCode> {
    permitted()?;
    watched::refuse(path)?;
    if fs::symlink_metadata(path).is_ok() {
        return Ok(usage_error(format!(
            "{} exists already; remove it with `plumbline ps --unpin`, or give another name",
            shown(path)
        )));
    }
    let advice = || format!("cannot pin {}: the path must be on a bpffs, such as /sys/fs/bpf", shown(path));
    tasks::pin(path, arguments.mode, arguments.binary).with_context(advice)?;
    println!("{}", shown(path));
    // Users who may read the file must also have access to its directory: systemd mounts bpffs for root only.
    let others = 0o001;
    let is_closed = |folder: &&Path| fs::metadata(folder).is_ok_and(|about| about.permissions().mode() & others == 0);
    if arguments.mode.is_some_and(|mode| mode & 0o004 != 0)
        && let Some(folder) = path.ancestors().skip(1).find(is_closed)
    {
        eprintln!("plumbline: other users cannot reach the file yet; run `chmod o+x {}`", shown(folder));
    }
    Ok(ExitCode::SUCCESS)
}

fn unpin(path: &Path) -> Result<ExitCode> {
    permitted()?;
    watched::refuse(path)?;
    tasks::unpin(path).with_context(|| format!("cannot remove {}", shown(path)))?;
    Ok(ExitCode::SUCCESS)
}

/// The path of a pin: a name without a slash is in the usual bpffs.
fn path_of(name: &Path) -> PathBuf {
    if name.components().count() == 1 { Path::new("/sys/fs/bpf").join(name) } else { name.to_owned() }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o666 == 0);
    mode.ok_or_else(|| "it takes a mode such as 0444, for reading and at most writing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mere_name_is_in_the_usual_bpffs() {
        assert_eq!(path_of(Path::new("ps")), Path::new("/sys/fs/bpf/ps"));
        assert_eq!(path_of(Path::new("/run/bpf/ps")), Path::new("/run/bpf/ps"));
    }

    #[test]
    fn a_mode_is_octal_and_runs_nothing() {
        assert_eq!((mode("0444"), mode("640")), (Ok(0o444), Ok(0o640)));
        assert!(mode("0755").is_err() && mode("a+r").is_err());
    }
}
