//! A thread with a queue of work, such as sending to a server.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Instant,
};

use anyhow::{Context, Result};

/// A thread and its bounded queue. When this is dropped, the thread reaches the end of the queue and ends.
pub struct PublishWorker<T> {
    queue: SyncSender<T>,
    ended: Receiver<()>,
}

impl<T: Send + 'static> PublishWorker<T> {
    /// Starts a thread that runs `serve`, with a queue for `places` items.
    ///
    /// # Errors
    ///
    /// When the thread cannot be created.
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

    /// Queues an item. Returns false if the queue is full.
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

/// The numbers of delivered and undelivered messages, over the daemon's life.
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

    /// Counts a delivered message.
    pub fn succeeded(&self) {
        self.good.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts messages that will never be delivered.
    pub fn failed(&self, count: u64) {
        self.bad.fetch_add(count, Ordering::Relaxed);
    }
}
