//! Chooses the chunks to evict (a clock algorithm). Clients read without a request, so the daemon does not see which chunks they use. So the daemon
//! hides a chunk before it evicts the chunk. If a client still uses a hidden chunk, the client asks for it, and the daemon shows the chunk again.
//! If no client has asked for a hidden chunk by its next turn, the chunk is evicted.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{CHUNK, CacheState, ChunkState, DataCache, FileMemory, FillPlan, HeldChunk};
use crate::daemon::lock;

/// The most chunks that are examined to make room, besides a few for each chunk that needs room.
const AT_ONCE: usize = 64;
/// After this many new entries, the clock is searched for entries whose chunks are gone.
const LOOK_FOR_GONE: usize = 4096;

/// The shortest time for which a chunk is hidden before its eviction. If the chunks in use exceed the room, this keeps them from evicting one
/// another: chunks without room are read from libcephfs.
const GRACE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// An entry of the clock: a chunk, by its file and the file's memory.
pub struct ClockEntry {
    pub ino: u64,
    pub number: u64,
    pub chunk: usize,
    /// Equal to the ticket of the chunk, unless the chunk is gone.
    pub ticket: u64,
    /// When the chunk was hidden, if it is still hidden.
    pub hidden: Option<Instant>,
}

/// A chunk to be evicted.
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
    /// Marks these chunks as busy, and reserves room for them. Returns whether there is enough room.
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
                // The chunk was just chosen as a victim, or another thread fills it.
                Some(held) if held.state == ChunkState::Busy => {
                    freed += CHUNK;
                    continue;
                }
                Some(held) => {
                    freed += held.bytes;
                    *held = HeldChunk { ticket: held.ticket, ..busy };
                    // A client that gets access to the file only now must not see the previous contents of the chunk.
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

    /// Takes this many bytes of the budget, and chooses chunks to evict for them.
    fn take_room(&mut self, bytes: usize, budget: usize, plan: &mut FillPlan) -> bool {
        let now = Instant::now();
        // The loop meets each chunk twice: first to hide it, then to evict it.
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
    /// Removes the chosen chunks.
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
