//! The long-term normal: how long each kind of operation takes on each mount, learned over hours and kept across
//! restarts.
//!
//! The flight recorder goes back only minutes, and it is empty when the daemon starts. The long-term normal goes back
//! further: every few seconds [`LongTerm::learn`] adds a sample of the operations that finished to sketches, which fade
//! with a half-life. While a mount is in trouble, nothing is learned of it. If it is in trouble most of the time, that
//! is its normal and is learned.

mod sketch;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use model::{Event, Histogram, Level, MountKey, Nanos, Operation, Protocol};

use crate::{FinishedOperations, units::nanos};
pub use sketch::Sketch;

/// How often the caller should learn a sample: a period.
pub const PERIOD: Duration = Duration::from_secs(10);
/// How many kinds of operations are kept at most, 1 KB each; the one that was last seen longest ago is discarded.
const KINDS: usize = 512;
/// How many mounts are kept at most; the one that was last seen longest ago is discarded.
const PLACES: usize = 128;
/// A sample of this age has half the weight of a new one. The time in which no daemon runs does not count.
const HALF_LIFE: Duration = Duration::from_secs(12 * 3600);
/// How often the weights are reduced.
const FADES_EVERY: Duration = Duration::from_secs(900);
/// A mount must have been in trouble for at least this many periods, an hour, before trouble is its normal.
const TROUBLE_IS_NORMAL: f32 = 360.0;
/// The least operations, and the least periods, that make a normal on which a verdict may rest.
const LEAST_OPERATIONS: f32 = 20.0;
const LEAST_PERIODS: f32 = 2.0;
/// The least periods from which a normal overrules a threshold: an hour of activity, less the part that has faded.
const LEAST_TO_OVERRULE: f32 = 340.0;
/// The quantile of durations that [`LongTerm::usual_most`] returns.
const MOST: f32 = 0.9;
/// The least periods from which [`LongTerm::busiest`] is known: five minutes of activity.
const LEAST_BUSY: f32 = 30.0;
/// The quantile of the times between operations that [`LongTerm::busiest`] uses.
const BUSIEST: f32 = 0.1;
/// The quantile of round trips that [`LongTerm::round_trip`] returns.
const LEAST_ROUND_TRIP: f32 = 0.1;

/// Medians of one kind of operation, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LongTermMedians {
    /// Number of operations from which the medians come; if 0, all medians are 0.
    pub count: u64,
    pub duration: u64,
    pub queue: u64,
    pub wire: u64,
    pub deliver: u64,
    /// The part of the duration that is in none of the phases.
    pub rest: u64,
}

impl LongTermMedians {
    /// The least operations that make a normal.
    const LEAST: u64 = 5;

    /// Whether the medians come from enough operations.
    pub fn is_known(&self) -> bool {
        self.count >= Self::LEAST
    }
}

/// A kind of operation on a mount: the operation, and its size class: floor(log2(bytes)) + 1, or 0 if it moves no
/// bytes.
pub type KindOf = (Operation, u8);

/// How operations of one kind behave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LongTermKind {
    /// Periods in which there were operations of this kind.
    pub periods: f32,
    /// Their durations.
    pub duration: Sketch,
    /// Their times until the request was sent.
    pub queue: Sketch,
    /// Their times from the request's sending until the answer's arrival.
    pub wire: Sketch,
    /// Their times from the answer's arrival until the requester had it.
    pub deliver: Sketch,
    /// The mean time between two of them in a period.
    pub apart: Sketch,
    /// When one was last learned; 0: not since this host was booted. Decides which kind is discarded.
    pub seen: Nanos,
}

/// The normal of one mount.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LongTermMount {
    /// Round trips of its connections.
    pub round_trip: Sketch,
    /// Number of operations that were learned.
    pub operations: f32,
    /// Number of segments that its connections retransmitted meanwhile.
    pub sent_again: f32,
    /// Periods that were learned.
    pub learned: f32,
    /// Periods in which it was in trouble.
    pub in_trouble: f32,
    /// The normal of each kind of operation.
    pub kinds: BTreeMap<KindOf, LongTermKind>,
    /// When a period of it was last seen; 0: not since this host was booted. Decides which mount is discarded.
    pub seen: Nanos,
}

/// A sample of the operations that finished in a period.
pub struct PeriodSample<'a> {
    /// When the period ended.
    pub now: Nanos,
    /// Length of the period, nanoseconds.
    pub length: u64,
    /// How many operations each of `events` stands for: at least 1.
    pub each: f32,
    /// The operations, of all kinds, in any order. [`LongTerm::name`] must have been called for their mounts.
    pub events: &'a [Event],
    /// Returns whether the mount of this name was in trouble.
    pub in_trouble: &'a dyn Fn(&str) -> bool,
}

/// The normals of all mounts, by the mount's name: its source, or its mount point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LongTerm {
    places: BTreeMap<String, LongTermMount>,
    names: HashMap<MountKey, String>,
    faded: Nanos,
}

impl LongTerm {
    /// Restores the normal of a mount that was saved.
    pub fn insert(&mut self, name: String, place: LongTermMount) {
        self.places.insert(name, place);
        self.make_room();
    }

    /// The normals of all mounts, for saving.
    pub fn places(&self) -> &BTreeMap<String, LongTermMount> {
        &self.places
    }

    /// Whether [`LongTerm::name`] has been called for this key.
    pub fn is_named(&self, key: MountKey) -> bool {
        self.names.contains_key(&key)
    }

    /// Sets the name of the mount that a key stands for.
    pub fn name(&mut self, key: MountKey, name: &str) {
        if self.names.len() >= 2 * PLACES && !self.is_named(key) {
            self.names.clear();
        }
        self.names.insert(key, name.to_owned());
    }

    /// Learns a period. It skips operations of mounts without a name, and those that wait by design, got no answer, or
    /// are events of a connection.
    pub fn learn(&mut self, sample: &PeriodSample<'_>) {
        self.fade(sample.now);
        let mut groups = BTreeMap::<&str, Vec<&Event>>::new();
        for event in sample.events.iter().filter(|event| is_learned(event)) {
            if let Some(name) = self.names.get(&event.mount).filter(|name| !name.is_empty()) {
                groups.entry(name).or_default().push(event);
            }
        }
        for (name, events) in groups {
            if !self.places.contains_key(name) {
                self.places.insert(name.to_owned(), LongTermMount::default());
            }
            if let Some(place) = self.places.get_mut(name) {
                place.learn(sample, &events, (sample.in_trouble)(name));
            }
        }
        self.make_room();
    }

    /// The normal of this operation's kind on its mount; `None` if too little is known.
    pub(crate) fn normal(&self, event: &Event) -> Option<LongTermMedians> {
        let kind = self.kind(event)?;
        let count = kind.duration.count();
        let median = |sketch: &Sketch| sketch.quantile(0.5).unwrap_or(0);
        kind.is_known().then(|| LongTermMedians {
            count: count as u64,
            duration: median(&kind.duration),
            queue: median(&kind.queue),
            wire: median(&kind.wire),
            deliver: median(&kind.deliver),
            // The flight recorder counts this part as delivery.
            rest: 0,
        })
    }

    /// How long such operations take normally: on each mount, those of the same operation and the same sizes. `None` if that is not
    /// known of more than half of them.
    pub fn usual(&self, finished: &[&FinishedOperations]) -> Option<Sketch> {
        let (mut usual, mut all, mut known) = (Sketch::default(), 0, 0);
        for FinishedOperations { operation, mount, histogram } in finished {
            let Some(place) = self.place(*mount) else {
                all += histogram.count;
                continue;
            };
            let without_bytes = histogram.count.saturating_sub(histogram.sizes.iter().sum());
            for (size, count) in (0..).zip(std::iter::once(without_bytes).chain(histogram.sizes)) {
                all += count;
                let kind = place.kinds.get(&(*operation, size)).filter(|kind| count > 0 && kind.is_known());
                if let Some(kind) = kind {
                    known += count;
                    usual.add_all(&kind.duration, count);
                }
            }
        }
        (known > all / 2).then_some(usual)
    }

    /// The 90th percentile of durations of this operation's kind on its mount, nanoseconds; `None` if it was learned
    /// for less than an hour.
    pub fn usual_most(&self, event: &Event) -> Option<u64> {
        self.kind(event).filter(|kind| kind.periods >= LEAST_TO_OVERRULE)?.duration.quantile(MOST)
    }

    /// The 10th percentile of round-trip times to a mount's server, nanoseconds; `None` if too little is known.
    pub fn round_trip(&self, mount: MountKey) -> Option<u64> {
        let place = self.place(mount).filter(|place| place.learned >= LEAST_PERIODS)?;
        place.round_trip.quantile(LEAST_ROUND_TRIP)
    }

    /// The median rate of this operation's kind on its mount, operations per second, over periods in which there were
    /// any; `None` if too little is known.
    pub(crate) fn per_second(&self, event: &Event) -> Option<f64> {
        let kind = self.kind(event).filter(|kind| kind.periods >= LEAST_PERIODS)?;
        Some(1e9 / kind.apart.quantile(0.5)?.max(1) as f64)
    }

    /// Operations and bytes per second of a protocol on a mount when it is busiest: the sum over kinds of operation,
    /// each in its busiest tenth of the periods. `None` if too little is known.
    pub(crate) fn busiest(&self, mount: MountKey, protocol: &Protocol) -> Option<(f64, f64)> {
        let place = self.place(mount).filter(|place| place.learned >= LEAST_BUSY)?;
        let kinds = place.kinds.iter().filter(|((operation, _), _)| operation.protocol() == protocol);
        let rates = kinds.filter_map(|((_, size), kind)| {
            let rate = 1e9 / kind.apart.quantile(BUSIEST)?.max(1) as f64;
            let bytes = size.checked_sub(1).map_or(0.0, |power| 1.5 * f64::from(power).exp2());
            Some((rate, rate * bytes))
        });
        Some(rates.fold((0.0, 0.0), |(all, bytes), (rate, more)| (all + rate, bytes + more)))
    }

    fn place(&self, mount: MountKey) -> Option<&LongTermMount> {
        self.places.get(self.names.get(&mount)?)
    }

    fn kind(&self, event: &Event) -> Option<&LongTermKind> {
        self.place(event.mount)?.kinds.get(&kind_of(event))
    }

    fn fade(&mut self, now: Nanos) {
        // The clock began again: the normal was saved before a reboot, or on another host.
        if self.faded == 0 || self.faded > now {
            self.faded = now;
        }
        let passed = now - self.faded;
        if passed < nanos(FADES_EVERY) {
            return;
        }
        self.faded = now;
        let part = 0.5_f64.powf(passed as f64 / nanos(HALF_LIFE) as f64) as f32;
        self.places.values_mut().for_each(|place| place.fade(part));
        self.places.retain(|_, place| !place.kinds.is_empty() || place.in_trouble >= 1.0);
    }

    fn make_room(&mut self) {
        while self.places.len() > PLACES {
            let oldest = self.places.iter().min_by_key(|(_, place)| place.seen).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.places.remove(&name));
        }
        let kinds = || self.places.iter().flat_map(|(name, place)| place.kinds.iter().map(move |kind| (name, kind)));
        let excess = kinds().count().saturating_sub(KINDS);
        if excess == 0 {
            return;
        }
        let mut all: Vec<_> = kinds().map(|(name, (of, kind))| (Reverse(kind.seen), name.clone(), *of)).collect();
        all.sort_unstable();
        for (_, name, of) in all.into_iter().rev().take(excess) {
            self.places.get_mut(&name).and_then(|place| place.kinds.remove(&of));
        }
    }
}

impl LongTermKind {
    /// Whether a verdict may rest on it.
    fn is_known(&self) -> bool {
        self.duration.count() >= LEAST_OPERATIONS && self.periods >= LEAST_PERIODS
    }
}

impl LongTermMount {
    fn learn(&mut self, sample: &PeriodSample<'_>, events: &[&Event], is_in_trouble: bool) {
        self.seen = sample.now;
        if is_in_trouble {
            self.in_trouble += 1.0;
            if self.in_trouble < self.learned.max(TROUBLE_IS_NORMAL) {
                return;
            }
        }
        self.learned += 1.0;
        self.operations += events.len() as f32 * sample.each;
        self.sent_again += sent_again(events) as f32;
        let mut counts = BTreeMap::<KindOf, u64>::new();
        for event in events {
            if event.network.rtt_us > 0 {
                self.round_trip.add(u64::from(event.network.rtt_us) * 1_000);
            }
            let kind = self.kinds.entry(kind_of(event)).or_default();
            *counts.entry(kind_of(event)).or_default() += 1;
            kind.seen = sample.now;
            kind.duration.add(event.duration);
            if event.phases.known() {
                let phases = event.phases;
                let parts = [
                    (&mut kind.queue, phases.queue),
                    (&mut kind.wire, phases.wire),
                    (&mut kind.deliver, phases.deliver),
                ];
                parts.into_iter().for_each(|(sketch, time)| sketch.add(time));
            }
        }
        for (of, count) in counts {
            let kind = self.kinds.entry(of).or_default();
            kind.periods += 1.0;
            kind.apart.add((sample.length as f64 / (count as f64 * f64::from(sample.each.max(1.0)))) as u64);
        }
    }

    fn fade(&mut self, part: f32) {
        for sum in [&mut self.operations, &mut self.sent_again, &mut self.learned, &mut self.in_trouble] {
            *sum *= part;
        }
        self.round_trip.fade(part);
        self.kinds.retain(|_, kind| {
            kind.periods *= part;
            let LongTermKind { duration, queue, wire, deliver, apart, .. } = kind;
            [duration, queue, wire, deliver, apart].into_iter().for_each(|sketch| sketch.fade(part));
            kind.duration.count() > 0.0
        });
    }
}

/// The kind of an operation.
pub fn kind_of(event: &Event) -> KindOf {
    let size = Histogram::size_of(event.bytes).and_then(|size| u8::try_from(size + 1).ok());
    (event.operation, size.unwrap_or(0))
}

fn is_learned(event: &Event) -> bool {
    let wanted = event.operation.level() != Level::Connection && !event.operation.waits_by_design();
    wanted && !event.flags.unanswered && !event.flags.in_flight
}

/// The number of segments that the operations' connections retransmitted between the first and the last of `events`.
fn sent_again(events: &[&Event]) -> u64 {
    let mut seen = BTreeMap::<u64, BTreeSet<u32>>::new();
    for event in events.iter().filter(|event| event.network.known) {
        seen.entry(event.connection).or_default().insert(event.network.retransmits);
    }
    let grown = |counts: BTreeSet<u32>| Some(u64::from(counts.last()?.saturating_sub(*counts.first()?)));
    seen.into_values().filter_map(grown).sum()
}
