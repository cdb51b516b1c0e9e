//! Operations that do not return.

use std::{collections::BTreeSet, time::Duration};

use model::{Anomaly, Event, Operation, Protocol};

use crate::{
    Detector, Window,
    rule::Rule,
    units::{counted, nanos, span},
};

/// The word for it.
pub const KIND: &str = "stalled";

/// Operations that have not returned after `limit`: one is an anomaly.
#[derive(Debug, Clone)]
pub struct StallRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// In flight for longer is stalled.
    pub limit: Duration,
}

impl Rule for StallRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    fn told(&self, _: Duration) -> String {
        format!(
            "{}: {} operations of {}, one that has not returned after {:?}",
            self.name,
            self.operations.len(),
            self.protocol.name,
            self.limit
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(self.clone())
    }

    fn sees_in_flight(&self) -> Option<Duration> {
        Some(self.limit)
    }
}

impl Detector for StallRule {
    fn counts(&self, event: &Event) -> bool {
        event.flags.in_flight && event.duration >= nanos(self.limit) && self.operations.contains(&event.operation)
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        (window.count() > 0).then(|| Anomaly {
            name: self.name.clone(),
            kind: KIND.into(),
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
