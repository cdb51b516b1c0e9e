//! File data that is read from the daemon's memory, without a request (`cephfs_proxy::data_pages`).

use std::{mem, os::fd::AsFd, sync::Arc};

use cephfs_proxy::{
    data_pages::DataPages,
    layout::DATA_SIZE,
    wire::{CachedData, Errno, Handle, MapData},
};

use super::CachedAnswer;
use crate::{
    fork,
    link::{CallError, DaemonLink},
    session::RequestTarget,
    tables::{Pointer, Tables},
};

/// The most packets that can wait on the socket.
const MOST_PACKETS: usize = 16;

/// What is known of an open file's data in the daemon's memory.
#[derive(Default)]
pub enum FileData {
    /// Nothing.
    #[default]
    Unknown,
    /// The daemon has said once that it has memory for the file. The memory is mapped when the daemon says so again, since most files are read only
    /// once after they were opened.
    Told,
    /// The daemon has said so again, in an answer on connection `link`, requested at the time `asked`.
    Wanted { data: CachedData, asked: u64, link: u64 },
    /// The memory is mapped.
    Mapped(MappedData),
}

impl FileData {
    /// Drops what belongs to this connection, which is gone. Otherwise the memory would exist as long as somebody maps it.
    pub fn forget(&mut self, link: u64) {
        if matches!(self, FileData::Mapped(mapped) if mapped.link == link) {
            *self = FileData::Unknown;
        }
    }

    fn mapped(&mut self) -> Option<&mut MappedData> {
        match self {
            FileData::Mapped(mapped) => Some(mapped),
            _ => None,
        }
    }
}

/// The daemon's memory with a file's data.
pub struct MappedData {
    pages: Arc<DataPages>,
    /// The number of the memory on its connection.
    memory: u64,
    link: u64,
    /// The version that valid chunks have.
    version: Option<CachedAnswer<u64>>,
}

impl MappedData {
    fn is(&self, link: u64, memory: u64) -> bool {
        (self.link, self.memory) == (link, memory)
    }
}

/// Reads at most DATA_SIZE bytes from the daemon's memory. `None` if some of the bytes are absent, or an argument is invalid: then the daemon must
/// be asked.
///
/// # Safety
/// `to` must be good for `length` bytes.
pub unsafe fn read(mount: Pointer, file: Pointer, offset: i64, length: usize, to: *mut u8) -> Option<usize> {
    let offset = u64::try_from(offset).ok()?;
    let (pages, version) = {
        let mut tables = fork::tables();
        let Tables { mounts, files, .. } = &mut *tables;
        let link = &mounts.get(mount as u64).ok()?.link;
        let file = files.get(file as u64).ok()?;
        let FileData::Mapped(data) = &file.data else { return None };
        if length > DATA_SIZE || to.is_null() || file.mount != mount as u64 || link.is_dead() || file.lost {
            return None;
        }
        // The read returns the file's state at this moment: chunks of this version do not change afterwards.
        let version = *data.version.as_ref()?.get(link)?;
        (data.pages.clone(), version)
    };
    // SAFETY: the caller guarantees its memory (see above).
    unsafe { pages.read(version, offset, length, to) }
}

/// The number of the memory that is mapped for a file; 0: no memory is mapped.
pub fn mapped(file: Pointer, link: &DaemonLink) -> u64 {
    let mut tables = fork::tables();
    let data = tables.files.get(file as u64).ok().and_then(|file| file.data.mapped());
    data.filter(|data| data.link == link.id).map_or(0, |data| data.memory)
}

/// Notes where a file's data is in memory, from an answer that was requested at the time `asked`.
pub fn note(link: &DaemonLink, file: Pointer, data: CachedData, asked: u64) {
    if data.memory == 0 || data.stamp.life == 0 {
        return;
    }
    let mut tables = fork::tables();
    let Ok(found) = tables.files.get(file as u64) else { return };
    match &mut found.data {
        FileData::Mapped(mapped) if mapped.is(link.id, data.memory) => {
            mapped.version = CachedAnswer::new(link, data.stamp.first.1, data.stamp, asked);
        }
        FileData::Unknown => found.data = FileData::Told,
        _ => found.data = FileData::Wanted { data, asked, link: link.id },
    }
}

/// Maps the memory of a file if the daemon has named this memory twice. The caller must hold no slot.
pub fn map_wanted(target: &RequestTarget, file: Pointer, remote: Handle) {
    let link = &target.link;
    let (data, asked) = match fork::tables().files.get(file as u64).map(|found| &found.data) {
        Ok(FileData::Wanted { data, asked, link: theirs }) if *theirs == link.id => (*data, *asked),
        _ => return,
    };
    let mapped = match map(target, remote) {
        Ok((memory, pages)) => {
            let same = Some(data.stamp).filter(|_| memory == data.memory);
            let version = same.and_then(|stamp| CachedAnswer::new(link, stamp.first.1, stamp, asked));
            FileData::Mapped(MappedData { pages: Arc::new(pages), memory, link: link.id, version })
        }
        // After a failure, the daemon has to name the memory twice again.
        Err(_) => FileData::Unknown,
    };
    let before = fork::tables().files.get(file as u64).map(|found| mem::replace(&mut found.data, mapped));
    // The old value is dropped outside the lock.
    drop(before);
}

/// Requests a file's memory, and maps it.
fn map(target: &RequestTarget, file: Handle) -> Result<(u64, DataPages), CallError> {
    // One request at a time, so that the packet belongs to the last request.
    let _alone = target.link.packets.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let answer = target.link.call(&MapData { mount: target.mount, file })?;
    for _ in 0..MOST_PACKETS {
        let (number, fd) = target.link.packet()?;
        // Packets with other numbers belong to earlier requests whose answers this process could not decode.
        if number == answer.memory {
            return Ok((number, DataPages::map(fd.as_fd(), answer.chunks as usize)?));
        }
    }
    Err(Errno::PROTO.into())
}
