//! The version table: counters in shared memory that the daemon writes and all clients read. They show whether a cached copy is still valid.
//!
//! A hash maps each cacheable object to an entry. If objects share an entry, a change of one also invalidates the copies of the others, which is
//! harmless. The daemon increments the entry before it passes a change to libcephfs, and again when the change is done. In between, the entry is
//! marked as changing. A client stores a copy with the version that the entry had before the request, unless the entry was changing. The copy is
//! valid as long as the entry has that version. Clients need no notification, so no notification can come late. The table holds nothing but these
//! counters.

use std::{
    io,
    mem::{self, MaybeUninit},
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use rustix::{fs::SealFlags, mm::ProtFlags, thread::futex};

use crate::memory::{self, SharedMemory};

/// Number of entries.
pub const COUNT: usize = 1 << 16;
/// Offset of the entries: the first page holds the mutex that shows whether the daemon is alive.
const ENTRIES: usize = 4096;
const TOTAL: usize = ENTRIES + COUNT * mem::size_of::<AtomicU64>();
/// The upper bits of an entry count the changes under way. The lower bits count the beginnings and ends of changes.
const UNDER_WAY: u64 = 1 << 48;

/// FUTEX_TID_MASK of linux/futex.h.
const TID_MASK: u32 = !(futex::WAITERS | futex::OWNER_DIED);

/// A mapping of the table. All access is by atomics.
pub struct VersionTable(SharedMemory);

impl VersionTable {
    /// Creates a table that is all zero and never unmapped, and a descriptor through which others can read but not write the table (since Linux
    /// 5.1). [`VersionTable::alive`] returns true as long as the calling thread runs.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the memory or the seals.
    pub fn create() -> io::Result<(OwnedFd, &'static VersionTable)> {
        let fd = memory::create("cephfs-words", TOTAL)?;
        let memory = SharedMemory::map(&fd, TOTAL, ProtFlags::READ | ProtFlags::WRITE)?;
        let table = &*Box::leak(Box::new(VersionTable(memory)));
        table.live()?;
        memory::seal(&fd, SealFlags::FUTURE_WRITE)?;
        Ok((fd, table))
    }

    /// Maps a table of [`VersionTable::create`] for reading.
    ///
    /// # Errors
    ///
    /// When the descriptor has another size, or the kernel refuses the mapping.
    pub fn map(fd: impl AsFd) -> rustix::io::Result<VersionTable> {
        SharedMemory::map(fd, TOTAL, ProtFlags::READ).map(VersionTable)
    }

    /// Locks a robust mutex that is never unlocked. So the kernel marks the mutex when the calling thread ends for any reason.
    fn live(&self) -> io::Result<()> {
        let mutex = self.0.base().as_ptr().cast::<libc::pthread_mutex_t>();
        let failed = |code: libc::c_int| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        // SAFETY: the first page is ours and large enough, stays mapped for good in the daemon, and contains no mutex yet.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            failed(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            failed(libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED))?;
            failed(libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST))?;
            failed(libc::pthread_mutex_init(mutex, attributes.as_ptr()))?;
            failed(libc::pthread_mutex_lock(mutex))
        }
    }

    /// Whether the thread that created the table still runs. In every libc, a mutex begins with the futex that the kernel marks
    /// (set_robust_list(2)).
    pub fn alive(&self) -> bool {
        // SAFETY: mapped, aligned, and an atomic.
        let word = unsafe { self.0.base().cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
        word & futex::OWNER_DIED == 0 && word & TID_MASK != 0
    }

    fn entry(&self, entry: u32) -> &AtomicU64 {
        let index = entry as usize % COUNT;
        // SAFETY: within the mapping, aligned, and an atomic.
        unsafe { &*self.0.base().as_ptr().add(ENTRIES).cast::<AtomicU64>().add(index) }
    }

    /// An entry's version.
    pub fn value(&self, entry: u32) -> u64 {
        self.entry(entry).load(Ordering::SeqCst)
    }

    /// Marks the beginning of a change to the objects of these entries. Only the daemon's mapping is writable.
    pub fn begin(&self, entries: &[u32]) {
        for &entry in entries {
            self.entry(entry).fetch_add(UNDER_WAY | 1, Ordering::SeqCst);
        }
    }

    /// Marks the end of such a change.
    pub fn end(&self, entries: &[u32]) {
        for &entry in entries {
            self.entry(entry).fetch_add(1u64.wrapping_sub(UNDER_WAY), Ordering::SeqCst);
        }
    }
}

/// Whether an entry with this version is marked as changing.
pub fn is_changing(value: u64) -> bool {
    value >= UNDER_WAY
}

/// The version after one more change, from its beginning to its end.
pub fn after_one_change(value: u64) -> u64 {
    value.wrapping_add(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_differs_during_a_change_and_after_it() {
        let (fd, table) = VersionTable::create().unwrap();
        let seen = VersionTable::map(&fd).unwrap();
        let before = seen.value(7);
        table.begin(&[7, 9]);
        assert!(is_changing(seen.value(7)) && is_changing(seen.value(9)));
        table.begin(&[7]);
        table.end(&[7]);
        assert!(is_changing(seen.value(7)));
        table.end(&[7, 9]);
        assert!(!is_changing(seen.value(7)) && !is_changing(seen.value(9)));
        assert_ne!(seen.value(7), before);
        assert_eq!(seen.value(9), after_one_change(0));
        assert_eq!(seen.value(8), 0);
    }

    #[test]
    fn other_mappings_are_read_only() {
        let (fd, _table) = VersionTable::create().unwrap();
        assert!(SharedMemory::map(&fd, TOTAL, ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(rustix::io::pwrite(&fd, &[1; 8], ENTRIES as u64).is_err());
    }

    #[test]
    fn the_table_shows_that_its_creator_has_ended() {
        let (fd, live) = std::thread::spawn(|| {
            let (fd, table) = VersionTable::create().unwrap();
            (fd, table.alive())
        })
        .join()
        .unwrap();
        assert!(live);
        let seen = VersionTable::map(&fd).unwrap();
        for _ in 0..1000 {
            if !seen.alive() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the kernel has not said so");
    }
}
