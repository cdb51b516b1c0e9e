//! Retention: deletes bundles that are too old, and the oldest when the total size would exceed the limit.
//!
//! Every byte, also of temporary files, is claimed from the [`DiskQuota`] before it is written. A claim that does not
//! fit deletes the oldest bundles until it fits, or fails. So the limit is never exceeded, not even for a moment.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::id::IncidentId;
use super::store::{Store, Stored, on_disk};

/// Why a bundle was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The bundle was last written longer ago than allowed.
    Age,
    /// The bundle was the oldest when there was no room left.
    Size,
}

/// A bundle that retention deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Its name.
    pub id: IncidentId,
    /// The bytes on disk that its deletion freed.
    pub bytes: u64,
    /// Why it was deleted.
    pub why: Why,
}

/// The result of retention.
#[derive(Debug, Default)]
pub struct Sweep {
    /// The deleted bundles.
    pub deleted: Vec<Deleted>,
    /// How many bundles could not be deleted. They still count against the limit.
    pub failed: usize,
    /// The first of those failures.
    pub error: Option<String>,
}

/// The limit on the disk space of evidence, and its use.
#[derive(Debug, Default)]
pub struct DiskQuota(Mutex<QuotaState>);

#[derive(Debug, Default)]
struct QuotaState {
    store: Option<Arc<Store>>,
    limit: u64,
    /// Bytes of the bundles at the last census, less those deleted since.
    stored: u64,
    /// Bytes claimed by files being written.
    temporary: u64,
    oldest: VecDeque<Stored>,
    sweep: Sweep,
}

impl DiskQuota {
    /// Reads the directory, deletes bundles older than `max_age` allows, and makes the rest fit into `limit` bytes. Until the
    /// next call, claims may delete bundles of `store`, except `spared`.
    ///
    /// One call deletes at most [`super::store::OLDEST`] bundles.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn survey(
        &self,
        store: Arc<Store>,
        limit: u64,
        max_age: &dyn Fn(&IncidentId) -> Duration,
        now: SystemTime,
        spared: Option<&IncidentId>,
    ) -> io::Result<()> {
        let census = store.census(spared)?;
        let mut state = self.lock();
        state.store = Some(store);
        state.limit = limit;
        state.stored = census.bytes;
        let too_old = |bundle: &Stored| now.duration_since(bundle.modified).is_ok_and(|age| age > max_age(&bundle.id));
        let (old, young): (Vec<_>, Vec<_>) = census.oldest.into_iter().partition(too_old);
        old.into_iter().for_each(|bundle| state.delete(bundle, Why::Age));
        state.oldest = young.into();
        state.make_room(0);
        Ok(())
    }

    /// The deletions and failures since the last call.
    pub fn take_sweep(&self) -> Sweep {
        std::mem::take(&mut self.lock().sweep)
    }

    /// Reserves `bytes` for a file being written.
    ///
    /// # Errors
    /// If they do not fit even with all other bundles deleted; see [`is_over_budget`].
    fn claim(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.lock();
        if !state.make_room(bytes) {
            return Err(io::Error::other(OverBudget::Limit(state.limit)));
        }
        state.temporary += bytes;
        Ok(())
    }

    fn release(&self, bytes: u64) {
        let mut state = self.lock();
        state.temporary = state.temporary.saturating_sub(bytes);
    }

    fn keep(&self, bytes: u64) {
        let mut state = self.lock();
        state.temporary = state.temporary.saturating_sub(bytes);
        state.stored = state.stored.saturating_add(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, QuotaState> {
        // The next survey corrects the numbers if a panic left them wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaState {
    /// Deletes the oldest bundles until `bytes` more fit. Returns false if they do not fit even then.
    fn make_room(&mut self, bytes: u64) -> bool {
        while self.stored.saturating_add(self.temporary).saturating_add(bytes) > self.limit {
            let Some(oldest) = self.oldest.pop_front() else { return false };
            self.delete(oldest, Why::Size);
        }
        true
    }

    fn delete(&mut self, bundle: Stored, why: Why) {
        let Some(store) = &self.store else { return };
        match store.remove_bundle(&bundle.id) {
            Ok(()) => {
                self.stored = self.stored.saturating_sub(bundle.bytes);
                self.sweep.deleted.push(Deleted { id: bundle.id, bytes: bundle.bytes, why });
            }
            Err(error) => {
                self.sweep.failed += 1;
                let shown = store.path_of(&bundle.id);
                self.sweep.error.get_or_insert_with(|| format!("cannot delete {}: {error}", shown.display()));
            }
        }
    }
}

/// Why a claim failed.
#[derive(Debug, thiserror::Error)]
enum OverBudget {
    #[error(
        "the limit of all bundles, {0} bytes, leaves no room, even after all older ones were deleted; raise `max_total_log_size_mb`, or collect less"
    )]
    Limit(u64),
    #[error(
        "the file is larger than its share of the limit of all bundles, {0} bytes compressed; raise `max_total_log_size_mb`, or collect less"
    )]
    Share(u64),
}

/// Whether an error comes from a claim that failed.
pub fn is_over_budget(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<OverBudget>())
}

/// A file that claims its bytes from the quota before it writes them, and releases the claim when it is dropped.
#[derive(Debug)]
pub struct Claimed {
    file: File,
    // Dropped after `Claimed::drop`, so the claim is released only after the file's space is freed.
    claim: QuotaClaim,
    share: u64,
    kept: bool,
    written: u64,
}

#[derive(Debug)]
struct QuotaClaim {
    quota: Arc<DiskQuota>,
    bytes: u64,
}

impl Claimed {
    /// Writes at most `share` bytes to `file`, and claims them from `quota`.
    pub fn new(file: File, quota: Arc<DiskQuota>, share: u64) -> Self {
        Self { file, claim: QuotaClaim { quota, bytes: 0 }, share, kept: false, written: 0 }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// From now on, the file's bytes count as a bundle's.
    pub fn keep(mut self) {
        self.kept = true;
        let bytes = std::mem::take(&mut self.claim.bytes);
        self.claim.quota.keep(bytes);
    }
}

impl Write for Claimed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let after = self.written + bytes.len() as u64;
        if after > self.share {
            return Err(io::Error::other(OverBudget::Share(self.share)));
        }
        let more = on_disk(after).saturating_sub(self.claim.bytes);
        self.claim.quota.claim(more)?;
        self.claim.bytes += more;
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Read for Claimed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Seek for Claimed {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if !self.kept {
            // Closing the file is not enough to free its space: a command that is just being started has copies of all
            // descriptors until it calls exec(2).
            let _ = self.file.set_len(0);
        }
    }
}

impl Drop for QuotaClaim {
    fn drop(&mut self) {
        self.quota.release(self.bytes);
    }
}
