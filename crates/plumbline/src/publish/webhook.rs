//! Posts incidents as JSON to an address that the operator configures, when they begin and when they are over.
//!
//! One thread, started only if an address is configured. Messages that cannot be sent wait for a retry, with growing
//! pauses. The number of waiting messages and their age are bounded: an incident of yesterday should alarm nobody.
//! Dropped messages are counted.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use model::Incident;
use prost::bytes::Bytes;
use tokio::runtime::Runtime;

use super::{
    backoff::Backoff,
    message::message,
    web::{Failure, Http},
    worker::{Outcomes, PublishWorker},
};
use crate::config::WebhookConfig as Config;

/// The most messages that wait; if there are more, the oldest is dropped.
const MAX_WAITING: usize = 64;
/// A message that has waited for longer is dropped.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The thread that posts.
pub struct Webhook {
    address: String,
    outcomes: Arc<Outcomes>,
    worker: PublishWorker<Bytes>,
}

impl Webhook {
    /// Starts the thread, which posts to the configured address.
    ///
    /// # Errors
    ///
    /// When the thread or the runtime cannot be created, or TLS cannot be set up.
    pub fn start(config: &Config, outcomes: Arc<Outcomes>) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let http = {
            let _entered = runtime.enter();
            Http::new(&config.url)?
        };
        let work = WebhookWork {
            http,
            runtime,
            config: config.clone(),
            waiting: VecDeque::new(),
            outcomes: Arc::clone(&outcomes),
            backoff: Backoff::default(),
            refusal: String::new(),
        };
        let worker = PublishWorker::start("webhook", MAX_WAITING, move |queue| work.serve(queue))?;
        Ok(Self { address: config.shown(), outcomes, worker })
    }

    /// Queues a message that an incident has begun or is over.
    pub fn queue(&self, incident: &Incident, bundle: &Path) {
        if !message(incident, bundle).is_ok_and(|body| self.worker.queue(body.into())) {
            self.outcomes.failed(1);
        }
    }

    /// Tells the thread to try the waiting messages once more and to end. Waits for the thread until `deadline`.
    pub fn stop(self, deadline: Instant) {
        let Self { address, worker, .. } = self;
        if !worker.stop(deadline) {
            tracing::warn!("webhook: {address} did not answer in time; what waits is not posted");
        }
    }
}

struct WebhookWork {
    http: Http,
    runtime: Runtime,
    config: Config,
    /// Messages, each with the time since which it waits; the oldest first.
    waiting: VecDeque<(Instant, Bytes)>,
    outcomes: Arc<Outcomes>,
    backoff: Backoff,
    /// The server's last refusal that was logged.
    refusal: String,
}

impl WebhookWork {
    fn serve(mut self, queue: &Receiver<Bytes>) {
        loop {
            let again = self.backoff.until().filter(|_| !self.waiting.is_empty());
            let next = match again {
                Some(again) => queue.recv_timeout(again.saturating_duration_since(Instant::now())),
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(body) => {
                    self.waiting.push_back((Instant::now(), body));
                    self.give_up(self.waiting.len().saturating_sub(MAX_WAITING));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.send();
                    return self.give_up(self.waiting.len());
                }
            }
            if !self.backoff.is_waiting() {
                self.send();
            }
        }
    }

    /// Posts the waiting messages, oldest first, until one fails.
    fn send(&mut self) {
        let too_old = self.waiting.iter().take_while(|(since, _)| since.elapsed() > MAX_AGE).count();
        self.give_up(too_old);
        while let Some((_, body)) = self.waiting.front() {
            match self.post(body.clone()) {
                Ok(_) => {
                    self.outcomes.succeeded();
                    self.waiting.pop_front();
                    self.answered();
                }
                Err(Failure::Final(why)) => {
                    self.answered();
                    // The server may refuse each message for the same reason: log it once.
                    if self.refusal != why {
                        tracing::warn!(
                            "webhook: {} refuses an incident, which is given up: {why}",
                            self.config.shown()
                        );
                        self.refusal = why;
                    }
                    self.waiting.pop_front();
                    self.outcomes.failed(1);
                }
                Err(Failure::Passing { why, again_in }) => {
                    if self.backoff.failed(again_in) {
                        tracing::warn!(
                            "webhook: cannot post to {}: {why}; tried again until it works; of what waits, the newest {MAX_WAITING} are kept, \
                             for an hour",
                            self.config.shown()
                        );
                    }
                    return;
                }
            }
        }
    }

    fn post(&self, body: Bytes) -> Result<Bytes, Failure> {
        let Config { url, headers, timeout } = &self.config;
        let answer = self.http.post(url.clone(), headers.clone(), "application/json", body);
        let answer = self.runtime.block_on(async { tokio::time::timeout(*timeout, answer).await });
        answer.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", timeout.as_secs_f64());
            Err(Failure::Passing { why, again_in: None })
        })
    }

    /// Drops the `count` oldest messages.
    fn give_up(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.waiting.drain(..count.min(self.waiting.len()));
        self.outcomes.failed(count as u64);
        tracing::warn!("webhook: {count} messages were never posted to {}", self.config.shown());
    }

    fn answered(&mut self) {
        if self.backoff.worked() {
            tracing::info!("webhook: {} answers again", self.config.shown());
        }
    }
}
