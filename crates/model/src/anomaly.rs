//! What detection finds.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::lenient::lenient;

/// What kind of departure from normal a rule looks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnomalyKind {
    /// Operations over their threshold.
    Latency,
    /// Operations that failed.
    Error,
    /// Operations that have not returned.
    Stalled,
    /// Connections that broke or starved.
    Connection,
    /// Latency that departed from its own recent normal.
    Baseline,
    /// Throughput that did.
    Throughput,
    /// Taken on demand; nothing was detected.
    Snapshot,
    /// A word that this version does not know: only read, never found.
    #[default]
    #[serde(other)]
    Unknown,
}

impl AnomalyKind {
    /// The word in file names, JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Error => "error",
            Self::Stalled => "stalled",
            Self::Connection => "connection",
            Self::Baseline => "baseline",
            Self::Throughput => "throughput",
            Self::Snapshot => "snapshot",
            Self::Unknown => "unknown",
        }
    }
}

/// One rule, broken in one window. Serialises as the `anomaly` of `incident.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Anomaly {
    /// The rule's name in the configuration.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
    /// What kind of rule it is.
    #[serde(rename = "type", deserialize_with = "lenient")]
    pub kind: AnomalyKind,
    /// The probe whose operations broke it.
    #[serde(deserialize_with = "lenient")]
    pub probe: Cow<'static, str>,
    /// The rule in words: `at least 10 operations over their threshold in 1 s`.
    #[serde(deserialize_with = "lenient")]
    pub rule: String,
    /// What was seen: `37 operations, slowest 204 ms (SMB2_WRITE)`.
    #[serde(deserialize_with = "lenient")]
    pub observed: String,
    /// The limit that was passed: `10 operations`, `1000 ms`.
    #[serde(deserialize_with = "lenient")]
    pub limit: String,
}
