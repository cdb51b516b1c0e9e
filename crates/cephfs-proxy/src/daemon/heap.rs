//! Gives memory back to the kernel that clients' objects took. The C library would keep most of this memory for later use.

use std::sync::atomic::{AtomicUsize, Ordering};

/// From this many freed bytes on, examining the whole heap is worth the time.
const WORTH_IT: usize = 16 << 20;

/// Bytes, by the bounds in weight.rs, that were freed since the heap was trimmed.
#[derive(Default)]
pub struct FreedMemory(AtomicUsize);

impl FreedMemory {
    /// Counts the weight of dropped objects.
    pub fn add(&self, weight: usize) {
        self.0.fetch_add(weight, Ordering::Relaxed);
    }

    /// Whether enough was freed for the caller to call [`trim`]. If so, the count starts again from 0.
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
