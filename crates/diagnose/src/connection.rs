//! Connections that break or starve: so many happenings of one kind.

use std::cmp::Reverse;

use model::{Anomaly, AnomalyKind, Event};

use crate::{
    Detector, Window,
    rule::ConnectionRule,
    units::{counted, span},
};

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
            kind: AnomalyKind::Connection,
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
