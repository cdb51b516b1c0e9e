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
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
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
};
use crate::config::Webhook as Config;

/// The most messages that wait; if there are more, the oldest is dropped.
const MAX_WAITING: usize = 64;
/// A message that has waited for longer is dropped.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// Numbers of messages that were sent and dropped, over the daemon's life.
#[derive(Debug, Default)]
pub struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    /// The numbers of messages sent and dropped.
    pub fn read(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

/// The thread that posts.
pub struct Webhook {
    address: String,
    messages: SyncSender<Bytes>,
    counts: Arc<Counts>,
    ended: Receiver<()>,
}

impl Webhook {
    /// Starts the thread, which posts to the configured address.
    ///
    /// # Errors
    ///
    /// When the thread or the runtime cannot be created, or TLS cannot be set up.
    pub fn start(config: &Config, counts: Arc<Counts>) -> Result<Self> {
        let (messages, queue) = sync_channel(MAX_WAITING);
        let (end, ended) = sync_channel(1);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let http = {
            let _entered = runtime.enter();
            Http::new(&config.url)?
        };
        let work = Work {
            http,
            runtime,
            config: config.clone(),
            waiting: VecDeque::new(),
            counts: Arc::clone(&counts),
            backoff: Backoff::default(),
            refusal: String::new(),
        };
        let serve = move || {
            work.serve(&queue);
            let _ = end.send(());
        };
        std::thread::Builder::new().name("webhook".into()).spawn(serve).context("cannot start a thread")?;
        Ok(Self { address: config.shown(), messages, counts, ended })
    }

    /// Queues a message that an incident has begun or is over.
    pub fn queue(&self, incident: &Incident, bundle: &Path) {
        let sent = message(incident, bundle).is_ok_and(|body| self.messages.try_send(body.into()).is_ok());
        if !sent {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells the thread to try the waiting messages once more and to end. Waits for the thread until `deadline`.
    pub fn stop(self, deadline: Instant) {
        let Self { address, messages, ended, .. } = self;
        drop(messages);
        if ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
            tracing::warn!("webhook: {address} did not answer in time; what waits is not posted");
        }
    }
}

struct Work {
    http: Http,
    runtime: Runtime,
    config: Config,
    /// Messages, each with the time since which it waits; the oldest first.
    waiting: VecDeque<(Instant, Bytes)>,
    counts: Arc<Counts>,
    backoff: Backoff,
    /// The server's last refusal that was logged.
    refusal: String,
}

impl Work {
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
                    self.counts.sent.fetch_add(1, Ordering::Relaxed);
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
                    self.counts.dropped.fetch_add(1, Ordering::Relaxed);
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
        self.counts.dropped.fetch_add(count as u64, Ordering::Relaxed);
        tracing::warn!("webhook: {count} messages were never posted to {}", self.config.shown());
    }

    fn answered(&mut self) {
        if self.backoff.worked() {
            tracing::info!("webhook: {} answers again", self.config.shown());
        }
    }
}
