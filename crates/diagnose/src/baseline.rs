//! Latency that departs from its own recent normal: the median or the slowest hundredth of an operation on a mount.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{Anomaly, Event, MountKey, Nanos, Operation};

use crate::{
    Detector, Meanwhile, Window,
    long_term::LongTerm,
    normal::{Figures, Normal, upper_end},
    rule::{Pace, Rule, Subject},
    units::{nanos, span},
};

/// The word for it.
pub const KIND: &str = "baseline";

/// Latency that departs from its own recent normal: the median or the 99th percentile of one operation on one mount is at
/// least `factor` times its normal, and at least `least_shift` more.
#[derive(Debug, Clone)]
pub struct BaselineRule {
    /// Which it is, and whose operations it judges.
    pub subject: Subject,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// Times the normal; above 1.
    pub factor: f64,
    /// More than the normal.
    pub least_shift: Duration,
    /// How long it takes.
    pub pace: Pace,
}

impl Rule for BaselineRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn told(&self, interval: Duration) -> String {
        format!(
            "{}, {} times their own recent normal and {:?} more, for {}",
            self.subject.told(self.operations.len()),
            self.factor,
            self.least_shift,
            self.pace.told(interval),
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(Baseline::new(self.clone()))
    }
}

/// What is followed: its name, which share of the operations is faster, and how many times the operations it takes.
const FIGURES: [(&str, f64, u64); 2] = [("median", 0.5, 1), ("99th percentile", 0.99, 10)];

/// A rule at work.
pub(crate) struct Baseline {
    rule: BaselineRule,
    figures: Figures<1>,
    departures: Departures,
}

/// What a window had of it, and how it is put; also of use to [`crate::throughput`].
#[derive(Default)]
pub(crate) struct Departures {
    /// In the window that was looked at last.
    pub now: bool,
    /// What was seen when there last was one.
    observed: String,
    limit: String,
    /// Since when, and from which duration on, operations show it.
    shown_by: BTreeMap<(Operation, MountKey), (Nanos, u64)>,
    texts: Vec<String>,
}

/// How many departures are named.
const NAMED: usize = 3;

impl Departures {
    /// A window begins.
    pub fn clear(&mut self) {
        self.now = false;
        self.texts.clear();
        self.shown_by.clear();
    }

    /// Notes one: `text` says what was seen, `limit` what it passed. Operations of at least `duration` since then show it.
    pub fn add(&mut self, of: (Operation, MountKey), since: Nanos, duration: u64, text: String, limit: String) {
        if !self.now {
            (self.now, self.limit) = (true, limit);
        }
        self.texts.push(text);
        let shown = self.shown_by.entry(of).or_insert((since, duration));
        *shown = (shown.0.min(since), shown.1.min(duration));
    }

    /// Puts what the recorder has of them into the window.
    pub fn show(&mut self, window: &mut Window, meanwhile: &Meanwhile<'_>) {
        let Some(since) = self.shown_by.values().map(|(since, _)| *since).min() else { return };
        let mut observed: Vec<_> = self.texts.iter().take(NAMED).cloned().collect();
        if self.texts.len() > NAMED {
            observed.push(format!("and {} more", self.texts.len() - NAMED));
        }
        self.observed = observed.join("; ");
        for event in (meanwhile.recorded)(since) {
            let shown = self.shown_by.get(&(event.operation, event.mount));
            if shown.is_some_and(|(since, least)| {
                event.duration >= *least && event.end() > *since && event.end() <= window.to
            }) {
                window.push(&event);
            }
        }
    }

    /// The anomaly, if there is one now.
    pub fn anomaly(&self, of: &dyn Rule, rule: String) -> Option<Anomaly> {
        self.now.then(|| of.anomaly(rule, self.observed.clone(), self.limit.clone()))
    }

    /// What was seen when there last was one.
    pub fn observed(&self) -> String {
        self.observed.clone()
    }
}

impl Baseline {
    pub fn new(rule: BaselineRule) -> Self {
        Self { figures: Figures::new(rule.pace), rule, departures: Departures::default() }
    }

    /// What must be passed to be out of the normal, nanoseconds: many times the median, much more than it, and more than
    /// it ever was, but for outliers.
    fn limit(rule: &BaselineRule, normal: &Normal<'_, 1>) -> f32 {
        let median = normal.median(0);
        let highest = upper_end(normal.samples().map(|[figure]| *figure).collect());
        (median * rule.factor as f32).max(median + nanos(rule.least_shift) as f32).max(highest)
    }
}

impl Detector for Baseline {
    fn counts(&self, _: &Event, _: &LongTerm) -> bool {
        false
    }

    fn of_all(&self) -> Option<&BTreeSet<Operation>> {
        Some(&self.rule.operations)
    }

    fn look(&mut self, window: &mut Window, meanwhile: &Meanwhile<'_>) {
        self.departures.clear();
        self.figures.next_window();
        let rule = &self.rule;
        for finished in meanwhile.finished.iter().filter(|finished| rule.operations.contains(&finished.operation)) {
            for (index, (name, share, times)) in FIGURES.into_iter().enumerate() {
                let least = rule.pace.operations.saturating_mul(times);
                let Some(stretch) = self.figures.pool(index, finished, window, least) else { continue };
                let Some(figure) = stretch.histogram.quantile(share) else { continue };
                let key = (finished.operation, finished.mount, index);
                let since = self.figures.take(key, stretch.from, [figure as f32], |normal, [figure], departed| {
                    let (limit, median) = (Self::limit(rule, normal), normal.median(0));
                    // Half of the way back is not well yet.
                    *figure > if departed { median + (limit - median) / 2.0 } else { limit }
                });
                let (Some(since), Some(normal)) = (since, self.figures.normal(key)) else { continue };
                let (limit, median) = (Self::limit(rule, &normal), normal.median(0));
                let text = format!(
                    "{} on {}: {name} {}, normally {}",
                    finished.operation.name(),
                    (meanwhile.label)(finished.mount),
                    span(figure),
                    span(median as u64)
                );
                let of = (finished.operation, finished.mount);
                // Of what is at most half of the way to the limit, nobody would say that it shows anything.
                let slow = (median + (limit - median) / 2.0) as u64;
                self.departures.add(of, since, slow, text, span(limit as u64));
            }
        }
        self.departures.show(window, meanwhile);
    }

    fn detect(&self, _: &Window) -> Option<Anomaly> {
        let BaselineRule { pace, factor, least_shift, .. } = &self.rule;
        let rule = format!(
            "an operation's median or 99th percentile {factor} times its own recent normal, and {} more, for {} windows",
            span(nanos(*least_shift)),
            pace.sustained
        );
        self.departures.anomaly(&self.rule, rule)
    }

    fn observed(&self, _: &Window) -> String {
        self.departures.observed()
    }
}
