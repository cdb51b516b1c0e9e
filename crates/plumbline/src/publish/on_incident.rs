//! Runs a program of the operator's when an incident begins and when it is over. The program reads the message about the incident from its
//! standard input.
//!
//! One thread runs the program for one message at a time, each time for [`LIMIT`] at most. The thread is started only if a program is configured.
//! Messages beyond [`MAX_WAITING`] are dropped and count as failed.

use std::{
    path::Path,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use anyhow::Result;
use model::Incident;

use super::{
    message::message,
    worker::{Outcomes, PublishWorker},
};
use crate::evidence::run_with_input;

/// The most messages that wait while the program runs.
const MAX_WAITING: usize = 64;
/// A program that takes longer is killed together with the processes that it has started.
const LIMIT: Duration = Duration::from_secs(60);

/// The thread that runs the program.
pub struct OnIncident {
    outcomes: Arc<Outcomes>,
    worker: PublishWorker<Vec<u8>>,
}

impl OnIncident {
    /// Starts the thread. `command`: the program and its arguments.
    ///
    /// # Errors
    ///
    /// When the thread cannot be created.
    pub fn start(command: &[String], outcomes: Arc<Outcomes>) -> Result<Self> {
        let (command, counted) = (command.to_vec(), Arc::clone(&outcomes));
        let worker = PublishWorker::start("on_incident", MAX_WAITING, move |queue| serve(&command, queue, &counted))?;
        Ok(Self { outcomes, worker })
    }

    /// Queues a run for an incident that has begun or is over.
    pub fn queue(&self, incident: &Incident, bundle: &Path) {
        if !message(incident, bundle).is_ok_and(|message| self.worker.queue(message)) {
            self.outcomes.failed(1);
        }
    }

    /// Runs the program for the waiting messages until `deadline`, and ends the thread.
    pub fn stop(self, deadline: Instant) {
        if !self.worker.stop(deadline) {
            tracing::warn!(
                "on_incident: the program did not end in time: Plumbline kills it, and drops the incidents that wait"
            );
        }
    }
}

fn serve(command: &[String], queue: &Receiver<Vec<u8>>, outcomes: &Outcomes) {
    // The last failure in the log: a program that fails each time is logged once.
    let mut reason = String::new();
    while let Ok(message) = queue.recv() {
        match run_with_input(command, &message, LIMIT) {
            Ok(()) => {
                outcomes.succeeded();
                reason.clear();
            }
            Err(error) => {
                outcomes.failed(1);
                let why = format!("{error:#}");
                if reason != why {
                    tracing::warn!("on_incident: {why}");
                    reason = why;
                }
            }
        }
    }
}
