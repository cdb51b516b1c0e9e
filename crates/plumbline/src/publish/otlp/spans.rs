//! Sends spans, for `plumbline follow`.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span::SpanKind, status::StatusCode},
};
use prost::Message;

use super::{
    Counts, Signal,
    outbox::Outbox,
    request::{EncodedRequest, OtlpSender, text},
};
use crate::{config::Otlp, publish::worker::PublishWorker};

/// The most trees that may wait for the thread.
const MAX_QUEUED: usize = 4096;
/// The number of spans in one request, roughly: half a MiB.
const BATCH: usize = 1024;
/// How long a span waits for other spans, to be sent in one request with them.
const GATHER: Duration = Duration::from_millis(500);

/// One operation of a trace.
#[derive(Debug, Clone, Default)]
pub struct SpanRecord {
    /// The trace, which is the whole tree.
    pub trace: [u8; 16],
    pub id: [u8; 8],
    /// The parent span; `None` for the first span of a tree.
    pub parent: Option<[u8; 8]>,
    pub name: String,
    /// Begin and end, nanoseconds since 1970.
    pub times: (u64, u64),
    /// Whether the operation is a request to a server or to another process.
    pub is_request: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// Names and values.
    pub texts: Vec<(&'static str, String)>,
    /// Names and values.
    pub numbers: Vec<(&'static str, i64)>,
}

/// The thread that sends spans.
pub struct SpanExporter {
    worker: PublishWorker<Vec<SpanRecord>>,
    counts: Arc<Counts>,
}

impl SpanExporter {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When TLS has no certificate authorities, or no thread or runtime can be created.
    pub fn start(config: &Otlp) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let outbox = Outbox::new(config, Arc::clone(&counts))?;
        let worker = PublishWorker::start("otlp", MAX_QUEUED, move |queue| serve(queue, outbox))?;
        Ok(Self { worker, counts })
    }

    /// Queues the spans of a tree. If [`MAX_QUEUED`] trees wait already, they are dropped and counted.
    pub fn queue(&self, spans: Vec<SpanRecord>) {
        let count = spans.len() as u64;
        if !self.worker.queue(spans) {
            self.counts.dropped(Signal::Traces, count);
        }
    }

    /// Tells the thread to send the waiting spans and to end, by `deadline` at the latest. Returns how many spans were sent, and how many dropped.
    pub fn stop(self, deadline: Instant) -> (u64, u64) {
        let Self { worker, counts } = self;
        worker.stop(deadline);
        counts.of(Signal::Traces)
    }
}

fn serve(queue: &Receiver<Vec<SpanRecord>>, mut outbox: Outbox) {
    let sender = OtlpSender::of_this_host();
    let mut batch = Vec::new();
    let mut due: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let wake = [due, outbox.again()].into_iter().flatten().min().unwrap_or(now + GATHER);
        match queue.recv_timeout(wake.saturating_duration_since(now)) {
            Ok(spans) => {
                batch.extend(spans);
                due.get_or_insert(Instant::now() + GATHER);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if batch.len() >= BATCH || due.is_some_and(|due| Instant::now() >= due) {
            outbox.add(sender.spans(std::mem::take(&mut batch)));
            due = None;
        }
        outbox.send_if_due();
    }
    if !batch.is_empty() {
        outbox.add(sender.spans(batch));
    }
    outbox.send();
    outbox.give_up();
}

impl OtlpSender {
    /// Encodes spans, which may belong to different traces.
    fn spans(&self, spans: Vec<SpanRecord>) -> EncodedRequest {
        let items = spans.len() as u64;
        let scope_spans = ScopeSpans {
            scope: Some(self.scope.clone()),
            spans: spans.into_iter().map(span).collect(),
            ..ScopeSpans::default()
        };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        };
        let request = ExportTraceServiceRequest { resource_spans: vec![resource_spans] };
        EncodedRequest { signal: Signal::Traces, items, body: request.encode_to_vec().into() }
    }
}

fn span(record: SpanRecord) -> Span {
    let kind = if record.is_request { SpanKind::Client } else { SpanKind::Internal };
    let status = record.error.map(|message| Status { message, code: StatusCode::Error.into() });
    let (start, end) = record.times;
    let texts = record.texts.iter().map(|(key, value)| text(key, value));
    let numbers = record.numbers.iter().map(|(key, value)| number(key, *value));
    Span {
        trace_id: record.trace.to_vec(),
        span_id: record.id.to_vec(),
        parent_span_id: record.parent.map(Vec::from).unwrap_or_default(),
        name: record.name,
        kind: kind.into(),
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        attributes: texts.chain(numbers).collect(),
        status,
        ..Span::default()
    }
}

fn number(key: &str, value: i64) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::IntValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
