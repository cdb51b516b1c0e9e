//! Whose process it is: its cgroup's path, and the container in it.

use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use model::text::printable;

/// Where cgroup v2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The cgroup of a process: by the id that the kernel side saw, since the process may have gone; else what the process
/// says now; empty if neither is there any more.
pub fn cgroup_of(pid: u32, id: u64) -> String {
    path_of_id(id).unwrap_or_else(|| cgroup_now(pid))
}

/// The path of a cgroup (v2) below its root, `/` for the root itself.
fn path_of_id(id: u64) -> Option<String> {
    /// `struct file_handle` of kernfs: its id (FILEID_KERNFS, include/linux/exportfs.h).
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        id: u64,
    }
    let root = fs::File::open(CGROUPS).ok()?;
    let mut handle = Handle { bytes: 8, kind: 0xfe, id };
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
    let below = path.strip_prefix(CGROUPS).ok()?;
    Some(printable(format!("/{}", below.display()).as_bytes()))
}

/// The cgroup (v2, else the first of v1) that a process is in now.
fn cgroup_now(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let paths = text.split(|byte| *byte == b'\n').filter_map(|line| line.splitn(3, |byte| *byte == b':').nth(2));
    // cgroup v2's line, `0::/path`, comes last.
    paths.map(printable).next_back().unwrap_or_default()
}

/// The container's id, short as its runtime prints it, in a cgroup's path: the last component that carries one.
pub fn container_of(cgroup: &str) -> Option<&str> {
    cgroup.rsplit('/').find_map(|component| {
        let name = component.strip_suffix(".scope").unwrap_or(component);
        // docker-ID, cri-containerd-ID, crio-ID, libpod-ID; bare in Docker's cgroupfs layout and Kubernetes'.
        let id = name.rsplit('-').next().unwrap_or(name);
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let short = is_id.then(|| id.get(..12)).flatten();
        short.or_else(|| name.strip_prefix("machine-")).or_else(|| component.strip_prefix("lxc.payload."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cgroup_is_found_by_its_id() {
        use std::os::unix::fs::MetadataExt;
        let path = cgroup_now(std::process::id());
        let Ok(about) = fs::metadata(format!("{CGROUPS}{path}")) else {
            eprintln!("skipped: cgroup v2 is not mounted at {CGROUPS}");
            return;
        };
        // kernfs: the inode number of the directory is the id.
        match path_of_id(about.ino()) {
            Some(found) => assert_eq!(found, path),
            None => eprintln!("skipped: opening by handle takes CAP_DAC_READ_SEARCH and cgroup v2"),
        }
        assert_eq!(path_of_id(u64::MAX), None);
    }

    #[test]
    fn containers_of_the_usual_runtimes_are_found() {
        let id = "4d3f".repeat(16);
        for path in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/kubepods/burstable/pod1/{id}"),
            format!("/machine.slice/libpod-{id}.scope/container"),
        ] {
            assert_eq!(container_of(&path), Some("4d3f4d3f4d3f"), "{path}");
        }
        assert_eq!(container_of("/lxc.payload.web/system.slice"), Some("web"));
        assert_eq!(container_of("/user.slice/user-1000.slice/session-1.scope"), None);
    }
}
