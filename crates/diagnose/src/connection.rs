//! Connections that break or starve: so many happenings of one kind.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use model::{Anomaly, Event, Operation};

use crate::{
    Detector, Window,
    rule::{Rule, Subject},
    units::{counted, span},
};

/// The word for it.
pub const KIND: &str = "connection";

/// What happens to connections: so many of a kind in one window are an anomaly.
#[derive(Debug, Clone)]
pub struct ConnectionRule {
    /// Which it is, and whose operations it judges.
    pub subject: Subject,
    /// How many of each are an anomaly; at least 1. What is not in here does not count.
    pub counts: BTreeMap<Operation, u32>,
}

impl Rule for ConnectionRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn told(&self, interval: Duration) -> String {
        format!("{}: {} kinds of trouble with connections, in {interval:?}", self.name(), self.counts.len())
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(self.clone())
    }

    /// However short they are: most are but a moment.
    fn sees(&self) -> Vec<(Operation, Duration)> {
        self.counts.keys().map(|operation| (*operation, Duration::ZERO)).collect()
    }
}

/// How many kinds of happening are named.
const NAMED: usize = 5;

impl Detector for ConnectionRule {
    fn counts(&self, event: &Event) -> bool {
        !event.flags.in_flight && self.counts.contains_key(&event.operation)
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        let over = window.operations().iter().find_map(|(operation, total)| {
            let limit = self.counts.get(operation)?;
            (total.count >= u64::from(*limit)).then_some((*operation, *limit))
        });
        let (operation, limit) = over?;
        let limit = format!("{limit} {}", operation.name());
        Some(self.anomaly(format!("at least {limit} in one watch interval"), self.observed(window), limit))
    }

    fn observed(&self, window: &Window) -> String {
        let mut kinds: Vec<_> = window.operations().iter().collect();
        // What has the lower limit says more.
        kinds.sort_by_key(|(operation, total)| (self.counts.get(*operation), Reverse(total.count)));
        let named = kinds.iter().take(NAMED).map(|(operation, total)| format!("{} {}", total.count, operation.name()));
        let mut text = named.collect::<Vec<_>>().join(", ");
        if let Some(longest) = window.slowest().filter(|event| event.duration > 0) {
            text.push_str(&format!("; the longest took {} ({})", span(longest.duration), longest.operation.name()));
        }
        if window.dropped > 0 {
            text.push_str(&format!("; {} lost", counted(window.dropped, "event")));
        }
        text
    }
}
