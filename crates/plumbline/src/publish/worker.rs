//! A thread that does what is queued for it, such as sending to a server.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Instant,
};

use anyhow::{Context, Result};

/// A thread and its bounded queue. If it is dropped, the thread sees the end of the queue, and ends by itself.
pub struct PublishWorker<T> {
    queue: SyncSender<T>,
    ended: Receiver<()>,
}

impl<T: Send + 'static> PublishWorker<T> {
    /// Starts a thread that runs `serve`, with a queue of so many places.
    ///
    /// # Errors
    ///
    /// When no thread can be made.
    pub fn start(name: &str, places: usize, serve: impl FnOnce(&Receiver<T>) + Send + 'static) -> Result<Self> {
        let (queue, items) = sync_channel(places);
        let (end, ended) = sync_channel(1);
        let run = move || {
            serve(&items);
            let _ = end.send(());
        };
        std::thread::Builder::new().name(name.into()).spawn(run).context("cannot start a thread")?;
        Ok(Self { queue, ended })
    }

    /// Queues an item; returns whether there was a place for it.
    pub fn queue(&self, item: T) -> bool {
        self.queue.try_send(item).is_ok()
    }

    /// Ends the queue, and waits until `deadline` for the thread. Returns whether the thread has ended.
    pub fn stop(self, deadline: Instant) -> bool {
        let Self { queue, ended } = self;
        drop(queue);
        ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

/// Numbers of messages that were delivered and that were not, over the daemon's life.
#[derive(Debug, Default)]
pub struct Outcomes {
    good: AtomicU64,
    bad: AtomicU64,
}

impl Outcomes {
    /// Delivered, not delivered.
    pub fn read(&self) -> (u64, u64) {
        (self.good.load(Ordering::Relaxed), self.bad.load(Ordering::Relaxed))
    }

    /// One was delivered.
    pub fn succeeded(&self) {
        self.good.fetch_add(1, Ordering::Relaxed);
    }

    /// So many were not, and will not be.
    pub fn failed(&self, count: u64) {
        self.bad.fetch_add(count, Ordering::Relaxed);
    }
}
