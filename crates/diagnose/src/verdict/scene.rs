//! The material of a verdict: the slow operations of one connection, and its other operations before and meanwhile.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{Direction, Event, MountKey, Nanos, Phases, SendTiming};

use super::{
    arrivals::FlightsByArrival,
    drops::Drops,
    history::{has_risen, round_trip},
    normals::{Normals, roughly},
    path::{Clocks, PathState, stood_still},
    proxy::is_proxied,
    reroute::NewRoute,
    sending::Sending,
    siblings::SparedSiblings,
};
use crate::{
    long_term::{KindOf, LongTerm, LongTermMedians},
    order::median,
    units::{MS, SECOND},
    window::slower_first,
};

/// From this share of the extra time on, a directly observed cause outweighs an inferred one: two faults at once are
/// rare.
pub(super) const SEEN: f64 = 0.3;
/// At most this many of the slowest operations are judged.
pub(super) const JUDGED: usize = 128;
/// The error, nanoseconds, of times that the kernel counts in jiffies of 1 to 10 ms; a smaller time means nothing.
pub(super) const JIFFY: u64 = 10 * MS;
/// An answer is late if it exceeds the normal by at least this, nanoseconds: less may be the clock or the scheduler.
pub(super) const LATE: u64 = 10 * MS;

/// A segment was acknowledged "at once" if that took at most the time for which it was held back, divided by this.
const AT_ONCE: u64 = 8;

/// Packets in this host's queueing discipline are no coincidence if at least this share of the slow operations met
/// them.
const QUEUED: f64 = 0.25;
/// The operations waited for these packets, without other evidence, if at least this share of them met them.
const HELD: f64 = 0.5;
/// At least this many operations must have ended during another write to show what waits on this host.
const WRITES: usize = 3;
/// An incident lasts as long as the slowest operations that have `MOST` of the slow time together; the earliest of
/// these, with `EARLY` of their time, do not count for its beginning.
pub(super) const MOST: f64 = 0.75;
const EARLY: f64 = 0.1;
/// If at least this many operations precede an incident, they cannot all belong to its beginning.
const WELL_KNOWN: usize = 50;
/// How long a comparison of clocks stays valid, nanoseconds: clocks drift by 50 ppm, 3 ms in this time.
const CLOCKS_HOLD: u64 = 60 * SECOND;

/// Operations with the same route share a network path and a server. A route is a protocol and a connection, or a mount if the probe does not know
/// the connection.
type Route = (&'static str, u64, MountKey);

/// The operations of the connection (or mount) with most of the slow time.
pub(super) struct Scene<'a> {
    /// Whether the operations are requests to a server.
    pub remote: bool,
    /// Whether the operations go through the libcephfs proxy.
    pub proxied: bool,
    /// Operations on this connection that the slow events stand for.
    pub count: u64,
    /// Their time, nanoseconds.
    pub time: u64,
    /// This connection's share of all slow time.
    pub share: f64,
    /// How many more connections had slow operations.
    pub elsewhere: u64,
    /// The slowest operation.
    pub slowest: &'a Event,
    /// The slowest operations with known phases, slowest first, at most [`JUDGED`].
    pub judged: Vec<&'a Event>,
    /// Operations that ended before the first slow operation began, in the order of ending.
    pub before: Vec<&'a Event>,
    /// Operations that ended from then to the end of the last slow operation, including the slow ones, in the order of
    /// ending.
    pub during: Vec<&'a Event>,
    /// Requests over other connections to other mounts of the same server, in the order of ending.
    pub beside: Vec<&'a Event>,
    /// The same as `during`, in the order in which their answers arrived.
    pub arrivals: FlightsByArrival<'a>,
    /// The least duration of a slow operation, nanoseconds, by kind.
    slow_from: BTreeMap<KindOf, u64>,
    normals: Normals,
    pub long_term: &'a LongTerm,
    /// When the slow operations began.
    pub from: Nanos,
    /// The difference of this host's clock and the peer's before the incident; `None` if not known, or the peer's stood
    /// still.
    pub clocks: Option<Clocks>,
    /// For how long the peer's clock stood still, nanoseconds; `None` if it did not, or that is not known.
    pub stood_still: Option<u64>,
    /// The share of the judged operations at whose end packets waited in this host's queueing discipline. Operations
    /// that carry no details of their connection are left out.
    pub queued: f64,
    /// Whether the network path became longer.
    pub path: PathState,
    /// What TCP counted while it sent; `None` if not known.
    pub sending: Option<Sending>,
    /// This host's new route to the server, if operations are slow since.
    pub new_route: Option<NewRoute>,
    /// Segments of the server's connections that did not get through, if the judged operations waited for them.
    pub drops: Option<Drops>,
    /// The median round trip before, else the learned one; nanoseconds.
    pub usual_round_trip: Option<u64>,
    /// Other connections of the mount that were as fast as ever, if this one was slow throughout.
    pub spared_siblings: Option<SparedSiblings>,
}

impl<'a> Scene<'a> {
    /// `None` if nothing was slow.
    pub fn of(slow: &'a [Event], around: &'a [Event], long_term: &'a LongTerm) -> Option<Self> {
        let mut routes = BTreeMap::<Route, u64>::new();
        for event in slow {
            let time = routes.entry(route(event)).or_default();
            *time = time.saturating_add(weighted(event));
        }
        let (here, time) = routes.iter().max_by_key(|(_, time)| **time).map(|(route, time)| (*route, *time))?;
        let all = routes.values().copied().fold(0, u64::saturating_add);

        let mut mine: Vec<_> = slow.iter().filter(|event| route(event) == here).collect();
        mine.sort_by(|a, b| slower_first(a, b));
        let from = begin(&mine)?;
        let to = mine.iter().map(|event| event.end()).max()?;
        let (before, during) = history(&mine, around, here, from, to);
        let slow_from = slow_from(&mine);
        let fast: Vec<_> = before.iter().copied().filter(|event| is_fast(event, &slow_from)).collect();
        let normals = Normals::of(&fast, mine.iter().chain(&during).copied(), long_term);
        let count = mine.iter().map(|event| event.operations()).fold(0, u64::saturating_add);
        let slowest = *mine.first()?;
        mine.retain(|event| event.phases.known());
        mine.truncate(JUDGED);
        // If too few operations precede the incident, all are used: even during the incident, most are not late.
        let recent = |event: &&&Event| event.end().saturating_add(CLOCKS_HOLD) >= from;
        let clocks = Clocks::of(before.iter().filter(recent).copied())
            .or_else(|| Clocks::of(before.iter().chain(&during).filter(recent).copied()));
        let since = around.iter().filter(|event| route(event) == here && event.end() > from);
        let stood_still = clocks.and_then(|clocks| stood_still(clocks, since.collect()));
        let queued = queued(&mine);
        let mut scene = Self {
            remote: slowest.operation.level().is_remote(),
            proxied: is_proxied(slowest.operation),
            count,
            time,
            share: if all > 0 { time as f64 / all as f64 } else { 1.0 },
            elsewhere: routes.len() as u64 - 1,
            slowest,
            judged: mine,
            before,
            beside: Vec::new(),
            arrivals: FlightsByArrival::of(&during),
            during,
            slow_from,
            normals,
            long_term,
            from,
            clocks: clocks.filter(|_| stood_still.is_none()),
            stood_still,
            queued,
            path: PathState::Unknown,
            sending: None,
            new_route: None,
            drops: None,
            usual_round_trip: None,
            spared_siblings: None,
        };
        scene.usual_round_trip = median(scene.before.iter().filter_map(|event| round_trip(event)).collect())
            .or_else(|| scene.learned_round_trip());
        scene.spared_siblings = SparedSiblings::of(&scene, around);
        scene.drops = Drops::of_slow(&scene.judged, around, from);
        scene.new_route = NewRoute::of(&scene, around);
        scene.path = PathState::of(&scene);
        scene.sending = Sending::of(&scene);
        Some(scene)
    }

    /// The normal of an event's operation on its mount. Where none is known, an answer takes a round trip at least.
    pub fn normal(&self, event: &Event) -> LongTermMedians {
        let normal = self.normals.of_event(event);
        if normal.wire > 0 {
            normal
        } else {
            LongTermMedians { wire: self.well_known_round_trip().unwrap_or(0), ..normal }
        }
    }

    /// The usual round trip, nanoseconds, if enough operations show it: the incident cannot have begun before all of them.
    fn well_known_round_trip(&self) -> Option<u64> {
        self.usual_round_trip.filter(|_| self.before.len() >= WELL_KNOWN)
    }

    /// Whether the judged operations were answered in little more than the usual round trip: then neither the server nor the path is slow.
    pub fn is_answered_at_once(&self) -> bool {
        let Some(usual) = self.well_known_round_trip() else { return false };
        self.mean(|event| event.phases.wire) <= (usual + usual / 4) as f64
    }

    /// Operations that ended before the incident and were not slow.
    pub fn fast_before(&self) -> impl Iterator<Item = &'a Event> {
        self.before.iter().copied().filter(|event| is_fast(event, &self.slow_from))
    }

    /// The normal of the slowest operation, if known, and whether it is from the operations just before.
    pub fn normal_of_slowest(&self) -> Option<(LongTermMedians, bool)> {
        let normal = self.normal(self.slowest);
        normal.is_known().then(|| (normal, self.has_recent_normal()))
    }

    /// Whether the operations just before suffice for the normal of the slowest operation.
    pub fn has_recent_normal(&self) -> bool {
        self.normals.has_recent(self.slowest)
    }

    /// Whether the operations just before suffice for the connection's normal round trip.
    pub fn has_recent_past(&self) -> bool {
        self.normals.has_recent_of_any_size(self.slowest)
    }

    /// The round trip to the server learned over hours, nanoseconds, if known.
    pub fn learned_round_trip(&self) -> Option<u64> {
        self.long_term.round_trip(self.slowest.mount)
    }

    /// The part of the time on the wire, nanoseconds, for which the request waited in this host's queueing discipline,
    /// as far as known.
    pub fn local(&self, event: &Event) -> u64 {
        if let Some(timing) = event.stamped() {
            // TCP holds back a request that the queueing discipline or the interface does not accept.
            let held = if self.is_queued() || self.was_not_sent(event) { timing.held } else { 0 };
            return stamped_local(event).saturating_add(held).min(event.phases.wire);
        }
        let extra = event.phases.wire.saturating_sub(self.normal(event).wire);
        let longer = self.path.longer().map_or(0, |path| path.own_part(event, extra));
        longer.max(self.held_back().map_or(0, |sending| sending.busy_part(extra)))
    }

    /// Whether only this host delayed a request. TCP held it back for most of its time although the peer's window was
    /// open, what was sent was acknowledged at once, and nothing was retransmitted: after a loss, TCP sends less. A request that the
    /// client sends in several parts may also wait until an earlier one is acknowledged (Nagle's algorithm, RFC 896).
    pub fn was_not_sent(&self, event: &Event) -> bool {
        let is_kept = |timing: SendTiming| {
            timing.retransmitted == 0 && timing.held >= event.phases.wire / 2 && timing.most <= timing.held / AT_ONCE
        };
        // If sent data was acknowledged as fast as the path allows, TCP waited for acknowledgements: its congestion window was full.
        let sends_nothing = |sending: Sending| sending.is_window_open() && !sending.is_saturated();
        event.stamped().is_some_and(is_kept)
            && self.sending.is_some_and(sends_nothing)
            && !self.has_retransmitted_during(event)
            && self.acknowledged_before(event).is_none()
    }

    /// For how long TCP held an operation's request back while an earlier request of the connection was not acknowledged, if that is at least half of the
    /// time for which TCP held it. Nanoseconds.
    pub fn acknowledged_before(&self, event: &Event) -> Option<Nanos> {
        let (sent, _) = flight(event);
        let held = event.stamped().filter(|timing| timing.sends > 1)?.held;
        let left = |other: &&Event| {
            let (from, _) = flight(other);
            let timing = other.stamped().filter(|_| from < sent && other.connection == event.connection)?;
            let acknowledged =
                from.saturating_add(timing.held).saturating_add(timing.local).saturating_add(timing.least);
            Some(acknowledged.saturating_sub(sent))
        };
        let longest = self.during.iter().filter_map(left).max()?.min(held);
        (held > 0 && longest >= held / 2).then_some(longest)
    }

    /// Whether the connection retransmitted segments while an operation was on the wire.
    fn has_retransmitted_during(&self, event: &Event) -> bool {
        let others = self.before.iter().chain(&self.during).copied();
        has_risen(event, flight(event).0, others, |network| network.retransmits)
    }

    /// TCP's counts, if data was unacknowledged because it waited in this host's queueing discipline. A slow server
    /// leaves no data unacknowledged, apart from delayed acknowledgements. If data is unacknowledged most of the time,
    /// and packets wait on this host when operations end, the data is among them. `None` where sends are stamped: the
    /// stamps tell more.
    pub fn held_back(&self) -> Option<Sending> {
        let sending = self.sending.filter(|sending| sending.is_busy() && !sending.is_paced);
        sending.filter(|_| self.queued >= HELD && self.judged.iter().all(|event| event.stamped().is_none()))
    }

    /// The share of the operations answered meanwhile that were as fast as normal, 0 to 1.
    pub fn fast_share(&self) -> f64 {
        let from = self.judged.iter().map(|event| event.start).min().unwrap_or(0);
        let meanwhile = self.during.iter().filter(|event| event.start >= from && !event.flags.unanswered);
        let (all, fast) = meanwhile.fold((0_u32, 0_u32), |(all, fast), event| {
            let is_fast = event.phases.wire < self.normal(event).wire.saturating_mul(2).saturating_add(LATE);
            (all + 1, fast + u32::from(is_fast))
        });
        f64::from(fast) / f64::from(all.max(1))
    }

    /// Whether packets waited in this host's queueing discipline when slow operations ended, too often to be chance.
    pub fn is_queued(&self) -> bool {
        self.queued >= QUEUED
    }

    /// The mean of `time` over the judged operations; 0 without any.
    pub fn mean(&self, time: impl Fn(&Event) -> u64) -> f64 {
        let sum: f64 = self.judged.iter().map(|event| time(event) as f64).sum();
        sum / (self.judged.len().max(1) as f64)
    }

    /// Whether an operation's answer was late.
    pub fn is_late(&self, event: &Event) -> bool {
        !event.operation.waits_by_design() && is_late(event.phases.wire, self.normal(event).wire)
    }

    /// The operations answered late while the slow operations lasted, including those that were not slow as a whole;
    /// longest on the wire first.
    pub fn answered_late(&self) -> Vec<&'a Event> {
        let mut events: Vec<_> = self.during.iter().filter(|event| self.is_late(event)).copied().collect();
        events.sort_by_key(|event| Reverse(event.phases.wire));
        events
    }
}

/// Whether something took at least twice its normal time, and at least [`LATE`] more; nanoseconds.
pub(super) fn is_late(time: u64, normal: u64) -> bool {
    time >= normal.saturating_mul(2) && time.saturating_sub(normal) >= LATE
}

/// When an operation was sent and when its answer was received.
pub(super) fn flight(event: &Event) -> (Nanos, Nanos) {
    let sent = event.start.saturating_add(event.phases.queue);
    (sent, sent.saturating_add(event.phases.wire))
}

/// The time at which an operation began and the time at which it ended.
pub(super) fn stretch(event: &Event) -> (Nanos, Nanos) {
    (event.start, event.end())
}

/// The part of the time on the wire, nanoseconds, for which a request waited in this host's queueing discipline by its
/// stamps; 0 without stamps.
pub(super) fn stamped_local(event: &Event) -> u64 {
    event.stamped().map_or(0, |timing| timing.local.min(event.phases.wire))
}

/// The least part of the time on the wire, nanoseconds, for which the answer waited in this host's socket to be read.
pub(super) fn unread(event: &Event) -> u64 {
    let unread = u64::from(event.network.unread_us) * 1_000;
    if unread > JIFFY { unread.min(event.phases.wire) } else { 0 }
}

/// The part of the duration, nanoseconds, that belongs to no phase.
pub(super) fn rest(event: &Event) -> u64 {
    let Phases { queue, wire, deliver } = event.phases;
    event.duration.saturating_sub(queue.saturating_add(wire).saturating_add(deliver))
}

/// The length of the overlap of two stretches, nanoseconds.
pub(super) fn overlap((from, to): (Nanos, Nanos), (since, until): (Nanos, Nanos)) -> u64 {
    to.min(until).saturating_sub(from.max(since))
}

/// How much of a stretch `stretches` cover, nanoseconds. They must be disjoint and ascending.
pub(super) fn covered(stretches: &[(Nanos, Nanos)], (from, to): (Nanos, Nanos)) -> u64 {
    let first = stretches.partition_point(|(_, until)| *until < from);
    let near = stretches.iter().skip(first).take_while(|(since, _)| *since <= to);
    near.map(|stretch| overlap(*stretch, (from, to))).sum()
}

/// A total grew by `grown` during `elapsed`. Returns the least part of that growth that fell into the part `within`.
pub(super) fn not_between(grown: u64, elapsed: u64, within: u64) -> u64 {
    grown.saturating_sub(elapsed.saturating_sub(within))
}

/// Joins overlapping stretches; the result is disjoint and ascending.
pub(super) fn union(mut stretches: Vec<(Nanos, Nanos)>) -> Vec<(Nanos, Nanos)> {
    stretches.sort_unstable();
    let mut joined: Vec<(Nanos, Nanos)> = Vec::with_capacity(stretches.len());
    for (from, to) in stretches {
        match joined.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => joined.push((from, to)),
        }
    }
    joined
}

fn route(event: &Event) -> Route {
    let connection = if is_proxied(event.operation) { 0 } else { event.connection };
    (event.operation.protocol().name, connection, if connection == 0 { event.mount } else { MountKey::NONE })
}

fn weighted(event: &Event) -> u64 {
    event.duration.saturating_mul(event.operations())
}

/// The share of the operations at whose end packets waited in this host's queueing discipline. If writes overlap, only
/// ends during another write count: after the last of several, nothing is left to wait.
fn queued(judged: &[&Event]) -> f64 {
    let says = |event: &&&Event| event.network.min_rtt_us > 0;
    let during_a_write = |event: &&&Event| {
        let is_under_way = |other: &&Event| {
            other.operation.direction() == Some(Direction::Written)
                && flight(other).0 < event.end()
                && event.end() < flight(other).1
        };
        judged.iter().any(is_under_way)
    };
    let share = |ends: Vec<&&Event>| {
        let queued = ends.iter().filter(|event| event.network.own_queue > 0).count();
        (ends.len(), queued as f64 / ends.len().max(1) as f64)
    };
    let (count, of_writes) = share(judged.iter().filter(says).filter(during_a_write).collect());
    if count >= WRITES { of_writes } else { share(judged.iter().filter(says).collect()).1 }
}

/// The slowest operations that have [`MOST`] of the time together. `slow`: slowest first. Operations that are slow for
/// another reason, or were before the fault, have little of the time.
pub(super) fn with_most_of_time<'a, 'e>(slow: &'a [&'e Event]) -> &'a [&'e Event] {
    let all: f64 = slow.iter().map(|event| event.duration as f64).sum();
    let mut sum = 0.0;
    let goes_on = |event: &&&Event| {
        let goes_on = sum < all * MOST;
        sum += event.duration as f64;
        goes_on
    };
    let count = slow.iter().take_while(goes_on).count();
    slow.get(..count).unwrap_or_default()
}

/// When the incident began. A few operations that are slow for another reason may precede it; they are skipped. `slow`:
/// slowest first.
fn begin(slow: &[&Event]) -> Option<Nanos> {
    let slowest = with_most_of_time(slow);
    let mut starts: Vec<_> = slowest.iter().map(|event| (event.start, event.duration as f64)).collect();
    let sum: f64 = starts.iter().map(|(_, time)| time).sum();
    starts.sort_unstable_by_key(|(start, _)| *start);
    let mut so_far = 0.0;
    let first = starts.iter().find(|(_, time)| {
        so_far += time;
        so_far > sum * EARLY
    });
    first.or(starts.first()).map(|(start, _)| *start)
}

/// The operations of one connection before `from`, and those from `from` to `to`. They come from the recorder and from
/// the slow events, as the recorder may have overwritten these.
fn history<'a>(
    slow: &[&'a Event],
    around: &'a [Event],
    here: Route,
    from: Nanos,
    to: Nanos,
) -> (Vec<&'a Event>, Vec<&'a Event>) {
    let recorded = around.iter().filter(|event| route(event) == here && event.end() <= to);
    let mut all: Vec<_> = slow.iter().copied().chain(recorded).collect();
    // A slow operation may be there twice: as an event and as a record. The one with details of its connection is kept;
    // the rest of the key makes the choice independent of the order of the input.
    let tells =
        |event: &&Event| (Reverse(event.network.min_rtt_us), event.start, event.phases.wire, event.network.rtt_us);
    all.sort_by_key(|event| (event.identity(), tells(event)));
    all.dedup_by_key(|event| event.identity());
    let during = all.split_off(all.partition_point(|event| event.end() < from));
    (all, during)
}

/// The least duration of a slow operation, nanoseconds, by kind.
fn slow_from(slow: &[&Event]) -> BTreeMap<KindOf, u64> {
    let mut slow_from = BTreeMap::<KindOf, u64>::new();
    for event in slow {
        let least = slow_from.entry(roughly(event)).or_insert(u64::MAX);
        *least = event.duration.min(*least);
    }
    slow_from
}

/// Whether an operation took less time than all slow operations of its kind.
fn is_fast(event: &Event, slow_from: &BTreeMap<KindOf, u64>) -> bool {
    slow_from.get(&roughly(event)).is_none_or(|least| event.duration < *least)
}
