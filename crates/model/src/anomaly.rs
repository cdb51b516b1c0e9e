//! What detection finds.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::lenient::lenient;

/// The kind of a bundle that was taken on demand: no rule was broken.
pub const SNAPSHOT: &str = "snapshot";

/// One rule, broken in one window. Serialises as the `anomaly` of `incident.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Anomaly {
    /// The rule's name in the configuration.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
    /// The word for the kind of rule: `latency`.
    #[serde(rename = "type", deserialize_with = "lenient")]
    pub kind: Cow<'static, str>,
    /// The probe whose operations broke it.
    #[serde(deserialize_with = "lenient")]
    pub probe: Cow<'static, str>,
    /// The rule in words: `at least 10 operations over their threshold in 1 s`.
    #[serde(deserialize_with = "lenient")]
    pub rule: String,
    /// The observation that broke it: `37 operations, slowest 204 ms (SMB2_WRITE)`.
    #[serde(deserialize_with = "lenient")]
    pub observed: String,
    /// The limit that was passed: `10 operations`, `1000 ms`.
    #[serde(deserialize_with = "lenient")]
    pub limit: String,
}
