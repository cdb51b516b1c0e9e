//! The process table for other programs: an iterator that stays in bpffs and is read like a file, without a process of
//! Plumbline's.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use libbpf_rs::{
    Link,
    query::{LinkInfo, LinkTypeInfo},
};

use super::ITERATOR;
use crate::{
    generated::{Plain, walk_options},
    iterator::KernelIterator,
};

const TEXT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pinned_text.bpf.o"));

/// Leaves an iterator at `path`, a file that is not there yet in a bpffs: one line for each process, or one record of 128 bytes
/// (docs/processes.md). `mode` says who may read it; `None`: only root.
///
/// # Errors
///
/// When the kernel refuses the iterator, or there can be no such file. Then nothing is left.
pub fn pin(path: &Path, mode: Option<u32>, binary: bool) -> libbpf_rs::Result<()> {
    let object = if binary { ITERATOR } else { TEXT };
    let mut iterator = KernelIterator::load(object, walk_options::default().as_bytes())?;
    iterator.pin(path)?;
    let changed = mode.map_or(Ok(()), |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
    changed.map_err(|error| {
        let _ = fs::remove_file(path);
        error.into()
    })
}

/// Removes an iterator that [`pin`] has left.
///
/// # Errors
///
/// When there is no such iterator: any other file stays.
pub fn unpin(path: &Path) -> libbpf_rs::Result<()> {
    let info: LinkInfo = Link::open(path)?.info()?;
    if !matches!(info.info, LinkTypeInfo::Iter(_)) {
        return Err(std::io::Error::other("it is no iterator").into());
    }
    Ok(fs::remove_file(path)?)
}
