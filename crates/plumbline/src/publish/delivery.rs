//! Delivers messages about incidents to one server: the common part of the webhook and of Kubernetes Events.
//!
//! One thread, started only if the destination is configured. Messages that cannot be sent wait for a retry, with growing
//! pauses. The number of waiting messages and their age are bounded: an incident of yesterday should alarm nobody.
//! Dropped messages are counted.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use prost::bytes::Bytes;
use tokio::runtime::Runtime;

use super::{
    backoff::Backoff,
    web::Failure,
    worker::{Outcomes, PublishWorker},
};

/// The most messages that wait; if there are more, the oldest is dropped.
const MAX_WAITING: usize = 64;
/// A message that has waited for longer is dropped.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The receiver of the messages.
pub trait Destination: Send + 'static {
    /// The key of the configuration, with which log lines begin.
    const NAME: &'static str;
    /// The address, without its secret parts.
    fn shown(&self) -> String;
    /// The time limit for one message.
    fn timeout(&self) -> Duration;
    /// Sends one message.
    ///
    /// # Errors
    ///
    /// When the server did not take the message: see [`Failure`].
    fn send(&self, body: Bytes) -> impl Future<Output = Result<(), Failure>>;
}

/// The thread that sends.
pub struct Delivery {
    name: &'static str,
    address: String,
    outcomes: Arc<Outcomes>,
    worker: PublishWorker<Bytes>,
}

impl Delivery {
    /// Starts the thread. `destination` is called inside the tokio runtime that will drive its connections.
    ///
    /// # Errors
    ///
    /// When the thread, the runtime or the destination cannot be created.
    pub fn start<D: Destination>(destination: impl FnOnce() -> Result<D>, outcomes: Arc<Outcomes>) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let destination = {
            let _entered = runtime.enter();
            destination()?
        };
        let address = destination.shown();
        let work = DeliveryWork {
            destination,
            runtime,
            waiting: VecDeque::new(),
            outcomes: Arc::clone(&outcomes),
            backoff: Backoff::default(),
            refusal: String::new(),
        };
        let worker = PublishWorker::start(D::NAME, MAX_WAITING, move |queue| work.serve(queue))?;
        Ok(Self { name: D::NAME, address, outcomes, worker })
    }

    /// Queues a message. A message that could not be encoded counts as dropped.
    pub fn queue(&self, message: serde_json::Result<Vec<u8>>) {
        if !message.is_ok_and(|body| self.worker.queue(body.into())) {
            self.outcomes.failed(1);
        }
    }

    /// Tells the thread to try the waiting messages once more and to end. Waits for the thread until `deadline`.
    pub fn stop(self, deadline: Instant) {
        let Self { name, address, worker, .. } = self;
        if !worker.stop(deadline) {
            tracing::warn!("{name}: {address} did not answer in time; waiting messages are not posted");
        }
    }
}

struct DeliveryWork<D> {
    destination: D,
    runtime: Runtime,
    /// Messages, oldest first, each with the time since when it has waited.
    waiting: VecDeque<(Instant, Bytes)>,
    outcomes: Arc<Outcomes>,
    backoff: Backoff,
    /// The server's last refusal in the log.
    refusal: String,
}

impl<D: Destination> DeliveryWork<D> {
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

    /// Sends the waiting messages, oldest first, until one fails.
    fn send(&mut self) {
        let name = D::NAME;
        let too_old = self.waiting.iter().take_while(|(since, _)| since.elapsed() > MAX_AGE).count();
        self.give_up(too_old);
        while let Some((_, body)) = self.waiting.front() {
            match self.post(body.clone()) {
                Ok(()) => {
                    self.outcomes.succeeded();
                    self.waiting.pop_front();
                    self.answered();
                }
                Err(Failure::Final(why)) => {
                    self.answered();
                    // The server may refuse each message for the same reason: log it once.
                    if self.refusal != why {
                        let address = self.destination.shown();
                        tracing::warn!(
                            "{name}: {address} refuses a message about an incident, which is dropped: {why}"
                        );
                        self.refusal = why;
                    }
                    self.waiting.pop_front();
                    self.outcomes.failed(1);
                }
                Err(Failure::Passing { why, again_in }) => {
                    if self.backoff.failed(again_in) {
                        tracing::warn!(
                            "{name}: cannot post to {}: {why}; retrying; at most the newest {MAX_WAITING} waiting messages are kept, each for an hour",
                            self.destination.shown()
                        );
                    }
                    return;
                }
            }
        }
    }

    fn post(&self, body: Bytes) -> Result<(), Failure> {
        let timeout = self.destination.timeout();
        let answer = self.destination.send(body);
        let answer = self.runtime.block_on(async { tokio::time::timeout(timeout, answer).await });
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
        tracing::warn!("{}: {count} messages were never posted to {}", D::NAME, self.destination.shown());
    }

    fn answered(&mut self) {
        if self.backoff.worked() {
            tracing::info!("{}: {} answers again", D::NAME, self.destination.shown());
        }
    }
}
