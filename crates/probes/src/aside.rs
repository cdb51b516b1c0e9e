//! What may wait for somebody else, done so that we do not: another process's memory is locked for as long as a call of its own takes,
//! mmap() of a file whose server hangs, say, and a local file system may lie on a disk that is far away.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

/// How long the answer is waited for. Commonly it takes microseconds; on a host that is overloaded, longer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Threads that may be left behind at a time. With so many, nothing more is asked until one of them ends.
const MOST: usize = 4;
const STACK_BYTES: usize = 256 * 1024;

static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

/// Does the work on a thread of its own; `None` if it takes longer than a second, or nothing can be asked now. It is
/// then finished some time, and its result is dropped.
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
    // Without room: who has not been waited for finds nobody there, and knows that it was left behind.
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
