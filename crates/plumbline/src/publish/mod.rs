//! Publishes the daemon's figures: Prometheus scrapes them, and the OpenTelemetry exporter sends them. Publishes incidents to a webhook, as
//! Kubernetes Events, and to a program of the operator's.
//!
//! The daemon's thread owns the BPF maps. A publisher runs on a thread of its own and requests a [`Snapshot`] through
//! the [`SnapshotExchange`]. [`families`] lists all metrics; every encoding follows that list.

mod backoff;
mod delivery;
mod exchange;
mod families;
mod incidents;
pub mod kubernetes;
mod message;
pub mod on_incident;
mod otlp;
mod prometheus;
mod snapshot;
mod tally;
pub mod web;
pub mod webhook;
mod worker;

pub use delivery::Delivery;
pub use exchange::{Exchange, SnapshotExchange};
pub use exposition::HttpServer;
pub use incidents::{IncidentCounts, OpenLabels};
pub use message::message;
pub use otlp::{Counts, IncidentRecord, OtlpExporter, SpanExporter, SpanRecord};
pub use prometheus::serve;
pub use snapshot::{MonotonicCounter, ProbeFigures, Snapshot};
pub use tally::{MountLookup, OperationSeries, Tally, label};
pub use worker::{Outcomes, PublishWorker};
