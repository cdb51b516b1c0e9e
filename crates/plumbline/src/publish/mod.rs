//! What the daemon knows, for those who collect figures: Prometheus comes for them, OpenTelemetry has them sent. Incidents are posted to a webhook,
//! and given to a program of the operator's.
//!
//! The daemon's thread owns the maps. A publisher, on a thread of its own, asks for a [`Snapshot`] through the [`SnapshotExchange`];
//! [`families`] is the one list of what is in it by name, which every encoding follows.

mod backoff;
mod exchange;
mod families;
mod message;
pub mod on_incident;
mod otlp;
mod prometheus;
mod snapshot;
mod tally;
mod web;
pub mod webhook;

pub use exchange::SnapshotExchange;
pub use exposition::Server;
pub use otlp::{Counts, Exporter, IncidentRecord};
pub use prometheus::serve;
pub use snapshot::{MonotonicCounter, ProbeFigures, Snapshot};
pub use tally::{Names, Series, Tally, label};
