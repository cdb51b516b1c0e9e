//! Compares the reports about a fault with the fault that was made.

use std::{path::Path, time::Instant};

use jiff::{SignedDuration, Timestamp};
use model::{Cause, Incident, Layer, Verdict};
use serde::Serialize;

use super::{
    bed::{Bed, LoadedMount},
    faults::{ProveFault, Truth},
    watching::Watching,
};

/// An operation that the fault hits may have begun this long before the fault.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(1);

/// How a verdict compares with the fault that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VerdictMatch {
    /// The verdict names the fault, or says what can be known of it.
    Right,
    /// An incident was reported without a layer.
    Unknown,
    /// The verdict names a layer that was not at fault.
    Wrong,
    /// No incident was reported.
    Missed,
    /// An incident was reported, but there was no fault.
    Alarm,
}

/// A fault on one mount, and its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    pub fault: &'static str,
    pub protocol: &'static str,
    /// The layer in which the fault was made; absent if there was no fault.
    pub made_at: Option<Layer>,
    pub judged: VerdictMatch,
    pub layer: Layer,
    pub cause: Option<Cause>,
    pub confidence: f64,
    /// The time from the fault to the first report with this verdict.
    pub after_s: Option<f64>,
    pub because: Vec<String>,
}

/// Judges the reports so far about a fault on a mount. Also returns since when the last verdict has not changed.
pub fn judge(watching: &Watching, fault: &ProveFault, place: &LoadedMount, began: Begin) -> (Tried, Option<Instant>) {
    let mine: Vec<_> =
        watching.incidents().filter(|reports| is_about(reports, &place.mountpoint, began.since)).collect();
    let latest = || mine.iter().filter_map(|reports| reports.last().map(|(_, incident)| (*reports, incident)));
    let says = |of: &dyn Fn(&Verdict) -> bool| latest().find(|(_, incident)| of(&incident.verdict));
    let truth = fault.truth;
    let (judged, shown) = match (truth, latest().next()) {
        (Truth::Nobody, None) => (VerdictMatch::Right, None),
        (Truth::Nobody, alarm) => (VerdictMatch::Alarm, alarm),
        (_, None) => (VerdictMatch::Missed, None),
        (_, first) => {
            let wrong = says(&|verdict| truth.is_denied_by(verdict)).map(|wrong| (VerdictMatch::Wrong, Some(wrong)));
            let right = || says(&|verdict| truth.is_named_by(verdict)).map(|right| (VerdictMatch::Right, Some(right)));
            wrong.or_else(right).unwrap_or((VerdictMatch::Unknown, first))
        }
    };
    // When the present verdict was first reported without a change since.
    let since = shown.and_then(|(reports, last)| {
        let says = |verdict: &Verdict| (verdict.layer, truth.is_named_by(verdict));
        let same = |(_, incident): &&(Instant, Incident)| says(&incident.verdict) == says(&last.verdict);
        reports.iter().rev().take_while(same).last().map(|(at, _)| *at)
    });
    let verdict = shown.map(|(_, incident)| incident.verdict.clone()).unwrap_or_default();
    let tried = Tried {
        fault: fault.name,
        protocol: place.protocol,
        made_at: truth.made_at(),
        judged,
        layer: verdict.layer,
        cause: verdict.cause,
        confidence: verdict.confidence,
        after_s: since.map(|since| (since.saturating_duration_since(began.at).as_secs_f64() * 100.0).round() / 100.0),
        because: verdict.because,
    };
    (tried, since)
}

/// When a fault was made.
#[derive(Clone, Copy)]
pub struct Begin {
    pub at: Instant,
    pub since: Timestamp,
}

/// Whether an incident is about this mount, and about operations that began after `since` or shortly before it.
fn is_about(reports: &[(Instant, Incident)], mountpoint: &Path, since: Timestamp) -> bool {
    let is_there = |incident: &Incident| {
        incident.top.mounts.iter().any(|ranked| Path::new(&ranked.mount.mountpoint) == mountpoint)
    };
    if !is_ours(reports) {
        return false;
    }
    let is_since = |incident: &Incident| {
        let first: Option<Timestamp> = incident.first_seen.parse().ok();
        first.is_some_and(|first| since.duration_since(first) <= UNDER_WAY)
    };
    reports.last().is_some_and(|(_, incident)| is_since(incident) && is_there(incident))
}

/// Whether an incident is only about the bed. This host's own mounts may have incidents, too.
pub fn is_ours(reports: &[(Instant, Incident)]) -> bool {
    let mut mounts = reports.last().into_iter().flat_map(|(_, incident)| &incident.top.mounts).peekable();
    mounts.peek().is_some() && mounts.all(|ranked| Bed::has(&ranked.mount.mountpoint))
}
