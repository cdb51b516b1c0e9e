//! A program of the operator's, run when an incident begins and when it is over, with the message about it on its standard input.
//!
//! One thread, started only if a program is configured; it runs one at a time, each for [`LIMIT`] at most. Messages beyond [`MAX_WAITING`] are given up,
//! and counted as failed.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use model::Incident;

use super::message::message;
use crate::evidence::run_with_input;

/// The most messages that wait while the program runs.
const MAX_WAITING: usize = 64;
/// A program that takes longer is killed, and all that it has started.
const LIMIT: Duration = Duration::from_secs(60);

/// Numbers of runs that succeeded and failed, over the daemon's life.
#[derive(Debug, Default)]
pub struct Counts {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Succeeded, failed.
    pub fn read(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// The thread that runs the program.
pub struct OnIncident {
    messages: SyncSender<Vec<u8>>,
    counts: Arc<Counts>,
    ended: Receiver<()>,
}

impl OnIncident {
    /// Starts the thread. `command`: the program and its arguments.
    ///
    /// # Errors
    ///
    /// When no thread can be made.
    pub fn start(command: &[String], counts: Arc<Counts>) -> Result<Self> {
        let (messages, queue) = sync_channel(MAX_WAITING);
        let (end, ended) = sync_channel(1);
        let (command, counted) = (command.to_vec(), Arc::clone(&counts));
        let serve = move || {
            serve(&command, &queue, &counted);
            let _ = end.send(());
        };
        std::thread::Builder::new().name("on_incident".into()).spawn(serve).context("cannot start a thread")?;
        Ok(Self { messages, counts, ended })
    }

    /// Queues a run for an incident that has begun or is over.
    pub fn queue(&self, incident: &Incident, bundle: &Path) {
        if message(incident, bundle).map_or(true, |message| self.messages.try_send(message).is_err()) {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs the program for the messages that wait, until `deadline`, and ends the thread.
    pub fn stop(self, deadline: Instant) {
        let Self { messages, ended, .. } = self;
        drop(messages);
        if ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
            tracing::warn!("on_incident: the program did not end in time: it is killed, and what waits is given up");
        }
    }
}

fn serve(command: &[String], queue: &Receiver<Vec<u8>>, counts: &Counts) {
    // The last reason that was logged: a program that fails every time is logged once.
    let mut reason = String::new();
    while let Ok(message) = queue.recv() {
        match run_with_input(command, &message, LIMIT) {
            Ok(()) => {
                counts.succeeded.fetch_add(1, Ordering::Relaxed);
                reason.clear();
            }
            Err(error) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                let why = format!("{error:#}");
                if reason != why {
                    tracing::warn!("on_incident: {why}");
                    reason = why;
                }
            }
        }
    }
}
