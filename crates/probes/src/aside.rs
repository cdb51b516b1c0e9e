//! Runs work that may block on a helper thread, so that the caller does not block. Reading another process's memory map waits while
//! that process holds its lock, in mmap() of a file whose server hangs, for example. A local file system may lie on a slow remote
//! disk.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

/// How long the caller waits for the result. The work commonly takes microseconds, and longer on an overloaded host.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The most helper threads that may still be running after their caller has given up. At this number, no new work is
/// accepted until one of the threads ends.
const MOST: usize = 4;
const STACK_BYTES: usize = 256 * 1024;

static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

/// Runs the work on a thread of its own. Returns `None` if the work takes longer than a second, or if no work is
/// accepted now. Work that takes longer still runs to its end, and its result is dropped.
pub(crate) fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    within(TIMEOUT, &LEFT_BEHIND, work)
}

fn within<T: Send + 'static>(
    timeout: Duration,
    left_behind: &'static AtomicUsize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if left_behind.load(Ordering::Relaxed) >= MOST {
        return None;
    }
    // The channel has no buffer: if the caller has stopped waiting, sending fails, and the thread knows that it was
    // left behind.
    let (answer, answered) = sync_channel(0);
    let work = move || {
        if answer.send(work()).is_err() {
            left_behind.fetch_sub(1, Ordering::Relaxed);
        }
    };
    let spawned = thread::Builder::new().name("aside".into()).stack_size(STACK_BYTES).spawn(work);
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot start a thread");
        return None;
    }
    match answered.recv_timeout(timeout) {
        Ok(done) => Some(done),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let all = left_behind.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!("left behind: {all} of {MOST} that wait for a process's memory or a disk");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_takes_too_long_is_left_behind_and_no_more_than_a_few_are() {
        static HERE: AtomicUsize = AtomicUsize::new(0);
        let soon = Duration::from_secs(20);
        let at_once = Duration::from_millis(1);
        assert_eq!(within(soon, &HERE, || 7), Some(7));
        let mut held = Vec::new();
        for _ in 0..MOST {
            let (release, wait) = channel::<()>();
            held.push(release);
            assert_eq!(within(at_once, &HERE, move || wait.recv().is_ok()), None);
        }
        assert_eq!(within(soon, &HERE, || 7), None);
        drop(held);
        while HERE.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert_eq!(within(soon, &HERE, || 7), Some(7));
    }
}
