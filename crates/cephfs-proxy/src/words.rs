//! The words by which a client knows whether a copy of its own is still good: counters that the daemon writes and all clients read.
//!
//! Whatever can be copied has a word, found by a hash; who shares a word only loses copies earlier than need be. A change adds one
//! to its words before it is asked of libcephfs, and once more when it is done; while it is under way they say so. A copy holds with the
//! value that its word had before libcephfs was asked for it, if no change was under way: for as long as the word has that value, there
//! has been no change. Nobody has to be told, so nobody can be late to hear. Nothing but these counters is shared.

use std::{
    io,
    mem::{self, MaybeUninit},
    os::fd::{AsRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::sys;

/// How many there are.
pub const COUNT: usize = 1 << 16;
/// The first page says whether the daemon lives.
const WORDS: usize = 4096;
const TOTAL: usize = WORDS + COUNT * mem::size_of::<AtomicU64>();
/// A change under way counts here; below are those that are over.
const UNDER_WAY: u64 = 1 << 48;

/// From linux/futex.h.
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// The words, mapped.
pub struct Words(NonNull<u8>);

// SAFETY: what is in there is reached as atomics, in memory that stays mapped as long as this lives.
unsafe impl Send for Words {}
// SAFETY: likewise.
unsafe impl Sync for Words {}

impl Words {
    /// New ones, all zero, which stay for good, and a descriptor by which others can read them but not write (since Linux 5.1). They
    /// say that their maker lives as long as the calling thread does.
    pub fn create() -> io::Result<(OwnedFd, &'static Words)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; no pointers; sizes as in `map`.
        unsafe {
            let fd = sys::owned(libc::memfd_create(c"cephfs-words".as_ptr(), flags))?;
            sys::checked(libc::ftruncate(fd.as_raw_fd(), TOTAL as libc::off_t))?;
            let words = &*Box::leak(Box::new(Words::map_for(&fd, libc::PROT_READ | libc::PROT_WRITE)?));
            words.live()?;
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
            sys::checked(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
            Ok((fd, words))
        }
    }

    /// Maps what `create` made, to be read.
    pub fn map(fd: &OwnedFd) -> io::Result<Words> {
        Words::map_for(fd, libc::PROT_READ)
    }

    fn map_for(fd: &OwnedFd, access: libc::c_int) -> io::Result<Words> {
        // SAFETY: all zero is a valid stat, which the call fills; then a new mapping, of a size that was checked.
        unsafe {
            let mut about: libc::stat = mem::zeroed();
            sys::checked(libc::fstat(fd.as_raw_fd(), &mut about))?;
            if about.st_size != TOTAL as libc::off_t {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let base = libc::mmap(ptr::null_mut(), TOTAL, access, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            NonNull::new(base.cast()).map(Words).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
        }
    }

    /// Has the kernel mark the first word when the calling thread ends, however it does: a robust mutex that is never given back.
    fn live(&self) -> io::Result<()> {
        let mutex = self.0.as_ptr().cast::<libc::pthread_mutex_t>();
        let failed = |code: libc::c_int| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        // SAFETY: the first page is ours and large enough, stays mapped for good in the daemon, and is no mutex yet.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            failed(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            failed(libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED))?;
            failed(libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST))?;
            failed(libc::pthread_mutex_init(mutex, attributes.as_ptr()))?;
            failed(libc::pthread_mutex_lock(mutex))
        }
    }

    /// Whether their maker lives. What a mutex begins with is the futex that the kernel marks (set_robust_list(2)), in every libc.
    pub fn alive(&self) -> bool {
        // SAFETY: mapped, aligned, and an atomic.
        let word = unsafe { self.0.cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
        word & FUTEX_OWNER_DIED == 0 && word & FUTEX_TID_MASK != 0
    }

    fn word(&self, word: u32) -> &AtomicU64 {
        let index = word as usize % COUNT;
        // SAFETY: within the mapping, aligned, and an atomic.
        unsafe { &*self.0.as_ptr().add(WORDS).cast::<AtomicU64>().add(index) }
    }

    /// A word's value.
    pub fn value(&self, word: u32) -> u64 {
        self.word(word).load(Ordering::SeqCst)
    }

    /// A change of what these words are for begins. Only the daemon can.
    pub fn begin(&self, words: &[u32]) {
        for &word in words {
            self.word(word).fetch_add(UNDER_WAY | 1, Ordering::SeqCst);
        }
    }

    /// And is over.
    pub fn end(&self, words: &[u32]) {
        for &word in words {
            self.word(word).fetch_add(1u64.wrapping_sub(UNDER_WAY), Ordering::SeqCst);
        }
    }
}

/// Whether a word with this value has a change under way.
pub fn is_changing(value: u64) -> bool {
    value >= UNDER_WAY
}

/// The value that a word has after one change, from its beginning to its end.
pub fn after_one_change(value: u64) -> u64 {
    value.wrapping_add(2)
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_for`, with this size, and nothing borrows from it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), TOTAL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_differs_during_a_change_and_after_it() {
        let (fd, words) = Words::create().unwrap();
        let seen = Words::map(&fd).unwrap();
        let before = seen.value(7);
        words.begin(&[7, 9]);
        assert!(is_changing(seen.value(7)) && is_changing(seen.value(9)));
        words.begin(&[7]);
        words.end(&[7]);
        assert!(is_changing(seen.value(7)));
        words.end(&[7, 9]);
        assert!(!is_changing(seen.value(7)) && !is_changing(seen.value(9)));
        assert_ne!(seen.value(7), before);
        assert_eq!(seen.value(9), after_one_change(0));
        assert_eq!(seen.value(8), 0);
    }

    #[test]
    fn nobody_else_can_write_them() {
        let (fd, _words) = Words::create().unwrap();
        assert!(Words::map_for(&fd, libc::PROT_READ | libc::PROT_WRITE).is_err());
        // SAFETY: eight bytes.
        assert_eq!(unsafe { libc::pwrite(fd.as_raw_fd(), [1u8; 8].as_ptr().cast(), 8, WORDS as i64) }, -1);
    }

    #[test]
    fn they_say_when_their_maker_is_gone() {
        let (fd, live) = std::thread::spawn(|| {
            let (fd, words) = Words::create().unwrap();
            (fd, words.alive())
        })
        .join()
        .unwrap();
        assert!(live);
        let seen = Words::map(&fd).unwrap();
        for _ in 0..1000 {
            if !seen.alive() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the kernel has not said so");
    }
}
