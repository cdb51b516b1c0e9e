//! Look-ups that the daemon makes for itself, as root.

use std::{
    ffi::{CStr, CString, c_int},
    ptr,
    sync::Arc,
};

use super::{
    Errno, checked,
    inodes::{kind, known},
};
use crate::{
    daemon::{ceph::CephInode, handles::Inode, mounts::SharedMount},
    wire::Statx,
};

/// The most symbolic links in a path, as in Linux.
const MOST_LINKS: usize = 40;
/// PATH_MAX of Linux.
const LONGEST_PATH: usize = 4096;

/// The inode with this number.
fn numbered(mount: &Arc<SharedMount>, ino: u64) -> Result<Inode, Errno> {
    // SAFETY: the file system is mounted, and the pointer to the result is valid.
    let find = |raw: &mut _, _: &mut _| unsafe { (mount.ceph().ceph_ll_lookup_inode)(mount.raw(), ino, raw) };
    found(mount, find).map(|(inode, _)| inode)
}

/// The inode of a name, and its attributes.
fn below(parent: &Inode, name: &CStr) -> Result<(Inode, Statx), Errno> {
    let (mount, perms) = (&parent.mount, parent.mount.own.raw);
    // SAFETY: the parent is held, the name is a C string, and the pointers to the results are valid.
    found(mount, |raw, statx| unsafe {
        (mount.ceph().ceph_ll_lookup)(mount.raw(), parent.raw, name.as_ptr(), raw, statx, 0, 0, perms)
    })
}

fn found(
    mount: &Arc<SharedMount>,
    find: impl FnOnce(&mut *mut CephInode, &mut Statx) -> c_int,
) -> Result<(Inode, Statx), Errno> {
    let (mut raw, mut statx) = (ptr::null_mut(), Statx::default());
    checked(find(&mut raw, &mut statx))?;
    if raw.is_null() {
        return Err(Errno::IO);
    }
    if statx.ino == 0 {
        statx = known(mount, raw);
    }
    Ok((Inode { mount: mount.clone(), raw, ino: statx.ino, kind: kind(&statx), snapshot: statx.dev }, statx))
}

/// The directory whose directory of snapshots a path goes through, and the snapshot's name in the path.
pub fn snapshot_in(mount: &Arc<SharedMount>, path: &CStr) -> Result<(u64, CString), Errno> {
    let list = snapshot_list(mount)?;
    let mut inode = root(mount)?;
    let mut rest = components(path.to_bytes());
    while let Some(component) = rest.pop() {
        if component == list.to_bytes() {
            let name = rest.pop().ok_or(Errno::NOENT)?;
            return Ok((inode.ino, CString::new(name).map_err(|_| Errno::INVAL)?));
        }
        inode = below(&inode, &CString::new(component).map_err(|_| Errno::INVAL)?)?.0;
    }
    Err(Errno::NOENT)
}

/// The name of each directory's directory of snapshots.
fn snapshot_list(mount: &SharedMount) -> Result<CString, Errno> {
    let mut name = [0; 256];
    mount.get(c"client_snapdir", &mut name)?;
    CStr::from_bytes_until_nul(&name).map(CStr::to_owned).map_err(|_| Errno::INVAL)
}

/// The root.
fn root(mount: &Arc<SharedMount>) -> Result<Inode, Errno> {
    // SAFETY: the file system is mounted, and the pointer to the result is valid.
    let find = |raw: &mut _, _: &mut _| unsafe { (mount.ceph().ceph_ll_lookup_root)(mount.raw(), raw) };
    found(mount, find).map(|(inode, _)| inode)
}

/// Whether a directory's directory of snapshots lists this snapshot under this name. The list also includes the snapshots of the directories above.
pub fn lists_snapshot(mount: &Arc<SharedMount>, directory: u64, name: &CStr, snapshot: u64) -> bool {
    let look = || {
        let (snapshots, _) = below(&numbered(mount, directory)?, &snapshot_list(mount)?)?;
        below(&snapshots, name)
    };
    look().is_ok_and(|(_, statx)| statx.dev == snapshot)
}

/// The path of a directory, without symbolic links, `.` and `..`. This uses neither `ceph_chdir` nor `ceph_getcwd`: `ceph_getcwd` repeats its
/// request forever if the directory is removed meanwhile (seen with 16.2), and libcephfs has one working directory for all clients of a mount.
pub fn directory(mount: &Arc<SharedMount>, path: &CStr) -> Result<CString, Errno> {
    let root = root(mount)?;
    let mut trail: Vec<(Vec<u8>, Inode)> = Vec::new();
    let mut links = 0;
    // Components that are still to be followed, the next one last.
    let mut rest: Vec<Vec<u8>> = components(path.to_bytes());
    while let Some(component) = rest.pop() {
        match component.as_slice() {
            b"." => continue,
            b".." => drop(trail.pop()),
            _ => {
                let name = CString::new(component.clone()).map_err(|_| Errno::INVAL)?;
                let (inode, _) = below(trail.last().map_or(&root, |(_, inode)| inode), &name)?;
                match inode.kind {
                    libc::S_IFDIR => trail.push((component, inode)),
                    libc::S_IFLNK => {
                        links += 1;
                        let target = target(&inode)?;
                        if target.starts_with(b"/") {
                            trail.clear();
                        }
                        rest.extend(components(&target));
                        if links > MOST_LINKS {
                            return Err(Errno::LOOP);
                        }
                    }
                    _ => return Err(Errno::NOTDIR),
                }
            }
        }
    }
    let whole: Vec<u8> = trail.iter().flat_map(|(name, _)| [b"/", name.as_slice()].concat()).collect();
    if whole.len() >= LONGEST_PATH {
        return Err(Errno::NAMETOOLONG);
    }
    CString::new(if whole.is_empty() { b"/".to_vec() } else { whole }).map_err(|_| Errno::INVAL)
}

/// A path's components, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).rev().map(<[u8]>::to_vec).collect()
}

/// The target of a symbolic link.
fn target(link: &Inode) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0u8; LONGEST_PATH];
    let (mount, length) = (&link.mount, room.len());
    // SAFETY: both objects are held, and the buffer has that many bytes.
    let read = unsafe {
        let readlink = mount.ceph().ceph_ll_readlink;
        readlink(mount.raw(), link.raw, room.as_mut_ptr().cast(), length, mount.own.raw)
    };
    room.truncate(usize::try_from(checked(read)?).unwrap_or(0));
    Ok(room)
}
