//! What is normal here: how long each kind of operation takes on each mount, learned over hours and kept across restarts.
//!
//! The flight recorder goes back minutes, and it is empty when the daemon starts. This does not: every few seconds a sample of what finished is
//! learned ([`LongTerm::learn`]), in sketches that fade with a half-life. While a mount is in trouble nothing is learned of it, unless it is in trouble most of
//! the time: then that is its normal.

mod sketch;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use model::{Event, Histogram, Level, MountKey, Nanos, Operation, Protocol};

use crate::units::nanos;
pub use sketch::Sketch;

/// How often a sample is to be learned: a period.
pub const PERIOD: Duration = Duration::from_secs(10);
/// Kinds of operations that are known at a time, 1 KB each; the one that was not seen for longest makes room.
const KINDS: usize = 512;
/// Likewise of mounts, and of keys that stand for them.
const PLACES: usize = 128;
/// What was learned this long ago counts half. The time in which no daemon runs does not count.
const HALF_LIFE: Duration = Duration::from_secs(12 * 3600);
/// How often it fades.
const FADES_EVERY: Duration = Duration::from_secs(900);
/// A mount must have been in trouble for at least as many periods, an hour, before that is its normal.
const TROUBLE_IS_NORMAL: f32 = 360.0;
/// Fewer operations, in fewer periods, are no normal that a verdict may rest on.
const LEAST_OPERATIONS: f32 = 20.0;
const LEAST_PERIODS: f32 = 2.0;
/// Fewer periods, an hour of activity less what of it has faded, do not overrule a threshold.
const LEAST_TO_OVERRULE: f32 = 340.0;
/// Nine of ten operations take at most as long as [`LongTerm::usual_most`] says.
const MOST: f32 = 0.9;
/// Fewer periods, five minutes of activity, do not say how busy a mount gets.
const LEAST_BUSY: f32 = 30.0;
/// It is as busy in this share of the periods.
const BUSIEST: f32 = 0.1;
/// One round trip in so many is none of the rest's.
const LEAST_ROUND_TRIP: f32 = 0.1;

/// Medians of one kind of operation, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Normal {
    /// Operations it was taken from; without any, all is zero.
    pub count: u64,
    pub duration: u64,
    pub queue: u64,
    pub wire: u64,
    pub deliver: u64,
    /// What the probe saw in none of the phases.
    pub rest: u64,
}

impl Normal {
    /// Fewer operations are none.
    const LEAST: u64 = 5;

    /// Whether enough operations say so.
    pub fn is_known(&self) -> bool {
        self.count >= Self::LEAST
    }
}

/// What is told apart on one mount: the operation, and the power of two that its bytes are at or over, plus one; 0 for none.
pub type KindOf = (Operation, u8);

/// How operations of one kind behave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kind {
    /// Periods in which there were any.
    pub periods: f32,
    /// How long they take.
    pub duration: Sketch,
    /// Where that time goes.
    pub queue: Sketch,
    /// Likewise.
    pub wire: Sketch,
    /// Likewise.
    pub deliver: Sketch,
    /// From one to the next, on average over a period.
    pub apart: Sketch,
    /// When there last was one, by this host's clock since it was booted; 0: not since then. For making room.
    pub seen: Nanos,
}

/// What is known of one mount.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Place {
    /// Round trips of its connection.
    pub round_trip: Sketch,
    /// Operations that were learned, and segments that its connection sent again meanwhile.
    pub operations: f32,
    /// Likewise.
    pub sent_again: f32,
    /// Periods with operations that were learned, and those that were not because of trouble.
    pub learned: f32,
    /// Likewise.
    pub in_trouble: f32,
    /// By kind of operation.
    pub kinds: BTreeMap<KindOf, Kind>,
    /// As a kind's.
    pub seen: Nanos,
}

/// A sample of what finished in a period.
pub struct Sample<'a> {
    /// When the period ended.
    pub now: Nanos,
    /// How long it was, nanoseconds.
    pub length: u64,
    /// For how many operations each of `events` stands: at least 1.
    pub each: f32,
    /// What finished, of all kinds, in any order.
    pub events: &'a [Event],
    /// What each of their keys means. [`LongTerm::name`] has been told of them.
    pub in_trouble: &'a dyn Fn(&str) -> bool,
}

/// Everything that is known, by the mount's name: its source, or where it is mounted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LongTerm {
    places: BTreeMap<String, Place>,
    names: HashMap<MountKey, String>,
    faded: Nanos,
}

impl LongTerm {
    /// What was kept of a mount.
    pub fn insert(&mut self, name: String, place: Place) {
        self.places.insert(name, place);
        self.make_room();
    }

    /// What is to be kept, mount by mount.
    pub fn places(&self) -> &BTreeMap<String, Place> {
        &self.places
    }

    /// Whether it was said what this key means.
    pub fn is_named(&self, key: MountKey) -> bool {
        self.names.contains_key(&key)
    }

    /// Says what a key means, until it is said again.
    pub fn name(&mut self, key: MountKey, name: &str) {
        if self.names.len() >= 2 * PLACES && !self.is_named(key) {
            self.names.clear();
        }
        self.names.insert(key, name.to_owned());
    }

    /// Learns a period. What no name was told of is left out, as is what waits by design, got no answer, or is no operation but what happened to a connection.
    pub fn learn(&mut self, sample: &Sample<'_>) {
        self.fade(sample.now);
        let mut groups = BTreeMap::<&str, Vec<&Event>>::new();
        for event in sample.events.iter().filter(|event| is_learned(event)) {
            if let Some(name) = self.names.get(&event.mount).filter(|name| !name.is_empty()) {
                groups.entry(name).or_default().push(event);
            }
        }
        for (name, events) in groups {
            if !self.places.contains_key(name) {
                self.places.insert(name.to_owned(), Place::default());
            }
            if let Some(place) = self.places.get_mut(name) {
                place.learn(sample, &events, (sample.in_trouble)(name));
            }
        }
        self.make_room();
    }

    /// What is normal for an operation such as this; `None` if too little is known.
    pub(crate) fn normal(&self, event: &Event) -> Option<Normal> {
        let kind = self.kind(event)?;
        let count = kind.duration.count();
        let median = |sketch: &Sketch| sketch.quantile(0.5).unwrap_or(0);
        (count >= LEAST_OPERATIONS && kind.periods >= LEAST_PERIODS).then(|| Normal {
            count: count as u64,
            duration: median(&kind.duration),
            queue: median(&kind.queue),
            wire: median(&kind.wire),
            deliver: median(&kind.deliver),
            // The flight recorder does not tell it from the delivery.
            rest: 0,
        })
    }

    /// What nine of ten operations such as this take at most, nanoseconds; `None` if it was not learned over at least an hour.
    pub fn usual_most(&self, event: &Event) -> Option<u64> {
        self.kind(event).filter(|kind| kind.periods >= LEAST_TO_OVERRULE)?.duration.quantile(MOST)
    }

    /// What nine of ten round trips to the server of a mount reach or exceed, nanoseconds; `None` if too little is known.
    pub fn round_trip(&self, mount: MountKey) -> Option<u64> {
        let place = self.place(mount).filter(|place| place.learned >= LEAST_PERIODS)?;
        place.round_trip.quantile(LEAST_ROUND_TRIP)
    }

    /// How many operations such as this are asked for in a second, while there are any; `None` if too little is known.
    pub(crate) fn per_second(&self, event: &Event) -> Option<f64> {
        let kind = self.kind(event).filter(|kind| kind.periods >= LEAST_PERIODS)?;
        Some(1e9 / kind.apart.quantile(0.5)?.max(1) as f64)
    }

    /// How many operations of a protocol a mount answers in a second when it is busiest, and how many bytes they move; `None` if too little is known.
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

    fn place(&self, mount: MountKey) -> Option<&Place> {
        self.places.get(self.names.get(&mount)?)
    }

    fn kind(&self, event: &Event) -> Option<&Kind> {
        self.place(event.mount)?.kinds.get(&kind_of(event))
    }

    fn fade(&mut self, now: Nanos) {
        // Another run of the same host, or of another.
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

impl Place {
    fn learn(&mut self, sample: &Sample<'_>, events: &[&Event], is_in_trouble: bool) {
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
            let Kind { duration, queue, wire, deliver, apart, .. } = kind;
            [duration, queue, wire, deliver, apart].into_iter().for_each(|sketch| sketch.fade(part));
            kind.duration.count() > 0.0
        });
    }
}

/// Of which kind an operation is.
pub fn kind_of(event: &Event) -> KindOf {
    let size = Histogram::size_of(event.bytes).and_then(|size| u8::try_from(size + 1).ok());
    (event.operation, size.unwrap_or(0))
}

fn is_learned(event: &Event) -> bool {
    let wanted = event.operation.level() != Level::Connection && !event.operation.waits_by_design();
    wanted && !event.flags.unanswered && !event.flags.in_flight
}

/// Segments that were sent again while these operations ended, on all of their connections.
fn sent_again(events: &[&Event]) -> u64 {
    let mut seen = BTreeMap::<u64, BTreeSet<u32>>::new();
    for event in events.iter().filter(|event| event.network.known) {
        seen.entry(event.connection).or_default().insert(event.network.retransmits);
    }
    let grown = |counts: BTreeSet<u32>| Some(u64::from(counts.last()?.saturating_sub(*counts.first()?)));
    seen.into_values().filter_map(grown).sum()
}
