//! The daemon's log records, with fields, and its audit records.

use diagnose::counted;
use model::{Alternative, Incident, Layer, Losses, ProbeLosses, Verdict};
use probes::{Capability, ProbeSupport};

use crate::evidence::{BundleOutcome, CollectorCounters, Sweep, Why};

/// Logs an audit record if auditing is enabled. `what` is one word, `details` a sentence.
pub fn audit(enabled: bool, what: &str, details: impl FnOnce() -> String) {
    if enabled {
        tracing::info!(target: "audit", audit = what, "audit: {what}: {}", details());
    }
}

/// Logs that an incident has begun. Its bundle has the reasons of the verdict.
pub fn incident(incident: &Incident, audited: bool) {
    let Incident { id, anomaly, verdict, .. } = incident;
    let (layer, cause) = (verdict.layer.name(), verdict.cause.map_or("", |cause| cause.name()));
    tracing::warn!(
        incident = id,
        anomaly = anomaly.name,
        layer,
        cause,
        mount = incident.mount().map_or("", |mount| &mount.mountpoint),
        server = incident.mount().map_or("", |mount| &mount.server),
        "{}: {}; {}",
        anomaly.name,
        anomaly.observed,
        conclusion(verdict)
    );
    audit(audited, "incident", || format!("{id} {}", anomaly.observed));
}

/// Logs that an incident's verdict has changed.
pub fn verdict(incident: &Incident) {
    let (layer, cause) = (incident.verdict.layer.name(), incident.verdict.cause.map_or("", |cause| cause.name()));
    tracing::info!(
        incident = incident.id,
        anomaly = incident.anomaly.name,
        layer,
        cause,
        "{}: now {}",
        incident.anomaly.name,
        conclusion(&incident.verdict)
    );
}

/// The layer, the cause and the confidence; if the layer is unknown, the two likeliest causes.
fn conclusion(verdict: &Verdict) -> String {
    let layer = verdict.layer.name();
    if verdict.layer != Layer::Unknown {
        let cause = verdict.cause.map_or("", |cause| cause.describe());
        return format!("layer {layer}: {cause} ({:.0} % sure)", verdict.confidence * 100.0);
    }
    match verdict.alternatives.iter().take(2).map(Alternative::describe).collect::<Vec<_>>().join(", or ") {
        none if none.is_empty() => format!("layer {layer}"),
        likeliest => format!("layer {layer}, likeliest {likeliest}"),
    }
}

/// Logs that a bundle was not made, or not updated.
pub fn lost(id: &str, cause: &str, message: &str, audited: bool) {
    tracing::error!(incident = id, cause, "bundle {id} lost ({cause}): {message}");
    audit(audited, "collection", || format!("{id} lost ({cause})"));
}

/// Logs that a bundle is on disk.
pub fn written(outcome: &BundleOutcome, audited: bool) {
    let BundleOutcome::Written { id, path, bytes, seconds, actions_failed, .. } = outcome else { return };
    let failed = match actions_failed {
        0 => String::new(),
        1 => ", 1 action failed".into(),
        many => format!(", {many} actions failed"),
    };
    let path = path.display();
    tracing::info!(incident = id.as_str(), bundle = %path, "bundle {path} written: {bytes} bytes in {seconds:.2} s{failed}");
    audit(audited, "collection", || format!("{path} {bytes} bytes{failed}"));
}

/// Logs which old bundles were deleted, and how many could not be.
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

/// Logs a probe's new state.
pub fn probe(capability: &Capability) {
    let (probe, reason) = (capability.probe, &capability.reason);
    match capability.state {
        ProbeSupport::Ready => tracing::info!(probe, "probe {probe} is attached"),
        ProbeSupport::Degraded => tracing::warn!(probe, "probe {probe} is attached: {reason}"),
        ProbeSupport::Unavailable => tracing::info!(probe, "probe {probe} is off: {reason}"),
    }
}

/// Logs the totals when the daemon stops.
pub fn stopped(incidents: u64, bundles_lost: u64, losses: &Losses, counters: &CollectorCounters) {
    let lost = lost_line(losses);
    let lost = if lost.is_empty() { "nothing lost".into() } else { format!("lost: {lost}") };
    tracing::info!(
        bundles_lost,
        restarts = counters.restarts,
        abandoned = counters.abandoned,
        "stopped: {}, {lost}; unfinished: {}",
        counted(incidents, "incident"),
        unfinished(losses)
    );
}

/// The losses by probe and cause, such as `smb ring_full 12, nfs swept 1`; empty if nothing was lost.
fn lost_line(losses: &Losses) -> String {
    let of = |(probe, losses): &(String, ProbeLosses)| {
        let lost = losses.by_cause().into_iter().filter(|(_, lost)| *lost > 0);
        lost.map(|(cause, lost)| format!("{probe} {cause} {lost}")).collect::<Vec<_>>()
    };
    losses.probes.iter().flat_map(of).collect::<Vec<_>>().join(", ")
}

/// The unfinished operations by probe, such as `smb 0 of 120, nfs 1 of 40`. If operations stay unfinished on an idle
/// host, the probe leaks them.
fn unfinished(losses: &Losses) -> String {
    let of = |(probe, losses): &(String, ProbeLosses)| format!("{probe} {} of {}", losses.unfinished, losses.started);
    losses.probes.iter().map(of).collect::<Vec<_>>().join(", ")
}
