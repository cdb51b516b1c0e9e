//! Gives memory that clients' objects took back to the kernel. The C library would keep most of it for later.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How much is worth a look at the whole heap, bytes.
const WORTH_IT: usize = 16 << 20;

/// Bytes, by the bounds in weight.rs, that were freed since the heap was trimmed.
#[derive(Default)]
pub struct FreedMemory(AtomicUsize);

impl FreedMemory {
    /// Counts an object, or several, that were dropped.
    pub fn add(&self, weight: usize) {
        self.0.fetch_add(weight, Ordering::Relaxed);
    }

    /// Whether so much was freed that the caller shall call [`trim`]; counts from 0 again, if so.
    pub fn is_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= WORTH_IT && self.0.swap(0, Ordering::Relaxed) >= WORTH_IT
    }
}

/// Returns free pages to the kernel. This takes milliseconds for each 100 MiB of heap.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
