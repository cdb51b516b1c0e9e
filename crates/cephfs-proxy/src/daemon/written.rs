//! Writes to an open file: their marks, by which a client can tell whether anybody else has changed the file, and their flushes.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{handles::File, lock};
use crate::wire::ChangeMark;

/// How long a metadata server is not asked about a file that others have open.
const PAUSE: Duration = Duration::from_secs(1);
/// How often to look whether a metadata server has given back the right to have a file alone.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// What was written to an open file.
#[derive(Default)]
pub struct FileWrites {
    /// Held during a write whose mark is wanted, so that the next one does not begin before the mark is read. Until when no metadata server is
    /// asked for the right to have the file alone.
    order: Mutex<Option<Instant>>,
    /// Not all is flushed.
    unflushed: AtomicBool,
    /// The error of a flush that the client has not asked for: its next one tells it. Held during a flush.
    error: Mutex<Option<i32>>,
}

/// A file that nobody else had open when this was made. Other writes through the file wait.
pub struct Alone<'f> {
    file: &'f File,
    /// The mark of its last change then.
    pub before: ChangeMark,
    _order: MutexGuard<'f, Option<Instant>>,
}

impl Alone<'_> {
    /// The mark of a write that was made since; `None` if anybody else may have changed the file since. libcephfs does not give up the right
    /// to buffer data during a write, so a file that it has alone before and after, it has had in between.
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
            if order.is_some_and(|pause| Instant::now() < pause) {
                return None;
            }
            // Attributes that were set may have cost rights to the file. They come back with the attributes, or a little later.
            self.mount.ask(self.inode);
            before = (0..LOOKS).find_map(|look| {
                thread::sleep(BETWEEN_LOOKS * look.min(1));
                mark()
            });
            *order = before.is_none().then(|| Instant::now() + PAUSE);
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

    /// Flushes what was written, without the client's asking. Returns whether all is on disk, as far as is known.
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

    /// `ceph_ll_fsync` of data and attributes. With data only, libcephfs does not write the size, and appended bytes
    /// would not survive the daemon. libcephfs also returns 0 if the cluster has evicted the daemon and the writes are
    /// lost; this checks for that.
    fn sync_now(&self) -> i32 {
        // SAFETY: the file is held.
        let result = unsafe { (self.mount.ceph().ceph_ll_fsync)(self.mount.raw(), self.raw, 0) };
        if result < 0 { result } else { self.mount.known().min(0) }
    }
}
