//! Checks whether a path leads to a watched mount, without touching a mount: a server that hangs must not block Plumbline.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result};
use model::text::printable;
use probes::mounts::Mounts;

/// The most symbolic links that are followed, which is the kernel's limit (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The error: a path leads to this mount point.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("is on {}, a watched mount; choose a path on a local file system, so that a server that hangs cannot block Plumbline", shown(.0))]
pub struct Watched(PathBuf);

/// The mount points of this process's namespace that must be neither written to nor read from.
pub fn never_touched() -> Vec<PathBuf> {
    remote_mount_points(&Mounts::own().unwrap_or_default())
}

/// The mount points that must not be written to.
pub fn remote_mount_points(mounts: &Mounts) -> Vec<PathBuf> {
    let remote = mounts.iter().filter(|point| point.remote);
    remote.map(|point| OsString::from_vec(point.path.clone()).into()).collect()
}

/// The end of a path.
pub enum PathEnd {
    /// It exists; the path without symbolic links.
    Existing(PathBuf, fs::Metadata),
    /// It does not exist; the nearest directory above that exists.
    Missing(PathBuf),
}

/// Why a path was not followed to its end.
#[derive(Debug, thiserror::Error)]
pub enum PathObstacle {
    #[error("is not absolute; begin it with `/`")]
    Relative,
    #[error(transparent)]
    Watched(#[from] Watched),
    #[error("is a loop of symbolic links; name the directory itself")]
    Circle,
    #[error("cannot exist: {} is not a directory; choose another path", shown(.0))]
    NotADirectory(PathBuf),
    #[error("cannot be examined: {}: {error}; choose another path", shown(.at))]
    Unreadable { at: PathBuf, error: io::Error },
}

/// What happens to a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// The link itself is wanted.
    Kept,
    /// The link is followed.
    Followed,
}

/// Refuses a path that leads to a currently watched mount. Accepts a path that is missing or cannot be followed: opening it fails anyway.
///
/// # Errors
/// [`Watched`]; or if the table of mounts cannot be read.
pub fn refuse(path: &Path) -> Result<()> {
    let mounts = Mounts::own().context("cannot read /proc/self/mountinfo")?;
    check(path, &remote_mount_points(&mounts)).with_context(|| shown(path))
}

/// As [`refuse`], with the watched mount points given.
///
/// # Errors
/// [`Watched`].
pub fn check(path: &Path, never_touch: &[PathBuf]) -> Result<(), Watched> {
    let walked = std::path::absolute(path).map(|path| walk(&path, LastLink::Followed, never_touch));
    match walked {
        Ok(Err(PathObstacle::Watched(watched))) => Err(watched),
        _ => Ok(()),
    }
}

/// Follows a path one component at a time, and compares each component with the mount points before it touches it.
///
/// `never_touch`: the watched mount points. The root itself is not compared: on a host that runs from the network, no path is safe.
///
/// # Errors
/// Why the path cannot be followed.
pub fn walk(path: &Path, last_link: LastLink, never_touch: &[PathBuf]) -> Result<PathEnd, PathObstacle> {
    if !path.is_absolute() {
        return Err(PathObstacle::Relative);
    }
    let mut todo = names(path);
    let mut here = PathBuf::from("/");
    let mut about = look(&here)?;
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            here.pop();
            about = look(&here)?;
            continue;
        }
        if !about.is_dir() {
            return Err(PathObstacle::NotADirectory(here));
        }
        here.push(&name);
        // Each directory on the way is compared, so a path below a mount is stopped at the mount.
        if never_touch.contains(&here) {
            return Err(Watched(here).into());
        }
        about = match look(&here) {
            Err(PathObstacle::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                here.pop();
                return Ok(PathEnd::Missing(here));
            }
            looked => looked?,
        };
        if about.is_symlink() && (last_link == LastLink::Followed || !todo.is_empty()) {
            links += 1;
            if links > MAX_LINKS {
                return Err(PathObstacle::Circle);
            }
            let target = fs::read_link(&here).map_err(|error| PathObstacle::Unreadable { at: here.clone(), error })?;
            here.pop();
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            about = look(&here)?;
            todo.extend(names(&target));
        }
    }
    Ok(PathEnd::Existing(here, about))
}

fn look(here: &Path) -> Result<fs::Metadata, PathObstacle> {
    fs::symlink_metadata(here).map_err(|error| PathObstacle::Unreadable { at: here.to_owned(), error })
}

/// The names along a path, the last first; `..` stays.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// A path as errors name it.
pub fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is said of a path below a directory that has a file, a link `log` to `mnt/x` and a link `f` to that.
    fn said(name: &str) -> Result<(), Watched> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        symlink("mnt/x", dir.path().join("log")).unwrap();
        symlink("log", dir.path().join("f")).unwrap();
        let said = check(&dir.path().join(name), &[dir.path().join("mnt")]);
        said.map_err(|Watched(mount)| Watched(mount.strip_prefix(dir.path()).unwrap().to_owned()))
    }

    #[test]
    fn a_file_on_a_watched_mount_is_refused_by_its_name_also_through_links() {
        // Nothing is there to be looked at: the name alone decides.
        for name in ["mnt", "mnt/p.yaml", "file/../mnt/p.yaml", "log", "f", "f/below", "log/../../mnt"] {
            assert_eq!(said(name), Err(Watched("mnt".into())), "{name}");
        }
        for name in ["file", "mnt2", "missing/mnt", "file/mnt"] {
            assert_eq!(said(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_relative_path_is_judged_from_where_we_are() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(check(Path::new("p.yaml"), std::slice::from_ref(&here)), Err(Watched(here)));
    }
}
