//! The paths of cgroups.

use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::LazyLock,
};

use model::text::printable;
use probes::mounts::Mounts;

/// The mount point of cgroup v2: `/sys/fs/cgroup`, or `unified` below it if version 1 is used, too; and whether version 1 is used.
static HIERARCHY: LazyLock<(String, bool)> = LazyLock::new(|| {
    let mounts = Mounts::own().unwrap_or_default();
    let of_type = |fstype: &str| mounts.iter().find(|point| point.mount.fstype == fstype);
    let path = of_type("cgroup2").map_or("/sys/fs/cgroup", |point| &point.mount.mountpoint);
    (path.to_owned(), of_type("cgroup").is_some())
});

/// Whether every process has a single cgroup, that of version 2.
pub fn is_unified() -> bool {
    !HIERARCHY.1
}

/// The path of a cgroup (v2) below its root, `/` for the root itself.
pub fn path_of_id(id: u64) -> Option<String> {
    /// `struct file_handle` of kernfs: its id (FILEID_KERNFS, include/linux/exportfs.h).
    #[repr(C)]
    struct KernfsHandle {
        bytes: u32,
        kind: i32,
        id: u64,
    }
    let (hierarchy, _) = &*HIERARCHY;
    let root = fs::File::open(hierarchy).ok()?;
    let mut handle = KernfsHandle { bytes: 8, kind: 0xfe, id };
    // SAFETY: the handle is laid out as the kernel wants it and lives through the call; the descriptor is open.
    let fd = unsafe {
        nix::libc::open_by_handle_at(
            root.as_raw_fd(),
            (&raw mut handle).cast(),
            nix::libc::O_PATH | nix::libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: a descriptor that was just opened and is nobody else's.
    let cgroup = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = fs::read_link(format!("/proc/self/fd/{}", cgroup.as_raw_fd())).ok()?;
    let below = path.strip_prefix(hierarchy).ok()?;
    Some(printable(format!("/{}", below.display()).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cgroup_is_found_by_its_id() {
        use std::os::unix::fs::MetadataExt;
        let now = fs::read_to_string("/proc/self/cgroup").unwrap();
        let path = now.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        let Ok(about) = fs::metadata(format!("{}{path}", HIERARCHY.0)) else {
            eprintln!("skipped: cgroup v2 is not mounted");
            return;
        };
        // kernfs: the inode number of the directory is the id.
        match path_of_id(about.ino()) {
            Some(found) => assert_eq!(found, path),
            None => eprintln!("skipped: opening by handle takes CAP_DAC_READ_SEARCH and cgroup v2"),
        }
        assert_eq!(path_of_id(u64::MAX), None);
    }
}
