//! An incident in the form of listings.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use model::{Cause, Incident, IncidentState, Layer, SNAPSHOT};
use serde::Serialize;

use crate::config;

/// An incident with stable JSON names. A bundle that cannot be read has a row, too, with the reason.
#[derive(Debug, Clone, Default, Serialize)]
pub struct IncidentRow {
    pub id: String,
    pub detected: Option<String>,
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub probe: Option<String>,
    pub observed: Option<String>,
    pub layer: Option<Layer>,
    pub cause: Option<Cause>,
    pub confidence: Option<f64>,
    /// Whether the verdict is based on the data of client and server.
    pub proven: bool,
    pub operations: Option<u64>,
    pub mountpoint: Option<String>,
    pub server: Option<String>,
    pub closed: Option<bool>,
    pub state: Option<IncidentState>,
    pub first_seen: Option<String>,
    pub last_seen: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub bytes: u64,
    pub path: String,
    pub error: Option<String>,
}

/// The name of the kind; `unknown` for a kind that this version does not have.
fn known_kind(word: &str) -> &str {
    if config::is_kind(word) || word == SNAPSHOT { word } else { "unknown" }
}

impl IncidentRow {
    /// The row of the bundle `id`, which has `bytes` bytes on disk and is at `path`.
    pub fn new(incident: Result<Incident>, id: &str, bytes: u64, path: String) -> Self {
        let row = Self { id: id.to_owned(), bytes, path, ..Self::default() };
        let incident = match incident {
            Ok(incident) => incident,
            Err(error) => return Self { error: Some(format!("{error:#}")), ..row },
        };
        let mount = incident.mount().cloned();
        let Incident { anomaly, verdict, .. } = incident;
        Self {
            detected: Some(incident.detected),
            name: Some(anomaly.name),
            kind: Some(known_kind(&anomaly.kind).to_owned()),
            probe: Some(anomaly.probe.into_owned()),
            observed: Some(anomaly.observed),
            layer: Some(verdict.layer),
            cause: verdict.cause,
            confidence: Some(verdict.confidence),
            proven: verdict.proven,
            operations: Some(incident.operations),
            mountpoint: mount.as_ref().map(|mount| mount.mountpoint.clone()),
            server: mount.map(|mount| mount.server),
            closed: Some(incident.closed),
            state: Some(incident.state),
            first_seen: Some(incident.first_seen),
            last_seen: Some(incident.last_seen),
            labels: incident.labels,
            ..row
        }
    }

    /// The time from the first operation to the last window that broke the rule.
    pub fn lasted(&self) -> String {
        let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
        match (time(&self.first_seen), time(&self.last_seen)) {
            (Some(first), Some(last)) => span(last.duration_since(first)),
            _ => "-".into(),
        }
    }

    /// Layer, confidence and cause, such as `server 0.97 slow_operation`; or `network proven longer_path`.
    pub fn verdict(&self) -> String {
        match (self.layer, self.confidence, self.cause) {
            (None, ..) => "-".into(),
            (Some(Layer::Unknown), ..) => Layer::Unknown.name().into(),
            (Some(layer), confidence, cause) => {
                let cause = cause.map_or("", Cause::name);
                let sure = if self.proven { "proven".into() } else { format!("{:.2}", confidence.unwrap_or_default()) };
                format!("{} {sure} {cause}", layer.name())
            }
        }
    }
}

/// Two units at most: `4.2 s`, `3m 10s`, `2h 05m`, `3d 04h`.
fn span(lasted: SignedDuration) -> String {
    let seconds = lasted.as_secs().max(0);
    let pair = |whole: i64, unit: &str, rest: i64, part: &str| format!("{whole}{unit} {rest:02}{part}");
    match seconds {
        0..60 => format!("{:.1} s", lasted.as_secs_f64().max(0.0)),
        60..3_600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_two_units_at_most() {
        let spans = [0.04, 4.25, 190.0, 7_500.0, 273_600.0].map(|seconds| span(SignedDuration::from_secs_f64(seconds)));
        assert_eq!(spans, ["0.0 s", "4.2 s", "3m 10s", "2h 05m", "3d 04h"]);
    }

    #[test]
    fn a_verdict_of_both_ends_is_proven() {
        let row = |proven| IncidentRow {
            layer: Some(Layer::Network),
            cause: Some(Cause::LongerPath),
            confidence: Some(0.974),
            proven,
            ..IncidentRow::default()
        };
        assert_eq!(row(false).verdict(), "network 0.97 longer_path");
        assert_eq!(row(true).verdict(), "network proven longer_path");
    }
}
