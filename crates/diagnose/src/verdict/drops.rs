//! Finds out whether operations waited because segments did not get through (docs/connections.md). The kernel reports segments that this host dropped
//! (`TCP_DROPPED`), held back (`TCP_HELD`) or could not send (`TCP_NOT_SENT`), a new route on which nothing is acknowledged (`TCP_REROUTED`),
//! segments that arrived damaged (`TCP_DAMAGED`), segments that an ICMP error reports as not delivered (`TCP_UNREACHABLE`), segments that went to
//! another link-layer address of the next hop (`NEIGHBOUR_CHANGED`), and packets that an interface dropped before TCP saw them (`INTERFACE_DROPPED`).

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive};

use model::{Cause, Detail, Event, Level, Nanos, Operation};

use super::{
    conclude::Candidate,
    history::{LEAST_RTO, answered},
    interface,
    reset::CONNECTED,
    scene::{covered, stretch, union},
    unreachable,
};
use crate::{
    connection::RETRANSMIT,
    units::{SECOND, counted, span},
};

/// Fewer drops may be chance, unless they mean that this host cannot send at all.
const LEAST: u64 = 3;
/// Drops explain slow operations if the operations that they hit have at least this share of the slow time.
const MOST: f64 = 0.5;
/// An operation waited for held segments if segments of the connection were held for at least this share of its time.
/// Less may be segments of other operations.
const HELD: f64 = 0.25;
/// The rate of drops must be at least this many times the rate before: a queueing discipline may always drop some.
const MORE_THAN_BEFORE: f64 = 2.0;
/// The least time before the fault, nanoseconds, from which "none before" may be concluded.
const LEAST_BEFORE: u64 = SECOND / 2;
/// The same for interfaces, whose counters are read about once a second.
const LEAST_BEFORE_OF_INTERFACE: u64 = 2 * SECOND;
/// The probability that this host's drops, or damage on the path, are the cause, if they explain most of the time.
const SURE: f64 = 0.92;
const SURE_OF_DAMAGE: f64 = 0.88;
/// The probability that a new route is the cause, if nothing came back by it: the path may be cut for another reason.
const SURE_OF_ROUTE: f64 = 0.88;
/// The probability that the path is cut, if the network gave the next hop another link-layer address, and nothing came back.
const SURE_OF_LEARNED: f64 = 0.85;

/// The events of segments that TCP sent again.
pub(super) const SENT_AGAIN: [&str; 2] = [RETRANSMIT, "TCP_NO_ANSWER"];

/// A connection ended, although the client still used it.
pub(super) const LOST: &str = "CONNECTION_LOST";

/// The status name of a segment dropped because there was no route.
const ROUTE: &str = "ROUTE";
/// The status name of a neighbour change that was made on this host, not learned from the network.
const ADMIN: &str = "ADMIN";
/// The status name of a segment that this host held when it received it.
const RECEIVED: &str = "RECEIVED";

/// What stopped the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DropReason {
    /// This host dropped the segments.
    Dropped,
    /// The segments arrived damaged.
    Damaged,
    /// TCP could not hand the segments to the interface.
    NotSent,
    /// The segments were sent on a new route, and none was acknowledged.
    Rerouted,
    /// The segments went to another link-layer address than before, and none was acknowledged.
    Neighbour,
    /// An ICMP error said that they did not get through.
    Unreachable,
    /// An interface of this host dropped packets, of this connection or others.
    Interface,
    /// The segments left this host long after TCP had sent them, or waited in this host before TCP saw them.
    Held,
}

impl DropReason {
    const ALL: [Self; 8] = [
        Self::Dropped,
        Self::Damaged,
        Self::NotSent,
        Self::Neighbour,
        Self::Rerouted,
        Self::Unreachable,
        Self::Interface,
        Self::Held,
    ];

    /// The name of the event that reports this reason.
    fn operation(self) -> &'static str {
        match self {
            Self::Dropped => "TCP_DROPPED",
            Self::Damaged => "TCP_DAMAGED",
            Self::NotSent => "TCP_NOT_SENT",
            Self::Rerouted => "TCP_REROUTED",
            Self::Neighbour => "NEIGHBOUR_CHANGED",
            Self::Unreachable => "TCP_UNREACHABLE",
            Self::Interface => "INTERFACE_DROPPED",
            Self::Held => "TCP_HELD",
        }
    }

    /// The events of this kind, each with the time from its beginning to its end.
    fn times(self, around: &[Event]) -> Vec<(&Event, RangeInclusive<Nanos>)> {
        let of_kind = around.iter().filter(|event| event.operation.name() == self.operation());
        match self {
            Self::Rerouted => in_vain(of_kind.collect(), around),
            Self::Neighbour => of_kind.filter_map(|event| Some((event, until_answered(event, around)?))).collect(),
            // The packets were dropped at some time between two looks.
            Self::Interface => {
                interface::once(of_kind.collect()).into_iter().map(|event| (event, event.start..=event.end())).collect()
            }
            Self::Held => of_kind.map(|event| (event, event.start..=event.end())).collect(),
            // The answer to a retransmitted segment arrives after the retransmission.
            Self::Unreachable => of_kind
                .filter(|event| unreachable::tells(reason(event)))
                .map(|event| (event, event.start.saturating_sub(SECOND)..=event.start))
                .collect(),
            _ => of_kind.map(|event| (event, event.start..=event.start)).collect(),
        }
    }

    /// Whether an operation waited for segments of this kind. `times`: when these were stopped; disjoint and ascending.
    fn hit(self, times: &[(Nanos, Nanos)], event: &Event) -> bool {
        if self == Self::Held {
            return covered(times, stretch(event)) as f64 >= event.duration as f64 * HELD;
        }
        // A segment lost before the operation began delays it too: TCP delivers the operation's segments behind it.
        let (start, end) = (event.start.saturating_sub(event.duration), event.end());
        times.iter().any(|(from, to)| *from <= end && *to >= start)
    }
}

/// Whether an event reports segments that were dropped, held, not sent, rerouted, damaged or sent again, packets that an interface
/// dropped, or a connection that was lost. Such an event names no connection, so callers select those of the same server.
pub fn is_of_connections(event: &Event) -> bool {
    let known = || DropReason::ALL.iter().map(|kind| kind.operation()).chain(SENT_AGAIN).chain([LOST]);
    event.operation.level() == Level::Connection && known().any(|known| known == event.operation.name())
}

/// Whether verdicts quote the text of such an event's peer. The flight recorder has no texts, so these rare events should be reported whole.
pub fn has_telling_text(operation: Operation) -> bool {
    let known = [DropReason::Rerouted, DropReason::Neighbour, DropReason::Unreachable, DropReason::Interface];
    let known = known.map(DropReason::operation);
    operation.level() == Level::Connection && (known.contains(&operation.name()) || operation.name() == CONNECTED)
}

/// The changes of route after which segments were sent again and nothing was answered, each with the time until the next change of route.
fn in_vain<'a>(mut changes: Vec<&'a Event>, around: &[Event]) -> Vec<(&'a Event, RangeInclusive<Nanos>)> {
    changes.sort_by_key(|change| change.start);
    let ends = changes.iter().skip(1).map(|change| change.start).chain([Nanos::MAX]).collect::<Vec<_>>();
    // An interrupted call counts as unanswered, although it has returned.
    let is_answer = |event: &Event| event.operation.level().is_remote() && answered(event) && !event.flags.in_flight;
    let led_nowhere = |from: Nanos, to: Nanos| {
        let sent_again =
            |event: &Event| SENT_AGAIN.contains(&event.operation.name()) && (from..to).contains(&event.start);
        around.iter().any(sent_again)
            && !around.iter().any(|event| is_answer(event) && event.start >= from && event.end() <= to)
    };
    let reigns = changes.into_iter().zip(ends).map(|(change, to)| (change, change.start, to));
    reigns.filter(|(_, from, to)| led_nowhere(*from, *to)).map(|(change, from, to)| (change, from..=to)).collect()
}

/// The time from a change until a later request is answered; `None` if nothing was sent again meanwhile, so that the change did no harm.
fn until_answered(change: &Event, around: &[Event]) -> Option<RangeInclusive<Nanos>> {
    let is_answer = |event: &&Event| {
        event.operation.level().is_remote() && answered(event) && !event.flags.in_flight && event.start >= change.start
    };
    let until = around.iter().filter(is_answer).map(Event::end).min().unwrap_or(Nanos::MAX);
    let sent_again =
        |event: &Event| SENT_AGAIN.contains(&event.operation.name()) && (change.start..until).contains(&event.start);
    around.iter().any(sent_again).then_some(change.start..=until)
}

/// Segments of one kind that explain what is judged.
#[derive(Debug)]
pub(super) struct Drops {
    kind: DropReason,
    count: u64,
    /// No segment was stopped in this way before, and the time before was long enough to say so.
    is_new: bool,
    /// The kernel's reasons and how many segments each concerns, most first.
    reasons: Vec<(&'static str, u64)>,
    /// The time of each, from its beginning to its end.
    times: Vec<RangeInclusive<Nanos>>,
    /// The host or interface that an event with the most frequent reason names, if that is known.
    named: Option<String>,
}

impl Drops {
    /// The drops that explain these slow operations, if any do. `around`: all recorded events. `from`: when the
    /// operations began to be slow.
    pub fn of_slow(slow: &[&Event], around: &[Event], from: Nanos) -> Option<Self> {
        let to = slow.iter().map(|event| event.end()).max()?;
        let all = slow.iter().map(|event| event.duration as f64).sum::<f64>().max(1.0);
        DropReason::ALL.into_iter().find_map(|kind| {
            let drops = Self::of(kind, from, to, around)?;
            let times = union(drops.times.iter().map(|time| (*time.start(), *time.end())).collect());
            let hit = slow.iter().filter(|event| drops.kind.hit(&times, event));
            let (count, hit) = hit.fold((0, 0.0), |(count, sum), event| (count + 1, sum + event.duration as f64));
            let is_enough = kind != DropReason::Interface
                || interface::are_enough(drops.count, count) && interface::has_lost(drops.status(), slow, around);
            (hit >= all * MOST && is_enough).then_some(drops)
        })
    }

    /// The drops between two moments, if they are more than chance. Held segments do not count, as they were sent in
    /// the end.
    pub fn between(from: Nanos, to: Nanos, around: &[Event]) -> Option<Self> {
        DropReason::ALL
            .into_iter()
            .filter(|kind| *kind != DropReason::Held)
            .find_map(|kind| Self::of(kind, from, to, around))
    }

    /// The drops that may keep operations from returning between two moments: as [`Drops::between`], but an interface must have dropped
    /// packets again and again.
    pub fn lasting(from: Nanos, to: Nanos, around: &[Event]) -> Option<Self> {
        let is_lasting = |drops: &Self| drops.kind != DropReason::Interface || interface::are_lasting(&drops.times);
        Self::between(from, to, around).filter(is_lasting)
    }

    /// The segments that this host had received and held while at least half of these segments were sent again: TCP did not see acknowledgements that
    /// had arrived. Segments that this host held after TCP had sent them say less: an interface whose cable is out holds segments, too.
    pub fn held_meanwhile(sent_again: &[&Event], around: &[Event]) -> Option<Self> {
        let from = sent_again.iter().map(|event| event.start).min()?;
        let to = sent_again.iter().map(|event| event.start).max()?;
        let is_received =
            |event: &&Event| event.operation.name() == DropReason::Held.operation() && reason(event) == RECEIVED;
        let received: Vec<_> = around.iter().filter(is_received).cloned().collect();
        let mut held = Self::of(DropReason::Held, from, to, &received)?;
        held.times.retain(|time| time.end() - time.start() >= LEAST_RTO);
        let is_held =
            |event: &&&Event| held.times.iter().any(|time| *time.start() < event.start && event.start <= *time.end());
        let count = |events: &mut dyn Iterator<Item = &&Event>| events.map(|event| event.operations()).sum::<u64>();
        let of_held = count(&mut sent_again.iter().filter(is_held));
        (of_held > 0 && of_held * 2 >= count(&mut sent_again.iter())).then_some(held)
    }

    /// The most frequent of the kernel's reasons.
    fn status(&self) -> &'static str {
        self.reasons.first().map_or("", |(status, _)| status)
    }

    /// Whether the drops come from an interface's counters, which include the packets of other connections.
    pub fn are_of_interface(&self) -> bool {
        self.kind == DropReason::Interface
    }

    fn of(kind: DropReason, from: Nanos, to: Nanos, around: &[Event]) -> Option<Self> {
        let first = around.iter().map(Event::end).min().unwrap_or(from).min(from);
        // A fault begins before an operation is slow enough to be noticed, so only the first half of the time counts as
        // before.
        let before = from - (from - first) / 2;
        let (mut count, mut earlier, mut reasons, mut times) = (0, 0, BTreeMap::new(), Vec::new());
        for (drop, time) in kind.times(around) {
            if *time.start() <= to && *time.end() >= from {
                count += drop.operations();
                *reasons.entry(reason(drop)).or_insert(0) += drop.operations();
                times.push(time);
            } else if drop.start < before {
                earlier += drop.operations();
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        let may_be_chance =
            matches!(kind, DropReason::Dropped | DropReason::Damaged | DropReason::Held | DropReason::Interface);
        let cannot_send = !may_be_chance || reasons.first().is_some_and(|(reason, _)| *reason == ROUTE);
        let a_second = |count: u64, time: u64| count as f64 * SECOND as f64 / time.max(SECOND) as f64;
        let is_more = a_second(count, to.saturating_sub(from)) >= a_second(earlier, before - first) * MORE_THAN_BEFORE;
        let least_before = if kind == DropReason::Interface { LEAST_BEFORE_OF_INTERFACE } else { LEAST_BEFORE };
        let knows_before = before - first >= least_before;
        // Interfaces of healthy hosts also drop packets that have nothing to do with the servers.
        let is_more = is_more && (kind != DropReason::Interface || knows_before);
        let is_enough = count > 0 && (cannot_send || kind == DropReason::Held || (count >= LEAST && is_more));
        let is_new = earlier == 0 && knows_before;
        let most = reasons.first().map(|(reason, _)| *reason);
        let such =
            around.iter().filter(|event| event.operation.name() == kind.operation() && Some(reason(event)) == most);
        let named = such.rev().find_map(named);
        is_enough.then_some(Self { kind, count, is_new, reasons, times, named })
    }

    /// Whether these drops explain at least half of the segments that were sent again.
    pub fn explain(&self, sent_again: &[&Event]) -> bool {
        let all = sent_again.iter().map(|event| event.operations()).sum::<u64>();
        // Once the old route is back, TCP retransmits all segments that it had sent on the new route. So retransmissions count for one more second.
        let within = |event: &&&Event| {
            let is_near = |time: &RangeInclusive<Nanos>| {
                (*time.start()..=time.end().saturating_add(SECOND)).contains(&event.start)
            };
            self.times.iter().any(is_near)
        };
        match self.kind {
            // The segments were not sent at all, or only once.
            DropReason::NotSent | DropReason::Held => false,
            DropReason::Rerouted | DropReason::Neighbour => {
                sent_again.iter().filter(within).map(|event| event.operations()).sum::<u64>() * 2 >= all
            }
            DropReason::Dropped | DropReason::Damaged | DropReason::Interface => self.count * 2 >= all,
            // Hosts limit the rate of the ICMP errors that they send.
            DropReason::Unreachable => true,
        }
    }

    /// The causes that these drops mean, with their probabilities. `other`: what else it may be.
    pub fn candidates(&self, other: Option<Cause>) -> Vec<Candidate> {
        let (cause, likely) = match (self.kind, self.reasons.first()) {
            (DropReason::Unreachable, _) => return unreachable::candidates(self.status()),
            (DropReason::Damaged, _) => (Cause::Loss, SURE_OF_DAMAGE),
            (DropReason::Interface, _) => (interface::cause(self.status()), interface::SURE),
            (DropReason::Neighbour, Some((ADMIN, _))) => (Cause::OwnRoute, SURE_OF_ROUTE),
            (DropReason::Neighbour, _) => (Cause::NoPath, SURE_OF_LEARNED),
            (DropReason::Rerouted, _) => (Cause::OwnRoute, SURE_OF_ROUTE),
            (DropReason::Held, _) => (Cause::OwnQueue, SURE),
            (DropReason::NotSent, _) | (DropReason::Dropped, Some((ROUTE, _))) => (Cause::OwnInterface, SURE),
            (DropReason::Dropped, _) => (Cause::OwnDrops, SURE),
        };
        let other = other.map(|other| (other, (1.0 - likely) / 2.0));
        [Some((cause, likely)), other].into_iter().flatten().collect()
    }

    pub fn sentence(&self) -> String {
        let segments = counted(self.count, "segment");
        let before = if self.is_new { " (none before)" } else { "" };
        match self.kind {
            DropReason::Damaged => format!(
                "{segments} of the connection arrived with a wrong checksum{before}: the path, or an interface, damages packets."
            ),
            DropReason::NotSent => format!(
                "TCP could not send to the server ({} in vain), although the server's receive window was open and nothing was on its way.",
                counted(self.count, "attempt")
            ),
            DropReason::Rerouted => format!(
                "The route of this host to the server changed ({}). TCP retransmitted segments repeatedly by the new route, and no answer arrived.",
                counted(self.count, "time")
            ),
            DropReason::Neighbour => {
                let who = if self.reasons.first().is_some_and(|(reason, _)| *reason == ADMIN) {
                    "somebody on this host set it (`ip neighbour`)"
                } else {
                    "the network announced it (ARP or neighbour discovery): a duplicate address, or a router that took over"
                };
                let hop = self.named.as_deref().map(|hop| format!(" ({hop})")).unwrap_or_default();
                format!(
                    "The link-layer address of the next hop to the server{hop} changed: {who}. TCP retransmitted the segments sent to the new address \
                     repeatedly, and no answer arrived."
                )
            }
            DropReason::Unreachable => unreachable::sentence(
                self.reasons.first().map_or("", |(status, _)| status),
                &counted(self.count, "ICMP error"),
                self.named.as_deref(),
            ),
            DropReason::Interface => {
                let (status, count) = self.reasons.first().copied().unwrap_or(("", self.count));
                interface::sentence(status, self.named.as_deref(), &counted(count, "packet"), before)
            }
            DropReason::Held => {
                let longest = span(self.times.iter().map(|time| time.end() - time.start()).max().unwrap_or(0));
                let seen = counted(self.count, "time");
                if self.reasons.first().is_some_and(|(reason, _)| *reason == RECEIVED) {
                    return format!(
                        "This host held segments that it had received, for up to {longest} (seen {seen}): for a program that inspects them \
                         (NFQUEUE), or in the queueing discipline of an ifb interface, before TCP saw them."
                    );
                }
                format!(
                    "This host held segments of the connection after TCP had sent them, for up to {longest} (seen {seen}): in a \
                     queueing discipline, a queue of netfilter, or a full interface."
                )
            }
            DropReason::Dropped => {
                let one = |(reason, count): &(&str, u64)| format!("{count} {}", by(reason));
                let reasons: Vec<_> = self.reasons.iter().map(one).collect();
                format!("This host itself dropped {segments} of the connection{before}: {}.", reasons.join(", "))
            }
        }
    }
}

/// The host or interface that an event's text names besides the peer; `None` if it has no text, as in the flight recorder.
pub(super) fn named(event: &Event) -> Option<String> {
    let Detail::Connection(connection) = event.detail else { return None };
    let text = connection.peer.to_string();
    [" by ", " via ", " through "].iter().find_map(|word| Some(text.rsplit_once(word)?.1.to_owned()))
}

fn reason(event: &Event) -> &'static str {
    (event.operation.protocol().status_name)(event.status).unwrap_or("")
}

/// Words for a reason's name; docs/connections.md lists the names.
fn by(reason: &str) -> &'static str {
    match reason {
        "FILTER" => "by a filter (netfilter, a cgroup's or the driver's program)",
        "TRAFFIC_CONTROL" => "by an action of traffic control (tc)",
        "QUEUE" => "by a queueing discipline",
        ROUTE => "because there was no route to the server",
        "REVERSE_PATH" => "by the reverse path filter (rp_filter)",
        "BACKLOG" => "because a queue of received packets was full",
        "MEMORY" => "for lack of memory or buffer space",
        "POLICY" => "by an IPsec policy",
        _ => "for a reason that is not known",
    }
}
