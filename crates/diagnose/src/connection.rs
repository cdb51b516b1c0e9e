//! Connections that break or starve: so many happenings of one kind.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use model::{Anomaly, Event, Operation, Protocol};

use crate::{
    Detector, Window,
    rule::Rule,
    units::{counted, span},
};

/// The word for it.
pub const KIND: &str = "connection";

/// What happens to connections: so many of a kind in one window are an anomaly.
#[derive(Debug, Clone)]
pub struct ConnectionRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations the happenings are.
    pub protocol: &'static Protocol,
    /// How many of each are an anomaly; at least 1. What is not in here does not count.
    pub counts: BTreeMap<Operation, u32>,
}

impl Rule for ConnectionRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    fn told(&self, interval: Duration) -> String {
        format!("{}: {} kinds of trouble with connections, in {interval:?}", self.name, self.counts.len())
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
        Some(Anomaly {
            name: self.name.clone(),
            kind: KIND.into(),
            probe: self.protocol.name.into(),
            rule: format!("at least {limit} {} in one watch interval", operation.name()),
            observed: self.observed(window),
            limit: format!("{limit} {}", operation.name()),
        })
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
