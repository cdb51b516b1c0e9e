//! Takes back memory that a client has made. To read where the cache has nothing makes the kernel put zeros there, and a client with bad intentions
//! could fill the host's memory so.

use super::{CHUNK, CacheState, CachedFile, ChunkState, DataCache};
use crate::daemon::lock;

/// How many files are looked at each time.
const AT_ONCE: usize = 64;
/// How much more than it should be is normal: chunks that are being filled or removed.
const TOLERANCE: usize = 1 << 20;

impl DataCache {
    /// Looks after some of the files. Returns the bytes in use.
    pub fn tend(&self) -> usize {
        let mut state = lock(&self.state);
        for _ in 0..AT_ONCE.min(state.order.len()) {
            let CacheState { order, files, tended, .. } = &mut *state;
            *tended = (*tended + 1) % order.len().max(1);
            let Some((ino, number)) = order.get(*tended) else { break };
            if let Some(file) = files.get(ino).filter(|file| file.memory.number == *number) {
                file.tend();
            }
        }
        state.used
    }
}

impl CachedFile {
    fn tend(&self) {
        let Ok(stat) = rustix::fs::fstat(&self.memory.readable) else { return };
        let held: usize = self.chunks.values().map(|held| held.bytes).sum();
        if (stat.st_blocks as usize).saturating_mul(512) <= held + TOLERANCE + self.memory.pages.entries_size() {
            return;
        }
        let (pages, mut next) = (&self.memory.pages, 0);
        let mut chunks: Vec<_> = self.chunks.iter().collect();
        chunks.sort_by_key(|(chunk, _)| **chunk);
        for (&chunk, held) in chunks {
            pages.remove(next, chunk - next);
            next = chunk + 1;
            if held.state != ChunkState::Busy {
                pages.remove_tail(chunk, held.bytes.min(CHUNK));
            }
        }
        pages.remove(next, pages.chunks() - next);
    }
}
