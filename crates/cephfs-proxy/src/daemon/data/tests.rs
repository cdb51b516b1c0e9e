//! The cache without libcephfs: chunks hold zeros.

use super::*;

/// What a small file takes besides its chunks.
const OVERHEAD: usize = PAGE + FILE_OVERHEAD;

const INO: u64 = 7;

fn cache(chunks: usize) -> (DataCache, Arc<FileMemory>) {
    let cache = DataCache::new(chunks * CHUNK + OVERHEAD);
    let memory = cache.make_room(INO, 10 * CHUNK as u64).unwrap();
    (cache, memory)
}

/// The plan of a read that has been made before.
fn plan_again(cache: &DataCache, memory: &FileMemory, version: u64, offset: u64, length: usize) -> Option<FillPlan> {
    // Up to three times, in case the cache has just forgotten the earlier reads.
    (0..3).find_map(|_| cache.plan(memory, version, offset, length))
}

/// Reads a chunk as a client and a worker do. Returns `None` if the client finds the chunk, otherwise how many chunks the worker fills.
fn read(cache: &DataCache, memory: &FileMemory, version: u64, chunk: usize) -> Option<usize> {
    let offset = (chunk * CHUNK) as u64;
    if memory.pages.count(version, offset, CHUNK).is_some() {
        return None;
    }
    let runs = plan_again(cache, memory, version, offset, CHUNK).unwrap().runs;
    let filled = runs.iter().map(ExactSizeIterator::len).sum();
    for run in runs {
        let length = run.len() * CHUNK;
        cache.filled(memory, run, version, Some(length));
    }
    assert_eq!(memory.pages.count(version, offset, CHUNK), Some(CHUNK));
    Some(filled)
}

#[test]
fn a_chunk_that_a_client_still_uses_is_not_evicted() {
    let (cache, memory) = cache(4);
    let mut read = |chunk| read(&cache, &memory, 0, chunk);
    assert_eq!([0, 1, 2, 3].map(&mut read), [Some(1); 4]);
    assert_eq!([0, 1, 2, 3].map(&mut read), [None; 4]);
    assert_eq!(read(4), Some(1), "in the place of the first");
    assert_eq!(read(1), Some(0), "it was hidden, and is shown again");
    assert_eq!(read(5), Some(1));
    assert_eq!(read(1), Some(0), "hidden again, but there");
    assert_eq!(read(2), Some(1), "it was not used");
    assert_eq!(cache.tend(), 4 * CHUNK + OVERHEAD);
}

#[test]
fn chunks_of_an_old_version_are_filled_anew_or_forgotten() {
    let (cache, memory) = cache(4);
    assert_eq!(
        [0, 0, 2, 2, 4].map(|version| read(&cache, &memory, version, 0)),
        [Some(1), None, Some(1), None, Some(1)]
    );
    assert_eq!(cache.tend(), CHUNK + OVERHEAD);
    cache.forget_old(&memory, 4);
    assert_eq!(read(&cache, &memory, 4, 0), None);
    cache.forget_old(&memory, 6);
    assert_eq!(memory.pages.count(4, 0, 1), None);
    assert_eq!(cache.tend(), OVERHEAD);
}

#[test]
fn a_file_that_gets_other_memory_leaves_nothing() {
    let (cache, memory) = cache(4);
    read(&cache, &memory, 0, 0);
    let plan = plan_again(&cache, &memory, 0, CHUNK as u64, CHUNK).unwrap();
    let other = cache.make_room(INO, 0).unwrap();
    assert_eq!(memory.pages.count(0, 0, 1), None);
    for run in plan.runs {
        cache.filled(&memory, run, 0, Some(CHUNK));
    }
    assert_eq!(memory.pages.count(0, CHUNK as u64, 1), None, "it was filled too late");
    assert!(plan_again(&cache, &memory, 0, 0, CHUNK).is_none());
    assert_eq!(cache.memory(INO).map(|memory| memory.number), Some(other.number));
    assert_eq!(cache.tend(), OVERHEAD);
}

#[test]
fn no_more_is_filled_than_there_is_room_for() {
    let (cache, memory) = cache(4);
    assert_eq!(memory.pages.chunks(), ROOM_UNIT);
    assert!(plan_again(&cache, &memory, 0, (ROOM_UNIT * CHUNK) as u64, 1).is_none(), "beyond the memory");
    assert!(plan_again(&cache, &memory, 0, 0, 5 * CHUNK).is_none(), "more than the budget");
    let plan = plan_again(&cache, &memory, 0, ((ROOM_UNIT - 1) * CHUNK) as u64, 3 * CHUNK).unwrap();
    assert_eq!((plan.runs.len(), plan.runs.first()), (1, Some(&(ROOM_UNIT - 1..ROOM_UNIT))));
    cache.filled(&memory, ROOM_UNIT - 1..ROOM_UNIT, 0, None);
    assert_eq!(cache.tend(), OVERHEAD, "it could not be read");
}

#[test]
fn a_file_is_worth_it_when_it_is_read_again() {
    let (cache, _memory) = cache(4);
    assert!(cache.is_read_again(INO), "it has memory");
    assert_eq!([8, 9, 8].map(|ino| cache.is_read_again(ino)), [false, false, true]);
}

#[test]
fn a_file_in_use_keeps_its_memory() {
    let cache = DataCache::new(64 << 20);
    let age = |ino| lock(&cache.state).files.get_mut(&ino).unwrap().used -= UNUSED;
    let files = MOST_FILES as u64;
    (0..files).for_each(|ino| drop(cache.make_room(ino, 1).unwrap()));
    assert!((files..files + 5).all(|ino| cache.make_room(ino, 1).is_err()), "all are in use");
    assert!(cache.make_room(3, 1).is_ok(), "it has room in its own place");
    [3, 17].into_iter().for_each(age);
    assert!(cache.memory(17).is_some(), "it is used again");
    let kept = (0..8).find(|_| cache.make_room(files, 1).is_ok());
    assert!(kept.is_some() && cache.memory(3).is_none() && cache.memory(17).is_some());
    assert!(cache.make_room(files + 1, 1).is_err(), "all others are still in use");
    assert_eq!(lock(&cache.state).files.len(), MOST_FILES);
}

#[test]
fn who_gets_the_memory_only_now_finds_nothing_of_older_versions() {
    let (cache, memory) = cache(4);
    let theirs = DataPages::map(&memory.readable, memory.pages.chunks()).unwrap();
    // SAFETY: within the mapping.
    let last = |chunk: usize| unsafe { theirs.chunk(chunk).add(CHUNK - 1).read_volatile() };
    for chunk in [0, 1] {
        let plan = plan_again(&cache, &memory, 0, (chunk * CHUNK) as u64, CHUNK).unwrap();
        for run in plan.runs {
            // SAFETY: the chunk is claimed.
            unsafe { memory.pages.chunk(run.start).write_bytes(1, CHUNK) };
            cache.filled(&memory, run, 0, Some(CHUNK));
        }
    }
    assert_eq!((last(0), last(1)), (1, 1));
    let plan = plan_again(&cache, &memory, 2, 0, CHUNK).unwrap();
    assert_eq!(last(0), 0, "the file may be shorter now");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            plan.runs.into_iter().for_each(|run| cache.filled(&memory, run, 2, None));
        });
        assert!(cache.forget_old(&memory, 2));
        assert_eq!(cache.tend(), OVERHEAD, "it waits for the chunk that is being filled");
    });
    assert_eq!(last(1), 0, "of an older version");
}
