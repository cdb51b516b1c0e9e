//! Actions that copy files.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use probes::{filesystems, mounts::mountinfo, watched_namespace};

use super::{ActionInput, heading, procfs};
use crate::{evidence::output::Output, watched};

/// How many bytes of a log's end are kept.
const TAIL: u64 = 256 << 10;

/// The SMB client's sessions, connections and requests in flight.
pub fn debugdata(_: &ActionInput, out: &mut Output) -> Result<()> {
    procfs::copy(Path::new("/proc/fs/cifs/DebugData"), out).context("no SMB client here (is the cifs module loaded?)")
}

/// The SMB and NFS clients' counters.
pub fn stats(_: &ActionInput, out: &mut Output) -> Result<()> {
    those_there(&["/proc/fs/cifs/Stats", "/proc/net/rpc/nfs"], out)
}

/// Every mount of the namespace that is watched, with its options.
pub fn mounts(_: &ActionInput, out: &mut Output) -> Result<()> {
    procfs::copy(&mountinfo(), out)
}

/// The NFS client's counters by mount and operation.
pub fn mountstats(_: &ActionInput, out: &mut Output) -> Result<()> {
    procfs::copy(&watched_namespace::proc_file("mountstats"), out)
}

/// The SMB client's own data about its files and sessions.
pub fn smbinfo(_: &ActionInput, out: &mut Output) -> Result<()> {
    writeln!(
        out,
        "# The smbinfo utility asks the server by way of a file on the mount, which would hang with it.\n\
         # This is what the client itself knows; no mount was touched."
    )?;
    heading(out, "cifs in /proc/self/mountinfo")?;
    let shares = filesystems::all().filter(|known| known.named_by_share);
    let types: Vec<_> = shares.map(|known| format!(" - {} ", known.name)).collect();
    matching_lines(&mountinfo(), &types, out)?;
    let session_lines = ["ConnectionId", "Dialect", "TCP status", "Session Status", "SessionId", "Mounts:", "tid:"];
    let debug_data = Path::new("/proc/fs/cifs/DebugData");
    if debug_data.exists() {
        heading(out, "sessions and shares in /proc/fs/cifs/DebugData")?;
        matching_lines(debug_data, &session_lines, out)?;
    }
    those_there(
        &[
            "/proc/fs/cifs/open_files",
            "/proc/fs/cifs/open_dirs",
            "/proc/fs/cifs/mount_params",
            "/proc/fs/cifs/dfscache",
        ],
        out,
    )
    .context("no SMB client here (is the cifs module loaded?)")
}

/// The end of the system log's files.
pub fn syslogs(_: &ActionInput, out: &mut Output) -> Result<()> {
    let logs = ["/var/log/syslog", "/var/log/messages"].map(Path::new);
    logs.iter().try_for_each(|log| watched::refuse(log))?;
    let there: Vec<&Path> = logs.into_iter().filter(|log| log.exists()).collect();
    if there.is_empty() {
        bail!("neither /var/log/syslog nor /var/log/messages is there; the journalctl action reads the journal");
    }
    for log in there {
        heading(out, &log.display().to_string())?;
        tail(log, TAIL, out)?;
    }
    Ok(())
}

/// Copies the files that exist, each below a heading with its name.
///
/// # Errors
/// If none exists, one cannot be read, or the output takes no more.
fn those_there(paths: &[&str], out: &mut Output) -> Result<()> {
    let there: Vec<&Path> = paths.iter().map(Path::new).filter(|path| path.exists()).collect();
    if there.is_empty() {
        bail!("none of these is there: {}", paths.join(" "));
    }
    for path in there {
        heading(out, &path.display().to_string())?;
        procfs::copy(path, out)?;
    }
    Ok(())
}

/// Copies the lines of a file that contain any of `parts`.
fn matching_lines(path: &Path, parts: &[impl AsRef<str>], out: &mut Output) -> Result<()> {
    let mut lines = BufReader::new(procfs::open(path)?);
    let mut line = Vec::new();
    // A longer line is read in pieces.
    while lines.by_ref().take(64 << 10).read_until(b'\n', &mut line)? > 0 {
        out.check()?;
        let text = String::from_utf8_lossy(&line);
        if parts.iter().any(|part| text.contains(part.as_ref())) {
            writeln!(out, "{}", model::text::printable(line.trim_ascii_end()))?;
        }
        line.clear();
    }
    Ok(())
}

/// Copies the last `most` bytes of a regular file, from the beginning of a line.
fn tail(path: &Path, most: u64, out: &mut Output) -> Result<()> {
    let mut file: File = procfs::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let most = most.min(out.left());
    let skipped = about.len().saturating_sub(most);
    file.seek(SeekFrom::Start(skipped))?;
    let mut rest = BufReader::new(file.take(most));
    if skipped > 0 {
        rest.skip_until(b'\n')?;
        writeln!(out, "(earlier lines are left out)")?;
    }
    Ok(procfs::copy_from(&mut rest, out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::output::tests::output_of;

    #[test]
    fn the_tail_of_a_log_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, (0..1000).map(|n| format!("line {n}\n")).collect::<String>()).unwrap();
        let text = output_of(|out| tail(&log, 100, out));
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), ["(earlier lines are left out)", "line 989"]);
        assert_eq!(text.lines().last(), Some("line 999"));
        assert_eq!(output_of(|out| tail(&log, 1 << 20, out)).lines().count(), 1000);
    }

    #[test]
    fn a_fifo_in_place_of_a_log_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("log");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        output_of(|out| {
            assert!(tail(&fifo, 100, out).unwrap_err().to_string().contains("not a regular file"));
            Ok(())
        });
    }

    #[test]
    fn the_mounts_are_copied_as_the_kernel_says_them() {
        let text = output_of(|out| {
            mounts(&ActionInput { scope: &Default::default(), args: &[], own: Default::default() }, out)
        });
        assert!(text.lines().any(|line| line.contains(" / ")), "{text}");
    }
}
