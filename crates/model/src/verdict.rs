//! Who was at fault, as far as the evidence says.

use serde::{Deserialize, Serialize};

use crate::lenient::{lenient, lenient_list};

/// Where the time was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// This host: credits, queueing, scheduling, delivery.
    Client,
    /// Between the hosts.
    Network,
    /// The peer.
    Server,
    /// The evidence does not say.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Mean time per slow operation and phase, milliseconds; `None` where the evidence does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhasesMs {
    /// Before the request was handed to the connection.
    #[serde(deserialize_with = "lenient")]
    pub queue: Option<f64>,
    /// In this host's send path.
    #[serde(deserialize_with = "lenient")]
    pub send: Option<f64>,
    /// Between the hosts.
    #[serde(deserialize_with = "lenient")]
    pub network: Option<f64>,
    /// On the server.
    #[serde(deserialize_with = "lenient")]
    pub server: Option<f64>,
    /// From the answer's arrival until the requester had it.
    #[serde(deserialize_with = "lenient")]
    pub deliver: Option<f64>,
}

/// Which layer was at fault, how sure that is, and why. Serialises as the `verdict` of `incident.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// The layer at fault.
    #[serde(deserialize_with = "lenient")]
    pub layer: Layer,
    /// From 0 (no idea) to 1.
    #[serde(deserialize_with = "lenient")]
    pub confidence: f64,
    /// The figures that say so, one sentence each.
    #[serde(deserialize_with = "lenient_list")]
    pub because: Vec<String>,
    /// Where the time went.
    #[serde(deserialize_with = "lenient")]
    pub phases_ms: PhasesMs,
}

impl Layer {
    /// The word in JSON, logs and OTLP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Network => "network",
            Self::Server => "server",
            Self::Unknown => "unknown",
        }
    }
}

impl PhasesMs {
    /// Each phase with its name, in the order of time.
    pub fn named(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("queue", self.queue),
            ("send", self.send),
            ("network", self.network),
            ("server", self.server),
            ("deliver", self.deliver),
        ]
    }
}

impl Verdict {
    /// A verdict that admits that it is none, and why.
    pub fn unknown(because: impl Into<String>) -> Self {
        Self { layer: Layer::Unknown, confidence: 0.0, because: vec![because.into()], phases_ms: PhasesMs::default() }
    }
}
