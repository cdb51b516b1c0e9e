//! How long it pays to look for something before one sleeps: as long as looking has paid lately.

use std::{
    hint,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// Looks at most so often: some hundreds of microseconds, which is what Samba takes between two requests.
const MOST: u32 = 8192;
/// After so many looks, whoever else wants the processor gets it: that may be who is waited for.
const ROW: u32 = 32;
/// Even where it has not paid, it is tried now and then.
const RETRY: u32 = 64;

/// Learns from its own success. Several threads may use it; what they get in each other's way is only an estimate.
#[derive(Default)]
pub struct Patience {
    looks: AtomicU32,
    failures: AtomicU32,
}

impl Patience {
    /// How often to look now; 0 if it does not pay.
    pub fn looks(&self) -> u32 {
        match self.looks.load(Ordering::Relaxed) {
            0 if self.failures.fetch_add(1, Ordering::Relaxed).is_multiple_of(RETRY) && !alone() => MOST / 4,
            looks => looks,
        }
    }

    /// Looks so often, or until `seen` says so; says whether it did.
    pub fn watch(&self, looks: u32, seen: impl Fn() -> bool) -> bool {
        if looks == 0 {
            return false;
        }
        for look in 1..=looks {
            if seen() {
                self.looks.store((looks * 2).min(MOST), Ordering::Relaxed);
                return true;
            }
            if look % ROW == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
        self.looks.store(if looks > MOST / 16 { looks / 2 } else { 0 }, Ordering::Relaxed);
        false
    }
}

/// On one processor, who looks keeps the other from working.
fn alone() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    *ALONE.get_or_init(|| thread::available_parallelism().is_ok_and(|count| count.get() == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_in_vain_soon_looks_no_longer() {
        let patience = Patience::default();
        let looks = std::cell::Cell::new(0);
        let vain = || {
            looks.set(looks.get() + 1);
            false
        };
        (0..RETRY).for_each(|_| assert!(!patience.watch(patience.looks(), vain)));
        assert!(looks.get() <= 2 * MOST, "{}", looks.get());
        while !patience.watch(patience.looks(), || true) {}
        assert!(patience.looks.load(Ordering::Relaxed) > 0);
    }
}
