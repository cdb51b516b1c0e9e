//! Slow operations: many over their threshold, or one over the ceiling.

use model::{Anomaly, AnomalyKind, Event};

use crate::{
    Detector, Window,
    rule::LatencyRule,
    units::{counted, nanos, span},
};

impl Detector for LatencyRule {
    /// The ceiling counts too: where it is below a threshold, an operation between them is an anomaly by itself.
    fn counts(&self, event: &Event) -> bool {
        let threshold = self.thresholds.get(&event.operation).filter(|_| !event.flags.in_flight);
        threshold.is_some_and(|threshold| event.duration >= nanos(*threshold).min(nanos(self.ceiling)))
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        let slowest = window.slowest()?;
        let limit = if window.count() >= u64::from(self.acceptable_count) {
            counted(self.acceptable_count.into(), "operation")
        } else if slowest.duration >= nanos(self.ceiling) {
            span(nanos(self.ceiling))
        } else {
            return None;
        };
        Some(Anomaly {
            name: self.name.clone(),
            kind: AnomalyKind::Latency,
            probe: self.protocol.name.into(),
            rule: format!(
                "at least {} at or over their threshold in one watch interval, or one of {} or more",
                counted(self.acceptable_count.into(), "operation"),
                span(nanos(self.ceiling))
            ),
            observed: self.observed(window),
            limit,
        })
    }

    fn observed(&self, window: &Window) -> String {
        let mut text = counted(window.count(), "operation");
        if let Some(slowest) = window.slowest() {
            text.push_str(&format!(", slowest {} ({})", span(slowest.duration), slowest.operation.name()));
        }
        if window.dropped > 0 {
            text.push_str(&format!("; {} lost", counted(window.dropped, "event")));
        }
        text
    }
}
