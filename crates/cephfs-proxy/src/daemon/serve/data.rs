//! Reads through the cache of file data (../data).

use std::{ops::Range, os::fd::AsFd, ptr, sync::Arc};

use super::{Reply, RequestContext, checked};
use crate::{
    daemon::{data::FileMemory, handles::File},
    data_pages::CHUNK,
    sys,
    wire::*,
};

/// The most chunks that a job reads at once.
const PIECE: usize = 16;

/// The outcome of a read through the cache.
pub(super) enum CachedRead {
    /// The read was served from the cache.
    Done(usize, CachedData),
    /// The read was not served. The memory may still have other data of the file.
    NotThere(CachedData),
}

impl RequestContext<'_> {
    /// Serves a read of up to `room` bytes from the cache, and fills the cache if that is worth it.
    pub(super) fn read_cached(&self, file: &Arc<File>, r: &Read, room: usize) -> CachedRead {
        let nothing = CachedRead::NotThere(CachedData::default());
        let (cache, Ok(offset)) = (&file.mount.data, u64::try_from(r.offset)) else { return nothing };
        if !cache.is_on() || !file.is_cacheable || room == 0 || !cache.is_read_again(file.ino) {
            return nothing;
        }
        // The version is taken before anything is read.
        let Some((stamp, size)) = self.stamp_data(file) else { return nothing };
        let Some(memory) = memory_for(file, size, offset.saturating_add(room as u64)) else { return nothing };
        let version = stamp.first.1;
        let data = CachedData { memory: memory.number, stamp, is_only_there: r.memory == memory.number };
        if let Some(count) = self.read_memory(&memory, version, offset, room, data.is_only_there) {
            return CachedRead::Done(count, data);
        }
        let not_there = CachedRead::NotThere(CachedData { is_only_there: false, ..data });
        // The read stops at the end of the file, which the last chunk shows.
        let wanted = room.min(size.saturating_add(1).saturating_sub(offset) as usize);
        let plan = (wanted > 0).then(|| cache.plan(&memory, version, offset, wanted)).flatten();
        let Some(plan) = plan else { return not_there };
        if let Some(ahead) = plan.ahead {
            self.read_ahead(file, &memory, version, ahead);
        }
        // If the fill fails, the client reads through its own file, which returns the error.
        plan.runs.into_iter().for_each(|run| fill(file, &memory, version, run));
        match self.read_memory(&memory, version, offset, room, data.is_only_there) {
            Some(count) => CachedRead::Done(count, data),
            None => not_there,
        }
    }

    /// The validity of a file's data, and the file's size. The validity is that of the file's attributes, which include the size: every change of
    /// the data changes the attributes' version (`SharedMount::change`). The recall of the delegation changes this version, too. Without a
    /// delegation, there is no validity.
    fn stamp_data(&self, file: &File) -> Option<(Validity, u64)> {
        let stamp = || Some(file.mount.stamp_attributes(file.ino)).filter(|stamp| stamp.life > 0);
        let stamp = stamp().or_else(|| {
            let most = self.shared.limits.delegations;
            (most > 0 && file.mount.take_delegation(file.ino, file.inode, most, true)).then(stamp).flatten()
        })?;
        // Clients trust the delegation from now on. If the cluster becomes unreachable, it may give the file to somebody else without our
        // knowledge. In that case, libcephfs asks before it answers.
        Some((stamp, file.mount.ask_size(file.inode)?))
    }

    fn read_memory(
        &self,
        memory: &FileMemory,
        version: u64,
        offset: u64,
        room: usize,
        is_only_there: bool,
    ) -> Option<usize> {
        if is_only_there {
            return memory.pages.count(version, offset, room);
        }
        // SAFETY: the slot's data has at least `room` bytes.
        unsafe { memory.pages.read(version, offset, room, self.data) }
    }

    /// Has a worker read chunks that clients will soon want.
    fn read_ahead(&self, file: &Arc<File>, memory: &Arc<FileMemory>, version: u64, chunks: Range<usize>) {
        let Some(pool) = self.shared.pool.get().and_then(std::sync::Weak::upgrade) else { return };
        // Several jobs run at once: if they ran one after the other, their round trips to the OSDs would add up.
        for start in chunks.clone().step_by(PIECE) {
            let Some(place) = self.shared.share.enter_ahead() else { return };
            let (file, memory, piece) = (file.clone(), memory.clone(), start..(start + PIECE).min(chunks.end));
            pool.submit(Box::new(move || {
                let _place = place;
                if let Some(plan) = file.mount.data.claim_ahead(&memory, version, piece) {
                    plan.runs.into_iter().for_each(|run| fill(&file, &memory, version, run));
                }
            }));
        }
    }

    /// Passes the client the memory that has a file's data. A client that does not receive the packets is refused: its socket has room for a few
    /// packets (`Clients::welcome`).
    pub(super) fn map_data(&self, r: &MapData) -> Reply<DataMemory> {
        let file = self.file(r.mount, r.file)?;
        let memory = file.mount.data.memory(file.ino).filter(|_| file.is_cacheable).ok_or(Errno::AGAIN)?;
        let (stamp, _) = self.stamp_data(&file).ok_or(Errno::AGAIN)?;
        if !file.mount.data.forget_old(&memory, stamp.first.1) {
            return Err(Errno::AGAIN);
        }
        let number = memory.number;
        sys::try_send_packet(self.connection.socket.as_fd(), &number.to_le_bytes(), &[memory.readable.as_fd()])?;
        Ok((0, DataMemory { memory: number, chunks: memory.pages.chunks() as u32 }))
    }
}

/// The memory of a file. It has room for at least the bytes before `end`, or for the whole file.
fn memory_for(file: &File, size: u64, end: u64) -> Option<Arc<FileMemory>> {
    // Room for one byte more than the file has, so that the last chunk shows where the file ends.
    let needed = end.min(size.saturating_add(1));
    let has_room = |memory: &Arc<FileMemory>| needed <= (memory.pages.chunks() * CHUNK) as u64;
    let cache = &file.mount.data;
    cache.memory(file.ino).filter(has_room).or_else(|| cache.make_room(file.ino, size).ok())
}

/// Fills chunks, which this thread has claimed, from libcephfs.
fn fill(file: &File, memory: &FileMemory, version: u64, run: Range<usize>) {
    let (offset, length) = ((run.start * CHUNK) as i64, run.len() * CHUNK);
    // SAFETY: the memory has all chunks of `run` (`DataCache::claim`), and no other thread writes to them.
    let result = checked(unsafe { read_directly(file, offset, length, memory.pages.chunk(run.start)) });
    // The chunks tell clients that the file ends where the data does.
    let is_whole = |count: &usize| {
        let end = offset as u64 + *count as u64;
        *count == length || file.mount.size(file.inode).is_some_and(|size| size == end || *count == 0 && size < end)
    };
    // If somebody changed the file during the read, the data may match none of the file's states: where libcephfs had read nothing because the file
    // was shorter, it puts zeros.
    let is_unchanged = || file.mount.stamp_attributes(file.ino).first.1 == version;
    let count = result.ok().map(|count| count as usize).filter(|count| is_whole(count) && is_unchanged());
    file.mount.data.filled(memory, run, version, count);
}

/// Reads without libcephfs's own cache, which would hold the data a second time. That cache also returns old data at times after another host has
/// written (seen with 18.2, also without this proxy's caches), and the chunks would keep the old data.
///
/// # Safety
///
/// `to` must be good for `length` bytes.
unsafe fn read_directly(file: &File, offset: i64, length: usize, to: *mut u8) -> i32 {
    let (ceph, mount, mut own) = (file.mount.ceph(), file.mount.raw(), ptr::null_mut());
    // SAFETY: the file holds the inode, and the caller guarantees the memory (see above). The file that is opened here is closed here. Opening
    // takes microseconds, and no request to a metadata server while the delegation is held.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECT;
        let opened = (ceph.ceph_ll_open)(mount, file.inode, flags, &mut own, file.mount.own.raw);
        if opened < 0 || own.is_null() {
            return if opened < 0 { opened } else { -Errno::IO.raw_os_error() };
        }
        let result = (ceph.ceph_ll_read)(mount, own, offset, length as u64, to.cast());
        (ceph.ceph_ll_close)(mount, own);
        result
    }
}

/// Whether data read through a file that is opened with these flags may be in the cache.
pub(super) fn is_cacheable(flags: i32, kind: u32, snapshot: u64) -> bool {
    // The meaning of a delegation for a file in a snapshot is not documented.
    kind == libc::S_IFREG
        && snapshot == NO_SNAPSHOT
        && flags & libc::O_ACCMODE != libc::O_WRONLY
        && flags & libc::O_PATH == 0
}
