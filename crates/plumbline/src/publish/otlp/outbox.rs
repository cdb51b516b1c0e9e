//! The batches that wait to be sent to a collector, with growing pauses after failures.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{Counts, client::OtlpClient, queue::Queue, request::EncodedRequest};
use crate::{
    config::Otlp,
    publish::{backoff::Backoff, web::Failure},
};

/// Batches for one collector.
pub struct Outbox {
    client: OtlpClient,
    queue: Queue,
    counts: Arc<Counts>,
    endpoint: String,
    backoff: Backoff,
    /// The collector's last refusal in the log.
    refusal: String,
    dropped_unreported: u64,
}

impl Outbox {
    /// An empty outbox; `counts` gets the numbers of sent and dropped items.
    ///
    /// # Errors
    ///
    /// When TLS has no certificate authorities, or no runtime can be created.
    pub fn new(config: &Otlp, counts: Arc<Counts>) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        Ok(Self {
            client: OtlpClient::new(config, runtime)?,
            queue: Queue::new(config.buffer),
            counts,
            endpoint: config.endpoint.to_string(),
            backoff: Backoff::default(),
            refusal: String::new(),
            dropped_unreported: 0,
        })
    }

    /// The time of the next try, if the last one failed.
    pub fn again(&self) -> Option<Instant> {
        self.backoff.until().filter(|_| !self.queue.is_empty())
    }

    /// Sends the waiting batches, unless the pause after a failure is not over.
    pub fn send_if_due(&mut self) {
        if !self.backoff.is_waiting() {
            self.send();
        }
    }

    /// Queues a batch.
    pub fn add(&mut self, batch: EncodedRequest) {
        let counts = Arc::clone(&self.counts);
        let mut dropped = 0;
        self.queue.add(batch, |lost| {
            counts.dropped(lost.signal, lost.items);
            dropped += lost.items;
        });
        self.dropped_unreported += dropped;
    }

    /// Sends the waiting batches, oldest first, until one fails.
    pub fn send(&mut self) {
        while let Some(batch) = self.queue.first() {
            let (signal, items) = (batch.signal, batch.items);
            match self.client.send(batch) {
                Ok(rejected) => {
                    let refused = rejected.items.min(items);
                    self.counts.sent(signal, items - refused);
                    self.counts.dropped(signal, refused);
                    if refused > 0 {
                        let (what, why) = (signal.name(), &rejected.message);
                        tracing::warn!("otlp: {} accepted all but {refused} of {items} {what}: {why}", self.endpoint);
                    }
                    self.recovered();
                }
                Err(Failure::Final(why)) => {
                    self.counts.dropped(signal, items);
                    let what = signal.name();
                    // The collector may refuse each batch for the same reason: log it once.
                    if self.refusal != why {
                        tracing::warn!("otlp: {} refuses {items} {what}, which are given up: {why}", self.endpoint);
                        self.refusal = why;
                    }
                    self.recovered();
                }
                Err(Failure::Passing { why, again_in }) => return self.in_trouble(&why, again_in),
            }
            self.queue.remove_first();
        }
    }

    /// Drops the waiting batches, and counts and logs their items.
    pub fn give_up(mut self) {
        let mut left = 0;
        while let Some(batch) = self.queue.first() {
            left += batch.items;
            self.counts.dropped(batch.signal, batch.items);
            self.queue.remove_first();
        }
        if left > 0 {
            tracing::warn!("otlp: {left} points and records were never sent to {}", self.endpoint);
        }
    }

    fn recovered(&mut self) {
        if self.backoff.worked() {
            let dropped = std::mem::take(&mut self.dropped_unreported);
            tracing::info!(
                "otlp: {} answers again; {dropped} points and records were dropped meanwhile",
                self.endpoint
            );
        }
    }

    fn in_trouble(&mut self, why: &str, again_in: Option<Duration>) {
        // One warning for an outage; the number of dropped items is logged when it is over.
        if self.backoff.failed(again_in) {
            tracing::warn!(
                "otlp: cannot send to {}: {why}; retrying; if more than {} KiB wait, the oldest are dropped",
                self.endpoint,
                self.queue.limit() / 1024
            );
        }
    }
}
