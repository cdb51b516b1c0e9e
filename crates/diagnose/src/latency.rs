//! Slow operations: many over their threshold, or one over the ceiling.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use model::{Anomaly, Event, MountKey, Nanos, Operation};

use crate::{
    Detector, Meanwhile, Window,
    long_term::LongTerm,
    rule::{Rule, Subject},
    turns::turns,
    units::{SECOND, counted, nanos, span},
};

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "latency";

/// Slow operations: at least `acceptable_count` at or over their threshold in one window, or one at or over `ceiling`.
#[derive(Debug, Clone)]
pub struct LatencyRule {
    /// The rule's name and protocol.
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
        let lasting =
            if self.adds_up() { " (or in 10s, if most of their kind are, or each takes half the ceiling)" } else { "" };
        format!(
            "{}, {} or more over their threshold in {interval:?}{lasting}, or one of {:?}",
            self.subject.describe(self.thresholds.len()),
            self.acceptable_count,
            self.ceiling,
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(LatencyWatch::of(self.clone()))
    }

    fn counts_all(&self) -> bool {
        false
    }

    fn sees(&self) -> Vec<(Operation, Duration)> {
        self.thresholds.iter().map(|(operation, threshold)| (*operation, self.ceiling.min(*threshold))).collect()
    }
}

impl LatencyRule {
    /// Whether slow operations of several windows add up. Calls of programs do not: one that waits for a hundred requests, as a large
    /// read does, is slow at any time.
    fn adds_up(&self) -> bool {
        self.normal_factor > 0.0 && !self.subject.protocol.level.is_of_calls()
    }

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

/// On a mount with few operations, the slow operations of this time add up, nanoseconds.
const LASTING: Nanos = 10 * SECOND;
/// ... if at least one in this many operations of their kind on their mount was slow in this time,
const ONE_IN: u64 = 2;
/// ... and if at least this many operations of their kind were slow.
const LEAST_OF_KIND: u64 = 3;
/// Operations that take at least the ceiling divided by this add up by themselves, however many of their kind were fast.
const OF_CEILING: u64 = 2;
/// The latest slow operations that are kept for these sums, and the kinds of which the numbers of all operations are kept: at most this many.
const KEPT: usize = 512;

/// A kind of operation on one mount.
type KindOnMount = (Operation, MountKey);

/// The rule at work.
struct LatencyWatch {
    rule: LatencyRule,
    /// The operations that it judges; `None` if slow ones do not add up.
    judged: Option<BTreeSet<Operation>>,
    /// The slow operations of the last ten seconds, oldest first.
    slow: VecDeque<SlowOperation>,
    /// How many operations of each kind finished, by the ends of the windows of the last ten seconds.
    finished: VecDeque<(Nanos, BTreeMap<KindOnMount, u64>)>,
    /// Whether slow operations of several windows add up to an anomaly.
    is_lasting: bool,
}

struct SlowOperation {
    event: Event,
    /// Whether the window that is being closed, or an incident, contains it.
    is_counted: bool,
}

impl SlowOperation {
    fn kind(&self) -> KindOnMount {
        (self.event.operation, self.event.mount)
    }
}

impl LatencyWatch {
    fn of(rule: LatencyRule) -> Self {
        let judged = rule.adds_up().then(|| rule.thresholds.keys().copied().collect());
        Self { rule, judged, slow: VecDeque::new(), finished: VecDeque::new(), is_lasting: false }
    }

    fn remember(&mut self, window: &Window, meanwhile: &Meanwhile<'_>) {
        self.slow.extend(window.events().iter().map(|event| SlowOperation { event: event.clone(), is_counted: true }));
        let since = window.to.saturating_sub(LASTING);
        let old = self.slow.iter().take_while(|one| one.event.end() < since).count();
        self.slow.drain(..old.max(self.slow.len().saturating_sub(KEPT)));
        let is_judged = |operation| self.rule.thresholds.contains_key(operation);
        let all = meanwhile.finished.iter().filter(|all| is_judged(&all.operation)).take(KEPT);
        let counts = all.map(|all| ((all.operation, all.mount), all.histogram.count)).collect();
        self.finished.push_back((window.to, counts));
        self.finished.retain(|(end, _)| *end > since);
    }

    /// The limit that this window alone exceeds, in words.
    fn limit(&self, window: &Window) -> Option<String> {
        let slowest = window.slowest()?;
        let ceiling = nanos(self.rule.ceiling);
        if window.count() >= u64::from(self.rule.acceptable_count) {
            return Some(counted(self.rule.acceptable_count.into(), "operation"));
        }
        (slowest.duration >= ceiling).then(|| span(ceiling))
    }

    /// The kinds of which most operations were slow; none if these are too few together.
    fn mostly_slow(&self) -> BTreeSet<KindOnMount> {
        let mut slow = BTreeMap::<KindOnMount, u64>::new();
        for one in &self.slow {
            *slow.entry(one.kind()).or_default() += one.event.operations();
        }
        slow.retain(|kind, slow| {
            let all: u64 = self.finished.iter().filter_map(|(_, counts)| counts.get(kind)).sum();
            // If the numbers of all operations are not known, nothing adds up.
            *slow >= LEAST_OF_KIND && slow.saturating_mul(ONE_IN) >= all && all.saturating_mul(ONE_IN) >= *slow
        });
        let enough = slow.values().sum::<u64>() >= u64::from(self.rule.acceptable_count);
        if enough { slow.into_keys().collect() } else { BTreeSet::new() }
    }

    /// The duration from which on slow operations add up by themselves, nanoseconds; `None` if these are too few.
    fn very_slow_from(&self) -> Option<u64> {
        let from = nanos(self.rule.ceiling) / OF_CEILING;
        let very_slow = self.slow.iter().map(|one| &one.event).filter(|event| event.duration >= from);
        let count = very_slow.map(Event::operations).fold(0, u64::saturating_add);
        (count >= u64::from(self.rule.acceptable_count)).then_some(from)
    }
}

impl Detector for LatencyWatch {
    /// Operations from the ceiling on count, too, even if their threshold is higher.
    fn counts(&self, event: &Event, long_term: &LongTerm) -> bool {
        let threshold = self.rule.thresholds.get(&event.operation).filter(|_| !event.flags.in_flight);
        threshold.is_some_and(|threshold| event.duration >= self.rule.slow_from(*threshold, event, long_term))
    }

    fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        self.judged.as_ref()
    }

    /// On a host with few operations a second, ten slow ones take seconds to occur.
    fn look(&mut self, window: &mut Window, meanwhile: &Meanwhile<'_>) {
        self.is_lasting = false;
        if self.judged.is_none() {
            return;
        }
        self.remember(window, meanwhile);
        let new = window.events().len();
        if new == 0 || self.limit(window).is_some() {
            return;
        }
        let (kinds, very_slow) = (self.mostly_slow(), self.very_slow_from());
        let adds_up = |one: &SlowOperation| {
            kinds.contains(&one.kind()) || very_slow.is_some_and(|from| one.event.duration >= from)
        };
        if !self.slow.iter().rev().take(new).any(adds_up) {
            // No incident contains the slow operations of this window.
            self.slow.iter_mut().rev().take(new).for_each(|one| one.is_counted = false);
            return;
        }
        self.is_lasting = true;
        for one in self.slow.iter_mut().filter(|one| !one.is_counted && adds_up(one)) {
            window.push(&one.event);
            one.is_counted = true;
        }
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        let LatencyRule { acceptable_count, ceiling, normal_factor, .. } = &self.rule;
        let operations = counted((*acceptable_count).into(), "operation");
        let lasting = self.is_lasting.then(|| format!("{operations} in {}", span(LASTING)));
        let limit = lasting.or_else(|| self.limit(window))?;
        let mut rule = format!(
            "at least {operations} at or over their threshold in one watch interval, or one of {} or more",
            span(nanos(*ceiling))
        );
        if self.rule.adds_up() {
            rule.push_str(&format!(
                ", or {operations} in {} if most of their kind are slow or each takes {}",
                span(LASTING),
                span(nanos(*ceiling) / OF_CEILING)
            ));
        }
        if *normal_factor > 0.0 {
            rule.push_str(&format!(
                "; an operation counts only above {normal_factor} times its normal 90th percentile on this mount, if that is known"
            ));
        }
        Some(self.rule.anomaly(rule, self.observed(window), limit))
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
