//! Keeps the data written to a file until Ceph has it, so that the data can be written again if the daemon goes away.
//!
//! Writing again must not overwrite what anybody else has written. If nobody else could change the file during a write, the daemon marks the write
//! with CephFS's version of the file. Each change increments the version. So if the kept writes have consecutive versions, nobody has changed the
//! file between them. The next daemon's mark shows whether somebody has changed the file since (`WriteLog::allows`).

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use cephfs_proxy::{
    layout::{KEPT_OVERHEAD, MOST_KEPT},
    wire::{ChangeMark, Opened},
};

/// How many daemons may go away while they restore a file. After that, the file itself may be what makes them fail.
const MOST_TRIES: u32 = 3;

/// The bytes kept for all files.
static ALL: AtomicUsize = AtomicUsize::new(0);
/// The number of logs created so far.
static LOGS: AtomicU64 = AtomicU64::new(0);

/// A write that was answered, but that Ceph may not have.
#[derive(Debug)]
struct KeptWrite {
    /// The write's mark; `None` if the write cannot be repeated.
    mark: Option<ChangeMark>,
    /// The number of the first daemon's flush that certainly covers the write.
    flush: u64,
    /// The write's number among the ended writes to the file by this process.
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
    /// The daemon has written the data, at this offset. `flushes`: how many flushes the daemon had begun at that time.
    Written { mark: ChangeMark, flushes: u64, offset: i64, data: Option<Vec<u8>> },
    /// The daemon refused the write, or was gone before it took the write.
    NotDone,
    /// The daemon went away during the write. The daemon may have written the data or not, and the write is to be repeated.
    Unknown,
}

/// The writes to a file by this process, through all its open handles of the file.
#[derive(Debug, Default)]
pub struct WriteLog {
    /// The number of the log. It is unique, even among the logs of one file.
    pub number: u64,
    /// The number of open handles that may write.
    pub writers: usize,
    /// The connection through which the file was written, and the lineage that its daemon shares with the daemons that follow it.
    pub link: u64,
    lineage: u64,
    /// Sorted by version; writes without a version come first.
    kept: VecDeque<KeptWrite>,
    under_way: usize,
    ended: u64,
    /// The highest flushed version. No write up to this version is kept: repeating it would overwrite later writes.
    flushed: u64,
    /// The last known change of the file.
    last: ChangeMark,
    /// Whether a write may have been done that is to be repeated.
    in_doubt: bool,
    /// If the daemon is gone: the number of its last successful flush.
    gone: Option<u64>,
    /// Whether some kept writes were repeated at another daemon that is gone, too. In that case, only `last` describes the file, not the versions
    /// of the other writes.
    is_partly_restored: bool,
    /// How many daemons have begun to restore the file.
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
                // The version decides, even if the change before has a later time, from a clock that is ahead: a metadata server keeps that time,
                // also when somebody else writes afterwards.
                if is_known && (!self.last.is_known() || mark.version > self.last.version) {
                    self.last = mark;
                }
                let flush = flushes + 1;
                let is_safe = self.gone.is_some_and(|flushed| flushed >= flush);
                if is_safe || is_known && mark.version <= self.flushed {
                    return;
                }
                let mark = Some(mark).filter(|_| is_known && data.is_some());
                // One entry stands for all writes that cannot be repeated, so that they take no memory.
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

    /// Whether this many more bytes may be kept.
    pub fn has_room(length: usize) -> bool {
        ALL.load(Ordering::Relaxed) + length + KEPT_OVERHEAD <= MOST_KEPT
    }

    /// Notes the mark of an opening, or of a change by this process other than a write.
    pub fn changed(&mut self, mark: ChangeMark) {
        // Otherwise, somebody else may have changed the file since the last write.
        if mark.is_known() && !self.is_unconfirmed() && !self.in_doubt {
            self.last = mark;
        }
    }

    /// The number of ended writes. An fsync that begins now covers them.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Notes the success of an fsync that began after this many writes had ended.
    pub fn synced(&mut self, ended: u64) {
        self.drop_kept(|write| write.ended <= ended);
    }

    /// Notes that this flush by the daemon has succeeded.
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

    /// Notes that the daemon is gone. `flushed`: the number of its last successful flush.
    pub fn daemon_gone(&mut self, flushed: u64) {
        self.flushed(flushed);
        self.gone = Some(flushed);
    }

    /// Whether writes are under way at a daemon that is gone. Their threads will soon notice that.
    pub fn is_ending(&self) -> bool {
        self.gone.is_some() && self.under_way > 0
    }

    /// Whether the file has to be restored at the next daemon before it is used. A write under way may have been answered before its thread notices
    /// that the daemon is gone.
    pub fn is_to_be_restored(&self) -> bool {
        self.gone.is_some() && (self.is_unconfirmed() || self.in_doubt)
    }

    /// Counts another daemon that begins to restore the file. Returns whether that daemon may try.
    pub fn try_to_restore(&mut self) -> bool {
        self.tries += 1;
        self.tries <= MOST_TRIES
    }

    /// Whether the kept writes may be repeated, if the file's last change has this mark at the next daemon.
    ///
    /// While the earlier daemon lived, it told a metadata server the version of its last write before somebody else could change the file. So the
    /// version shows changes by others at that time. Later changes by others came after that write, so the change time shows them.
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

    /// The kept write with this index.
    pub fn kept(&self, index: usize) -> Option<(i64, &[u8])> {
        self.kept.get(index).map(|write| (write.offset, &*write.data))
    }

    /// Notes that a kept write was repeated.
    pub fn rewritten(&mut self, index: usize, mark: ChangeMark, flushes: u64) {
        (self.is_partly_restored, self.last) = (true, mark);
        if let Some(write) = self.kept.get_mut(index) {
            (write.mark, write.flush) = (Some(mark), flushes + 1);
        }
    }

    /// Notes that the file was opened through this connection. A thread may notice that late, after the next daemon has opened the file.
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

    /// Notes that all writes are restored through this connection, where the file has this mark.
    pub fn restored(&mut self, link: u64, mark: ChangeMark) {
        (self.link, self.last, self.gone, self.flushed) = (link, mark, None, 0);
        (self.in_doubt, self.is_partly_restored, self.tries) = (false, false, 0);
    }
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
