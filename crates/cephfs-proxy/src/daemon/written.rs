//! Writes to an open file: their flushes, and their marks, by which a client can tell whether anybody else has changed the file.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{handles::File, lock};
use crate::wire::ChangeMark;

/// For how long the daemon asks no metadata server about a file that others have open. The time is doubled for each refusal, up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often to check whether a metadata server has given back exclusive access to a file.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// The most ticks that a repeated write may take: 10 s, far less than the cluster waits for a delegation (`delegations::RECALL_LIMIT`).
const MOST_TICKS: u32 = 40;

/// What was written to an open file.
#[derive(Default)]
pub struct FileWrites {
    /// Locked during a write whose mark is wanted, so that the next write does not begin before the mark is read.
    order: Mutex<Option<RightRefused>>,
    /// Whether something is not flushed yet.
    unflushed: AtomicBool,
    /// The error of a flush that the client has not requested. The client's next flush returns the error. Locked during a flush.
    error: Mutex<Option<i32>>,
}

/// A metadata server has refused exclusive access to the file.
struct RightRefused {
    /// No metadata server is asked again before this time.
    until: Instant,
    pause: Duration,
}

/// The writes that are being repeated: for each file, for how many ticks. Meanwhile, the daemon holds a delegation of the file. If libcephfs delays
/// the write, for instance because somebody makes a snapshot at that moment, everybody else waits for the file. The write cannot be cancelled, and
/// must not come after a write by somebody else, so the process has to end.
#[derive(Default)]
pub struct Rewrites(Mutex<HashMap<usize, u32>>);

impl Rewrites {
    /// Runs `write`, which writes to a file.
    fn during<T>(&self, file: usize, write: impl FnOnce() -> T) -> T {
        lock(&self.0).insert(file, 0);
        let result = write();
        lock(&self.0).remove(&file);
        result
    }

    /// Counts a tick. Returns whether a write takes too long. The limit is in ticks, not in time, since time also passes while the process is
    /// stopped.
    pub fn tick(&self) -> bool {
        let mut under_way = lock(&self.0);
        under_way.values_mut().for_each(|ticks| *ticks += 1);
        under_way.values().any(|ticks| *ticks > MOST_TICKS)
    }
}

/// A file that nobody else had open when this value was created. Other writes through the file wait.
pub struct Alone<'f> {
    file: &'f File,
    /// The mark of the file's last change at that time.
    pub before: ChangeMark,
    _order: MutexGuard<'f, Option<RightRefused>>,
}

impl Alone<'_> {
    /// Runs `write`, which repeats a write to the file. The delegation is held throughout, so that nobody can change the file between the
    /// comparison and the write. `None` if others have the file open, or may have.
    pub fn write_again<T>(&self, under_way: &Rewrites, write: impl FnOnce() -> T) -> Option<T> {
        let file = self.file;
        file.mount.exclusively(file, || under_way.during(file.raw as usize, write))
    }

    /// The mark of a write that was made since this value was created; `None` if anybody else may have changed the file since. libcephfs does not
    /// give up the right to buffer data during a write. So if it has exclusive access to the file before and after the write, it has had this
    /// access in between.
    pub fn after_write(&self) -> Option<ChangeMark> {
        let after = self.file.mount.exclusively(self.file, || self.file.mark())?;
        (after.version == self.before.version.wrapping_add(1)).then_some(after)
    }
}

impl File {
    /// Locks the file's writes, if nobody else has the file open.
    pub fn alone(&self) -> Option<Alone<'_>> {
        let mut order = lock(&self.written.order);
        let mark = || self.mount.exclusively(self, || self.mark());
        let mut before = mark();
        if before.is_none() {
            if order.as_ref().is_some_and(|refused| Instant::now() < refused.until) {
                return None;
            }
            // Setting attributes may have cost the daemon rights to the file. The rights come back with the attributes, or a little later.
            self.mount.ask(self.inode);
            before = (0..LOOKS).find_map(|look| {
                thread::sleep(BETWEEN_LOOKS * look.min(1));
                mark()
            });
            let pause = order.as_ref().map_or(PAUSE, |refused| (refused.pause * 2).min(LONGEST_PAUSE));
            *order = before.is_none().then(|| RightRefused { until: Instant::now() + pause, pause });
        } else {
            *order = None;
        }
        before.filter(ChangeMark::is_known).map(|before| Alone { file: self, before, _order: order })
    }

    /// The mark of the file's last change.
    pub fn mark(&self) -> ChangeMark {
        self.mount.mark(self.inode)
    }

    /// Notes that a write has ended.
    pub fn has_written(&self) {
        self.written.unflushed.store(true, Ordering::SeqCst);
    }

    /// Flushes what was written, without a request of the client. Returns whether all data is on disk, as far as is known.
    pub fn flush(&self) -> bool {
        let mut error = lock(&self.written.error);
        if self.written.unflushed.swap(false, Ordering::SeqCst) {
            let result = self.sync_now();
            *error = error.or((result < 0).then_some(result));
        }
        error.is_none()
    }

    /// Flushes the file. Returns the error of an earlier flush that the client does not know of.
    pub fn sync(&self) -> i32 {
        let mut error = lock(&self.written.error);
        self.written.unflushed.store(false, Ordering::SeqCst);
        let result = self.sync_now();
        error.take().unwrap_or(result)
    }

    /// Calls `ceph_ll_fsync` for data and attributes. If called for data only, libcephfs does not write the size, and appended bytes would be lost
    /// with the daemon. libcephfs also returns 0 if the cluster has evicted the daemon and the writes are lost, so this function checks for an
    /// eviction.
    fn sync_now(&self) -> i32 {
        // SAFETY: the file is held.
        let result = unsafe { (self.mount.ceph().ceph_ll_fsync)(self.mount.raw(), self.raw, 0) };
        if result < 0 { result } else { self.mount.known().min(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_is_made_again_takes_too_long_only_while_it_is_under_way() {
        let writes = Rewrites::default();
        let ticks = |count| (0..count).map(|_| writes.tick()).filter(|is_too_long| *is_too_long).count();
        assert_eq!(ticks(MOST_TICKS * 2), 0);
        writes.during(1, || {
            assert_eq!(ticks(MOST_TICKS), 0);
            writes.during(2, || assert_eq!(ticks(1), 1));
        });
        assert_eq!(writes.during(1, || ticks(1)), 0);
    }
}
