//! Who may have how many workers. Each mount has a share of its own, so that a cluster that does not answer costs the
//! clients of that mount alone. In a share, a client may have a quarter of the workers that are free, and at least one:
//! a client whose requests hang leaves workers to the others, however many such clients there are.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{connection::ClientConnection, lock};
use crate::sys;

/// After so many clients that wait, those that are gone are taken out of the queue.
const LOOK_FOR_GONE: usize = 64;

/// The workers of one mount's clients, or of the clients that have not mounted yet.
pub struct WorkerShare {
    limit: usize,
    /// The workers at work for clients. For a moment it counts those that find none left, too.
    used: AtomicUsize,
    /// The number of clients in `waiting`.
    queued: AtomicUsize,
    /// Clients whose requests found no worker left.
    waiting: Mutex<VecDeque<Weak<ClientConnection>>>,
    /// The workers that do jobs.
    jobs: Mutex<usize>,
}

impl WorkerShare {
    /// A share of `limit` workers for requests, and a quarter of that for jobs.
    pub fn new(limit: usize) -> Arc<WorkerShare> {
        Arc::new(WorkerShare {
            limit,
            used: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            waiting: Mutex::default(),
            jobs: Mutex::default(),
        })
    }

    /// Takes a worker for a client that has `theirs` already. If none is left, the client is called once there is.
    fn enter(&self, client: &Arc<ClientConnection>, theirs: usize) -> bool {
        let used = self.used.fetch_add(1, Ordering::SeqCst);
        let free = self.limit.saturating_sub(used);
        if free > 0 && theirs < (free / 4).max(1) {
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
        // A client that has its part has workers that look for its next request. If another worker was given back
        // meanwhile, this calls the client at once.
        self.leave();
        false
    }

    /// Gives back a worker, and calls a client that waits for one.
    fn leave(&self) {
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

    /// Takes a worker for a job. Jobs may hang, too.
    pub fn enter_job(&self) -> bool {
        let mut jobs = lock(&self.jobs);
        let may = *jobs < (self.limit / 4).max(1);
        *jobs += usize::from(may);
        may
    }

    /// Gives back the worker of a job.
    pub fn leave_job(&self) {
        let mut jobs = lock(&self.jobs);
        *jobs = jobs.saturating_sub(1);
    }
}

/// A client's part of a share: the share of the mount that it has made last.
pub struct ClientShare(Mutex<(Arc<WorkerShare>, usize)>);

impl ClientShare {
    /// No worker, of this share.
    pub fn new(share: Arc<WorkerShare>) -> ClientShare {
        ClientShare(Mutex::new((share, 0)))
    }

    /// Takes a worker for the client.
    pub fn enter(&self, client: &Arc<ClientConnection>) -> bool {
        let mut own = lock(&self.0);
        let may = own.0.enter(client, own.1);
        own.1 += usize::from(may);
        may
    }

    /// Gives back a worker.
    pub fn leave(&self) {
        let mut own = lock(&self.0);
        own.1 = own.1.saturating_sub(1);
        own.0.leave();
    }

    /// Moves the client to another share, with the workers that it has. Returns whether that share had a worker left:
    /// if not, the caller gives back its worker without another step.
    pub fn move_to(&self, client: &ClientConnection, share: &Arc<WorkerShare>) -> bool {
        let mut own = lock(&self.0);
        if Arc::ptr_eq(&own.0, share) {
            return true;
        }
        let had_room = share.used.fetch_add(own.1, Ordering::SeqCst) < share.limit;
        for _ in 0..own.1 {
            own.0.leave();
        }
        own.0 = share.clone();
        client.waits.store(false, Ordering::SeqCst);
        had_room
    }

    /// The share.
    pub fn share(&self) -> Arc<WorkerShare> {
        lock(&self.0).0.clone()
    }
}
