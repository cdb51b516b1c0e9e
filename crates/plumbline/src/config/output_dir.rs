//! Checks whether the daemon can write to the output directory, without touching a watched mount.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    unistd::{AccessFlags, access, geteuid},
};

use crate::{
    evidence::INCIDENTS,
    watched::{LastLink, PathEnd, PathObstacle, shown, walk},
};

/// The user id of the daemon, which is root, whoever runs the check.
const DAEMON: u32 = 0;

/// Checks the output directory and `incidents` in it, as the daemon would. A missing directory is no error if it can be created. `never_touch`: as
/// for [`walk`]. Returns a note if we are not root and cannot check everything.
///
/// # Errors
/// What is wrong, and what to do.
pub fn check_output_dir(path: &Path, never_touch: &[PathBuf]) -> Result<Option<String>, String> {
    let top = "the output directory";
    match look(top, path, never_touch)? {
        Looked::Good => {}
        Looked::Missing(parent) => return can_be_made(path, &parent),
        Looked::NotAllowed(note) => return Ok(Some(note)),
    }
    // `incidents` may be a mount of its own, or belong to another user. It need not exist.
    match look("the directory of incidents", &path.join(INCIDENTS), never_touch)? {
        Looked::NotAllowed(note) => Ok(Some(note)),
        Looked::Good | Looked::Missing(_) => Ok(None),
    }
}

enum Looked {
    Good,
    /// The nearest directory above that exists.
    Missing(PathBuf),
    /// We are not root and lack the permission; a note.
    NotAllowed(String),
}

fn look(what: &str, path: &Path, never_touch: &[PathBuf]) -> Result<Looked, String> {
    match walk(path, LastLink::Kept, never_touch) {
        Ok(PathEnd::Existing(at, about)) => match fault(&at, &about) {
            Some(fault) => Err(format!("{what} {} {fault}", shown(path))),
            None => Ok(Looked::Good),
        },
        Ok(PathEnd::Missing(parent)) => Ok(Looked::Missing(parent)),
        Err(PathObstacle::Unreadable { error, .. })
            if error.kind() == io::ErrorKind::PermissionDenied && !is_daemon() =>
        {
            Ok(Looked::NotAllowed(format!("{what} {} was not checked: that requires root", shown(path))))
        }
        Err(obstacle) => Err(format!("{what} {} {obstacle}", shown(path))),
    }
}

/// Why the daemon cannot write safely to this directory.
fn fault(at: &Path, about: &fs::Metadata) -> Option<String> {
    if at == Path::new("/") {
        return Some("is the root directory; choose one of its own".to_owned());
    }
    if about.is_symlink() {
        // The link could be changed between this check and the write.
        return Some("is a symbolic link; name the directory itself".to_owned());
    }
    if !about.is_dir() {
        return Some("is not a directory; move it away, or choose another".to_owned());
    }
    if about.uid() != DAEMON {
        let (owner, shown) = (about.uid(), shown(at));
        return Some(format!(
            "belongs to user {owner}, not to root, who runs the daemon; run `chown {DAEMON} {shown}`, or choose another"
        ));
    }
    if about.mode() & 0o022 != 0 {
        let (mode, shown) = (about.mode() & 0o7777, shown(at));
        return Some(format!("can be written by others (mode {mode:04o}); run `chmod 700 {shown}`"));
    }
    None
}

fn can_be_made(path: &Path, parent: &Path) -> Result<Option<String>, String> {
    let (path, shown) = (shown(path), shown(parent));
    match access(parent, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Ok(None),
        Err(Errno::EACCES) if !is_daemon() => {
            Ok(Some(format!("the output directory {path} is not there yet; the daemon makes it in {shown}, as root")))
        }
        Err(errno) => Err(format!(
            "the output directory {path} cannot be made in {shown}: {errno}; make it yourself, or choose another"
        )),
    }
}

fn is_daemon() -> bool {
    geteuid().as_raw() == DAEMON
}
