//! A cache of file data in shared memory, from which clients read (../data_pages.rs). This module decides which files and chunks are cached, within
//! one budget for each mount.
//!
//! A file gets memory when it is read for the second time and a delegation shows that no other host changes the file. A chunk is filled when it is
//! read again some time later (`pattern`), but does not displace chunks that are in use (`clock`). The version of a chunk is the file's version
//! just before the chunk was read from libcephfs. Every later change of the file changes the version, so the chunk need not be updated then. A
//! chunk of an old version is filled again, or evicted like other chunks.
//!
//! The lock is never held during a call of libcephfs. A thread that fills or removes a chunk marks the chunk as busy. Other threads that need the
//! chunk wait for it for a while, as they would wait for libcephfs.

mod clock;
mod pattern;
mod tend;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    ops::{Range, RangeInclusive},
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use super::{delegations::UNUSED, lock};
use crate::data_pages::{CHUNK, DataPages, MOST_CHUNKS};
use clock::{ClockEntry, Victim};
use pattern::ReadPattern;

/// The most files with memory: each file needs a descriptor and a mapping.
const MOST_FILES: usize = if cfg!(test) { 20 } else { 2048 };
/// The most files that are examined to find an unused one.
const LOOKED_AT: usize = 16;
/// The most address space for all files, in chunks.
const MOST_CHUNKS_MAPPED: usize = (16 << 40) / CHUNK;
/// The bytes that a file takes besides its chunks and their entries.
const FILE_OVERHEAD: usize = 4 << 10;
/// A file's memory has room for a multiple of this number of chunks, so that the file can grow a little.
const ROOM_UNIT: usize = 16;
/// The most files of which the cache remembers that they were read.
const MOST_REMEMBERED: usize = 16 << 10;
const PAGE: usize = 4096;
/// How long a request waits for a chunk that another thread fills, before it reads from libcephfs by itself.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The memory of one file.
pub struct FileMemory {
    /// Its inode's number.
    ino: u64,
    /// A number that is unique in this process. Never 0.
    pub number: u64,
    /// The mapping.
    pub pages: DataPages,
    /// The descriptor for clients.
    pub readable: OwnedFd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkState {
    /// Clients may use the chunk.
    Shown,
    /// The data is present. A client that needs the data asks the daemon, so the daemon learns that the chunk is in use.
    Hidden,
    /// A thread fills or removes the chunk.
    Busy,
}

struct HeldChunk {
    version: u64,
    bytes: usize,
    state: ChunkState,
    /// The number of the chunk's entry in the clock; 0: none yet.
    ticket: u64,
}

struct CachedFile {
    memory: Arc<FileMemory>,
    chunks: HashMap<usize, HeldChunk>,
    pattern: ReadPattern,
    /// When a client last asked for data. A client that reads all the time asks at least whenever its copies under a delegation expire.
    used: Instant,
}

#[derive(Default)]
struct CacheState {
    files: HashMap<u64, CachedFile>,
    /// The files, in the order in which they will be dropped. Some of them no longer exist.
    order: VecDeque<(u64, u64)>,
    /// Files that were read once.
    remembered: HashSet<u64>,
    /// The chunks, in the order in which their eviction is considered. Some of them no longer exist.
    clock: VecDeque<ClockEntry>,
    /// The number of the last entry.
    tickets: u64,
    /// The index in `order` of the next file to check (`tend`).
    tended: usize,
    /// The bytes of all chunks, and the overhead of files.
    used: usize,
    mapped: usize,
    numbers: u64,
}

/// The cache of a mount.
pub struct DataCache {
    budget: usize,
    state: Mutex<CacheState>,
    /// Signals that a chunk is no longer busy.
    settled: Condvar,
}

/// What to do about a read whose chunks are not all shown.
#[derive(Default)]
pub struct FillPlan {
    /// Chunks to read from libcephfs. They are busy until [`DataCache::filled`].
    pub runs: Vec<Range<usize>>,
    /// Chunks to read in advance.
    pub ahead: Option<Range<usize>>,
    /// Chunks to evict before that.
    pub victims: Vec<Victim>,
}

impl DataCache {
    /// An empty cache with a budget of this many bytes; 0: no cache.
    pub fn new(budget: usize) -> DataCache {
        DataCache { budget, state: Mutex::default(), settled: Condvar::new() }
    }

    /// Whether the cache is enabled.
    pub fn is_on(&self) -> bool {
        self.budget > 0
    }

    /// Notes a read of a file. Returns whether the file was read before.
    pub fn is_read_again(&self, ino: u64) -> bool {
        let mut state = lock(&self.state);
        if state.files.contains_key(&ino) || state.remembered.contains(&ino) {
            return true;
        }
        if state.remembered.len() >= MOST_REMEMBERED {
            state.remembered.clear();
        }
        state.remembered.insert(ino);
        false
    }

    /// The memory of a file, if it has any, for a client that asks for data.
    pub fn memory(&self, ino: u64) -> Option<Arc<FileMemory>> {
        lock(&self.state).files.get_mut(&ino).map(|file| {
            file.used = Instant::now();
            file.memory.clone()
        })
    }

    /// Gives a file of this size new memory, which replaces its previous memory. Fails if the files in use leave no room.
    pub fn make_room(&self, ino: u64, size: u64) -> io::Result<Arc<FileMemory>> {
        let chunks = usize::try_from(size).map_or(usize::MAX, |size| (size / CHUNK + 1).next_multiple_of(ROOM_UNIT));
        if chunks > MOST_CHUNKS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut gone = Vec::new();
        let has_room = {
            let mut state = lock(&self.state);
            gone.extend(state.drop_file(ino));
            state.drop_unused(chunks, &mut gone)
        };
        // Clients may keep this memory mapped, but find no data there. A thread that is filling a chunk removes that chunk itself.
        gone.drain(..).for_each(|memory| memory.pages.remove(0, memory.pages.chunks()));
        if !has_room {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (readable, pages) = DataPages::create(chunks)?;
        let memory = {
            let mut state = lock(&self.state);
            state.numbers += 1;
            let memory = Arc::new(FileMemory { ino, number: state.numbers, pages, readable });
            // Another thread may have added memory for this file meanwhile.
            gone.extend(state.drop_file(ino));
            if state.order.len() > 2 * MOST_FILES {
                let CacheState { order, files, .. } = &mut *state;
                order.retain(|(ino, number)| files.get(ino).is_some_and(|file| file.memory.number == *number));
            }
            state.order.push_back((ino, memory.number));
            state.mapped += chunks;
            state.used += memory.overhead();
            let (chunks, pattern, used) = (HashMap::new(), ReadPattern::default(), Instant::now());
            let file = CachedFile { memory: memory.clone(), chunks, pattern, used };
            state.files.insert(ino, file);
            state.remembered.remove(&ino);
            memory
        };
        gone.iter().for_each(|memory| memory.pages.remove(0, memory.pages.chunks()));
        Ok(memory)
    }

    /// Removes the chunks of all versions but this one: a process that has just opened the file must not see its earlier contents. Waits for chunks
    /// that are being filled or removed. Returns whether that succeeded in time.
    pub fn forget_old(&self, memory: &Arc<FileMemory>, version: u64) -> bool {
        let mut state = lock(&self.state);
        let (mut victims, mut busy, mut freed) = (Vec::new(), Vec::new(), 0);
        let Some(file) = state.file(memory) else { return true };
        for (&chunk, held) in &mut file.chunks {
            if held.state == ChunkState::Busy {
                busy.push(chunk);
            } else if held.version != version {
                held.state = ChunkState::Busy;
                freed += std::mem::take(&mut held.bytes);
                victims.push(Victim::new(memory, chunk));
            }
        }
        state.used -= freed;
        drop(state);
        self.evict(victims);
        let until = Instant::now() + LONGEST_WAIT;
        let mut state = lock(&self.state);
        while state.file(memory).is_some_and(|file| busy.iter().any(|chunk| file.is_busy(&(*chunk..=*chunk)))) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            state = self.settled.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        true
    }

    /// Plans a read of `length` bytes, more than 0, whose chunks are not all shown. `None`: read from libcephfs, without the cache.
    pub fn plan(&self, memory: &FileMemory, version: u64, offset: u64, length: usize) -> Option<FillPlan> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(length)?;
        // The file ends before its memory does, so chunks beyond the end of the file are not needed.
        let wanted = start / CHUNK..=(end.checked_sub(1)? / CHUNK).min(memory.pages.chunks() - 1);
        if wanted.is_empty() {
            return None;
        }
        let mut state = lock(&self.state);
        let until = Instant::now() + LONGEST_WAIT;
        while state.file(memory)?.is_busy(&wanted) {
            let left = until.checked_duration_since(Instant::now())?;
            state = self.settled.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let file = state.file(memory)?;
        let ahead = file.pattern.next(&wanted, memory.pages.chunks());
        let most = self.budget / CHUNK;
        let mut missing = Vec::new();
        for chunk in wanted {
            match file.chunks.get_mut(&chunk) {
                Some(held) if held.version == version => {
                    held.state = ChunkState::Shown;
                    memory.pages.show(chunk, version);
                }
                _ => missing.push(chunk),
            }
        }
        // Chunks that are read for the first time may not be read again.
        let is_worth = missing.iter().filter(|chunk| file.pattern.is_asked_again(**chunk, most));
        if is_worth.count() < missing.len() {
            return None;
        }
        let mut plan =
            FillPlan { ahead: ahead.filter(|ahead| ahead.len() * CHUNK <= self.budget / 8), ..FillPlan::default() };
        let has_room = state.claim(memory, &missing, self.budget, &mut plan);
        drop(state);
        self.evict(std::mem::take(&mut plan.victims));
        has_room.then_some(plan)
    }

    /// Claims chunks to read in advance: chunks that are absent, but were read before.
    pub fn claim_ahead(&self, memory: &FileMemory, version: u64, wanted: Range<usize>) -> Option<FillPlan> {
        let mut state = lock(&self.state);
        let file = state.file(memory)?;
        let is_there = |chunk: &usize| {
            file.chunks.get(chunk).is_some_and(|held| held.state == ChunkState::Busy || held.version == version)
        };
        let is_wanted =
            |chunk: &usize| *chunk < memory.pages.chunks() && !is_there(chunk) && file.pattern.was_asked(*chunk);
        let missing: Vec<_> = wanted.filter(is_wanted).collect();
        let mut plan = FillPlan::default();
        let has_room = state.claim(memory, &missing, self.budget, &mut plan);
        drop(state);
        self.evict(std::mem::take(&mut plan.victims));
        has_room.then_some(plan)
    }

    /// Notes that claimed chunks are filled from the file. `version` is the file's version before the read, `length` the total of the bytes; `None`
    /// if the read failed.
    pub fn filled(&self, memory: &FileMemory, run: Range<usize>, version: u64, length: Option<usize>) {
        let mut state = lock(&self.state);
        let Some(file) = state.file(memory) else {
            // The file was dropped while the chunks were filled.
            run.for_each(|chunk| memory.take_away(chunk));
            self.settled.notify_all();
            return;
        };
        let marker = file.pattern.marker();
        let (mut unused, mut is_new) = (0, Vec::new());
        for (index, chunk) in run.enumerate() {
            let Some(length) = length else {
                memory.take_away(chunk);
                unused += CHUNK;
                file.chunks.remove(&chunk);
                continue;
            };
            let length = length.saturating_sub(index * CHUNK).min(CHUNK);
            memory.pages.end(chunk, length);
            let bytes = length.next_multiple_of(PAGE);
            unused += CHUNK - bytes;
            let state = if marker == Some(chunk) { ChunkState::Hidden } else { ChunkState::Shown };
            if state == ChunkState::Shown {
                memory.pages.show(chunk, version);
            }
            let Some(held) = file.chunks.get_mut(&chunk) else { continue };
            (held.version, held.bytes, held.state) = (version, bytes, state);
            if held.ticket == 0 {
                is_new.push(chunk);
            }
        }
        state.used -= unused;
        is_new.into_iter().for_each(|chunk| state.enqueue(memory, chunk));
        self.settled.notify_all();
    }
}

impl CacheState {
    /// The cached file of this memory, unless the file has other memory by now.
    fn file(&mut self, memory: &FileMemory) -> Option<&mut CachedFile> {
        self.files.get_mut(&memory.ino).filter(|file| file.memory.number == memory.number)
    }

    /// Drops the oldest unused files, as many as necessary for one more file. Returns whether there is room.
    fn drop_unused(&mut self, chunks: usize, gone: &mut Vec<Arc<FileMemory>>) -> bool {
        let mut looked_at = 0;
        while self.files.len() >= MOST_FILES || self.mapped + chunks > MOST_CHUNKS_MAPPED {
            let Some((oldest, number)) = self.order.pop_front() else { return false };
            let Some(file) = self.files.get(&oldest).filter(|file| file.memory.number == number) else { continue };
            if file.used.elapsed() >= UNUSED {
                gone.extend(self.drop_file(oldest));
                continue;
            }
            self.order.push_back((oldest, number));
            looked_at += 1;
            if looked_at == LOOKED_AT {
                return false;
            }
        }
        true
    }

    fn drop_file(&mut self, ino: u64) -> Option<Arc<FileMemory>> {
        let file = self.files.remove(&ino)?;
        // A client that is copying from one of these chunks notices the change.
        file.chunks.keys().for_each(|chunk| file.memory.pages.begin(*chunk));
        self.used -= file.chunks.values().map(|held| held.bytes).sum::<usize>() + file.memory.overhead();
        self.mapped -= file.memory.pages.chunks();
        Some(file.memory)
    }
}

impl CachedFile {
    fn is_busy(&self, wanted: &RangeInclusive<usize>) -> bool {
        let is_busy = |chunk| self.chunks.get(&chunk).is_some_and(|held| held.state == ChunkState::Busy);
        wanted.clone().any(is_busy)
    }
}

impl FileMemory {
    /// The bytes that the file takes besides its chunks. All pages of the entries count, since clients that look for absent chunks make the kernel
    /// allocate them.
    fn overhead(&self) -> usize {
        self.pages.entries_size().next_multiple_of(PAGE) + FILE_OVERHEAD
    }

    /// Removes a chunk that no other thread is changing.
    fn take_away(&self, chunk: usize) {
        self.pages.begin(chunk);
        self.pages.remove(chunk, 1);
    }
}

#[cfg(test)]
mod tests;
