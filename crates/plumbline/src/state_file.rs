//! Small files of the daemon in its output directory, which are kept across restarts.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result, bail};

/// The largest file that is written or read, bytes.
pub const LARGEST: u64 = 4 << 20;

/// Reads a file; `None` if it does not exist.
///
/// # Errors
///
/// When it cannot be read, or this program cannot have written it: a link, not a regular file, too large, or not text.
pub fn read(path: &Path) -> Result<Option<String>> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| format!("cannot open {}", path.display()))?,
    };
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        bail!("{} is not a regular file", path.display());
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    if text.len() as u64 > LARGEST {
        bail!("{} has more than {LARGEST} bytes, so Plumbline did not write it", path.display());
    }
    Ok(Some(text))
}

/// Replaces the file by this content as JSON. After a crash, it has the old or the new content; only a power failure can damage it.
///
/// # Errors
///
/// When the file cannot be written, or would be too large.
pub fn write(path: &Path, content: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(content)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it would have more than {LARGEST} bytes")));
    }
    let new = path.with_extension("json.new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&text)?;
    fs::rename(&new, path)
}
