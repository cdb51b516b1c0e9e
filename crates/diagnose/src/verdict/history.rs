//! The history of a connection in the order of time, and the bounds of the network's part of an operation that follow
//! from it.

use std::collections::{BTreeMap, BTreeSet};

use model::{Event, Nanos, Network, Operation};

use super::scene::{JIFFY, Scene, covered, flight, union};
use crate::{
    order::median,
    turns::{more_turns, turns},
    units::{MS, SECOND},
};

/// The most, nanoseconds, that a delayed acknowledgement of the peer adds to a round trip: 40 ms on Linux, and some
/// scheduling.
pub(super) const ACK_DELAY: u64 = 50 * MS;
/// Linux's least retransmission timeout, nanoseconds (TCP_RTO_MIN).
pub(super) const LEAST_RTO: u64 = 200 * MS;
/// The least wait before a tail loss probe, and some scheduling; nanoseconds.
const PROBE: u64 = 20 * MS;
/// A kind needs at least this many operations to be a witness for the network (see [`witness`]).
const WITNESSES: usize = 3;
/// An operation was as fast as ever up to `AS_EVER` times its normal, or `JITTER` nanoseconds more, whichever is more.
const AS_EVER: u64 = 2;
const JITTER: u64 = 5 * MS;
/// At least this many segments out of order are more than chance.
const OUT_OF_ORDER: u32 = 3;
/// Totals that were read longer than this before the incident, nanoseconds, do not show the state at its beginning.
const RECENT: u64 = 10 * SECOND;
/// If a total grew by more than this, it is of another socket.
const ANOTHER_SOCKET: u32 = 1 << 15;
/// The path loses answers if operations with at least this share of the wire time had segments out of order.
const REORDERED: f64 = 0.5;
/// And the share of segments out of order must be this many times the share before: a path may always reorder some.
const MORE_THAN_BEFORE: u64 = 2;
/// Retransmissions at this many times, with an answer between each two, show a path that loses segments. A host that is gone for a while causes only
/// one.
pub(super) const LOSSES: usize = 3;
/// Kinds are slow throughout if at least this share of their operations is late.
const THROUGHOUT: f64 = 0.6;
/// Losses are to blame if they explain the silence of operations with at least this share of the wire time.
const LOST_MOST: f64 = 0.6;
/// A path may lose answers if operations with at least this share of the wire time saw retransmissions.
const LOST_SOME: f64 = 0.1;
/// On a path that loses segments at random, at least this share of the operations stays as fast as ever.
const SPARED: f64 = 0.2;

/// The bounds of the network's part in one operation's time on the wire, and the figures behind them. Nanoseconds.
pub(super) struct NetworkBounds {
    pub low: u64,
    pub high: u64,
    /// The least round trip that was read during the flight.
    pub round_trip: Option<u64>,
    /// Segments retransmitted during the flight; `None` if not known.
    pub retransmitted: Option<u32>,
    /// The longest time without an answer, if segments were retransmitted; else 0.
    pub silence: u64,
    /// The retransmissions prove that the silence is the network's.
    pub by_retransmission: bool,
    /// The least time during which late answers of the connection were on their way. Part of `low`.
    pub late: u64,
}

/// The connection's history, sorted for lookups.
pub(super) struct ConnectionHistory<'a> {
    scene: &'a Scene<'a>,
    /// When answers were received, ascending.
    answers: Vec<Nanos>,
    /// Counts of retransmitted segments by the time they were read, ascending.
    retransmits: Vec<(Nanos, u32)>,
    /// The median of the round trips before, else the learned one; nanoseconds.
    pub normal_round_trip: Option<u64>,
    /// The fastest kind of operation that was never slow meanwhile, and its median time on the wire, nanoseconds.
    pub witness: Option<(Operation, u64)>,
    /// Most operations of the slow kinds were not late meanwhile.
    pub comes_and_goes: bool,
    /// The path lost segments while the slow operations lasted, and may have lost answers.
    pub lossy: bool,
    /// Losses explain most of the time.
    pub loses: bool,
    /// Lost segments of answers explain most of the time.
    pub loses_answers: bool,
    /// Counts of segments that arrived out of order, and of all that arrived, by the time they were read, ascending.
    out_of_order: Vec<(Nanos, (u32, u32))>,
    /// The times during which segments were on their way that arrived late by the server's timestamps: disjoint,
    /// ascending.
    late: Vec<(Nanos, Nanos)>,
}

impl<'a> ConnectionHistory<'a> {
    pub fn of(scene: &'a Scene, events: &[&Event]) -> Self {
        let all = || scene.before.iter().chain(&scene.during);
        let mut answers: Vec<_> = all().filter(|event| answered(event)).map(|event| flight(event).1).collect();
        answers.sort_unstable();
        let mut retransmits: Vec<_> =
            all().filter(|event| event.network.known).map(|event| (event.end(), event.network.retransmits)).collect();
        retransmits.sort_unstable();
        let said = all().filter(|event| event.network.min_rtt_us > 0);
        let mut out_of_order: Vec<_> =
            said.map(|event| (event.end(), (event.network.out_of_order, segments_in(event)))).collect();
        out_of_order.sort_unstable();
        let mut history = Self {
            scene,
            answers,
            retransmits,
            normal_round_trip: scene.usual_round_trip,
            witness: None,
            comes_and_goes: comes_and_goes(scene, events),
            lossy: false,
            loses: false,
            loses_answers: false,
            out_of_order,
            late: late(scene),
        };
        history.loses = history.sent_again_often() >= LOSSES
            && Self::share_of_time(events, |event| history.explains_silence(event)) >= LOST_MOST
            && scene.fast_share() >= SPARED;
        let sent_again = history.retransmitted_again() || scene.during.iter().any(|event| history.fits_a_loss(event));
        let share = Self::share_of_time(events, |event| history.retransmitted(event, flight(event).0).0 > 0);
        let reordered = Self::share_of_time(events, |event| history.had_out_of_order(event));
        history.loses_answers = reordered >= REORDERED && history.is_newly_out_of_order();
        history.lossy = history.loses || history.is_out_of_order() || (sent_again && share >= LOST_SOME);
        if !history.lossy {
            history.witness = witness(scene, events, history.comes_and_goes);
        }
        history
    }

    pub fn bounds(&self, event: &Event) -> NetworkBounds {
        let (sent, received) = flight(event);
        let within = self.scene.arrivals.within((sent, received));
        let round_trip = within.iter().filter_map(|other| other.round_trip).min();
        let windows = turns(event.bytes);
        let mut high = event.phases.wire;
        if !self.lossy {
            // Each round trip of the operation is longer by the same time, and the operation may have taken more of
            // them than usual.
            let longer = round_trip.zip(self.normal_round_trip).map(|(sample, normal)| {
                let more = sample.saturating_sub(normal).saturating_mul(windows);
                let usual = self.scene.normal(event).wire.saturating_add(more);
                let again = more_turns(event.bytes, normal, event.phases.wire.saturating_sub(usual));
                usual.saturating_add(again).max(sample)
            });
            let all = longer.or(round_trip.map(|sample| sample.saturating_mul(windows)));
            // Everything that the server had sent by an answer's arrival had arrived. A loss after that is not excluded,
            // so that time is added.
            let nested = within
                .iter()
                .filter(|other| other.answered && other.sent >= sent && other.turns >= windows)
                .map(|other| other.event.phases.wire.saturating_add(received.saturating_sub(other.received)));
            high = nested.chain(all).fold(high, u64::min);
        }
        // TCP's round trip includes the time in this host's queueing discipline.
        let mut low =
            round_trip.map_or(0, |sample| sample.saturating_sub(ACK_DELAY).saturating_sub(self.scene.local(event)));
        // A late segment delays all that the server sends after it: TCP delivers in order, and the server's window
        // waits for the acknowledgement.
        let late = covered(&self.late, (sent, received));
        low = low.max(late);
        if let Some(timing) = event.stamped() {
            low = low.max(timing.least.saturating_sub(ACK_DELAY));
            low = low.max(self.scene.acknowledged_before(event).map_or(0, |time| time.saturating_sub(ACK_DELAY)));
            let most = timing.held.saturating_add(timing.most).max(low);
            if !self.lossy {
                high = high.min(most);
            }
            // If an operation's segments were sent again, the round trips were measured on other segments.
            high = if low > high { most } else { high };
        }
        let (at_least, at_most) = self.retransmitted(event, sent);
        if (self.loses && at_least > 0) || (self.loses_answers && self.had_out_of_order(event)) {
            low = event.phases.wire;
        }
        let silence = if at_most > 0 { self.silence(sent, received) } else { 0 };
        let mut by_retransmission = false;
        if at_most == 0 || !event.network.known {
            high = self.witness.map_or(high, |(_, wire)| high.min(wire));
        } else {
            high = high.max(possible(at_most, silence, event));
            by_retransmission = proven(at_least, silence, event);
            low = if by_retransmission { low.max(silence) } else { low };
        }
        // Late answers were observed directly, so they outweigh all evidence for the network.
        high = high.max(late);
        NetworkBounds {
            low: low.min(high),
            high,
            late,
            round_trip,
            retransmitted: (at_least == at_most).then_some(at_most),
            silence,
            by_retransmission,
        }
    }

    /// The last count of retransmitted segments before `from`, and all counts since.
    fn counts_since(&self, from: Nanos) -> &[(Nanos, u32)] {
        let first = self.retransmits.partition_point(|(time, _)| *time < from).saturating_sub(1);
        self.retransmits.get(first..).unwrap_or_default()
    }

    /// Whether more than one segment was retransmitted between two answers, which no loss probe explains.
    fn retransmitted_again(&self) -> bool {
        let from = self.scene.during.first().map_or(0, |event| event.end());
        self.counts_since(from)
            .windows(2)
            .any(|pair| matches!(pair, [(_, before), (_, now)] if now.saturating_sub(*before) > 1))
    }

    /// How many segments arrived out of order while the slow operations lasted, and how many arrived.
    fn out_of_order_meanwhile(&self) -> (u32, u32) {
        let first = last_read(&self.out_of_order, self.scene.from).or(self.out_of_order.first());
        match (first, self.out_of_order.last()) {
            (Some((_, first)), Some((_, last))) => (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1)),
            _ => (0, 0),
        }
    }

    /// Whether segments of answers came out of order while the slow operations lasted.
    fn is_out_of_order(&self) -> bool {
        self.out_of_order_meanwhile().0 >= OUT_OF_ORDER
    }

    /// Whether segments came out of order much more often than in the connection's life before.
    fn is_newly_out_of_order(&self) -> bool {
        let (now, all) = self.out_of_order_meanwhile();
        let (_, (before, all_before)) = self.out_of_order.first().copied().unwrap_or_default();
        let [now, all, before, all_before] = [now, all, before, all_before].map(u64::from);
        self.is_out_of_order() && now * all_before.max(1) >= before * all.max(1) * MORE_THAN_BEFORE
    }

    /// Whether segments came out of order during an operation's flight, that is, after a missing one.
    fn had_out_of_order(&self, event: &Event) -> bool {
        let before = last_read(&self.out_of_order, flight(event).0);
        event.network.min_rtt_us > 0 && before.is_some_and(|(_, (before, _))| event.network.out_of_order > *before)
    }

    /// How often segments were sent again between two answers while the slow operations lasted.
    fn sent_again_often(&self) -> usize {
        let from = self.scene.during.iter().map(|event| event.start).min().unwrap_or(0);
        self.counts_since(from)
            .windows(2)
            .filter(|pair| matches!(pair, [(_, before), (_, now)] if now > before))
            .count()
    }

    /// The share of the operations' time on the wire that belongs to those for which `is` holds, 0 to 1.
    fn share_of_time(events: &[&Event], is: impl Fn(&Event) -> bool) -> f64 {
        let time = |event: &&&Event| event.phases.wire as f64;
        let such = events.iter().filter(|event| is(event));
        such.map(|event| time(&event)).sum::<f64>() / events.iter().map(|event| time(&event)).sum::<f64>().max(1.0)
    }

    /// Whether segments were sent again during an operation's flight, and that explains most of the silence in it.
    fn explains_silence(&self, event: &Event) -> bool {
        let (sent, received) = flight(event);
        let count = self.retransmitted(event, sent).0;
        if count == 0 {
            return false;
        }
        let silence = self.silence(sent, received);
        possible(count, silence, event) > silence / 2
    }

    /// Whether the silence during an operation's flight is as long as the retransmissions can explain.
    fn fits_a_loss(&self, event: &Event) -> bool {
        let (sent, received) = flight(event);
        let count = self.retransmitted(event, sent).0;
        if count == 0 || received.saturating_sub(sent) < LEAST_RTO {
            return false;
        }
        let silence = self.silence(sent, received);
        silence >= LEAST_RTO && possible(count, silence, event) == silence
    }

    /// The bounds (least, most) of the number of segments retransmitted from `sent` to the operation's end.
    fn retransmitted(&self, event: &Event, sent: Nanos) -> (u32, u32) {
        if !event.network.known {
            return (0, u32::MAX);
        }
        let now = event.network.retransmits;
        match last_read(&self.retransmits, sent) {
            Some((_, before)) if *before <= now => (now - before, now - before),
            // A new socket counts from zero: the client reconnected, and the last count of the old socket is not known.
            Some(_) => (0, u32::MAX),
            None => (0, now),
        }
    }

    /// The longest time without an answer between two times.
    fn silence(&self, sent: Nanos, received: Nanos) -> u64 {
        let first = self.answers.partition_point(|time| *time <= sent);
        let (mut last, mut longest) = (sent, 0);
        let answers = self.answers.iter().skip(first).take_while(|time| **time < received).copied();
        for time in answers.chain([received]) {
            longest = longest.max(time.saturating_sub(last));
            last = time;
        }
        longest
    }
}

/// The times during which late segments of answers were on their way from the server, without the time for which they
/// may have waited in the socket. Disjoint and ascending; empty if the clocks' difference is not known.
fn late(scene: &Scene) -> Vec<(Nanos, Nanos)> {
    let Some(clocks) = scene.clocks else { return Vec::new() };
    let answers = scene.during.iter().filter(|event| answered(event) && event.network.min_rtt_us > 0);
    let stretches = answers.filter_map(|event| {
        let unread = u64::from(event.network.unread_us) * 1_000 + JIFFY;
        let (lag, received) = (clocks.later(event)?.saturating_sub(unread), flight(event).1);
        (lag > 0).then(|| (received.saturating_sub(lag), received))
    });
    union(stretches.collect())
}

/// Segments that arrived over the connection's life. Older recordings have only those that were sent.
fn segments_in(event: &Event) -> u32 {
    event.socket().map_or(event.network.segments, |socket| socket.segments_in)
}

/// The last reading up to the time `by`.
fn last_read<T>(read: &[(Nanos, T)], by: Nanos) -> Option<&(Nanos, T)> {
    read.get(read.partition_point(|(time, _)| *time <= by).checked_sub(1)?)
}

/// Whether a count of the operation's connection rose after `since`: whether the count at the operation's end exceeds the count at the end of the
/// last of these events of the same connection that ended by `since`.
pub(super) fn has_risen<'a>(
    event: &Event,
    since: Nanos,
    others: impl Iterator<Item = &'a Event>,
    count: impl Fn(&Network) -> u32,
) -> bool {
    let earlier =
        others.filter(|other| other.network.known && other.connection == event.connection && other.end() <= since);
    let before = earlier.max_by_key(|other| other.end()).map_or(0, |last| count(&last.network));
    event.network.known && count(&event.network) > before
}

/// The most silence, nanoseconds, that retransmissions explain. The timeout doubles with each, and the last may have
/// been waited for in vain. A silence shorter than the first timeout ends with a loss probe, which waits for two round
/// trips.
fn possible(retransmissions: u32, silence: u64, event: &Event) -> u64 {
    let smoothed = u64::from(event.network.srtt_us) * 1_000;
    let waited = if retransmissions > 0 && silence < LEAST_RTO {
        3 * smoothed + PROBE
    } else {
        (LEAST_RTO + smoothed).saturating_mul((1 << (retransmissions.min(20) + 1)) - 1)
    };
    if retransmissions > 0 { silence.min(waited) } else { 0 }
}

/// Whether the retransmissions alone explain the silence: it ended with the last of them. A single one may have been a
/// loss probe that was sent just before a delayed acknowledgement arrived.
fn proven(retransmissions: u32, silence: u64, event: &Event) -> bool {
    let timeout = LEAST_RTO + u64::from(event.network.srtt_us) * 1_000;
    let waited = timeout.saturating_mul((1 << retransmissions.min(20)) - 1);
    retransmissions > 1 && silence >= LEAST_RTO && silence <= waited.saturating_add(waited / 4)
}

/// The fastest kind of operation that was never slow meanwhile, by its median.
///
/// A fault that comes and goes delays the operations sent at that moment, and spares those that follow in the same
/// process: a CLOSE is sent once the READ before it is answered. So an operation counts only if it was sent while a
/// slow one was under way, or if the slow kinds were slow throughout.
fn witness(scene: &Scene, events: &[&Event], comes_and_goes: bool) -> Option<(Operation, u64)> {
    let slow = slow_kinds(scene, events);
    let flights = union(events.iter().chain(&scene.judged).map(|event| flight(event)).collect());
    let mut kinds = BTreeMap::<Operation, Vec<&Event>>::new();
    for event in scene.during.iter().filter(|event| answered(event) && !slow.contains(&event.operation)) {
        let sent = flight(event).0;
        if !comes_and_goes || covered(&flights, (sent, sent.saturating_add(1))) > 0 {
            kinds.entry(event.operation).or_default().push(event);
        }
    }
    let as_ever = |event: &Event| {
        let normal = scene.normal(event).wire;
        normal == 0 || event.phases.wire <= normal.saturating_mul(AS_EVER).max(normal.saturating_add(JITTER))
    };
    kinds
        .into_iter()
        .filter(|(_, events)| events.len() >= WITNESSES)
        // A kind that is slower than its own normal is no witness: `6.12/cli_vpn_agent`, where packets queue up.
        .filter(|(_, events)| events.iter().filter(|event| as_ever(event)).count() * 2 >= events.len())
        .filter_map(|(operation, events)| {
            Some((operation, median(events.iter().map(|event| event.phases.wire).collect())?))
        })
        .min_by_key(|(_, wire)| *wire)
}

/// Whether less than [`THROUGHOUT`] of the operations of the slow kinds were late meanwhile.
fn comes_and_goes(scene: &Scene, events: &[&Event]) -> bool {
    let slow = slow_kinds(scene, events);
    let of_them = scene.during.iter().filter(|event| answered(event) && slow.contains(&event.operation));
    let (all, late) =
        of_them.fold((0_u32, 0_u32), |(all, late), event| (all + 1, late + u32::from(scene.is_late(event))));
    f64::from(late) < f64::from(all) * THROUGHOUT
}

fn slow_kinds(scene: &Scene, events: &[&Event]) -> BTreeSet<Operation> {
    events.iter().chain(&scene.judged).map(|event| event.operation).collect()
}

/// Whether an answer came over the network. An operation that never used the network proves nothing.
pub(super) fn answered(event: &Event) -> bool {
    !event.flags.unanswered && event.phases.wire > 0
}

pub(super) fn round_trip(event: &Event) -> Option<u64> {
    (event.network.known && event.network.rtt_us > 0).then(|| u64::from(event.network.rtt_us) * 1_000)
}

/// Whether a round trip is as short as another one: it takes at most twice as long, and a millisecond. Nanoseconds.
pub(super) fn is_as_short(now: u64, other: u64) -> bool {
    now <= other.saturating_mul(2).saturating_add(MS)
}

/// The median of TCP's smoothed round trips at the ends of the slow operations, if it exceeds twice the usual round trip by more than a delayed
/// acknowledgement takes. Single samples may all be short: each is read when an answer arrives, and a long one may have been replaced by then.
/// Nanoseconds.
pub(super) fn smoothed_beyond_delays(scene: &Scene) -> Option<u64> {
    let smoothed = |event: &Event| {
        (event.network.known && event.network.srtt_us > 0).then(|| u64::from(event.network.srtt_us) * 1_000)
    };
    let now = median(scene.judged.iter().filter_map(|event| smoothed(event)).collect())?;
    let before = median(scene.fast_before().filter_map(smoothed).collect());
    let usual = scene.usual_round_trip?.max(before.unwrap_or(0));
    (now > usual.saturating_mul(2).saturating_add(ACK_DELAY)).then_some(now)
}

/// How often TCP's retransmission timer expired meanwhile although the server had the segments: segments or acknowledgements were delayed by more
/// than 200 ms. 0 if not known: the kernel has counted this since Linux 6.7. A loss probe, which TCP sends after two round trips, does not count.
pub(super) fn needless_timeouts(scene: &Scene) -> u32 {
    let socket = |event: &&Event| event.socket();
    let Some(last) = scene.during.iter().rev().find_map(socket) else { return 0 };
    let recent = scene.before.iter().rev().take_while(|event| event.end() + RECENT >= scene.from);
    let first = recent.chain(&scene.during).find_map(socket).unwrap_or(last);
    let since = last.since(&first);
    if since.needless.max(since.timeouts) > ANOTHER_SOCKET { 0 } else { since.timeouts.min(since.needless) }
}
