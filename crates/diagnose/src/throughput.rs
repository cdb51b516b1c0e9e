//! Throughput that falls below its own recent normal while the demand is there.
//!
//! Fewer bytes a second alone are no anomaly: most often a job has ended, paused, or begun with smaller pieces. By
//! Little's law the mean number of operations in flight, the sum of their durations over the time that passed, is the
//! demand that the mount sees. So throughput is anomalous if bytes a second **and** operations a second fall together while
//! about as many operations are in flight as ever:
//!
//! - a job that ended or thinks longer: fewer operations are in flight, so there is no anomaly;
//! - more threads on a server that is at its limit: each operation takes longer, but not fewer bytes get through;
//! - smaller pieces: fewer bytes, but not fewer operations;
//! - a server or a network that got slower: the same threads wait, and less gets through.
//!
//! Reads and writes are judged apart, since one of them may end where the other begins.

use std::{collections::BTreeSet, time::Duration};

use model::{Anomaly, Event, Operation};

use crate::{
    Detector, Meanwhile, Window,
    baseline::Departures,
    long_term::LongTerm,
    normal::{LearnedFigures, LearnedNormal, lower_end},
    rule::{Pace, Rule, Subject},
    units::SECOND,
};

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "throughput";

/// Throughput that departs from its own recent normal: one operation on one mount moves less than `share` of its normal bytes a second, with less
/// than that share of its normal operations a second, while as many of them are in flight.
#[derive(Debug, Clone)]
pub struct ThroughputRule {
    /// The rule's name and protocol.
    pub subject: Subject,
    /// The operations that it judges; only those that move data count.
    pub operations: BTreeSet<Operation>,
    /// The limit, as a share of the normal: above 0, below 1.
    pub share: f64,
    /// The least normal throughput that is judged, bytes per second.
    pub least_bytes: f64,
    /// How many operations and windows a departure takes.
    pub pace: Pace,
}

impl Rule for ThroughputRule {
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
            "{}, below {:.0} % of their own recent normal throughput, for {}",
            self.subject.describe(self.operations.len()),
            self.share * 100.0,
            self.pace.describe(interval),
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(Throughput::new(self.clone()))
    }
}

/// The demand is there if at least this share of the normal number of operations is in flight.
const DEMAND: f32 = 0.75;

/// Bytes a second, operations a second, operations in flight.
type Rates = [f32; 3];

/// A rule at work.
pub(crate) struct Throughput {
    rule: ThroughputRule,
    figures: LearnedFigures<3>,
    departures: Departures,
}

impl Throughput {
    pub fn new(rule: ThroughputRule) -> Self {
        Self { figures: LearnedFigures::new(rule.pace), rule, departures: Departures::default() }
    }

    fn is_out(rule: &ThroughputRule, normal: &LearnedNormal<'_, 3>, rates: &Rates, departed: bool) -> bool {
        let [bytes, operations, in_flight] = *rates;
        let medians: Rates = [0, 1, 2].map(|index| normal.median(index));
        let demand = medians[2] * DEMAND;
        if f64::from(medians[0]) < rule.least_bytes || in_flight < demand {
            return false;
        }
        // Hysteresis: the departure ends when the rate is more than halfway from the limit to the normal.
        let share = if departed { f32::midpoint(rule.share as f32, 1.0) } else { rule.share as f32 };
        if bytes >= medians[0] * share || operations >= medians[1] * share {
            return false;
        }
        // The throughput must be lower than ever, without outliers, at this demand.
        let alike = normal.samples().filter(|[.., in_flight]| *in_flight >= demand).map(|[bytes, ..]| *bytes);
        departed || bytes < lower_end(alike.collect())
    }
}

impl Detector for Throughput {
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
        let moves_data = |operation, bytes| bytes > 0 && rule.operations.contains(operation);
        for finished in meanwhile.finished.iter().filter(|one| moves_data(&one.operation, one.histogram.bytes)) {
            let Some(stretch) = self.figures.pool(0, finished, window, rule.pace.operations) else { continue };
            let seconds = stretch.to.saturating_sub(stretch.from).max(1) as f64 / SECOND as f64;
            let rates = [stretch.histogram.bytes, stretch.histogram.count, stretch.histogram.sum];
            let [bytes, operations, busy] = rates.map(|sum| sum as f64 / seconds);
            let rates = [bytes as f32, operations as f32, (busy / SECOND as f64) as f32];
            let key = (finished.operation, finished.mount, 0);
            let since = self.figures.take(key, stretch.from, rates, |normal, rates, departed| {
                Some(Self::is_out(rule, normal, rates, departed))
            });
            let (Some(since), Some(normal)) = (since, self.figures.normal(key)) else { continue };
            let medians: Rates = [0, 1, 2].map(|index| normal.median(index));
            let text = format!(
                "{} on {}: {} with {:.2} operations in flight, normally {} with {:.2}",
                finished.operation.name(),
                (meanwhile.label)(finished.mount),
                rate(rates[0]),
                rates[2],
                rate(medians[0]),
                medians[2]
            );
            // By Little's law the normal mean duration, nanoseconds: longer operations are evidence.
            let slow = medians[2] / medians[1].max(f32::MIN_POSITIVE) * SECOND as f32;
            let limit = rate(medians[0] * rule.share as f32);
            self.departures.add((finished.operation, finished.mount), since, slow as u64, text, limit);
        }
        self.departures.show(window, meanwhile);
    }

    fn detect(&self, _: &Window) -> Option<Anomaly> {
        let rule = format!(
            "bytes and operations a second below {:.0} % of their own recent normal for {} windows, with as many \
             operations in flight",
            self.rule.share * 100.0,
            self.rule.pace.sustained
        );
        self.departures.anomaly(&self.rule, rule)
    }

    fn observed(&self, _: &Window) -> String {
        self.departures.observed()
    }
}

/// A rate in bytes per second as text, in MB/s or kB/s.
fn rate(bytes: f32) -> String {
    match bytes {
        1e6.. => format!("{:.1} MB/s", bytes / 1e6),
        _ => format!("{:.1} kB/s", bytes / 1e3),
    }
}
