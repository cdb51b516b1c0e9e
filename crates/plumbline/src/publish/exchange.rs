//! The exchange through which publishers request snapshots from the daemon's thread.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Snapshot;

/// A snapshot younger than this serves further requests, so a flood of requests does not load the daemon.
const FRESH: Duration = Duration::from_millis(50);

/// The exchange for the daemon's figures.
pub type SnapshotExchange = Exchange<Snapshot>;

/// One exchange serves all publishers of one kind. The daemon polls its eventfd; a publisher blocks until the daemon answers.
pub struct Exchange<T> {
    wakeup: EventFd,
    state: Mutex<ExchangeState<T>>,
    answered: Condvar,
}

struct ExchangeState<T> {
    /// The number of answers so far.
    answers: u64,
    last: Option<(Instant, Arc<T>)>,
    closed: bool,
}

impl<T> Exchange<T> {
    /// An open exchange without a snapshot.
    ///
    /// # Errors
    ///
    /// When no file descriptor is left.
    pub fn new() -> nix::Result<Self> {
        let wakeup = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let state = ExchangeState { answers: 0, last: None, closed: false };
        Ok(Self { wakeup, state: Mutex::new(state), answered: Condvar::new() })
    }

    /// Requests a snapshot and waits for it; `None` if the daemon does not answer within `timeout`, or stops.
    pub fn ask(&self, timeout: Duration) -> Option<Arc<T>> {
        let state = self.state();
        if let Some((_, last)) = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Some(Arc::clone(last));
        }
        let before = state.answers;
        // The write fails only if a wakeup is pending already.
        let _ = self.wakeup.write(1);
        let waiting = |state: &mut ExchangeState<T>| state.answers == before && !state.closed;
        let waited = self.answered.wait_timeout_while(state, timeout, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let answered = state.answers != before;
        state.last.as_ref().filter(|_| answered).map(|(_, last)| Arc::clone(last))
    }

    /// Whether a request has come since the last call. Resets the eventfd.
    pub fn is_asked(&self) -> bool {
        self.wakeup.read().is_ok()
    }

    /// Hands the snapshot to all waiting publishers.
    pub fn answer(&self, snapshot: T) {
        let mut state = self.state();
        state.answers += 1;
        state.last = Some((Instant::now(), Arc::new(snapshot)));
        self.answered.notify_all();
    }

    /// Frees a snapshot that is too old to serve further requests. Returns whether there was one.
    pub fn tidy(&self) -> bool {
        self.state().last.take_if(|(at, _)| at.elapsed() >= FRESH).is_some()
    }

    /// Ends all waits for an answer, also future ones: they return `None`.
    pub fn close(&self) {
        self.state().closed = true;
        self.answered.notify_all();
    }

    /// Lets publishers wait for answers again, after [`SnapshotExchange::close`].
    pub fn open(&self) {
        self.state().closed = false;
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState<T>> {
        // No code under the lock can panic halfway through an update, so the state of a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> AsFd for Exchange<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_gets_the_next_answer_and_all_who_ask_at_once_the_same() {
        let exchange = SnapshotExchange::new().unwrap();
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| exchange.ask(Duration::from_secs(10)))).collect();
            while !asking.iter().all(|thread| thread.is_finished()) {
                if exchange.is_asked() {
                    exchange.answer(Snapshot::default());
                }
                std::thread::yield_now();
            }
            assert!(asking.into_iter().all(|thread| thread.join().unwrap().is_some()));
        });
    }

    #[test]
    fn nobody_waits_for_a_daemon_that_is_busy_or_gone() {
        let exchange = SnapshotExchange::new().unwrap();
        assert!(exchange.ask(Duration::from_millis(1)).is_none());
        exchange.close();
        assert!(exchange.ask(Duration::from_secs(1000)).is_none());
    }

    #[test]
    fn an_old_answer_serves_nobody_and_takes_no_room() {
        let exchange = SnapshotExchange::new().unwrap();
        exchange.answer(Snapshot::default());
        std::thread::sleep(FRESH);
        assert!(exchange.ask(Duration::from_millis(1)).is_none());
        assert!(exchange.tidy() && !exchange.tidy());
    }
}
