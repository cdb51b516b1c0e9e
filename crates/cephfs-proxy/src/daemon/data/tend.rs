//! Frees memory that a client has made the kernel allocate. A client that reads an absent chunk makes the kernel put zeros there. A malicious
//! client could fill the host's memory in this way.

use super::{CHUNK, CacheState, CachedFile, ChunkState, DataCache};
use crate::daemon::lock;

/// How many files are checked each time.
const AT_ONCE: usize = 64;
/// An excess up to this size is ignored: a search would cost more than it frees.
const TOLERANCE: usize = CHUNK;

impl DataCache {
    /// Checks some of the files. Returns the bytes in use.
    pub fn tend(&self) -> usize {
        let mut state = lock(&self.state);
        let CacheState { order, files, tended, .. } = &mut *state;
        for _ in 0..AT_ONCE.min(order.len()) {
            *tended = (*tended + 1) % order.len();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_pages::DataPages;

    #[test]
    fn memory_that_a_client_has_made_is_taken_back() {
        let cache = DataCache::new(64 << 20);
        let memory = cache.make_room(7, 100 * CHUNK as u64).unwrap();
        assert!(cache.plan(&memory, 0, 0, CHUNK).is_none(), "the first time");
        let plan = cache.plan(&memory, 0, 0, CHUNK).unwrap();
        for run in plan.runs {
            // SAFETY: the chunk is claimed.
            unsafe { memory.pages.chunk(run.start).write_bytes(1, CHUNK) };
            cache.filled(&memory, run, 0, Some(CHUNK));
        }
        let blocks = || rustix::fs::fstat(&memory.readable).unwrap().st_blocks as usize * 512;
        let theirs = DataPages::map(&memory.readable, memory.pages.chunks()).unwrap();
        for page in 0..theirs.chunks() * (CHUNK / 4096) {
            // SAFETY: within the mapping.
            unsafe { theirs.chunk(0).add(page * 4096).read_volatile() };
        }
        assert!(blocks() >= 100 * CHUNK, "{} bytes", blocks());
        cache.tend();
        assert!(blocks() <= 2 * CHUNK, "{} bytes", blocks());
        assert_eq!(theirs.count(0, 0, CHUNK), Some(CHUNK), "what the cache has put there stays");
    }
}
