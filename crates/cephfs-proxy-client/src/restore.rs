//! Repeats writes at another daemon that an earlier daemon had acknowledged and Ceph may not have. This happens before the mount is used.

use std::{
    thread,
    time::{Duration, Instant},
};

use cephfs_proxy::wire::{ChangeMark, Close, Errno, Opened, Rewrite};

use crate::{
    fork,
    link::CallError,
    session::RequestTarget,
    tables::{LogKey, Tables},
    writes::WriteLog,
};

/// How long threads with a write under way may take to notice that the daemon is gone.
const ENDING: Duration = Duration::from_secs(2);
/// How long this waits, for all files together, while files are open elsewhere or the metadata server has not recovered them.
const BUSY: Duration = Duration::from_secs(5);
/// How often the conditions are checked.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl RequestTarget {
    /// Restores the files of the mount. Files that somebody else may have changed are lost.
    pub fn restore_files(&self) -> Result<(), CallError> {
        let until = Instant::now() + ENDING;
        while fork::tables().logs.values().any(|log| log.is_ending()) && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
        let keys = self.to_restore(&fork::tables());
        let until = Instant::now() + BUSY;
        for key in keys {
            match self.restore(key, until) {
                Err(error) if error.is_gone() => return Err(CallError::NotStarted),
                Err(_) => fork::tables().lose(key),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn to_restore(&self, tables: &Tables) -> Vec<LogKey> {
        let needs_it = tables.logs.iter().filter(|((mount, _), log)| *mount == self.local && log.is_to_be_restored());
        needs_it.map(|(key, _)| *key).collect()
    }

    /// Opens a file again, and repeats its kept writes.
    fn restore(&self, key: LogKey, until: Instant) -> Result<(), CallError> {
        let (number, flags, identity, position) = {
            let mut tables = fork::tables();
            if !tables.logs.get_mut(&key).is_some_and(WriteLog::try_to_restore) {
                return Err(Errno::IO.into());
            }
            let parents = tables.parents;
            let number = *tables
                .files
                .numbers(|file| {
                    file.key() == key && file.is_writer() && !file.appends() && !file.lost && file.link > parents
                })
                .first()
                .ok_or(Errno::IO)?;
            let file = tables.files.get(number)?;
            (number, file.flags, file.identity.clone(), file.position)
        };
        let opened = self.open_again(key.1, flags, &identity, position)?;
        let restored = self.rewrite(key, &opened, until).and_then(|mark| {
            let mut tables = fork::tables();
            let file = tables.files.get(number)?;
            (file.link, file.remote) = (self.link.id, opened.file);
            tables.logs.get_mut(&key).ok_or(Errno::IO)?.restored(self.link.id, mark);
            Ok(())
        });
        if restored.is_err() {
            let _ = self.link.call(&Close { mount: self.mount, file: opened.file });
        }
        restored
    }

    /// Repeats the kept writes of a file. Returns the mark of the last write.
    fn rewrite(&self, key: LogKey, opened: &Opened, until: Instant) -> Result<ChangeMark, CallError> {
        let mut mark = opened.mark;
        if !fork::tables().logs.get(&key).is_some_and(|log| !log.is_ending() && log.allows(opened)) {
            return Err(Errno::IO.into());
        }
        let mut index = 0;
        loop {
            let claim = self.link.claim()?;
            let (offset, length) = {
                let tables = fork::tables();
                let Some((offset, data)) = tables.logs.get(&key).ok_or(Errno::IO)?.kept(index) else { return Ok(mark) };
                // SAFETY: pointer and length are those of a slice.
                unsafe { claim.give(data.as_ptr(), data.len()) };
                (offset, data.len())
            };
            let request = Rewrite { mount: self.mount, file: opened.file, offset, version: mark.version };
            match claim.call(&request, length) {
                Err(CallError::Errno(Errno::AGAIN)) if Instant::now() < until => thread::sleep(LOOK_AGAIN),
                Err(error) => return Err(error),
                // A write that was done only in part counts as failed.
                Ok((count, _)) if count != length as i64 => return Err(Errno::IO.into()),
                Ok((_, after)) => {
                    mark = after;
                    let flushes = self.link.flushes();
                    fork::tables().logs.get_mut(&key).ok_or(Errno::IO)?.rewritten(index, mark, flushes);
                    index += 1;
                }
            }
        }
    }
}
