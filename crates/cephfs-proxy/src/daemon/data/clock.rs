//! Which chunks are evicted. Clients read without the daemon, so it does not see which chunks they use. It hides a chunk before it
//! evicts it: a client that still uses the chunk asks, and the chunk is shown again. One that nobody has asked for when its turn comes
//! again goes.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{CHUNK, CacheState, ChunkState, DataCache, FileMemory, FillPlan, HeldChunk};
use crate::daemon::lock;

/// The most chunks that are looked at to make room, and some for each that needs room.
const AT_ONCE: usize = 64;
/// After so many more entries, the clock is searched for those of chunks that are gone.
const LOOK_FOR_GONE: usize = 4096;

/// For how long a chunk is hidden at least before it goes. So more chunks in use than there is room for do not take turns: those that find no room are
/// read from libcephfs.
const GRACE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// A chunk, by its file and the file's memory.
pub struct ClockEntry {
    pub ino: u64,
    pub number: u64,
    pub chunk: usize,
    /// The same as the chunk's, unless the chunk is gone.
    pub ticket: u64,
    /// When it was hidden, if it still is.
    pub hidden: Option<Instant>,
}

/// A chunk that is to be removed.
pub struct Victim {
    memory: Arc<FileMemory>,
    chunk: usize,
}

impl Victim {
    pub fn new(memory: &Arc<FileMemory>, chunk: usize) -> Victim {
        Victim { memory: memory.clone(), chunk }
    }
}

impl CacheState {
    /// Makes these chunks busy, and takes room for them. Returns whether there is enough.
    pub fn claim(&mut self, memory: &FileMemory, missing: &[usize], budget: usize, plan: &mut FillPlan) -> bool {
        if !self.take_room(missing.len() * CHUNK, budget, plan) {
            return false;
        }
        let mut freed = 0;
        let Some(file) = self.file(memory) else {
            self.used -= missing.len() * CHUNK;
            return false;
        };
        for &chunk in missing {
            let busy = HeldChunk { version: 0, bytes: CHUNK, state: ChunkState::Busy, ticket: 0 };
            match file.chunks.get_mut(&chunk) {
                // It was just chosen as a victim, or another thread fills it.
                Some(held) if held.state == ChunkState::Busy => {
                    freed += CHUNK;
                    continue;
                }
                Some(held) => {
                    freed += held.bytes;
                    *held = HeldChunk { ticket: held.ticket, ..busy };
                    // A client that may read the file only from now on must not see what was in the chunk before.
                    memory.take_away(chunk);
                }
                None => {
                    file.chunks.insert(chunk, busy);
                    memory.pages.begin(chunk);
                }
            }
            match plan.runs.last_mut() {
                Some(Range { end, .. }) if *end == chunk => *end += 1,
                _ => plan.runs.push(chunk..chunk + 1),
            }
        }
        self.used -= freed;
        true
    }

    /// Adds a chunk to the clock.
    pub fn enqueue(&mut self, memory: &FileMemory, chunk: usize) {
        let (ino, number) = (memory.ino, memory.number);
        self.tickets += 1;
        let ticket = self.tickets;
        if let Some(held) = self.file(memory).and_then(|file| file.chunks.get_mut(&chunk)) {
            held.ticket = ticket;
            self.clock.push_back(ClockEntry { ino, number, chunk, ticket, hidden: None });
        }
        let held: usize = if self.clock.len().is_multiple_of(LOOK_FOR_GONE) {
            self.files.values().map(|f| f.chunks.len()).sum()
        } else {
            usize::MAX / 2
        };
        if self.clock.len() > 2 * held {
            let mut clock = std::mem::take(&mut self.clock);
            clock.retain(|entry| self.held(entry).is_some());
            self.clock = clock;
        }
    }

    /// The chunk of an entry, unless it is gone.
    fn held(&mut self, entry: &ClockEntry) -> Option<(&Arc<FileMemory>, &mut HeldChunk)> {
        let file = self.files.get_mut(&entry.ino).filter(|file| file.memory.number == entry.number)?;
        let held = file.chunks.get_mut(&entry.chunk).filter(|held| held.ticket == entry.ticket)?;
        Some((&file.memory, held))
    }

    /// Takes so many bytes of the budget, and chooses chunks to evict for them.
    fn take_room(&mut self, bytes: usize, budget: usize, plan: &mut FillPlan) -> bool {
        let now = Instant::now();
        // Each chunk is hidden once before it goes.
        for _ in 0..(2 * self.clock.len()).min(AT_ONCE + 2 * bytes / CHUNK) {
            if self.used + bytes <= budget {
                break;
            }
            let Some(mut entry) = self.clock.pop_front() else { break };
            let Some((memory, held)) = self.held(&entry) else { continue };
            match held.state {
                ChunkState::Shown => {
                    memory.pages.hide(entry.chunk);
                    held.state = ChunkState::Hidden;
                    entry.hidden = Some(now);
                    self.clock.push_back(entry);
                }
                ChunkState::Busy => self.clock.push_back(entry),
                ChunkState::Hidden if entry.hidden.is_none_or(|since| now - since < GRACE) => {
                    entry.hidden.get_or_insert(now);
                    self.clock.push_back(entry);
                }
                ChunkState::Hidden => {
                    let victim = Victim::new(memory, entry.chunk);
                    held.state = ChunkState::Busy;
                    let freed = std::mem::take(&mut held.bytes);
                    self.used -= freed;
                    plan.victims.push(victim);
                }
            }
        }
        let has_room = self.used + bytes <= budget;
        if has_room {
            self.used += bytes;
        }
        has_room
    }
}

impl DataCache {
    /// Removes chunks that were chosen.
    pub fn evict(&self, victims: Vec<Victim>) {
        for Victim { memory, chunk } in victims {
            memory.take_away(chunk);
            if let Some(file) = lock(&self.state).file(&memory) {
                file.chunks.remove(&chunk);
            }
        }
        self.settled.notify_all();
    }
}
