//! The nouns that every other crate speaks in: an operation, how long it took and in which phases,
//! the mount it went to, the anomaly it was part of and the verdict over it.
//!
//! No I/O, no BPF, no clock: everything here can be built in a unit test.

mod event;
mod histogram;
mod incident;
mod mount;
mod protocol;
pub mod text;

pub use event::{Caller, Event, Flags, Link, Nanos, Network, Phases, Requester, Transit};
pub use histogram::{BUCKETS, Histogram, SIZES, quantile_index};
pub use incident::{Anomaly, AnomalyKind, Layer, PhasesMs, Verdict};
pub use mount::{Mount, MountKey};
pub use protocol::{Code, Operation, Protocol};
