//! A file's data in memory that the daemon writes and clients only read, so that a client can read this data without a request.
//!
//! The memory is a table of entries, one for each chunk of the file, and the chunks themselves. A chunk that is absent takes no memory.
//!
//! *Whether a chunk is valid.* A chunk holds the file's data at one version, the value of the file's counter in the version table
//! (`version_table`). A client reads the counter, and uses only chunks of that version. So a change of the file invalidates all chunks at once, and
//! the daemon need not modify them. All chunks of a read have the same version, so the read returns the file's state at the moment when the client
//! read the counter.
//!
//! *While the daemon changes a chunk*, because it fills or removes the chunk, the entry's sequence is odd. Afterwards, the sequence has a new
//! value. A client reads the sequence, copies the data, and reads the sequence again. If the two values differ, or the first is odd, the copy is
//! invalid. Clients lock nothing, so a client that is slow, stopped or dead delays nobody.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use rustix::{
    fs::{Mode, OFlags, SealFlags},
    mm::{Advice, ProtFlags},
};

use crate::{
    layout::DATA_SIZE,
    memory::{self, SharedMemory},
};

/// The bytes of a chunk; a multiple of the page size of every kernel.
pub const CHUNK: usize = 64 << 10;
/// The most chunks of one file: files of 64 GiB.
pub const MOST_CHUNKS: usize = 1 << 20;

/// The most chunks of one read.
const MOST_AT_ONCE: usize = DATA_SIZE / CHUNK + 1;

/// The entry of a chunk.
#[repr(C, align(32))]
struct ChunkEntry {
    /// Odd while the chunk is changed or removed. It never decreases.
    sequence: AtomicU64,
    /// The file's version plus one; 0: clients shall not use the chunk.
    version: AtomicU64,
    /// The bytes of the file that are in the chunk. If that is less than a chunk, the file ends there.
    length: AtomicU64,
}

/// A mapping of a file's data memory.
pub struct DataPages {
    memory: SharedMemory,
    chunks: usize,
}

/// Where the chunks begin.
fn data_offset(chunks: usize) -> usize {
    (chunks * size_of::<ChunkEntry>()).next_multiple_of(CHUNK)
}

fn size(chunks: usize) -> usize {
    data_offset(chunks) + chunks * CHUNK
}

/// Checks that a number of chunks is permitted.
fn permitted(chunks: usize) -> rustix::io::Result<usize> {
    if (1..=MOST_CHUNKS).contains(&chunks) { Ok(chunks) } else { Err(rustix::io::Errno::FBIG) }
}

impl DataPages {
    /// Creates memory for a file of this many chunks, all absent, and a descriptor through which others can read but not write the memory. The mode
    /// of the memory keeps all users except root and the daemon's own user from opening it again for writing in /proc. A seal (F_SEAL_FUTURE_WRITE)
    /// would stop root, too, but would also keep the daemon from removing chunks. So the daemon trusts nothing that it reads from this memory.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the memory, or the file is too large.
    pub fn create(chunks: usize) -> io::Result<(OwnedFd, DataPages)> {
        let fd = memory::create("cephfs-data", size(permitted(chunks)?))?;
        rustix::fs::fchmod(&fd, Mode::RUSR)?;
        // Nobody can shorten the memory, so reading it raises no SIGBUS.
        memory::seal(&fd, SealFlags::empty())?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let readable = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let memory = SharedMemory::map(&fd, size(chunks), ProtFlags::READ | ProtFlags::WRITE)?;
        memory.not_in_core_dumps();
        Ok((readable, DataPages { memory, chunks }))
    }

    /// Maps memory of [`DataPages::create`] for reading.
    ///
    /// # Errors
    ///
    /// When the memory does not have the size for this many chunks, or the kernel refuses the mapping.
    pub fn map(fd: impl AsFd, chunks: usize) -> rustix::io::Result<DataPages> {
        let memory = SharedMemory::map(fd, size(permitted(chunks)?), ProtFlags::READ)?;
        memory.not_in_core_dumps();
        Ok(DataPages { memory, chunks })
    }

    /// The number of chunks for which there is room.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// The bytes of the entries.
    pub fn entries_size(&self) -> usize {
        self.chunks * size_of::<ChunkEntry>()
    }

    fn entry(&self, chunk: usize) -> Option<&ChunkEntry> {
        // SAFETY: within the mapping, aligned, and all of it atomics.
        (chunk < self.chunks).then(|| unsafe { &*self.memory.base().as_ptr().cast::<ChunkEntry>().add(chunk) })
    }

    /// The memory of a chunk. The memory of the following chunks comes after it.
    pub fn chunk(&self, chunk: usize) -> *mut u8 {
        let chunk = chunk.min(self.chunks);
        // SAFETY: within the mapping, or at its end.
        unsafe { self.memory.base().as_ptr().add(data_offset(self.chunks) + chunk * CHUNK) }
    }

    /// Copies up to `length` bytes of the file, as it is at this version, to `to`. Returns the number of bytes, which is less than `length` only at
    /// the end of the file. `None` if some of the bytes are absent, or `length` is more than DATA_SIZE: then the memory at `to` may have changed,
    /// too.
    ///
    /// The caller has read the version from the table before, and trusts the version for the moment of that read.
    ///
    /// # Safety
    ///
    /// `to` must be good for `length` bytes.
    pub unsafe fn read(&self, version: u64, offset: u64, length: usize, to: *mut u8) -> Option<usize> {
        self.visit(version, offset, length, |from, count| {
            // SAFETY: `visit` passes `count` bytes of this mapping, no more than `length`, and the caller guarantees its own memory (see above).
            // The daemon may write to the chunk meanwhile: then `visit` finds another sequence, and nobody uses the copy.
            unsafe { ptr::copy_nonoverlapping(from, to, count) };
        })
    }

    /// How many bytes [`DataPages::read`] would copy.
    pub fn count(&self, version: u64, offset: u64, length: usize) -> Option<usize> {
        self.visit(version, offset, length, |_, _| {})
    }

    /// Calls `copy` once for adjacent chunks: the processor copies one large piece faster than several small ones.
    #[inline]
    fn visit(&self, version: u64, offset: u64, length: usize, copy: impl FnOnce(*const u8, usize)) -> Option<usize> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(length)?;
        let (first, mut sequences, mut chunks, mut until) = (start / CHUNK, [0; MOST_AT_ONCE], 0, start);
        while until < end {
            let chunk = first + chunks;
            let (entry, sequence) = (self.entry(chunk)?, sequences.get_mut(chunks)?);
            // Acquire: a thread that sees the version also sees everything that the daemon wrote before it published the version, including the
            // data.
            *sequence = entry.sequence.load(Ordering::Acquire);
            if *sequence % 2 != 0 || entry.version.load(Ordering::Acquire) != version.wrapping_add(1) {
                return None;
            }
            chunks += 1;
            let held = (entry.length.load(Ordering::Relaxed) as usize).min(CHUNK);
            until = until.max((chunk * CHUNK + held).min(end));
            if held < CHUNK {
                break;
            }
        }
        if until > start {
            // SAFETY: within the chunks that were looked at.
            copy(unsafe { self.chunk(0).add(start) }, until - start);
        }
        // If the daemon wrote any copied byte, or a length, after it made the sequence odd (`begin`), then the two fences order that store of the
        // sequence before these loads.
        fence(Ordering::Acquire);
        let is_same = |(index, sequence): (usize, &u64)| {
            self.entry(first + index)?.sequence.load(Ordering::Relaxed).eq(sequence).then_some(())
        };
        sequences[..chunks].iter().enumerate().try_for_each(is_same)?;
        Some(until - start)
    }
}

/// Functions for the daemon, which lets only one thread at a time change a chunk.
impl DataPages {
    /// Begins a change of a chunk.
    pub fn begin(&self, chunk: usize) {
        let Some(entry) = self.entry(chunk) else { return };
        entry.version.store(0, Ordering::Relaxed);
        entry.sequence.store((entry.sequence.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
        // Release: the store of the sequence comes before everything that the caller writes next.
        fence(Ordering::Release);
    }

    /// Ends a change: the chunk contains this many bytes.
    pub fn end(&self, chunk: usize, length: usize) {
        let Some(entry) = self.entry(chunk) else { return };
        entry.length.store(length as u64, Ordering::Relaxed);
        entry.sequence.store((entry.sequence.load(Ordering::Relaxed) | 1) + 1, Ordering::Release);
    }

    /// Lets clients use a chunk whose data is that of this version of the file.
    pub fn show(&self, chunk: usize, version: u64) {
        if let Some(entry) = self.entry(chunk) {
            entry.version.store(version.wrapping_add(1), Ordering::Release);
        }
    }

    /// Keeps clients from using a chunk. The data stays.
    pub fn hide(&self, chunk: usize) {
        if let Some(entry) = self.entry(chunk) {
            entry.version.store(0, Ordering::Release);
        }
    }

    /// Gives the memory of chunks back to the kernel. Later reads find zeros there.
    pub fn remove(&self, chunk: usize, count: usize) {
        let count = count.min(self.chunks.saturating_sub(chunk));
        // SAFETY: these are whole pages of the mapping, and nobody has a reference to them. If the advice fails, the memory only stays longer.
        let _ = unsafe { rustix::mm::madvise(self.chunk(chunk).cast(), count * CHUNK, Advice::LinuxRemove) };
    }

    /// The same for a chunk's bytes beyond the first `bytes`, a multiple of the page size.
    pub fn remove_tail(&self, chunk: usize, bytes: usize) {
        if chunk < self.chunks && bytes < CHUNK {
            // SAFETY: these are whole pages of the mapping, within the chunk, and nobody has a reference to them.
            let _ =
                unsafe { rustix::mm::madvise(self.chunk(chunk).add(bytes).cast(), CHUNK - bytes, Advice::LinuxRemove) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn pair(chunks: usize) -> (DataPages, DataPages) {
        let (fd, ours) = DataPages::create(chunks).unwrap();
        (ours, DataPages::map(&fd, chunks).unwrap())
    }

    fn fill(pages: &DataPages, chunk: usize, byte: u8, length: usize) {
        pages.begin(chunk);
        // SAFETY: within the chunk.
        unsafe { ptr::write_bytes(pages.chunk(chunk), byte, length) };
        pages.end(chunk, length);
    }

    fn read(pages: &DataPages, version: u64, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0xEE; length];
        // SAFETY: pointer and length are those of a vector.
        let count = unsafe { pages.read(version, offset, length, bytes.as_mut_ptr()) }?;
        assert_eq!(pages.count(version, offset, length), Some(count));
        bytes.truncate(count);
        Some(bytes)
    }

    #[test]
    fn chunks_of_one_version_are_read_up_to_the_end_of_the_file() {
        let (ours, theirs) = pair(4);
        fill(&ours, 0, 1, CHUNK);
        fill(&ours, 1, 2, 10);
        ours.show(0, 7);
        assert_eq!(read(&theirs, 7, 0, CHUNK).unwrap(), vec![1; CHUNK]);
        assert_eq!(read(&theirs, 7, CHUNK as u64 - 1, 2), None, "the second chunk is not shown");
        ours.show(1, 7);
        assert_eq!(read(&theirs, 7, CHUNK as u64 - 1, 50).unwrap(), [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(read(&theirs, 7, CHUNK as u64 + 10, 5).unwrap(), []);
        assert_eq!(read(&theirs, 7, CHUNK as u64 + 500, 5).unwrap(), []);
        assert_eq!(read(&theirs, 8, 0, 1), None, "of another version");
        assert_eq!(read(&theirs, 7, u64::MAX, 1), None);
        assert_eq!(read(&theirs, 7, 4 * CHUNK as u64, 1), None, "beyond all chunks");
        ours.show(1, 8);
        assert_eq!(read(&theirs, 7, CHUNK as u64 - 1, 2), None, "two versions");
    }

    #[test]
    fn what_is_hidden_or_removed_is_not_read() {
        let (ours, theirs) = pair(2);
        fill(&ours, 0, 1, CHUNK);
        ours.show(0, 0);
        ours.hide(0);
        assert_eq!(read(&theirs, 0, 0, 1), None);
        ours.show(0, 0);
        assert_eq!(read(&theirs, 0, 0, 1).unwrap(), [1]);
        ours.begin(0);
        ours.remove(0, 5);
        assert_eq!(read(&theirs, 0, 0, 1), None);
        fill(&ours, 0, 3, 1);
        ours.show(0, 0);
        assert_eq!(read(&theirs, 0, 0, 10).unwrap(), [3]);
    }

    #[test]
    fn the_descriptor_of_clients_does_not_write() {
        let (fd, _ours) = DataPages::create(1).unwrap();
        assert!(rustix::io::write(&fd, b"x").is_err());
        assert!(SharedMemory::map(&fd, size(1), ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(DataPages::map(&fd, 2).is_err());
        assert!(DataPages::create(0).is_err() && DataPages::create(MOST_CHUNKS + 1).is_err());
    }

    #[test]
    fn nobody_reads_a_mixture_while_the_data_changes() {
        let (ours, theirs) = pair(1);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        // The version is the same each time, as after a removal.
                        if let Some(bytes) = read_quietly(&theirs) {
                            assert!(bytes.iter().all(|byte| *byte == bytes[0] && *byte != 0), "a mixture");
                        }
                    }
                });
            }
            for round in 0..2_000_u32 {
                fill(&ours, 0, (round % 255) as u8 + 1, 4096);
                ours.show(0, 1);
                if round % 3 == 0 {
                    ours.begin(0);
                    ours.remove(0, 1);
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    fn read_quietly(pages: &DataPages) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        // SAFETY: pointer and length are those of a vector.
        let count = unsafe { pages.read(1, 0, bytes.len(), bytes.as_mut_ptr()) }?;
        bytes.truncate(count);
        Some(bytes)
    }
}
