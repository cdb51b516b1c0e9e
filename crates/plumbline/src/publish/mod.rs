//! What the daemon knows, for those who collect figures: Prometheus comes for them, OpenTelemetry has them sent.
//!
//! The daemon's thread owns the maps. A publisher, on a thread of its own, asks for a [`Snapshot`] through the [`Desk`];
//! [`families`] is the one list of what is in it by name, which every encoding follows.

mod desk;
mod families;
mod otlp;
mod prometheus;
mod snapshot;
mod tally;

pub use desk::Desk;
pub use exposition::Server;
pub use otlp::{Counts, Exporter, IncidentRecord};
pub use prometheus::serve;
pub use snapshot::{Climb, ProbeFigures, Snapshot};
pub use tally::{Names, Series, Tally, label};
