//! Connections that break, starve or lose segments: too many events of one kind, or too large a share of lost segments.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use model::{Anomaly, Detail, Event, MountKey, Nanos, Operation, text::Text};

use crate::{
    Detector, Meanwhile, Window,
    long_term::LongTerm,
    rule::{Rule, Subject},
    units::{SECOND, counted, span},
};

/// The word for it.
pub const KIND: &str = "connection";

/// Events of connections: a number of one kind in one window, or a share of retransmitted segments, is an anomaly.
#[derive(Debug, Clone)]
pub struct ConnectionRule {
    /// Its name and its protocol.
    pub subject: Subject,
    /// How many events of each kind are an anomaly; at least 1. Kinds that are missing do not count.
    pub counts: BTreeMap<Operation, u32>,
    /// The share, per cent, of retransmitted segments among those that one connection sends within ten seconds, from
    /// which on it is an anomaly.
    pub loss_percent: f64,
}

impl Rule for ConnectionRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn judges(&self, operation: Operation) -> bool {
        self.counts.contains_key(&operation)
    }

    fn describe(&self, interval: Duration) -> String {
        format!("{}: {} kinds of trouble with connections, in {interval:?}", self.name(), self.counts.len())
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(ConnectionWatch { rule: self.clone(), again: BTreeMap::new(), losing: None })
    }

    /// Events of any duration: most have none.
    fn sees(&self) -> Vec<(Operation, Duration)> {
        self.counts.keys().map(|operation| (*operation, Duration::ZERO)).collect()
    }
}

/// How many kinds of event are named.
const NAMED: usize = 5;

/// The operation that stands for a retransmitted segment.
pub(crate) const RETRANSMIT: &str = "TCP_RETRANSMIT";
/// The time over which the share of retransmitted segments is computed, nanoseconds.
const LOSS_SPAN: Nanos = 10 * SECOND;
/// Fewer retransmitted segments may be chance.
const LEAST_LOST: u32 = 5;
/// How many connections are followed, and how many retransmissions are kept of each: the latest.
const FOLLOWED: usize = 256;
const SEGMENTS: usize = 64;

/// A connection, by its mount and its peer.
type MountAndPeer = (MountKey, Text<128>);

/// The rule at work.
struct ConnectionWatch {
    rule: ConnectionRule,
    /// The retransmissions of each connection in the last ten seconds.
    again: BTreeMap<MountAndPeer, Again>,
    /// The connection with the largest share of retransmissions, if that share is an anomaly.
    losing: Option<Losing>,
}

/// The retransmissions of one connection.
#[derive(Default)]
struct Again {
    /// Oldest first.
    events: VecDeque<Event>,
    /// How many of them, from the oldest on, belong to an incident already.
    counted: usize,
}

impl Again {
    fn forget(&mut self, oldest: usize) {
        self.events.drain(..oldest);
        self.counted = self.counted.saturating_sub(oldest);
    }

    fn keep(&mut self, event: &Event) {
        if self.events.len() >= SEGMENTS {
            self.forget(1);
        } else if self.events.back().is_some_and(|last| last.network.segments > event.network.segments) {
            // The count of segments fell: this is a new connection from the same port.
            self.forget(self.events.len());
        }
        self.events.push_back(event.clone());
    }
}

/// Numbers of segments that one connection has sent and retransmitted.
struct Losing {
    peer: Text<128>,
    again: u32,
    segments: u32,
}

impl Losing {
    fn percent(&self) -> f64 {
        100.0 * f64::from(self.again) / f64::from(self.segments.max(1))
    }

    /// The numbers between the first and the last of `events`; `None` if there are none.
    fn of(peer: Text<128>, events: &VecDeque<Event>) -> Option<Self> {
        let (first, last) = (events.front()?.network, events.back()?.network);
        let again = last.retransmits.saturating_sub(first.retransmits);
        Some(Self { peer, again, segments: last.segments.saturating_sub(first.segments) })
    }
}

impl ConnectionWatch {
    fn remember(&mut self, window: &Window) {
        let again =
            window.events().iter().filter(|event| event.operation.name() == RETRANSMIT && event.network.segments > 0);
        for event in again {
            let Detail::Connection(ends) = event.detail else { continue };
            let key = (event.mount, ends.peer);
            if self.again.len() >= FOLLOWED && !self.again.contains_key(&key) {
                continue;
            }
            self.again.entry(key).or_default().keep(event);
        }
        let since = window.to.saturating_sub(LOSS_SPAN);
        self.again.retain(|_, again| {
            again.forget(again.events.iter().take_while(|event| event.end() < since).count());
            !again.events.is_empty()
        });
    }
}

impl Detector for ConnectionWatch {
    fn counts(&self, event: &Event, _: &LongTerm) -> bool {
        !event.flags.in_flight && self.rule.counts.contains_key(&event.operation)
    }

    fn look(&mut self, window: &mut Window, _meanwhile: &Meanwhile<'_>) {
        self.remember(window);
        let losing = self.again.iter().filter_map(|((_, peer), again)| Losing::of(*peer, &again.events));
        let too_much = losing.filter(|one| one.again >= LEAST_LOST && one.percent() >= self.rule.loss_percent);
        self.losing = too_much.max_by(|one, other| one.percent().total_cmp(&other.percent()));
        let Some(Losing { peer, .. }) = &self.losing else { return };
        // Retransmissions before this window belong to the anomaly, too.
        let from = window.from;
        for (_, again) in self.again.iter_mut().filter(|((_, other), _)| other == peer) {
            let uncounted = again.events.iter().skip(again.counted);
            uncounted.filter(|event| event.end() < from).for_each(|event| window.push(event));
            again.counted = again.events.len();
        }
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        let over = window.operations().iter().find_map(|(operation, total)| {
            let limit = self.rule.counts.get(operation)?;
            (total.count >= u64::from(*limit)).then_some((*operation, *limit))
        });
        if let Some((operation, limit)) = over {
            let limit = format!("{limit} {}", operation.name());
            return Some(self.rule.anomaly(
                format!("at least {limit} in one watch interval"),
                self.observed(window),
                limit,
            ));
        }
        let losing = self.losing.as_ref()?;
        let observed = format!(
            "{} of {} to {} retransmitted ({:.1} %)",
            losing.again,
            counted(losing.segments.into(), "segment"),
            losing.peer,
            losing.percent()
        );
        let limit = format!("{} %", self.rule.loss_percent);
        Some(self.rule.anomaly(
            format!("at least {limit} of a connection's segments retransmitted within {}", span(LOSS_SPAN)),
            observed,
            limit,
        ))
    }

    fn observed(&self, window: &Window) -> String {
        let mut kinds: Vec<_> = window.operations().iter().collect();
        // Kinds with a lower limit come first: they are more serious.
        kinds.sort_by_key(|(operation, total)| (self.rule.counts.get(*operation), Reverse(total.count)));
        let named = kinds.iter().take(NAMED).map(|(operation, total)| format!("{} {}", total.count, operation.name()));
        let mut text = named.collect::<Vec<_>>().join(", ");
        if let Some(longest) = window.slowest().filter(|event| event.duration > 0) {
            text.push_str(&format!("; the longest took {} ({})", span(longest.duration), longest.operation.name()));
        }
        if window.dropped > 0 {
            text.push_str(&format!("; {} lost", counted(window.dropped, "event")));
        }
        text
    }
}
