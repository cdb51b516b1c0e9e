//! OpenTelemetry: metrics every so often and incidents as they happen, sent to a collector.
//!
//! One thread, started only if an endpoint is configured. What cannot be sent waits in a [`Queue`] of bounded size and is tried
//! again, later and later; what finds no room in it is counted and told.

mod client;
mod queue;
mod request;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

pub use request::IncidentRecord;

use super::{SnapshotExchange, backoff::Backoff, web::Failure};
use crate::config::Otlp;
use client::Client;
use queue::Queue;
use request::{Batch, Source};

/// Incidents on their way to the thread.
const MAX_QUEUED: usize = 64;
/// How long the daemon may be busy otherwise.
const PATIENCE: Duration = Duration::from_secs(3);
/// What OTLP knows two kinds of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Metrics,
    Logs,
}

impl Signal {
    /// In the order of [`Counts`].
    pub const ALL: [Self; 2] = [Self::Metrics, Self::Logs];

    /// The word in metrics and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// Points of metrics and records of logs that were sent and that were given up, over the daemon's life.
#[derive(Debug, Default)]
pub struct Counts {
    sent: [AtomicU64; 2],
    dropped: [AtomicU64; 2],
}

impl Counts {
    /// Signal, sent, dropped.
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

/// The thread that sends. Dropped, it sends what waits, once, and ends; nobody waits for that.
pub struct Exporter {
    incidents: SyncSender<IncidentRecord>,
    counts: Arc<Counts>,
    ended: Receiver<()>,
}

impl Exporter {
    /// Begins to send what there is at the exchange.
    ///
    /// # Errors
    ///
    /// When no thread or runtime can be made.
    pub fn start(config: &Otlp, exchange: Arc<SnapshotExchange>, counts: Arc<Counts>) -> Result<Self> {
        let (incidents, queue) = sync_channel(MAX_QUEUED);
        let (end, ended) = sync_channel(1);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let work = Work {
            client: Client::new(config, runtime)?,
            queue: Queue::new(config.buffer),
            source: Source::of_this_host(),
            counts: Arc::clone(&counts),
            endpoint: config.endpoint.to_string(),
            exchange,
            backoff: Backoff::default(),
            refusal: String::new(),
            dropped_unreported: 0,
        };
        let interval = config.interval;
        let serve = move || {
            work.serve(&queue, interval);
            let _ = end.send(());
        };
        std::thread::Builder::new().name("otlp".into()).spawn(serve).context("cannot start a thread")?;
        Ok(Self { incidents, counts, ended })
    }

    /// Has an incident sent.
    pub fn queue(&self, incident: IncidentRecord) {
        if self.incidents.try_send(incident).is_err() {
            self.counts.dropped(Signal::Logs, 1);
        }
    }

    /// Sends what waits and ends; waits for that until `deadline`.
    pub fn stop(self, deadline: Instant) {
        let Self { incidents, ended, .. } = self;
        drop(incidents);
        let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

struct Work {
    client: Client,
    queue: Queue,
    source: Source,
    counts: Arc<Counts>,
    exchange: Arc<SnapshotExchange>,
    endpoint: String,
    backoff: Backoff,
    /// The last one that was told.
    refusal: String,
    dropped_unreported: u64,
}

impl Work {
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
                if let Some(snapshot) = self.exchange.ask(PATIENCE) {
                    self.add(self.source.metrics(&snapshot));
                }
                // Not in a burst after a long wait for the collector.
                next = Instant::now() + interval;
            }
            if !self.backoff.is_waiting() {
                self.send();
            }
        }
    }

    fn add(&mut self, batch: Batch) {
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
                    // It will say so every time.
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

    /// Nothing more is sent.
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
        // Once for an outage, and once for each time that something was lost in it would be too often.
        if self.backoff.failed(again_in) {
            tracing::warn!(
                "otlp: cannot send to {}: {why}; tried again until it works, and the oldest is dropped beyond {} KiB",
                self.endpoint,
                self.queue.limit() / 1024
            );
        }
    }
}
