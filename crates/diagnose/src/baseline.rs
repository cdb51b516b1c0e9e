//! Latency that departs from its own recent normal: the median, the mean or the slowest hundredth of an operation on a mount.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{Anomaly, Event, Histogram, MountKey, Nanos, Operation, quantile_index};

use crate::{
    Detector, Meanwhile, Window,
    long_term::LongTerm,
    normal::{LearnedFigures, LearnedNormal, MergedWindows, median, upper_end},
    rule::{Pace, Rule, Subject},
    sizes::{SMALL, at_most},
    turns::turns,
    units::{nanos, span},
};

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "baseline";

/// Latency that departs from its own recent normal: the median, the mean or the 99th percentile of one operation on one mount is at
/// least `factor` times its normal, and at least `least_shift` more.
#[derive(Debug, Clone)]
pub struct BaselineRule {
    /// The rule's name and protocol.
    pub subject: Subject,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// The figure must be at least this many times its normal; above 1.
    pub factor: f64,
    /// The figure must exceed its normal by at least this.
    pub least_shift: Duration,
    /// How many operations and windows a departure takes.
    pub pace: Pace,
}

impl Rule for BaselineRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn judges(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }

    fn describe(&self, interval: Duration) -> String {
        format!(
            "{}, {} times their own recent normal and {:?} more, for {}",
            self.subject.describe(self.operations.len()),
            self.factor,
            self.least_shift,
            self.pace.describe(interval),
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(Baseline::new(self.clone()))
    }
}

/// A statistic of an operation's latency that the rule follows.
struct LatencyStatistic {
    name: &'static str,
    /// The quantile, 0 to 1; `None`: the mean.
    share: Option<f64>,
    /// A sample needs this many times [`Pace::operations`].
    times: u64,
}

/// The mean catches the case of a few very slow operations, of a second each, that are too few of all to move a
/// percentile.
const FIGURES: [LatencyStatistic; 3] = [
    LatencyStatistic { name: "median", share: Some(0.5), times: 1 },
    LatencyStatistic { name: "99th percentile", share: Some(0.99), times: 10 },
    LatencyStatistic { name: "mean", share: None, times: 1 },
];

/// A figure, nanoseconds, and the same figure of the operations' sizes: n if it is below 2^n bytes.
type FigureAndSize = [f32; 2];
/// With this many samples, a figure is still normal up to twice the highest of them. With n samples, up to 1 + FEW / n times the highest.
const FEW: f32 = 10.0;

/// Operations that lose less than this part of the time, 5 ms per second, are no anomaly: the loss does not matter to
/// anyone.
const MATTERS: f64 = 0.005;

/// A rule at work.
pub(crate) struct Baseline {
    rule: BaselineRule,
    figures: LearnedFigures<2>,
    departures: Departures,
}

/// The departures from normal in one window, and their description; [`crate::throughput`] uses it, too.
#[derive(Default)]
pub(crate) struct Departures {
    /// Whether the latest window has any.
    pub now: bool,
    /// The observation and the limit of the latest departure.
    observed: String,
    limit: String,
    /// For each operation and mount that has departed: operations that ended after the time, and took at least the
    /// duration in nanoseconds, are evidence.
    shown_by: BTreeMap<(Operation, MountKey), (Nanos, u64)>,
    texts: Vec<String>,
}

/// How many departures are named.
const NAMED: usize = 3;

impl Departures {
    /// Forgets the departures of the previous window.
    pub fn clear(&mut self) {
        self.now = false;
        self.texts.clear();
        self.shown_by.clear();
    }

    /// Adds a departure: `text` is the observation, `limit` the limit that it passed. Operations that ended after
    /// `since` and took at least `duration` nanoseconds are evidence of it.
    pub fn add(&mut self, of: (Operation, MountKey), since: Nanos, duration: u64, text: String, limit: String) {
        if !self.now {
            (self.now, self.limit) = (true, limit);
        }
        self.texts.push(text);
        let shown = self.shown_by.entry(of).or_insert((since, duration));
        *shown = (shown.0.min(since), shown.1.min(duration));
    }

    /// Puts the flight recorder's operations that are evidence of the departures into the window.
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

    /// The anomaly, if the latest window has a departure.
    pub fn anomaly(&self, of: &dyn Rule, rule: String) -> Option<Anomaly> {
        self.now.then(|| of.anomaly(rule, self.observed.clone(), self.limit.clone()))
    }

    /// The observation of the latest departure.
    pub fn observed(&self) -> String {
        self.observed.clone()
    }
}

impl Baseline {
    pub fn new(rule: BaselineRule) -> Self {
        Self { figures: LearnedFigures::new(rule.pace), rule, departures: Departures::default() }
    }
}

/// The normal of a figure, nanoseconds.
#[derive(Clone, Copy)]
struct Expected {
    median: f32,
    /// Figures above this are out of the normal. It is the highest of three: the median times `factor`, the median plus
    /// `least_shift`, and the highest learned figure without outliers. The round trips by which such an exchange may
    /// exceed its usual number are added.
    limit: f32,
}

impl Expected {
    fn of(rule: &BaselineRule, learned: &LearnedNormal<'_, 2>, size: f32, more: u64) -> Self {
        let normal = for_size(rule, learned, size);
        // With few samples, higher figures may be normal.
        let few = 1.0 + FEW / normal.len().max(1) as f32;
        let highest = upper_end(normal.clone()) * few;
        let median = median(normal);
        let limit = (median * rule.factor as f32).max(median + nanos(rule.least_shift) as f32).max(highest);
        Self { median, limit: limit + more as f32 }
    }

    fn halfway(self) -> f32 {
        f32::midpoint(self.median, self.limit)
    }
}

/// The learned figures for operations of this size, nanoseconds. If they are too few, the figures of larger operations are included. If they are
/// still too few, all figures are used, with those of smaller operations scaled up to the most that is expected for this size.
fn for_size(rule: &BaselineRule, learned: &LearnedNormal<'_, 2>, size: f32) -> Vec<f32> {
    let comparisons: [fn(&f32, &f32) -> bool; 2] = [f32::eq, f32::ge];
    let mut alike = comparisons.into_iter().map(|is| -> Vec<f32> {
        learned.samples().filter(|[_, other]| is(other, &size)).map(|[figure, _]| *figure).collect()
    });
    alike.find(|alike| alike.len() >= rule.pace.warm_up).unwrap_or_else(|| {
        let bytes = f64::from(size).exp2();
        let expected = |[figure, other]: &FigureAndSize| {
            if size > *other { at_most(f64::from(*figure), bytes) as f32 } else { *figure }
        };
        learned.samples().map(expected).collect()
    })
}

impl MergedWindows {
    /// Whether the time lost matters: the slower operations, those beyond the quantile `share`, or all if it is `None`,
    /// took `longer` nanoseconds more each.
    fn matters(&self, share: Option<f64>, longer: f32) -> bool {
        let lost = (1.0 - share.unwrap_or(0.0)) * self.histogram.count as f64 * f64::from(longer);
        lost >= MATTERS * self.to.saturating_sub(self.from) as f64
    }
}

/// The quantile `share`, or the mean if it is `None`, of a histogram; `None` if the histogram is empty.
fn sample(histogram: &Histogram, share: Option<f64>) -> Option<FigureAndSize> {
    let Some(share) = share else {
        let mean = histogram.sum.checked_div(histogram.count)? as f32;
        let size = (histogram.bytes / histogram.count).checked_ilog2().map_or(0, |log| log + 1);
        return Some([mean, (size as f32).max(SMALL.into())]);
    };
    let mut sizes = histogram.sizes;
    // Operations that moved no bytes count as the smallest size.
    sizes[0] += histogram.count.saturating_sub(sizes.iter().sum());
    let size = quantile_index(&sizes, share)? + 1;
    Some([histogram.even_quantile(share)? as f32, size.max(SMALL.into()) as f32])
}

impl Detector for Baseline {
    fn counts(&self, _: &Event, _: &LongTerm) -> bool {
        false
    }

    fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        Some(&self.rule.operations)
    }

    fn look(&mut self, window: &mut Window, meanwhile: &Meanwhile<'_>) {
        self.departures.clear();
        self.figures.next_window();
        let rule = &self.rule;
        for finished in meanwhile.finished.iter().filter(|finished| rule.operations.contains(&finished.operation)) {
            for (index, LatencyStatistic { name, share, times }) in FIGURES.into_iter().enumerate() {
                let least = rule.pace.operations.saturating_mul(times);
                let Some(stretch) = self.figures.pool(index, finished, window, least) else { continue };
                let Some(figures) = sample(&stretch.histogram, share) else { continue };
                let [figure, size] = figures;
                let round_trip = (meanwhile.round_trip)(finished.mount).unwrap_or(0);
                let more = round_trip.saturating_mul(turns(size.exp2() as u64) - 1);
                let key = (finished.operation, finished.mount, index);
                let since = self.figures.take(key, stretch.from, figures, |learned, _, departed| {
                    let expected = Expected::of(rule, learned, size, more);
                    // Hysteresis: the departure ends when the figure is less than halfway from the median to the limit.
                    let is_out = figure > if departed { expected.halfway() } else { expected.limit };
                    (!is_out || departed || stretch.matters(share, figure - expected.median)).then_some(is_out)
                });
                let (Some(since), Some(learned)) = (since, self.figures.normal(key)) else { continue };
                let of = (finished.operation, finished.mount);
                // The mean adds nothing if the median or the percentile has departed.
                if share.is_none() && self.departures.shown_by.contains_key(&of) {
                    continue;
                }
                let expected = Expected::of(rule, &learned, size, more);
                let text = format!(
                    "{} on {}: {name} {}, normally {}",
                    finished.operation.name(),
                    (meanwhile.label)(finished.mount),
                    span(figure as u64),
                    span(expected.median as u64)
                );
                // Operations less than halfway from the median to the limit are no evidence.
                self.departures.add(of, since, expected.halfway() as u64, text, span(expected.limit as u64));
            }
        }
        self.departures.show(window, meanwhile);
    }

    fn detect(&self, _: &Window) -> Option<Anomaly> {
        let BaselineRule { pace, factor, least_shift, .. } = &self.rule;
        let rule = format!(
            "an operation's median, mean or 99th percentile {factor} times its own recent normal, and {} more, for {} windows",
            span(nanos(*least_shift)),
            pace.sustained
        );
        self.departures.anomaly(&self.rule, rule)
    }

    fn observed(&self, _: &Window) -> String {
        self.departures.observed()
    }
}
