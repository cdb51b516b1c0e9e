//! Slow operations: many over their threshold, or one over the ceiling.

use std::{collections::BTreeMap, time::Duration};

use model::{Anomaly, Event, Operation};

use crate::{
    Detector, Window,
    long_term::LongTerm,
    rule::{Rule, Subject},
    turns::turns,
    units::{counted, nanos, span},
};

/// The word for it.
pub const KIND: &str = "latency";

/// Slow operations: at least `acceptable_count` at or over their threshold in one window, or one at or over `ceiling`.
#[derive(Debug, Clone)]
pub struct LatencyRule {
    /// Its name and its protocol.
    pub subject: Subject,
    /// The threshold of every operation that it judges.
    pub thresholds: BTreeMap<Operation, Duration>,
    /// This many in one window are an anomaly; at least 1.
    pub acceptable_count: u32,
    /// One operation this slow is an anomaly by itself.
    pub ceiling: Duration,
    /// An operation is not slow if it takes at most this many times the 90th percentile of its kind on its mount. This
    /// holds once an hour of such operations was learned. 0: only thresholds count.
    pub normal_factor: f64,
}

impl Rule for LatencyRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn judges(&self, operation: Operation) -> bool {
        self.thresholds.contains_key(&operation)
    }

    fn describe(&self, interval: Duration) -> String {
        format!(
            "{}, {} or more over their threshold in {interval:?}, or one of {:?}",
            self.subject.describe(self.thresholds.len()),
            self.acceptable_count,
            self.ceiling,
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(self.clone())
    }

    fn sees(&self) -> Vec<(Operation, Duration)> {
        self.thresholds.iter().map(|(operation, threshold)| (*operation, self.ceiling.min(*threshold))).collect()
    }
}

impl LatencyRule {
    /// The duration from which on `event` is slow, nanoseconds. Operations that take about as long as usual here are
    /// not slow. Until that is learned, the time of the path is added to the threshold if it is at least half of it: a
    /// server that is far away is not slow.
    fn slow_from(&self, threshold: Duration, event: &Event, long_term: &LongTerm) -> u64 {
        let (threshold, ceiling) = (nanos(threshold), nanos(self.ceiling));
        if self.normal_factor <= 0.0 {
            return threshold.min(ceiling);
        }
        if let Some(most) = long_term.usual_most(event) {
            let usual = (most as f64 * self.normal_factor) as u64;
            return threshold.min(ceiling).max(usual.saturating_add(1));
        }
        // TCP has the minimum round-trip time of the last minutes: a path that has just become longer is not in it.
        let round_trips = [event.network.least_round_trip(), long_term.round_trip(event.mount)];
        let path = round_trips.into_iter().flatten().min().unwrap_or(0).saturating_mul(turns(event.bytes));
        let more = if path.saturating_mul(2) >= threshold { path } else { 0 };
        threshold.saturating_add(more).min(ceiling)
    }
}

impl Detector for LatencyRule {
    /// Operations from the ceiling on count, too, even if their threshold is higher.
    fn counts(&self, event: &Event, long_term: &LongTerm) -> bool {
        let threshold = self.thresholds.get(&event.operation).filter(|_| !event.flags.in_flight);
        threshold.is_some_and(|threshold| event.duration >= self.slow_from(*threshold, event, long_term))
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
        let mut rule = format!(
            "at least {} at or over their threshold in one watch interval, or one of {} or more",
            counted(self.acceptable_count.into(), "operation"),
            span(nanos(self.ceiling))
        );
        if self.normal_factor > 0.0 {
            rule.push_str(&format!(
                "; an operation counts only above {} times its normal 90th percentile on this mount, if that is known",
                self.normal_factor
            ));
        }
        Some(self.anomaly(rule, self.observed(window), limit))
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
