//! System calls on the file systems watched, by `tp_btf/sys_enter` and `sys_exit`: works where fentry is refused.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore, MapFlags, Object, OpenObject};
use model::{Code, Detail, Direction, FileNames, Level, Protocol, Syscall};

use crate::{
    decode::text,
    generated::probe_id,
    mounts::{MountPoint, Mounts},
    probe::Probe,
    spec::{Rung, Spec},
};

/// The families of system calls. `read` and `write` come first: syscalls.bpf.c counts their results as bytes.
pub static PROTOCOL: Protocol = Protocol {
    name: "syscalls",
    operations: &["read", "write", "open", "close", "fsync", "stat", "readdir"],
    level: Level::SystemCall,
    direction: |name| match name {
        "read" => Some(Direction::Read),
        "write" => Some(Direction::Written),
        _ => None,
    },
    ordinary: ORDINARY,
    file_names: FileNames::Last,
    ..Protocol::BY_ERRNO
};

/// Failures that are normal: misses, names that exist already, and calls that were told not to wait.
const ORDINARY: &[Code] = &[
    Code::Errno(libc::ENOENT.cast_unsigned()),
    Code::Errno(libc::ENOTDIR.cast_unsigned()),
    Code::Errno(libc::EEXIST.cast_unsigned()),
    Code::Errno(libc::EAGAIN.cast_unsigned()),
    Code::Errno(libc::EINTR.cast_unsigned()),
];

pub(crate) static SPEC: Spec = Spec {
    name: "syscalls",
    protocol: &PROTOCOL,
    id: probe_id::PROBE_SYSCALLS,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/syscalls.bpf.o")),
    rungs: &[Rung {
        via: "tp_btf",
        required: &["sys_enter", "sys_exit"],
        optional: &["in_flight"],
        without: "calls in flight",
    }],
    inflight: &["in_flight"],
    detail: |raw| Detail::Syscall(Syscall { inode: raw.inode, name: text(&raw.file) }),
    probe: || Box::new(SystemCalls),
    ..Spec::BASE
};

/// The argument that names the file of a call; `enum target` in syscalls.bpf.c, in its order.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Descriptor = 1,
    Opened,
    OpenedAt,
    Stat,
    StatAt,
    StatxAt,
}

/// Number, family and target of every call watched.
pub(crate) fn calls() -> Vec<(libc::c_long, u8, Target)> {
    use Target::*;
    let calls = [
        (libc::SYS_read, 0, Descriptor),
        (libc::SYS_pread64, 0, Descriptor),
        (libc::SYS_readv, 0, Descriptor),
        (libc::SYS_preadv, 0, Descriptor),
        (libc::SYS_preadv2, 0, Descriptor),
        (libc::SYS_write, 1, Descriptor),
        (libc::SYS_pwrite64, 1, Descriptor),
        (libc::SYS_writev, 1, Descriptor),
        (libc::SYS_pwritev, 1, Descriptor),
        (libc::SYS_pwritev2, 1, Descriptor),
        (libc::SYS_openat, 2, OpenedAt),
        (libc::SYS_openat2, 2, OpenedAt),
        (libc::SYS_close, 3, Descriptor),
        (libc::SYS_fsync, 4, Descriptor),
        (libc::SYS_fdatasync, 4, Descriptor),
        (libc::SYS_syncfs, 4, Descriptor),
        (libc::SYS_sync_file_range, 4, Descriptor),
        (libc::SYS_fstat, 5, Descriptor),
        (libc::SYS_newfstatat, 5, StatAt),
        (libc::SYS_statx, 5, StatxAt),
        (libc::SYS_getdents64, 6, Descriptor),
    ];
    #[cfg(target_arch = "x86_64")]
    let older = vec![
        (libc::SYS_open, 2, Opened),
        (libc::SYS_creat, 2, Opened),
        (libc::SYS_stat, 5, Stat),
        (libc::SYS_lstat, 5, Stat),
        (libc::SYS_getdents, 6, Descriptor),
    ];
    // These calls had successors when arm64 was added to the kernel.
    #[cfg(not(target_arch = "x86_64"))]
    let older = {
        let _ = (Opened, Stat);
        Vec::new()
    };
    calls.into_iter().chain(older).collect()
}

/// Whether the call of this number is watched, and its first argument is a descriptor of the file that it works on and
/// leaves open.
pub(crate) fn takes_descriptor(number: libc::c_long) -> bool {
    number != libc::SYS_close
        && calls().into_iter().any(|(known, _, target)| known == number && matches!(target, Target::Descriptor))
}

struct SystemCalls;

impl Probe for SystemCalls {
    /// Writes the table of calls into the object's read-only data.
    fn prepare(&mut self, object: &mut OpenObject, _: &Rung) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            let table = map.name().as_encoded_bytes().ends_with(b".calls");
            if let Some(value) = map.initial_value_mut().filter(|_| table) {
                for (number, family, target) in calls() {
                    let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(2);
                    if let Some([operation, how]) = value.get_mut(at..at.saturating_add(2)) {
                        (*operation, *how) = (family, target as u8);
                    }
                }
            }
        }
        Ok(())
    }

    fn follow_mounts(&mut self, object: &mut Object, mounts: &Mounts) -> libbpf_rs::Result<()> {
        let devices: BTreeSet<_> = mounts.remote_devices().collect();
        let devices: Vec<_> = devices.into_iter().map(|device| (device.0.to_ne_bytes().to_vec(), vec![1])).collect();
        let below = mounts.remote_and_below();
        let points: Vec<_> =
            below.filter_map(|point| Some((prefix(point)?.to_vec(), point.device.0.to_ne_bytes().to_vec()))).collect();
        for map in object.maps() {
            match map.name().as_encoded_bytes() {
                b"watched_devices" => make_equal(&map, &devices)?,
                b"mount_points" => make_equal(&map, &points)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Length of `path` in `struct path_prefix`.
const PATH_LENGTH: usize = 128;

/// The key of a mount point in the `mount_points` trie; `None` if its path is too long for it.
pub(crate) fn prefix(point: &MountPoint) -> Option<[u8; 4 + PATH_LENGTH]> {
    let mut path = point.path.strip_suffix(b"/").unwrap_or(&point.path).to_vec();
    path.push(b'/');
    let mut key = [0; 4 + PATH_LENGTH];
    let (bits, bytes) = key.split_at_mut(4);
    bits.copy_from_slice(&u32::try_from(path.len() * 8).ok()?.to_ne_bytes());
    bytes.get_mut(..path.len())?.copy_from_slice(&path);
    Some(key)
}

/// Makes a map hold exactly these entries. An entry that stays is never missing meanwhile.
pub(crate) fn make_equal(map: &dyn MapCore, entries: &[(Vec<u8>, Vec<u8>)]) -> libbpf_rs::Result<()> {
    let wanted: std::collections::HashMap<&Vec<u8>, &Vec<u8>> = entries.iter().map(|(k, v)| (k, v)).collect();
    let gone: Vec<Vec<u8>> = map.keys().filter(|key| !wanted.contains_key(key)).collect();
    for key in gone {
        // The entry may be gone already.
        let _ = map.delete(&key);
    }
    for (key, value) in entries.iter().take(map.max_entries() as usize) {
        map.update(key, value, MapFlags::ANY)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_number_of_its_own_within_the_table() {
        let mut numbers: Vec<_> = calls().into_iter().map(|(number, _, _)| number).collect();
        numbers.sort_unstable();
        let total = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), total);
        assert!(numbers.iter().all(|number| (0..512).contains(number)));
    }

    #[test]
    fn a_mount_point_becomes_a_prefix_that_ends_at_a_slash() {
        let mounts = Mounts::parse(b"62 28 0:50 / /mnt/n rw - nfs4 srv:/export rw\n");
        let key = prefix(mounts.iter().next().unwrap()).unwrap();
        assert_eq!(key[..4], (7_u32 * 8).to_ne_bytes());
        assert_eq!(&key[4..12], b"/mnt/n/\0");
    }
}
