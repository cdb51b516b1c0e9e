//! What there is to judge: the slow operations of one connection, and what else happened on it before and meanwhile.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{Event, MountKey, Nanos, Phases, SendTiming};

use super::{
    drops::Drops,
    normals::{Normals, roughly},
    path::{Clocks, PathState, stood_still},
    proxy::is_proxied,
    sending::Sending,
};
use crate::{
    long_term::{KindOf, LongTerm, Normal},
    units::{MS, SECOND},
    window::slower_first,
};

/// The share of the extra time from which what was seen directly outweighs what is the rest: two faults at once are rare.
pub(super) const SEEN: f64 = 0.3;
/// At most this many of the slowest operations are judged.
pub(super) const JUDGED: usize = 128;
/// Times that come from the kernel's jiffies, 1 to 10 ms each, mean nothing up to this.
pub(super) const JIFFY: u64 = 10 * MS;
/// An answer this much later than normal is late: less may be the clock's granularity or the scheduler.
const LATE: u64 = 10 * MS;

/// What is acknowledged within this part of the time for which it was held back was acknowledged at once.
const AT_ONCE: u64 = 8;

/// From this share of the slow operations on, packets in this host's queueing discipline are no coincidence.
const QUEUED: f64 = 0.25;
/// And from this one on, they are what the operations wait for, if nothing else is.
const HELD: f64 = 0.5;
/// The slowest operations with this share of the time say when an incident was, but for the first of them with that one.
pub(super) const MOST: f64 = 0.75;
const EARLY: f64 = 0.1;
/// Clocks drift by 50 millionths: 3 ms in this time, nanoseconds.
const CLOCKS_HOLD: u64 = 60 * SECOND;

/// What shares a network and a server: a connection, else (where the probe does not know it) a mount.
type Route = (&'static str, u64, MountKey);

/// The connection with most of the slow time, sorted for judging.
pub(super) struct Scene<'a> {
    /// Whether a server stands behind the operations.
    pub remote: bool,
    /// Whether a daemon of this host asks that server for everybody.
    pub proxied: bool,
    /// Operations on this connection that the slow events stand for.
    pub count: u64,
    /// Their time, nanoseconds.
    pub time: u64,
    /// This connection's share of all slow time.
    pub share: f64,
    /// How many more connections had slow operations.
    pub elsewhere: u64,
    /// The slowest of all.
    slowest: &'a Event,
    /// The slowest whose phases are known, slowest first.
    pub judged: Vec<&'a Event>,
    /// What ended before the first slow operation began, in the order of ending.
    pub before: Vec<&'a Event>,
    /// What ended between then and the end of the last slow one, these included, in the order of ending.
    pub during: Vec<&'a Event>,
    /// From which duration on operations are slow, by kind.
    slow_from: BTreeMap<KindOf, u64>,
    normals: Normals,
    pub long_term: &'a LongTerm,
    /// When the slow operations began.
    pub from: Nanos,
    /// The difference of this host's clock and the peer's, before.
    pub clocks: Option<Clocks>,
    /// For how long the peer's clock stood still, nanoseconds.
    pub stood_still: Option<u64>,
    /// Of the judged operations that say more of their connection, the share at whose end packets waited in this host's queueing discipline.
    pub queued: f64,
    /// The path.
    pub path: PathState,
    /// What TCP counted of what it sent.
    pub sending: Option<Sending>,
    /// Segments of the server's connections that this host dropped, or that came damaged, if the judged operations waited for them.
    pub drops: Option<Drops>,
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
        // Of all, where there was next to nothing before: what is late is not most of it.
        let recent = |event: &&&Event| event.end().saturating_add(CLOCKS_HOLD) >= from;
        let clocks = Clocks::of(before.iter().filter(recent).copied())
            .or_else(|| Clocks::of(before.iter().chain(&during).filter(recent).copied()));
        let since = around.iter().filter(|event| route(event) == here && event.end() > from);
        let stood_still = clocks.and_then(|clocks| stood_still(clocks, since));
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
            drops: None,
        };
        scene.drops = Drops::of_slow(&scene.judged, around, from);
        scene.path = PathState::of(&scene);
        scene.sending = Sending::of(&scene);
        Some(scene)
    }

    /// The normal of an event's operation on its mount.
    pub fn normal(&self, event: &Event) -> Normal {
        self.normals.of_event(event)
    }

    /// What came before and was not itself slow.
    pub fn fast_before(&self) -> impl Iterator<Item = &'a Event> {
        self.before.iter().copied().filter(|event| is_fast(event, &self.slow_from))
    }

    /// The normal of the slowest operation, if it is known, and whether it is what was just before.
    pub fn normal_of_slowest(&self) -> Option<(Normal, bool)> {
        let normal = self.normal(self.slowest);
        normal.is_known().then(|| (normal, self.has_recent_normal()))
    }

    /// Whether what was just before says how long the slowest operation takes normally.
    pub fn has_recent_normal(&self) -> bool {
        self.normals.has_recent(self.slowest)
    }

    /// Whether there was enough just before for the connection's round trips to be known.
    pub fn has_recent_past(&self) -> bool {
        self.normals.has_recent_of_any_size(self.slowest)
    }

    /// What round trips to the server took for hours, if that was learned.
    pub fn learned_round_trip(&self) -> Option<u64> {
        self.long_term.round_trip(self.slowest.mount)
    }

    /// The part of the time on the wire for which the request lay in this host's queueing discipline, as far as that is known.
    pub fn local(&self, event: &Event) -> u64 {
        if let Some(transit) = event.stamped() {
            // What its queueing discipline or its interface does not take, TCP holds back.
            let held = if self.is_queued() || self.was_not_sent(event) { transit.held } else { 0 };
            return stamped_local(event).saturating_add(held).min(event.phases.wire);
        }
        let extra = event.phases.wire.saturating_sub(self.normal(event).wire);
        let longer = self.path.longer().map_or(0, |path| path.own_part(event, extra));
        longer.max(self.held_back().map_or(0, |sending| sending.busy_part(extra)))
    }

    /// Whether TCP held a request back for most of its time though the peer's window was open, and what was sent before and after was acknowledged at once: nothing but
    /// this host kept it.
    pub fn was_not_sent(&self, event: &Event) -> bool {
        let is_kept = |transit: SendTiming| {
            transit.retransmitted == 0
                && transit.held >= event.phases.wire / 2
                && transit.most <= transit.held / AT_ONCE
        };
        // Where what was sent was acknowledged as fast as the path allows, TCP waited for that: its congestion window was full.
        let sends_nothing = |sending: Sending| sending.is_window_open() && !sending.is_saturated();
        event.stamped().is_some_and(is_kept) && self.sending.is_some_and(sends_nothing)
    }

    /// What TCP counted, if it was for this host's queueing discipline that data was not acknowledged. A slow server keeps none, but for what its acknowledgements
    /// are delayed by: if there is some for most of the time, and packets wait here whenever an operation ends, that is where. Where sends are stamped, the stamps say so.
    pub fn held_back(&self) -> Option<Sending> {
        let sending = self.sending.filter(|sending| sending.is_busy() && !sending.is_paced);
        sending.filter(|_| self.queued >= HELD && self.judged.iter().all(|event| event.stamped().is_none()))
    }

    /// The share of the operations that were answered meanwhile as fast as ever.
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

    /// Mean over the judged operations.
    pub fn mean(&self, time: impl Fn(&Event) -> u64) -> f64 {
        let sum: f64 = self.judged.iter().map(|event| time(event) as f64).sum();
        sum / (self.judged.len().max(1) as f64)
    }

    /// Whether an operation was answered late.
    pub fn is_late(&self, event: &Event) -> bool {
        let normal = self.normal(event).wire;
        !event.operation.waits_by_design()
            && event.phases.wire >= normal.saturating_mul(2)
            && event.phases.wire.saturating_sub(normal) >= LATE
    }

    /// What was answered late while the slow operations lasted, whether slow as a whole or not; the latest first.
    pub fn answered_late(&self) -> Vec<&'a Event> {
        let mut events: Vec<_> = self.during.iter().filter(|event| self.is_late(event)).copied().collect();
        events.sort_by_key(|event| Reverse(event.phases.wire));
        events
    }
}

/// When an operation was sent and when its answer was received.
pub(super) fn flight(event: &Event) -> (Nanos, Nanos) {
    let sent = event.start.saturating_add(event.phases.queue);
    (sent, sent.saturating_add(event.phases.wire))
}

/// From when to when it was under way.
pub(super) fn stretch(event: &Event) -> (Nanos, Nanos) {
    (event.start, event.end())
}

/// Likewise, as its stamps say it.
pub(super) fn stamped_local(event: &Event) -> u64 {
    event.stamped().map_or(0, |transit| transit.local.min(event.phases.wire))
}

/// The part of the time on the wire for which the answer lay in this host's socket, because nobody took it: at least.
pub(super) fn unread(event: &Event) -> u64 {
    let unread = u64::from(event.network.unread_us) * 1_000;
    if unread > JIFFY { unread.min(event.phases.wire) } else { 0 }
}

/// The part of the duration that is in none of the phases.
pub(super) fn rest(event: &Event) -> u64 {
    let Phases { queue, wire, deliver } = event.phases;
    event.duration.saturating_sub(queue.saturating_add(wire).saturating_add(deliver))
}

/// For how long both of two stretches lasted.
pub(super) fn overlap((from, to): (Nanos, Nanos), (since, until): (Nanos, Nanos)) -> u64 {
    to.min(until).saturating_sub(from.max(since))
}

/// How much of a stretch these cover: disjoint ones, in their order.
pub(super) fn covered(stretches: &[(Nanos, Nanos)], (from, to): (Nanos, Nanos)) -> u64 {
    let first = stretches.partition_point(|(_, until)| *until < from);
    let near = stretches.iter().skip(first).take_while(|(since, _)| *since <= to);
    near.map(|stretch| overlap(*stretch, (from, to))).sum()
}

/// Of what a total of times grew by meanwhile, what passed `within` a part of the time elapsed: at least.
pub(super) fn not_between(grown: u64, elapsed: u64, within: u64) -> u64 {
    grown.saturating_sub(elapsed.saturating_sub(within))
}

/// Overlapping stretches joined, in their order.
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

fn queued(judged: &[&Event]) -> f64 {
    let saying = judged.iter().filter(|event| event.network.min_rtt_us > 0);
    let (all, queued) =
        saying.fold((0_u32, 0_u32), |(all, queued), event| (all + 1, queued + u32::from(event.network.own_queue > 0)));
    f64::from(queued) / f64::from(all.max(1))
}

/// Of operations, the slowest first: those that have most of the time. What is slow for another reason, or was before the fault, has little of it.
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

/// When what is judged began: an incident may have a few slow operations of another reason in front. They are the slowest first.
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

/// What the recorder and the slow events tell of one connection: before `from`, and from then to `to`. The recorder may
/// have lost the slow ones by now.
fn history<'a>(
    slow: &[&'a Event],
    around: &'a [Event],
    here: Route,
    from: Nanos,
    to: Nanos,
) -> (Vec<&'a Event>, Vec<&'a Event>) {
    let recorded = around.iter().filter(|event| route(event) == here && event.end() <= to);
    let mut all: Vec<_> = slow.iter().copied().chain(recorded).collect();
    // A slow operation is there twice: as an event, and as the recorder has it.
    // The one that says more of its connection comes first; of equals, in whatever order they came, the same one.
    let tells =
        |event: &&Event| (Reverse(event.network.min_rtt_us), event.start, event.phases.wire, event.network.rtt_us);
    all.sort_by_key(|event| (event.identity(), tells(event)));
    all.dedup_by_key(|event| event.identity());
    let during = all.split_off(all.partition_point(|event| event.end() < from));
    (all, during)
}

/// The least that a slow operation of each kind took.
fn slow_from(slow: &[&Event]) -> BTreeMap<KindOf, u64> {
    let mut slow_from = BTreeMap::<KindOf, u64>::new();
    for event in slow {
        let least = slow_from.entry(roughly(event)).or_insert(u64::MAX);
        *least = event.duration.min(*least);
    }
    slow_from
}

/// Whether it took less than the slow ones of its kind.
fn is_fast(event: &Event, slow_from: &BTreeMap<KindOf, u64>) -> bool {
    slow_from.get(&roughly(event)).is_none_or(|least| event.duration < *least)
}
