//! Operations that do not return.

use model::{Anomaly, AnomalyKind, Event};

use crate::{
    Detector, Window,
    rule::StallRule,
    units::{counted, nanos, span},
};

impl Detector for StallRule {
    fn counts(&self, event: &Event) -> bool {
        event.flags.in_flight && event.duration >= nanos(self.limit) && self.operations.contains(&event.operation)
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        (window.count() > 0).then(|| Anomaly {
            name: self.name.clone(),
            kind: AnomalyKind::Stalled,
            probe: self.protocol.name.into(),
            rule: format!("an operation that has not returned after {}", span(nanos(self.limit))),
            observed: self.observed(window),
            limit: span(nanos(self.limit)),
        })
    }

    fn observed(&self, window: &Window) -> String {
        let mut text = format!("{} in flight", counted(window.count(), "operation"));
        if let Some(oldest) = window.slowest() {
            text.push_str(&format!(", the oldest for {} ({})", span(oldest.duration), oldest.operation.name()));
        }
        text
    }
}
