//! What the daemon says about itself: log records with fields, and the audit.

use probes::{Capability, State};
use serde_json::Value;

use crate::evidence::{Counters, Outcome, Sweep, Why};

/// A record that audits are made of, if they are asked for. `what` is one word, `details` a sentence.
pub fn audit(enabled: bool, what: &str, details: impl FnOnce() -> String) {
    if enabled {
        tracing::info!(target: "audit", audit = what, "audit: {what}: {}", details());
    }
}

/// An incident has begun.
pub fn incident(incident: &Value, audited: bool) {
    let get = |pointer| text_at(incident, pointer);
    let because: Vec<&str> = incident
        .pointer("/verdict/because")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    tracing::warn!(
        incident = get("/id"),
        anomaly = get("/anomaly/name"),
        layer = get("/verdict/layer"),
        mount = get("/top/mounts/0/mountpoint"),
        server = get("/top/mounts/0/server"),
        "{}: {}; layer {}: {}",
        get("/anomaly/name"),
        get("/anomaly/observed"),
        get("/verdict/layer"),
        because.join(" ")
    );
    audit(audited, "incident", || format!("{} {}", get("/id"), get("/anomaly/observed")));
}

/// What `incident.json` says at a place; empty if nothing.
pub fn text_at(incident: &Value, pointer: &str) -> String {
    match incident.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(value) if !value.is_null() => value.to_string(),
        _ => String::new(),
    }
}

/// A bundle was not made, or not renewed.
pub fn lost(id: &str, cause: &str, message: &str, audited: bool) {
    tracing::error!(incident = id, cause, "bundle {id} lost ({cause}): {message}");
    audit(audited, "collection", || format!("{id} lost ({cause})"));
}

/// A bundle is on disk.
pub fn written(outcome: &Outcome, audited: bool) {
    let Outcome::Written { id, path, bytes, seconds, actions_failed } = outcome else { return };
    let failed = match actions_failed {
        0 => String::new(),
        1 => ", 1 action failed".into(),
        many => format!(", {many} actions failed"),
    };
    let path = path.display();
    tracing::info!(incident = id.as_str(), bundle = %path, "bundle {path} written: {bytes} bytes in {seconds:.2} s{failed}");
    audit(audited, "collection", || format!("{path} {bytes} bytes{failed}"));
}

/// Old bundles are gone, or should be.
pub fn deletions(sweep: &Sweep, audited: bool) {
    for deleted in &sweep.deleted {
        let why = match deleted.why {
            Why::Age => "too old",
            Why::Size => "to make room",
        };
        tracing::info!(incident = deleted.id.as_str(), "bundle {} deleted: {why}", deleted.id.as_str());
        audit(audited, "deletion", || format!("{} {why}", deleted.id.as_str()));
    }
    if sweep.failed > 0 {
        let why = sweep.error.as_deref().unwrap_or("no reason given");
        tracing::error!("{} old bundles cannot be deleted, and still count against the limit: {why}", sweep.failed);
    }
}

/// A probe works better or worse than before.
pub fn probe(capability: &Capability) {
    let (probe, reason) = (capability.probe, &capability.reason);
    match capability.state {
        State::Ready => tracing::info!(probe, "probe {probe} is attached"),
        State::Degraded => tracing::warn!(probe, "probe {probe} is attached: {reason}"),
        State::Unavailable => tracing::info!(probe, "probe {probe} is off: {reason}"),
    }
}

/// The last words.
pub fn stopped(incidents: u64, bundles_lost: u64, losses: &Value, counters: &Counters) {
    let lost = super::losses_line(losses);
    let lost = if lost.is_empty() { "nothing lost".into() } else { format!("lost: {lost}") };
    tracing::info!(
        bundles_lost,
        restarts = counters.restarts,
        abandoned = counters.abandoned,
        "stopped: {incidents} incidents, {lost}; unfinished: {}",
        unfinished(losses)
    );
}

/// `smb 0 of 120, nfs 1 of 40`: a probe whose operations stay unfinished while nothing is asked for leaks them.
fn unfinished(losses: &Value) -> String {
    let of = |(probe, causes): (&String, &Value)| {
        Some(format!("{probe} {} of {}", causes.get("unfinished")?, causes.get("started")?))
    };
    losses.as_object().into_iter().flatten().filter_map(of).collect::<Vec<_>>().join(", ")
}
