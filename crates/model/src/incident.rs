//! What detection finds, and what is said of it.

use serde::Serialize;

/// What kind of departure from normal a rule looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
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
        }
    }
}

/// One rule, broken in one window. Serialises as the `anomaly` of `incident.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// The rule's name in the configuration.
    pub name: String,
    /// What kind of rule it is.
    #[serde(rename = "type")]
    pub kind: AnomalyKind,
    /// The probe whose operations broke it.
    pub probe: &'static str,
    /// The rule in words: `at least 10 operations over their threshold in 1 s`.
    pub rule: String,
    /// What was seen: `37 operations, slowest 204 ms (SMB2_WRITE)`.
    pub observed: String,
    /// The limit that was passed: `10 operations`, `1000 ms`.
    pub limit: String,
}

/// Where the time was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// This host: credits, queueing, scheduling, delivery.
    Client,
    /// Between the hosts.
    Network,
    /// The peer.
    Server,
    /// The evidence does not say.
    Unknown,
}

/// Mean time per slow operation and phase, milliseconds; `None` where the evidence does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PhasesMs {
    /// Before the request was handed to the connection.
    pub queue: Option<f64>,
    /// In this host's send path.
    pub send: Option<f64>,
    /// Between the hosts.
    pub network: Option<f64>,
    /// On the server.
    pub server: Option<f64>,
    /// From the answer's arrival until the requester had it.
    pub deliver: Option<f64>,
}

/// Which layer was at fault, how sure that is, and why. Serialises as the `verdict` of `incident.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The layer at fault.
    pub layer: Layer,
    /// From 0 (no idea) to 1.
    pub confidence: f64,
    /// The figures that say so, one sentence each.
    pub because: Vec<String>,
    /// Where the time went.
    pub phases_ms: PhasesMs,
}

impl Verdict {
    /// A verdict that admits that it is none, and why.
    pub fn unknown(because: impl Into<String>) -> Self {
        Self { layer: Layer::Unknown, confidence: 0.0, because: vec![because.into()], phases_ms: PhasesMs::default() }
    }
}
