//! OpenTelemetry: sends metrics to a collector at an interval, and incidents as they happen.
//!
//! One thread does this; it runs only if an endpoint is configured. Batches that cannot be sent wait in a [`Queue`] of
//! bounded size and are tried again after growing pauses. Batches that the queue has to drop are counted and logged.

mod client;
mod queue;
mod request;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

pub use request::IncidentRecord;

use super::{SnapshotExchange, backoff::Backoff, web::Failure, worker::PublishWorker};
use crate::config::Otlp;
use client::OtlpClient;
use queue::Queue;
use request::{EncodedRequest, OtlpSender};

/// The most incidents that may wait for the thread.
const MAX_QUEUED: usize = 64;
/// How long the thread waits for the daemon's snapshot before it skips this interval's metrics.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(3);

/// The OTLP signals that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Metrics,
    Logs,
}

impl Signal {
    /// All signals, in the order of the counters in [`Counts`].
    pub const ALL: [Self; 2] = [Self::Metrics, Self::Logs];

    /// The name in metrics and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// How many data points of metrics and log records were sent, and how many were dropped, over the daemon's life.
#[derive(Debug, Default)]
pub struct Counts {
    sent: [AtomicU64; 2],
    dropped: [AtomicU64; 2],
}

impl Counts {
    /// Returns signal, sent and dropped, for each signal.
    pub fn read(&self) -> [(&'static str, u64, u64); 2] {
        let read = |counters: &[AtomicU64; 2], signal| {
            counters.get(signal as usize).map_or(0, |one| one.load(Ordering::Relaxed))
        };
        Signal::ALL.map(|signal| (signal.name(), read(&self.sent, signal), read(&self.dropped, signal)))
    }

    fn add(counters: &[AtomicU64; 2], signal: Signal, items: u64) {
        if let Some(counter) = counters.get(signal as usize) {
            counter.fetch_add(items, Ordering::Relaxed);
        }
    }

    fn sent(&self, signal: Signal, items: u64) {
        Self::add(&self.sent, signal, items);
    }

    fn dropped(&self, signal: Signal, items: u64) {
        Self::add(&self.dropped, signal, items);
    }
}

/// The handle of the thread that sends. When it is dropped, the thread tries once to send what waits, and ends; the
/// drop does not wait for the thread.
pub struct OtlpExporter {
    worker: PublishWorker<IncidentRecord>,
    counts: Arc<Counts>,
}

impl OtlpExporter {
    /// Starts the thread, which sends the snapshots of `exchange`.
    ///
    /// # Errors
    ///
    /// When TLS has no certificate authorities, or no thread or runtime can be created.
    pub fn start(config: &Otlp, exchange: Arc<SnapshotExchange>, counts: Arc<Counts>) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let work = OtlpWork {
            client: OtlpClient::new(config, runtime)?,
            queue: Queue::new(config.buffer),
            source: OtlpSender::of_this_host(),
            counts: Arc::clone(&counts),
            endpoint: config.endpoint.to_string(),
            exchange,
            backoff: Backoff::default(),
            refusal: String::new(),
            dropped_unreported: 0,
        };
        let interval = config.interval;
        let worker = PublishWorker::start("otlp", MAX_QUEUED, move |queue| work.serve(queue, interval))?;
        Ok(Self { worker, counts })
    }

    /// Queues an incident for the thread. If [`MAX_QUEUED`] wait already, the incident is dropped and counted.
    pub fn queue(&self, incident: IncidentRecord) {
        if !self.worker.queue(incident) {
            self.counts.dropped(Signal::Logs, 1);
        }
    }

    /// Has the thread send what waits and end. Waits for that until `deadline` at the latest.
    pub fn stop(self, deadline: Instant) {
        self.worker.stop(deadline);
    }
}

struct OtlpWork {
    client: OtlpClient,
    queue: Queue,
    source: OtlpSender,
    counts: Arc<Counts>,
    exchange: Arc<SnapshotExchange>,
    endpoint: String,
    backoff: Backoff,
    /// The collector's last refusal that was logged.
    refusal: String,
    dropped_unreported: u64,
}

impl OtlpWork {
    fn serve(mut self, queue: &Receiver<IncidentRecord>, interval: Duration) {
        let mut next = Instant::now() + interval;
        loop {
            let again = self.backoff.until().filter(|_| !self.queue.is_empty());
            let wake = again.map_or(next, |again| again.min(next));
            match queue.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(incident) => self.add(self.source.logs(&incident)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.send();
                    return self.give_up();
                }
            }
            if Instant::now() >= next {
                if let Some(snapshot) = self.exchange.ask(SNAPSHOT_TIMEOUT) {
                    self.add(self.source.metrics(&snapshot));
                }
                // From now, not from the last time: a long wait for the collector must not cause a burst of metrics.
                next = Instant::now() + interval;
            }
            if !self.backoff.is_waiting() {
                self.send();
            }
        }
    }

    fn add(&mut self, batch: EncodedRequest) {
        let counts = Arc::clone(&self.counts);
        let mut dropped = 0;
        self.queue.add(batch, |lost| {
            counts.dropped(lost.signal, lost.items);
            dropped += lost.items;
        });
        self.dropped_unreported += dropped;
    }

    /// Sends what waits, oldest first, until something fails.
    fn send(&mut self) {
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
                    // The collector will refuse for the same reason every time, so that is logged once.
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

    /// Counts what still waits as dropped, and logs it.
    fn give_up(mut self) {
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
