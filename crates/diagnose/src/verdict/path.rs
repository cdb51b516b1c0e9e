//! Whether the path became longer, judged from all round trips of a connection together.
//!
//! One round trip says little. A peer may delay an acknowledgement by 40 ms (RFC 1122 4.2.3.2), or send it with the
//! answer if that is ready first, so a slow server can lengthen a round trip. It does not lengthen all of them, as it
//! acknowledges every second full segment at once. A longer path lengthens every round trip. So each slow operation
//! contributes the least round trip during its flight, and the path has the value that operations with three quarters
//! of the time reach.
//!
//! The peer's timestamps (RFC 7323) tell more about the way from the server. They lag behind this host's clock by the
//! difference of the clocks and the time on the way. A slow server changes neither.
//!
//! Extra time on the way to the server may be spent in this host's own queueing discipline. Stamps of the sends show
//! it. Without stamps, the extra time is attributed to it if packets waited there when slow operations ended.

use std::{cmp::Reverse, collections::BTreeMap, ops::Range};

use model::{Direction, Event, Nanos, Operation};

use super::acks;
use super::arrivals::Arrival;
use super::history::{ACK_DELAY, answered, round_trip};
use super::scene::{JIFFY, MOST, Scene, flight, stamped_local, with_most_of_time};
use crate::{order::median, turns::turns, units::MS};

/// Fewer samples say nothing of the path.
const LEAST_SAMPLES: usize = 5;
/// One in this many samples is an outlier.
const OUTLIERS: usize = 10;
/// The least number of samples of each kind of operation where kinds are compared.
const LEAST_OF_KIND: usize = 3;
/// A request of at least this many bytes is several segments. A peer acknowledges every second full segment at once
/// (RFC 9293 3.8.6.3), so a delayed acknowledgement seldom lengthens the round trip of a large write.
const LARGE: u64 = 8 << 10;
/// Round trips are alike if they differ by at most one part in the first number, plus the second, nanoseconds.
const ALIKE: (u64, u64) = (10, MS / 2);
/// A path that is longer by less than this, nanoseconds, counts as unchanged.
const LEAST: u64 = MS;
/// A way back that is longer by less than this, nanoseconds, counts as unchanged: timestamps tick in milliseconds.
const LEAST_BACK: u64 = 2 * MS;
/// How long Linux usually delays an acknowledgement, and at most (TCP_DELACK_MIN, TCP_DELACK_MAX), with some
/// scheduling; nanoseconds.
const DELAYED: Range<u64> = 36 * MS..46 * MS;
const MOST_DELAYED: u64 = 220 * MS;
/// Round trips that differ by less than this, nanoseconds, are no sign of a queue on the path.
const LEAST_SPREAD: u64 = 5 * MS;
/// The path did not become longer if more than this share of the operations is faster than it would allow.
const OUTRUN: f64 = 0.15;
/// The share of the time for "nearly all operations"; the rest may be round trips that were read late.
const ALL: f64 = 0.9;
/// The share of the time that suffices if the fault ended while operations were under way.
const HALF: f64 = 0.5;

/// The round trip of a connection, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// The round trip before; `None` if not known.
    pub normal: Option<u64>,
    /// The round trip meanwhile, without the time in this host's queueing discipline where stamps tell it.
    pub now: u64,
    /// By how much the way from the server became longer, by its timestamps; `None` if not known.
    pub back: Option<u64>,
    /// The part of `now` that packets spent in this host's own queueing discipline, if sends are not stamped; else 0.
    pub own: u64,
    /// Round trips, timestamps or this host's queue rule out that a slow server's delayed acknowledgements are the
    /// reason.
    is_seen: bool,
    /// By how much the path is longer as proved by [`acks`]; `None` if that proves nothing.
    pub proven: Option<u64>,
    /// Round trips differ much, so packets queue on the path.
    pub is_narrow: bool,
    /// Large answers queue on the way from the server.
    pub is_filled: bool,
}

/// What the round trips of a connection say about its path while slow operations last.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathState {
    /// Nothing clear.
    Unknown,
    /// The path is as short as ever, or longer by at most this, nanoseconds.
    AsEver(u64),
    /// The path became longer.
    Longer(Path),
}

impl PathState {
    /// The state of the path of a scene's connection.
    pub fn of(scene: &Scene) -> Self {
        let later = |other: &Arrival| scene.clocks.filter(|_| other.answered)?.later(other.event);
        let later: Vec<_> = scene.arrivals.all().iter().map(later).collect();
        let sights: Vec<_> =
            with_most_of_time(&scene.judged).iter().map(|event| Sight::of(scene, &later, event)).collect();
        if sights.iter().map(|sight| sight.samples).sum::<usize>() < LEAST_SAMPLES {
            return Self::Unknown;
        }
        // Without a recent normal, the operations before may already have met the fault, so their round trips do not
        // count.
        let before = || low(scene.before.iter().filter_map(|event| round_trip(event)).collect());
        let before = if scene.has_recent_past() { before() } else { scene.learned_round_trip() };
        let answers = answers(scene, &sights);
        let mut seen = JudgedSights {
            scene,
            sights: &sights,
            normal: before.or_else(|| least_of_tcp(scene)),
            agree: kinds_agree(&answers),
            large: has_large_writes(&answers),
            filled: is_filled(&answers, &later),
            proven: None,
        };
        seen.proven = seen.proven();
        let longer = seen.longer(MOST).or_else(|| seen.longer(HALF).filter(|path| path.is_certain()));
        longer.map(Self::Longer).or_else(|| seen.as_ever().map(Self::AsEver)).unwrap_or(Self::Unknown)
    }

    /// The path, if it became longer for certain.
    pub fn longer(self) -> Option<Path> {
        if let Self::Longer(path) = self { Some(path).filter(|path| path.is_certain()) } else { None }
    }
}

/// What was measured of the path during the flight of a slow operation. Of several values the least counts, since a
/// value may be older than the flight. Nanoseconds.
struct Sight {
    /// The operation's duration.
    time: u64,
    /// The arrivals during the flight, as positions in [`FlightsByArrival::all`].
    arrivals: Range<usize>,
    /// How many of these carry a round trip.
    samples: usize,
    /// The least of their round trips.
    round_trip: Option<u64>,
    /// How much later than usual the server's segments came, at least.
    later: Option<u64>,
    /// How long the request waited in this host's queueing discipline, by its stamps.
    held: Option<u64>,
}

impl Sight {
    /// `later`: how much later than usual the segments of each arrival came.
    fn of(scene: &Scene, later: &[Option<u64>], event: &Event) -> Self {
        let arrivals = scene.arrivals.during(flight(event));
        let later = later.get(arrivals.clone()).unwrap_or_default();
        let answers = || scene.arrivals.within(flight(event)).iter().filter(|other| other.answered);
        Self {
            time: event.duration,
            samples: answers().filter(|other| other.round_trip.is_some()).count(),
            round_trip: answers().filter_map(|other| other.round_trip).min(),
            later: later.iter().flatten().copied().min(),
            held: event.stamped().map(|_| stamped_local(event)),
            arrivals,
        }
    }
}

/// The sights of all judged operations.
struct JudgedSights<'a> {
    scene: &'a Scene<'a>,
    sights: &'a [Sight],
    /// The round trip before, nanoseconds.
    normal: Option<u64>,
    /// The round trips of different kinds of operations are alike.
    agree: bool,
    /// Enough large writes show a round trip.
    large: bool,
    /// Large answers were late by their timestamps, and by varying times.
    filled: bool,
    /// By how much the path is longer as proved by [`acks`], nanoseconds.
    proven: Option<u64>,
}

impl JudgedSights<'_> {
    /// The value, nanoseconds, that operations with this share of the time reach or exceed.
    fn at_least(&self, share: f64, seen: impl Fn(&Sight) -> Option<u64>) -> Option<u64> {
        let mut values: Vec<_> =
            self.sights.iter().filter_map(|sight| Some((seen(sight)?, sight.time as f64))).collect();
        values.sort_unstable_by_key(|(value, _)| *value);
        let all: f64 = values.iter().map(|(_, time)| time).sum();
        let mut so_far = 0.0;
        let enough = values.iter().find(|(_, time)| {
            so_far += time;
            so_far >= all * (1.0 - share)
        });
        enough.map(|(value, _)| *value)
    }

    /// By how much the path is longer at most, nanoseconds, if operations with most of the time met a path about as
    /// short as ever; else `None`.
    fn as_ever(&self) -> Option<u64> {
        let (round_trip, later) = (|sight: &Sight| sight.round_trip, |sight: &Sight| sight.later);
        let normal = self.normal.filter(|_| self.proven.is_none())?;
        let more = |share| Some(self.at_least(share, round_trip)?.saturating_sub(normal));
        match self.at_least(1.0 - MOST, later) {
            // Acknowledgements may be delayed, but timestamps are not: so the way there is taken to be like the way
            // back.
            Some(later) => (later <= LEAST_BACK && more(HALF)? <= ACK_DELAY).then_some(LEAST),
            None => more(1.0 - MOST).filter(|more| *more <= LEAST.max(normal / 4)).map(|more| more + LEAST),
        }
    }

    /// By how much the path is provably longer, nanoseconds. It is compared with the time that a third of the round trips
    /// before reached, or with the normal if that is not known.
    fn proven(&self) -> Option<u64> {
        // Time in this host's queueing discipline does not belong to the path.
        let held = self.sights.iter().filter_map(|sight| sight.held).max().unwrap_or(0);
        let (before, margin) = match acks::before(self.scene) {
            Some(before) => (before, 2 * JIFFY),
            None => (self.normal.unwrap_or(0), ACK_DELAY),
        };
        let more = acks::proven(self.scene)?.saturating_sub(held.saturating_add(before));
        let least = before.max(margin);
        (more >= least && !self.is_outrun(least)).then_some(more)
    }

    /// Whether too many operations were answered in less than half of `more`, so the path cannot be longer by `more`.
    fn is_outrun(&self, more: u64) -> bool {
        let begun = |event: &&&Event| answered(event) && flight(event).0 >= self.scene.from;
        let (all, faster) =
            self.scene.during.iter().filter(begun).fold((0_u32, 0_u32), |(all, faster), event| {
                (all + 1, faster + u32::from(event.phases.wire < more / 2))
            });
        f64::from(faster) > f64::from(all) * OUTRUN
    }

    /// The path as operations with this share of the time met it, if it became longer.
    fn longer(&self, share: f64) -> Option<Path> {
        let Self { scene, normal, agree, large, filled, proven, .. } = *self;
        let held = self.at_least(share, |sight| sight.held);
        let least = self.at_least(share, |sight| sight.round_trip)?.saturating_sub(held.unwrap_or(0));
        let usual = normal.unwrap_or(0);
        let more = least.saturating_sub(usual);
        let back = self.at_least(share, |sight| sight.later);
        let most = more.max(proven.unwrap_or(0));
        let is_queued = held.is_none() && scene.is_queued() && back.is_none_or(|back| back * 2 < most);
        let is_seen = is_queued
            || match back {
                Some(back) if back >= LEAST_BACK => back <= more + LEAST_BACK,
                // The way back is as before. Either the way there became longer, equally for all operations; or the
                // server delays acknowledgements, by varying times.
                Some(_) if self.is_outrun(more) => false,
                Some(_) => {
                    let most = more;
                    let more = self.at_least(ALL, |sight| sight.round_trip).unwrap_or(0).saturating_sub(usual);
                    let told = (agree || more > ACK_DELAY) && large && more >= LEAST.max(usual) && more >= most / 4 * 3;
                    more > MOST_DELAYED || (told && !DELAYED.contains(&more))
                }
                None => !self.is_outrun(more) && (more > ACK_DELAY || (agree && large)),
            };
        let spread = self.at_least(1.0 - MOST, |sight| sight.round_trip)?.saturating_sub(least);
        let is_narrow = spread >= more / 4 && spread >= LEAST_SPREAD;
        let is_seen = is_seen && more >= LEAST.max(usual);
        let now = if is_seen { least } else { usual + proven.unwrap_or(more) };
        let own = if is_queued { now.saturating_sub(usual + 2 * back.unwrap_or(0)) } else { 0 };
        (is_seen || proven.is_some() || (more >= LEAST.max(usual) && agree && back.is_none())).then_some(Path {
            normal,
            now,
            back,
            own,
            is_seen,
            proven,
            is_narrow,
            is_filled: filled && (is_seen || proven.is_some()) && back.is_some_and(|back| back >= LEAST_BACK),
        })
    }
}

impl Path {
    /// Whether a slow server that delays its acknowledgements cannot be the reason.
    pub fn is_certain(&self) -> bool {
        self.is_seen || self.proven.is_some()
    }

    /// Whether [`acks`] is the only proof.
    pub fn is_only_proven(&self) -> bool {
        self.proven.is_some() && !self.is_seen
    }

    /// By how much the round trip is longer, nanoseconds.
    fn more(&self) -> u64 {
        self.now.saturating_sub(self.normal.unwrap_or(0))
    }

    /// The most that the longer round trip adds to this operation, nanoseconds: to every round trip that it may have
    /// taken.
    pub fn part(&self, event: &Event) -> u64 {
        self.more().saturating_mul(turns(event.bytes))
    }

    /// The least that the longer round trip adds to this operation, nanoseconds.
    pub fn least_part(&self, event: &Event) -> u64 {
        if self.is_seen {
            self.part(event)
        } else if self.is_certain() {
            self.more()
        } else {
            0
        }
    }

    /// The part of an extra time on the wire, nanoseconds, that this host's own queueing discipline explains.
    pub fn own_part(&self, event: &Event, extra: u64) -> u64 {
        let part = self.part(event).min(extra);
        (part as f64 * self.own as f64 / self.more().max(1) as f64) as u64
    }
}

/// TCP's own minimum of the round trip over the last minutes, nanoseconds.
fn least_of_tcp(scene: &Scene) -> Option<u64> {
    scene.judged.iter().filter_map(|event| event.network.least_round_trip()).min()
}

/// The usual lag of the peer's timestamps behind this host's clock, milliseconds modulo 2^16: nine of ten arrivals lag
/// by this or more. A segment lags by more if it waited in the socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks(u16);

impl Clocks {
    pub fn of<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Self> {
        let lags: Vec<_> = events.map(|event| event.network.arrival_ms).filter(|lag| *lag != 0).collect();
        if lags.len() < LEAST_SAMPLES {
            return None;
        }
        // Lags are modulo 2^16, so they are compared as differences from the first.
        let first = *lags.first()?;
        let low = low(lags.iter().map(|lag| u64::from(lag.wrapping_sub(first) ^ SIGN)).collect())?;
        Some(Self(first.wrapping_add(low as u16 ^ SIGN)))
    }

    /// By how much later than usual the last segment of this operation came, nanoseconds. `None` if not known. A
    /// segment that lags by more than the operation's flight is from another socket or another clock: `None`, too.
    pub fn later(self, event: &Event) -> Option<u64> {
        self.lag(event).filter(|lag| is_possible(*lag, event))
    }

    fn lag(self, event: &Event) -> Option<u64> {
        let lag = event.network.arrival_ms;
        (lag != 0).then(|| self.until(Self(lag)))
    }

    fn until(self, other: Self) -> u64 {
        u64::try_from(other.0.wrapping_sub(self.0).cast_signed()).unwrap_or(0) * MS
    }
}

/// Whether an operation's last segment can have been under way for so long.
fn is_possible(lag: u64, event: &Event) -> bool {
    lag <= event.phases.wire.saturating_add(LEAST_BACK)
}

/// For how long the peer's clock stood still, nanoseconds, if it did: the timestamps of answers lag by more than their
/// flight. The clock of a virtual machine stands still while it is paused. `events`: one connection's, including those
/// after the pause.
pub(super) fn stood_still(clocks: Clocks, mut events: Vec<&Event>) -> Option<u64> {
    events.retain(|event| answered(event));
    events.sort_by_key(|event| Reverse(flight(event).1));
    let mut earliest = Nanos::MAX;
    let mut others = events.iter().peekable();
    let lags = events.iter().filter_map(|event| {
        // The last segment may be of another answer: of an operation still under way, or of one that this answer had to
        // wait for, since TCP delivers in order.
        let (sent, received) = flight(event);
        while let Some(other) = others.next_if(|other| flight(other).1.saturating_add(LEAST_BACK) >= received) {
            if !other.operation.waits_by_design() {
                earliest = earliest.min(flight(other).0);
            }
        }
        let longest = received.saturating_sub(earliest.min(sent)).saturating_add(LEAST_BACK);
        clocks.lag(event).filter(|lag| *lag > longest)
    });
    let lags: Vec<_> = lags.collect();
    if lags.len() < LEAST_OF_KIND { None } else { median(lags) }
}

/// The sign bit: flipping it makes the unsigned order of 16-bit numbers equal their signed order.
const SIGN: u16 = 1 << 15;

/// The answers that arrived during any of the flights, each once, with their positions in [`FlightsByArrival::all`].
fn answers<'s>(scene: &'s Scene, sights: &[Sight]) -> Vec<(usize, &'s Arrival<'s>)> {
    let mut ranges: Vec<_> = sights.iter().map(|sight| sight.arrivals.clone()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut next = 0;
    let positions = ranges.into_iter().flat_map(|range| {
        let from = range.start.max(next);
        next = next.max(range.end);
        from..range.end
    });
    let arrivals = scene.arrivals.all();
    positions.filter_map(|at| Some((at, arrivals.get(at)?))).filter(|(_, arrival)| arrival.answered).collect()
}

/// Whether large answers queue on the way from the server: their last segments were late, by times that differ much. A
/// server that is slow does not make segments late, and a longer way makes them late by the same time. `later`: how much
/// later than usual the segments of each arrival came, by position.
fn is_filled(answers: &[(usize, &Arrival)], later: &[Option<u64>]) -> bool {
    let large = answers.iter().filter(|(_, arrival)| arrival.is_large_answer());
    let (least, most) = large
        .filter_map(|(at, _)| later.get(*at).copied().flatten())
        .fold((u64::MAX, 0), |(least, most), later| (least.min(later), most.max(later)));
    most.saturating_sub(least) >= LEAST_SPREAD.max(most / 2)
}

/// Whether enough large writes carry a round trip.
fn has_large_writes(answers: &[(usize, &Arrival)]) -> bool {
    let is_large_write = |(_, arrival): &&(usize, &Arrival)| {
        let Arrival { event, round_trip, .. } = arrival;
        event.bytes >= LARGE && event.operation.direction() == Some(Direction::Written) && round_trip.is_some()
    };
    answers.iter().filter(is_large_write).count() >= LEAST_OF_KIND
}

/// Whether several kinds of operations have the same round trip. A server's own time differs from kind to kind, and so
/// does the time that it adds to a round trip when it acknowledges a request with the answer.
fn kinds_agree(answers: &[(usize, &Arrival)]) -> bool {
    let mut kinds = BTreeMap::<Operation, Vec<u64>>::new();
    for (_, arrival) in answers {
        kinds.entry(arrival.event.operation).or_default().extend(arrival.round_trip);
    }
    let lows: Vec<_> = kinds.into_values().filter(|samples| samples.len() >= LEAST_OF_KIND).filter_map(low).collect();
    let (part, time) = ALIKE;
    let (Some(least), Some(most)) = (lows.iter().min(), lows.iter().max()) else { return false };
    lows.len() > 1 && *most <= least + least / part + time
}

/// The value that nine of ten values reach or exceed; `None` without values.
fn low(mut values: Vec<u64>) -> Option<u64> {
    let index = values.len() / OUTLIERS;
    (!values.is_empty()).then(|| *values.select_nth_unstable(index).1)
}
