//! The workers: threads that wait for clients' wakeups, serve requests, and do other jobs that may block. Their
//! number grows while all are busy, as far as the share allows (`share`), and shrinks again.

use std::{
    collections::{HashMap, VecDeque},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{DaemonState, connection::ClientConnection, heap, lock, mounts::SharedMount};
use crate::{layout::MESSAGE_SIZE, sys};

/// How long an idle worker waits before it ends, if there are more than [`FEWEST`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of workers that never end.
const FEWEST: usize = 2;
/// The id of the jobs' wakeup; other wakeups have their connection's id.
const JOBS: u64 = 0;

/// Work that may take long and belongs to no request.
pub type PoolTask = Box<dyn FnOnce() + Send>;

/// All workers, and the wakeups that they wait for.
pub struct Pool {
    shared: Arc<DaemonState>,
    wakeups: OwnedFd,
    job_wakeup: OwnedFd,
    jobs: Mutex<VecDeque<PoolTask>>,
    connections: RwLock<HashMap<u64, Arc<ClientConnection>>>,
    idle: AtomicUsize,
    workers: AtomicUsize,
    /// The number of jobs that are not done.
    pending: AtomicUsize,
}

impl Pool {
    /// A pool with its first workers.
    pub fn start(shared: Arc<DaemonState>) -> io::Result<Arc<Pool>> {
        let wakeups = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let pool = Arc::new(Pool {
            shared,
            wakeups,
            job_wakeup: sys::eventfd()?,
            jobs: Mutex::default(),
            connections: RwLock::default(),
            idle: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
        });
        pool.listen(pool.job_wakeup.as_fd(), JOBS)?;
        for _ in 0..FEWEST {
            Pool::spawn(&pool)?;
        }
        Ok(pool)
    }

    /// Adds a wakeup. It is edge-triggered: each write to it wakes one worker once, and the counter need not be read.
    fn listen(&self, wakeup: BorrowedFd<'_>, id: u64) -> rustix::io::Result<()> {
        epoll::add(&self.wakeups, wakeup, EventData::new_u64(id), EventFlags::IN | EventFlags::ET)
    }

    fn spawn(pool: &Arc<Pool>) -> io::Result<()> {
        pool.workers.fetch_add(1, Ordering::SeqCst);
        let own = pool.clone();
        let spawned = std::thread::Builder::new().name("worker".into()).spawn(move || Pool::run(&own));
        if spawned.is_err() {
            pool.workers.fetch_sub(1, Ordering::SeqCst);
        }
        spawned.map(drop)
    }

    fn run(pool: &Arc<Pool>) {
        let mut room = Box::new([0; MESSAGE_SIZE]);
        loop {
            pool.idle.fetch_add(1, Ordering::SeqCst);
            let rung = pool.wait();
            let others = pool.idle.fetch_sub(1, Ordering::SeqCst) - 1;
            match rung {
                Some(JOBS) => pool.do_jobs(pool),
                Some(id) => {
                    let connection = pool.connections.read().unwrap_or_else(|e| e.into_inner()).get(&id).cloned();
                    if let Some(connection) = connection {
                        connection.work(&pool.shared, pool, &mut room);
                    }
                }
                None if others >= FEWEST => break,
                None => {}
            }
        }
        pool.workers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait(&self) -> Option<u64> {
        let mut room = [MaybeUninit::uninit(); 1];
        let (events, _) = epoll::wait(&self.wakeups, &mut room, Some(&sys::timespec(IDLE_TIMEOUT))).ok()?;
        events.first().map(|event| event.data.u64())
    }

    fn do_jobs(&self, pool: &Pool) {
        let share = &self.shared.share;
        loop {
            let (job, more) = {
                let mut jobs = lock(&self.jobs);
                if jobs.is_empty() || !share.enter_job() {
                    // A worker that finishes a job looks for another job.
                    return;
                }
                (jobs.pop_front(), !jobs.is_empty())
            };
            pool.about_to_block();
            // This worker may have consumed one wakeup for several jobs. It sends another wakeup for the others, since this job may take long.
            if more {
                sys::wake(self.job_wakeup.as_fd());
            }
            if let Some(job) = job {
                job();
            }
            share.leave_job();
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Called by a worker before an operation that may take long. If no other worker is idle, this starts one for the next wakeup. The share limits
    /// how many workers can be busy.
    pub fn about_to_block(&self) {
        if self.idle.load(Ordering::Relaxed) == 0 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&self) {
        if let Some(pool) = self.shared.pool.get().and_then(std::sync::Weak::upgrade)
            && let Err(error) = Pool::spawn(&pool)
        {
            tracing::warn!("cannot start another worker thread: {error}; the running workers go on");
        }
    }

    /// Hands a job to a worker.
    pub fn submit(&self, job: PoolTask) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        lock(&self.jobs).push_back(job);
        sys::wake(self.job_wakeup.as_fd());
    }

    /// The number of workers, and of idle ones among them.
    pub fn workers(&self) -> (usize, usize) {
        (self.workers.load(Ordering::Relaxed), self.idle.load(Ordering::Relaxed))
    }

    /// All connections.
    pub fn connections(&self) -> Vec<Arc<ClientConnection>> {
        self.connections.read().unwrap_or_else(|e| e.into_inner()).values().cloned().collect()
    }

    /// Whether all jobs are done.
    pub fn at_rest(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Adds a client. From now on, workers wait for the client's wakeup.
    pub fn add(&self, connection: Arc<ClientConnection>) -> rustix::io::Result<()> {
        let id = connection.id;
        self.connections.write().unwrap_or_else(|e| e.into_inner()).insert(id, connection.clone());
        self.listen(connection.wakeup(), id).inspect_err(|_| {
            self.connections.write().unwrap_or_else(|e| e.into_inner()).remove(&id);
        })
    }

    /// Removes a client that is gone. A worker releases the client's objects.
    pub fn remove(&self, connection: Arc<ClientConnection>) {
        connection.close();
        self.connections.write().unwrap_or_else(|e| e.into_inner()).remove(&connection.id);
        let _ = epoll::delete(&self.wakeups, connection.wakeup());
        let shared = self.shared.clone();
        self.submit(Box::new(move || {
            let weight = lock(&connection.handles).weight();
            drop(connection);
            shared.freed.add(weight);
        }));
    }

    /// Has a worker unmount a mount that nobody uses.
    pub fn unmount(&self, mount: Arc<SharedMount>) {
        self.submit(Box::new(move || drop(mount)));
    }

    /// Has a worker give free memory back to the kernel, if there is enough of it.
    pub fn trim(&self) {
        if self.shared.freed.is_much() {
            self.submit(Box::new(heap::trim));
        }
    }

    /// Has workers take the releases of clients that make no request. The workers also check for requests that no worker has taken because the
    /// client already had its share of the workers.
    pub fn sweep(&self) {
        let limit = self.shared.place.idle_inodes_stay();
        for connection in self.connections() {
            connection.call_if_stuck();
            if connection.begin_sweep(limit) {
                self.submit(Box::new(move || connection.sweep(limit)));
            }
        }
    }
}
