//! Selects the mount namespace whose mounts are watched: this process's own, or that of the process that the variable [`VARIABLE`]
//! names. A container, and a systemd unit with a mount namespace, set the variable to 1: then names, mount ids and paths are the
//! host's.

use std::{fs, io, path::PathBuf, sync::LazyLock};

use crate::mounts::namespace_number;

/// The environment variable that names the process, by its number.
pub const VARIABLE: &str = "PLUMBLINE_MOUNTS_OF";

static PROCESS: LazyLock<String> = LazyLock::new(|| std::env::var(VARIABLE).unwrap_or_else(|_| "self".into()));

/// A file in /proc of the process whose mounts are watched, such as `mountinfo`.
pub fn proc_file(name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{name}", *PROCESS))
}

/// The root directory of the process whose mounts are watched.
pub fn root() -> PathBuf {
    proc_file("root")
}

/// Whether that process can be asked.
///
/// # Errors
/// What the variable says, and why that is of no use.
pub fn check() -> Result<(), String> {
    let number_or_self = *PROCESS == "self" || PROCESS.parse::<u32>().is_ok();
    let asked = if number_or_self {
        identity().map(drop)
    } else {
        Err(io::Error::other("this is not the number of a process"))
    };
    asked.map_err(|error| {
        format!(
            "{VARIABLE}={}: the mounts of that process cannot be read: {error}; in a container, it takes the host's \
             processes (--pid=host) and CAP_SYS_PTRACE",
            model::text::printable(PROCESS.as_bytes())
        )
    })
}

/// The inode number of the mount namespace that is watched.
///
/// # Errors
/// When the process is gone, or may not be asked.
pub fn identity() -> io::Result<u64> {
    number_of(&PROCESS)
}

/// The inode number of a process's mount namespace (`/proc/PID/ns/mnt`).
///
/// # Errors
/// When the process is gone, or may not be asked.
pub(crate) fn number_of(process: &str) -> io::Result<u64> {
    let link = fs::read_link(format!("/proc/{process}/ns/mnt"))?;
    let number = link.to_str().and_then(|text| namespace_number("mnt", text));
    number.ok_or_else(|| io::Error::other(format!("{} is no mount namespace", link.display())))
}
