//! The daemon's captures. Each bundle gets their data of the seconds before an incident and, later, of the seconds after it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use model::Nanos;

use super::{Daemon, logging, nanos};
use crate::{
    capture::{self, Capture, CaptureSpan, Captures},
    config::{CaptureConfig, Config, ConfiguredAction},
    evidence::{BundleAddition, Cut, IncidentId, IncidentScope},
};

/// The most bundles that may wait for the data of the seconds after; a further bundle gets the seconds before only.
const MOST: usize = 64;
/// When the collector is busy, the time until the next try.
const AGAIN: Duration = Duration::from_secs(1);

/// Bundles that wait for the captures' data of the seconds after an incident.
#[derive(Default)]
pub struct Afters(Vec<After>);

struct After {
    id: IncidentId,
    /// The rule whose name begins the file names; empty: file names without a rule.
    rule: String,
    due: Instant,
    capture: Arc<dyn Capture>,
    span: CaptureSpan,
}

/// For each capture among `actions`: its data from its configured time before `begin` until now, and how long it continues after now.
pub fn until_now(
    config: &Config,
    captures: &Captures,
    actions: &[ConfiguredAction],
    begin: Nanos,
) -> Vec<(Cut, Duration)> {
    if captures.is_empty() {
        return Vec::new();
    }
    let (now, since) = (capture::now(), nanos(probes::monotonic()).saturating_sub(begin));
    let cut = |(wanted, after): (&CaptureConfig, Duration)| {
        let from = now.saturating_sub(since).saturating_sub(nanos(wanted.before));
        let capture = captures.get(&wanted.name)?;
        Some((Cut { capture, span: CaptureSpan { from, to: now }, is_after: false }, after))
    };
    config.captures_of(actions).filter_map(cut).collect()
}

impl Afters {
    /// Takes note of how long captures continue for a bundle. Returns their data until now.
    pub fn begin(&mut self, id: &IncidentId, rule: &str, cuts: Vec<(Cut, Duration)>) -> Vec<Cut> {
        for (cut, after) in &cuts {
            if !after.is_zero() && self.0.len() < MOST {
                let from = cut.span.to;
                let span = CaptureSpan { from, to: from.saturating_add(nanos(*after)) };
                let (due, capture) = (Instant::now() + *after, cut.capture.clone());
                self.0.push(After { id: id.clone(), rule: rule.to_owned(), due, capture, span });
            }
        }
        cuts.into_iter().map(|(cut, _)| cut).collect()
    }

    /// Drops the entries of a bundle that is not made.
    pub fn forget(&mut self, id: &IncidentId) {
        self.0.retain(|after| after.id != *id);
    }

    /// The time until the next entry is due.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        self.0.iter().map(|after| after.due.saturating_duration_since(now)).min()
    }

    /// The waiting captures of one bundle and rule that are due; all of them, when the daemon stops.
    fn take(&mut self, now: Instant, stops: bool) -> Option<(IncidentId, String, Vec<After>)> {
        let is_due = |after: &After| stops || after.due <= now;
        let (id, rule) =
            self.0.iter().find(|after| is_due(after)).map(|after| (after.id.clone(), after.rule.clone()))?;
        let due = self.0.extract_if(.., |after| after.id == id && after.rule == rule && is_due(after)).collect();
        Some((id, rule, due))
    }
}

impl Daemon {
    /// Starts and stops captures as the configuration says.
    pub(super) fn restart_captures(&mut self) {
        self.captures.reconfigure(&self.setup.config, self.source.watch().mounts());
    }

    /// Adds the captures' data of the seconds after to bundles, once these seconds are over or the daemon `stops`.
    pub(super) fn take_afters(&mut self, stops: bool) {
        let now = Instant::now();
        while let Some((id, rule, due)) = self.afters.take(now, stops) {
            let Some(collector) = &self.collector else { return };
            let to = capture::now();
            let cut = |after: &After| {
                let span = CaptureSpan { to: after.span.to.min(to), ..after.span };
                Cut { capture: after.capture.clone(), span, is_after: true }
            };
            let cuts = due.iter().map(cut).collect();
            let part = BundleAddition { rule, actions: Vec::new(), cuts, scope: IncidentScope::default() };
            if let Err(refused) = collector.append(id.clone(), part) {
                if stops {
                    let audited = self.setup.config.audit;
                    logging::lost(
                        id.as_str(),
                        "busy",
                        &format!("cannot add what the captures recorded after the incident began: {refused}"),
                        audited,
                    );
                    continue;
                }
                let later = |after: After| After { due: now + AGAIN, ..after };
                self.afters.0.extend(due.into_iter().map(later));
            }
        }
    }
}
