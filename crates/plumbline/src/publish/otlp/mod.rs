//! OpenTelemetry: sends metrics to a collector at an interval, incidents when they happen, and traces of `plumbline follow`.
//!
//! One thread does this; it runs only if an endpoint is configured. Batches that cannot be sent wait in a [`Queue`] of
//! bounded size and are tried again after growing pauses. Batches that the queue has to drop are counted and logged.

mod client;
mod outbox;
mod queue;
mod request;
mod spans;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::Result;

pub use request::IncidentRecord;
pub use spans::{SpanExporter, SpanRecord};

use super::{SnapshotExchange, worker::PublishWorker};
use crate::config::Otlp;
use outbox::Outbox;
use request::OtlpSender;

/// The most incidents that may wait for the thread.
const MAX_QUEUED: usize = 64;
/// How long the thread waits for the daemon's snapshot before it skips this interval's metrics.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(3);

/// The OTLP signals that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Metrics,
    Logs,
    Traces,
}

impl Signal {
    /// The signals that a daemon sends.
    const OF_A_DAEMON: [Self; 2] = [Self::Metrics, Self::Logs];

    /// The name in metrics and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
            Self::Traces => "traces",
        }
    }
}

/// How many data points of metrics, log records and spans were sent, and how many were dropped, over the exporter's life.
#[derive(Debug, Default)]
pub struct Counts {
    sent: [AtomicU64; 3],
    dropped: [AtomicU64; 3],
}

impl Counts {
    /// Returns signal, sent and dropped, for each signal of a daemon.
    pub fn read(&self) -> [(&'static str, u64, u64); 2] {
        Signal::OF_A_DAEMON.map(|signal| {
            let (sent, dropped) = self.of(signal);
            (signal.name(), sent, dropped)
        })
    }

    /// Sent and dropped items of a signal.
    fn of(&self, signal: Signal) -> (u64, u64) {
        let read =
            |counters: &[AtomicU64; 3]| counters.get(signal as usize).map_or(0, |one| one.load(Ordering::Relaxed));
        (read(&self.sent), read(&self.dropped))
    }

    fn add(counters: &[AtomicU64; 3], signal: Signal, items: u64) {
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
        let outbox = Outbox::new(config, Arc::clone(&counts))?;
        let work = OtlpWork { outbox, source: OtlpSender::of_this_host(), exchange };
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

    /// Tells the thread to send the waiting batches and to end. Waits for this until `deadline` at the latest.
    pub fn stop(self, deadline: Instant) {
        self.worker.stop(deadline);
    }
}

struct OtlpWork {
    outbox: Outbox,
    source: OtlpSender,
    exchange: Arc<SnapshotExchange>,
}

impl OtlpWork {
    fn serve(mut self, queue: &Receiver<IncidentRecord>, interval: Duration) {
        let mut next = Instant::now() + interval;
        loop {
            let wake = self.outbox.again().map_or(next, |again| again.min(next));
            match queue.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(incident) => self.outbox.add(self.source.logs(&incident)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.outbox.send();
                    return self.outbox.give_up();
                }
            }
            if Instant::now() >= next {
                if let Some(snapshot) = self.exchange.ask(SNAPSHOT_TIMEOUT) {
                    self.outbox.add(self.source.metrics(&snapshot));
                }
                // From now, not from the last time: a long wait for the collector must not cause a burst of metrics.
                next = Instant::now() + interval;
            }
            self.outbox.send_if_due();
        }
    }
}
