//! Operations that do not return.

use std::{collections::BTreeSet, time::Duration};

use model::{Anomaly, Event, Operation};

use crate::{
    Detector, Window,
    long_term::LongTerm,
    rule::{Rule, Subject},
    units::{counted, nanos, span},
};

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "stalled";

/// Operations that have not returned after `limit`: one is an anomaly.
#[derive(Debug, Clone)]
pub struct StallRule {
    /// The rule's name and protocol.
    pub subject: Subject,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// Operations that are in flight for longer have stalled.
    pub limit: Duration,
}

impl Rule for StallRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn judges(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }

    fn describe(&self, _: Duration) -> String {
        format!("{}, one that has not returned after {:?}", self.subject.describe(self.operations.len()), self.limit)
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(self.clone())
    }

    fn sees_in_flight(&self) -> Option<Duration> {
        Some(self.limit)
    }
}

impl Detector for StallRule {
    fn counts(&self, event: &Event, _: &LongTerm) -> bool {
        event.flags.in_flight && event.duration >= nanos(self.limit) && self.operations.contains(&event.operation)
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        (window.count() > 0).then(|| {
            let limit = span(nanos(self.limit));
            self.anomaly(format!("an operation that has not returned after {limit}"), self.observed(window), limit)
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
