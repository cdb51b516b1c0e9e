//! How many workers there may be, and how many of them each client may have: a quarter of the free workers, and at least one. So a client whose
//! requests hang leaves workers for the others, even if there are many such clients.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{connection::ClientConnection, lock};
use crate::sys;

/// After this many waiting clients, clients that are gone are removed from the queue.
const LOOK_FOR_GONE: usize = 64;

/// The workers of this process.
pub struct WorkerShare {
    limit: usize,
    /// The workers that serve clients. For a moment, this also counts requests for which no worker is left.
    used: AtomicUsize,
    /// The number of clients in `waiting`.
    queued: AtomicUsize,
    /// Clients whose requests found no worker left.
    waiting: Mutex<VecDeque<Weak<ClientConnection>>>,
    /// The workers that do jobs.
    jobs: Mutex<usize>,
    /// The jobs that flush a client's writes, including those that have not begun.
    flushes: Arc<AtomicUsize>,
    /// The jobs that read in advance, including those that have not begun.
    ahead: Arc<AtomicUsize>,
}

/// A place for a job of one kind, which is freed when this value is dropped.
pub struct JobPlace(Arc<AtomicUsize>);

impl JobPlace {
    fn take(kind: &Arc<AtomicUsize>, most: usize) -> Option<JobPlace> {
        let place = JobPlace(kind.clone());
        (kind.fetch_add(1, Ordering::SeqCst) < most).then_some(place)
    }
}

impl Drop for JobPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WorkerShare {
    /// A share of `limit` workers for requests, and a quarter of that for jobs.
    pub fn new(limit: usize) -> WorkerShare {
        WorkerShare {
            limit,
            used: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            waiting: Mutex::default(),
            jobs: Mutex::default(),
            flushes: Arc::default(),
            ahead: Arc::default(),
        }
    }

    /// Takes a worker for a client. If no worker is left, the client is called once there is one.
    pub fn enter(&self, client: &Arc<ClientConnection>) -> bool {
        let mut theirs = lock(&client.workers);
        let used = self.used.fetch_add(1, Ordering::SeqCst);
        let free = self.limit.saturating_sub(used);
        if free > 0 && *theirs < (free / 4).max(1) {
            *theirs += 1;
            return true;
        }
        if free == 0 && !client.waits.swap(true, Ordering::SeqCst) {
            let mut waiting = lock(&self.waiting);
            if waiting.len() % LOOK_FOR_GONE == LOOK_FOR_GONE - 1 {
                waiting.retain(|client| client.strong_count() > 0);
            }
            waiting.push_back(Arc::downgrade(client));
            self.queued.store(waiting.len(), Ordering::SeqCst);
        }
        // A client that has its share already has workers that look for its next request. If another worker became free meanwhile, this calls the
        // client at once.
        self.give_back();
        false
    }

    /// Gives back a worker of a client.
    pub fn leave(&self, client: &ClientConnection) {
        let mut theirs = lock(&client.workers);
        *theirs = theirs.saturating_sub(1);
        drop(theirs);
        self.give_back();
    }

    /// Gives back a worker, and calls a client that waits for one.
    fn give_back(&self) {
        let before = self.used.fetch_sub(1, Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 || before > self.limit {
            return;
        }
        let next = {
            let mut waiting = lock(&self.waiting);
            let next = std::iter::from_fn(|| waiting.pop_front()).find_map(|client| client.upgrade());
            self.queued.store(waiting.len(), Ordering::SeqCst);
            next
        };
        if let Some(client) = next {
            client.waits.store(false, Ordering::SeqCst);
            sys::wake(client.wakeup());
        }
    }

    /// Takes a worker for a job. Jobs are limited since they may hang, too.
    pub fn enter_job(&self) -> bool {
        let mut jobs = lock(&self.jobs);
        let may = *jobs < (self.limit / 4).max(1);
        *jobs += usize::from(may);
        may
    }

    /// Takes a place for a job that flushes, if there is one. These jobs take half of the jobs' workers at most. So jobs that release the objects
    /// of former clients do not wait for a pool that takes no data. A client without a place flushes by itself later.
    pub fn enter_flush(&self) -> Option<JobPlace> {
        JobPlace::take(&self.flushes, self.limit / 8)
    }

    /// The same for a job that reads in advance. These jobs take a quarter of the jobs' workers at most.
    pub fn enter_ahead(&self) -> Option<JobPlace> {
        JobPlace::take(&self.ahead, self.limit / 16)
    }

    /// Gives back the worker of a job.
    pub fn leave_job(&self) {
        let mut jobs = lock(&self.jobs);
        *jobs = jobs.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_leave_workers_to_other_jobs() {
        let share = WorkerShare::new(64);
        let places: Vec<_> = std::iter::from_fn(|| share.enter_flush()).collect();
        assert_eq!(places.len(), 8);
        drop(places);
        assert!(share.enter_flush().is_some());
        assert!(WorkerShare::new(4).enter_flush().is_none(), "there is one worker for jobs");
    }
}
