//! Which files are read and written, and in which order. Loaded for a recording only.

use std::os::fd::AsFd;

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use model::{MountKey, text::Text};
use serde::{Deserialize, Serialize};

use crate::{
    batches,
    generated::{Plain, access, access_key, access_kind, access_options, transfers},
    iterator,
    processes::Followed,
    syscalls::{self, Target},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/accesses.bpf.o"));

/// What one process did with one regular file, by system calls.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// The mount, as the syscalls probe names it.
    pub mount: MountKey,
    /// Of the file.
    pub inode: u64,
    /// The process (thread group).
    pub pid: u32,
    /// The file's name without folders, at most 63 bytes.
    pub name: Text<64>,
    /// How often it was opened.
    pub opens: u64,
    /// Calls that read.
    pub read: Transfers,
    /// Calls that wrote.
    pub written: Transfers,
}

/// Reads, or writes, that did not fail; this includes reads of zero bytes at the end of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// Calls.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Accesses that began at the end of the process's last access to this file, or behind it.
    pub sequential: u64,
    /// Sequential accesses that began exactly at that end.
    pub consecutive: u64,
    /// Accesses that began at no multiple of 4096 bytes.
    pub unaligned: u64,
    /// The greatest offset at which one ended, bytes.
    pub end: u64,
}

impl Transfers {
    /// Adds the accesses of another process.
    pub fn add(&mut self, more: &Self) {
        self.calls += more.calls;
        self.bytes += more.bytes;
        self.sequential += more.sequential;
        self.consecutive += more.consecutive;
        self.unaligned += more.unaligned;
        self.end = self.end.max(more.end);
    }
}

/// The kernel side at work. Dropping it detaches.
pub struct Accesses {
    // The link first: it is dropped before the object that its program lives in.
    _link: Link,
    object: Object,
}

impl Accesses {
    /// Notes accesses on network file systems and FUSE, or on all (`any_filesystem`); of all processes, or of those that are
    /// `followed`; for at most `keys` combinations of process and file.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the program: it takes BTF.
    pub fn start(any_filesystem: bool, followed: Option<&Followed>, keys: u32) -> libbpf_rs::Result<Self> {
        let missing = |what| std::io::Error::other(format!("the object has no {what}"));
        let options = access_options {
            own_pid: std::process::id(),
            any_filesystem: any_filesystem.into(),
            only_followed: followed.is_some().into(),
            kinds: kinds(),
            ..access_options::default()
        };
        let mut object = iterator::open(OBJECT, options.as_bytes())?;
        for mut map in object.maps_mut() {
            match map.name().as_encoded_bytes() {
                b"accesses" => map.set_max_entries(keys)?,
                b"followed" => match followed {
                    Some(followed) => map.reuse_fd(followed.map().as_fd())?,
                    None => map.set_max_entries(1)?,
                },
                _ => {}
            }
        }
        let object = object.load()?;
        let link = object.progs_mut().map(|program| program.attach()).next().ok_or_else(|| missing("program"))??;
        Ok(Self { _link: link, object })
    }

    /// Shows what was noted so far.
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub fn each(&self, mut show: impl FnMut(Access)) -> libbpf_rs::Result<()> {
        let Some(map) = self.object.maps().find(|map| map.name() == "accesses") else { return Ok(()) };
        batches::each(&map, |key, value| {
            if let (Some(key), Some(value)) = (access_key::from_bytes(key), access::from_bytes(value)) {
                show(decode(&key, &value));
            }
        })
    }

    /// Accesses and opens that found no room.
    pub fn refused(&self) -> u64 {
        let data = self.object.maps().find(|map| map.name().as_encoded_bytes().ends_with(b".bss"));
        let value = data.and_then(|data| data.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        value.and_then(|value| u64::from_bytes(&value)).unwrap_or_default()
    }
}

fn decode(key: &access_key, value: &access) -> Access {
    let of = |raw: &transfers| {
        let transfers { calls, bytes, sequential, consecutive, unaligned, end, .. } = *raw;
        Transfers { calls, bytes, sequential, consecutive, unaligned, end }
    };
    Access {
        mount: MountKey(key.mount),
        inode: key.inode,
        pid: key.pid,
        name: Text::new(&value.name.map(i8::cast_unsigned)),
        opens: value.opens,
        read: of(&value.read),
        written: of(&value.written),
    }
}

/// What each system call is, by its number.
fn kinds() -> [u8; 512] {
    let mut kinds = [0; 512];
    for (number, family, target) in syscalls::calls() {
        let is_read = family == 0;
        let kind = match target {
            Target::Opened | Target::OpenedAt => access_kind::ACCESS_OPEN.0,
            Target::Descriptor if is_read || family == 1 => {
                let way = if is_read { access_kind::ACCESS_READ.0 } else { access_kind::ACCESS_WRITE.0 };
                way | if has_offset(number) { access_kind::ACCESS_POSITIONAL.0 } else { 0 }
            }
            _ => continue,
        };
        let slot = usize::try_from(number).ok().and_then(|number| kinds.get_mut(number));
        slot.into_iter().for_each(|slot| *slot = u8::try_from(kind).unwrap_or_default());
    }
    kinds
}

/// Whether the call's fourth argument is the offset in the file.
fn has_offset(number: libc::c_long) -> bool {
    let positional = [
        libc::SYS_pread64,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
    ];
    positional.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_writes_and_opens_are_told_from_all_else() {
        let kinds = kinds();
        let kind = |number: libc::c_long| kinds[number as usize];
        assert_eq!([libc::SYS_read, libc::SYS_writev, libc::SYS_openat].map(kind), [1, 2, 3]);
        assert_eq!([libc::SYS_pread64, libc::SYS_pwritev2].map(kind), [5, 6]);
        assert_eq!([libc::SYS_close, libc::SYS_fstat, libc::SYS_getdents64, libc::SYS_lseek].map(kind), [0; 4]);
    }
}
