//! Keeps what was written to a file until Ceph has it, so that it can be written again if the daemon goes away.
//!
//! That must not undo what anybody else has written. The daemon marks each write with CephFS's version of the file, if nobody else could change the
//! file at that time. Each change increments the version. So if the kept writes have versions in a row, nobody has changed the file between
//! them. The next daemon's mark shows whether somebody has changed it since (`WriteLog::allows`).

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use cephfs_proxy::{
    layout::{KEPT_OVERHEAD, MOST_KEPT},
    wire::{ChangeMark, Opened},
};

/// How many daemons may go away while they restore a file. After that, the file itself may be what ends them.
const MOST_TRIES: u32 = 3;

/// The bytes that are kept of all files.
static ALL: AtomicUsize = AtomicUsize::new(0);
/// How many logs there were.
static LOGS: AtomicU64 = AtomicU64::new(0);

/// A write that was answered and that Ceph may not have.
#[derive(Debug)]
struct KeptWrite {
    /// Its mark; `None` if it cannot be written again.
    mark: Option<ChangeMark>,
    /// The number of the daemon's flush that covers it for certain.
    flush: u64,
    /// Its number among the file's writes that have ended here.
    ended: u64,
    offset: i64,
    data: Vec<u8>,
}

impl KeptWrite {
    fn version(&self) -> u64 {
        self.mark.map_or(0, |mark| mark.version)
    }
}

impl Drop for KeptWrite {
    fn drop(&mut self) {
        ALL.fetch_sub(self.data.len() + KEPT_OVERHEAD, Ordering::Relaxed);
    }
}

/// How a write has ended.
#[derive(Debug)]
pub enum Fate {
    /// The daemon has written the data, which went to this offset. `flushes`: how many flushes the daemon had begun then.
    Written { mark: ChangeMark, flushes: u64, offset: i64, data: Option<Vec<u8>> },
    /// The daemon refused it, or was gone before it took the write.
    NotDone,
    /// The daemon went away meanwhile. The write may be done or not, and is to be made again.
    Unknown,
}

/// The writes to a file by this process, through all that it has open of the file.
#[derive(Debug, Default)]
pub struct WriteLog {
    /// No other log has this number, not even a later one of the same file.
    pub number: u64,
    /// How many open files may write.
    pub writers: usize,
    /// The connection through which it was written, and what its daemon has in common with those that follow it.
    pub link: u64,
    lineage: u64,
    /// By version; those without one are first.
    kept: VecDeque<KeptWrite>,
    under_way: usize,
    ended: u64,
    /// The highest version that was flushed. Nothing up to it is kept: it would undo what came after it.
    flushed: u64,
    /// The last change of the file that is known.
    last: ChangeMark,
    /// A write may be done that is to be made again.
    in_doubt: bool,
    /// The daemon is gone: the number of its last flush that succeeded.
    gone: Option<u64>,
    /// Some kept writes were made again at a daemon that is gone, too: `last` says what is known of the file, the others' versions do not.
    is_partly_restored: bool,
    /// How many daemons have begun to restore it.
    tries: u32,
}

impl WriteLog {
    /// The log of a file that was not open for writing.
    pub fn numbered() -> WriteLog {
        WriteLog { number: LOGS.fetch_add(1, Ordering::Relaxed), ..WriteLog::default() }
    }

    /// Notes that a write begins.
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// Notes that a write ends.
    pub fn end(&mut self, fate: Fate) {
        self.under_way = self.under_way.saturating_sub(1);
        match fate {
            Fate::NotDone => {}
            Fate::Unknown => self.in_doubt = true,
            Fate::Written { mark, flushes, offset, data } => {
                self.ended += 1;
                let is_known = mark.is_known();
                // Even if the change before it has a later time, by a clock that is ahead: a metadata server keeps that time, also when somebody else
                // writes afterwards.
                if is_known && (!self.last.is_known() || mark.version > self.last.version) {
                    self.last = mark;
                }
                let flush = flushes + 1;
                let is_safe = self.gone.is_some_and(|flushed| flushed >= flush);
                if is_safe || is_known && mark.version <= self.flushed {
                    return;
                }
                let mark = Some(mark).filter(|_| is_known && data.is_some());
                // One stands for all that cannot be written again, so that they take no memory.
                if mark.is_none()
                    && let Some(other) = self.kept.front_mut().filter(|write| write.mark.is_none())
                {
                    (other.flush, other.ended) = (other.flush.max(flush), self.ended);
                    return;
                }
                let write = KeptWrite { mark, flush, ended: self.ended, offset, data: data.unwrap_or_default() };
                ALL.fetch_add(write.data.len() + KEPT_OVERHEAD, Ordering::Relaxed);
                let before = self.kept.iter().rev().take_while(|other| other.version() > write.version()).count();
                self.kept.insert(self.kept.len() - before, write);
            }
        }
    }

    /// Whether so many more bytes may be kept.
    pub fn has_room(length: usize) -> bool {
        ALL.load(Ordering::Relaxed) + length + KEPT_OVERHEAD <= MOST_KEPT
    }

    /// Notes the mark of a change by this process that was no write, or of an opening.
    pub fn changed(&mut self, mark: ChangeMark) {
        // Otherwise others may have changed the file since the last write.
        if mark.is_known() && !self.is_unconfirmed() && !self.in_doubt {
            self.last = mark;
        }
    }

    /// The number of writes that have ended, which an fsync covers that begins now.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Notes that an fsync has succeeded that began after so many writes had ended.
    pub fn synced(&mut self, ended: u64) {
        self.drop_kept(|write| write.ended <= ended);
    }

    /// Notes that a flush by the daemon has succeeded.
    pub fn flushed(&mut self, number: u64) {
        self.drop_kept(|write| write.flush <= number);
    }

    fn drop_kept(&mut self, safe: impl Fn(&KeptWrite) -> bool) {
        let flushed = self.kept.iter().filter(|write| safe(write)).map(KeptWrite::version).max();
        self.flushed = self.flushed.max(flushed.unwrap_or_default());
        self.kept.retain(|write| !safe(write) && (write.mark.is_none() || write.version() > self.flushed));
    }

    /// Whether there are writes that Ceph may not have.
    pub fn is_unconfirmed(&self) -> bool {
        self.under_way > 0 || !self.kept.is_empty()
    }

    /// Notes that the daemon is gone, whose last flush that succeeded has this number.
    pub fn daemon_gone(&mut self, flushed: u64) {
        self.flushed(flushed);
        self.gone = Some(flushed);
    }

    /// Whether writes are under way at a daemon that is gone. Their threads notice it soon.
    pub fn is_ending(&self) -> bool {
        self.gone.is_some() && self.under_way > 0
    }

    /// Whether the file has to be restored at the next daemon before it is used. A write under way may be answered, and its thread late to notice.
    pub fn is_to_be_restored(&self) -> bool {
        self.gone.is_some() && (self.is_unconfirmed() || self.in_doubt)
    }

    /// Counts another daemon that begins to restore the file. Returns whether it may.
    pub fn try_to_restore(&mut self) -> bool {
        self.tries += 1;
        self.tries <= MOST_TRIES
    }

    /// Whether what is kept may be written again to a file whose last change has this mark at the next daemon.
    ///
    /// As long as the earlier daemon lived, it had told a metadata server the version of its last write before somebody else could change the file;
    /// so the version shows that. Who changed it afterwards did so after that write, which the change time shows.
    pub fn allows(&self, opened: &Opened) -> bool {
        let found = opened.mark;
        let in_a_row =
            self.kept.iter().zip(self.kept.iter().skip(1)).all(|(one, next)| next.version() == one.version() + 1);
        let all_known = self.kept.iter().all(|write| write.mark.is_some());
        let ends_with_last = self.kept.back().is_none_or(|write| write.version() == self.last.version);
        let as_written = self.kept.iter().filter_map(|write| write.mark).find(|mark| mark.version == found.version);
        let is_ours = self.is_partly_restored
            || all_known && in_a_row && ends_with_last && as_written.is_none_or(|mark| found.ctime >= mark.ctime);
        let are_known = found.is_known() && self.last.is_known();
        let follows = opened.lineage != 0 && opened.lineage == self.lineage;
        is_ours && follows && are_known && found.version <= self.last.version && found.ctime <= self.last.ctime
    }

    /// The kept write at this place in their order.
    pub fn kept(&self, index: usize) -> Option<(i64, &[u8])> {
        self.kept.get(index).map(|write| (write.offset, &*write.data))
    }

    /// Notes that a kept write was made again.
    pub fn rewritten(&mut self, index: usize, mark: ChangeMark, flushes: u64) {
        (self.is_partly_restored, self.last) = (true, mark);
        if let Some(write) = self.kept.get_mut(index) {
            (write.mark, write.flush) = (Some(mark), flushes + 1);
        }
    }

    /// Notes that the file was opened through this connection. A thread may be late to notice that, when the next daemon has the file already.
    pub fn opened(&mut self, link: u64, opened: &Opened) {
        if link < self.link {
            return;
        }
        self.lineage = opened.lineage;
        if self.link == link {
            self.changed(opened.mark);
        } else {
            self.restored(link, opened.mark);
        }
    }

    /// Notes that all is restored, at this connection, where the file has this mark.
    pub fn restored(&mut self, link: u64, mark: ChangeMark) {
        (self.link, self.last, self.gone, self.flushed) = (link, mark, None, 0);
        (self.in_doubt, self.is_partly_restored, self.tries) = (false, false, 0);
    }
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
