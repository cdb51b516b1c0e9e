//! Adaptive spinning: polls for an event before the thread sleeps, for as long as polling has paid off lately.

use std::{
    hint,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// The most polls in a row: they take some hundreds of microseconds, the time that Samba takes between two requests.
const MOST: u32 = 8192;
/// The number of polls between two calls of `sched_yield`: the awaited thread may need this processor.
const ROW: u32 = 32;
/// Where polling has not paid off, one of this many waits tries polling again.
const RETRY: u32 = 64;

/// The number of polls, learned from earlier waits. Threads may share it: a race only blurs the estimate.
#[derive(Default)]
pub struct AdaptiveSpin {
    looks: AtomicU32,
    failures: AtomicU32,
}

impl AdaptiveSpin {
    /// How often to poll now; 0 where polling does not pay off.
    pub fn looks(&self) -> u32 {
        match self.looks.load(Ordering::Relaxed) {
            0 if self.failures.fetch_add(1, Ordering::Relaxed).is_multiple_of(RETRY) && !alone() => MOST / 4,
            looks => looks,
        }
    }

    /// Polls `seen` up to `looks` times. Returns whether `seen` became true.
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

/// Whether there is only one processor: polling would keep the other thread from running.
fn alone() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    *ALONE.get_or_init(|| thread::available_parallelism().is_ok_and(|count| count.get() == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_in_vain_soon_ends() {
        let spin = AdaptiveSpin::default();
        let looks = std::cell::Cell::new(0);
        let vain = || {
            looks.set(looks.get() + 1);
            false
        };
        (0..RETRY).for_each(|_| assert!(!spin.watch(spin.looks(), vain)));
        assert!(looks.get() <= 2 * MOST, "{}", looks.get());
        while !spin.watch(spin.looks(), || true) {}
        assert!(spin.looks.load(Ordering::Relaxed) > 0);
    }
}
