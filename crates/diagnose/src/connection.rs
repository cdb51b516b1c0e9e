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

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "connection";

/// Events of connections: a number of one kind in one window, or a share of retransmitted segments, is an anomaly.
#[derive(Debug, Clone)]
pub struct ConnectionRule {
    /// The rule's name and protocol.
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

/// The retransmissions of one connection, oldest first.
#[derive(Default)]
struct Again(VecDeque<Retransmission>);

/// A retransmission, and what it belongs to.
struct Retransmission {
    event: Event,
    belongs: Belongs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Belongs {
    /// It belongs to nothing so far.
    Nowhere,
    /// It belongs to the window that is being closed.
    ThisWindow,
    /// It belongs to an incident.
    Incident,
}

impl Again {
    fn keep(&mut self, event: &Event) {
        if self.0.len() >= SEGMENTS {
            self.0.pop_front();
        } else if self.0.back().is_some_and(|last| last.event.network.segments > event.network.segments) {
            // The count of segments fell: this is a new connection from the same port.
            self.0.clear();
        }
        self.0.push_back(Retransmission { event: event.clone(), belongs: Belongs::ThisWindow });
    }

    /// Ends the window: its retransmissions now belong to `to`.
    fn end_window(&mut self, to: Belongs) {
        self.0.iter_mut().filter(|one| one.belongs == Belongs::ThisWindow).for_each(|one| one.belongs = to);
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

    /// The numbers between the first and the last retransmission; `None` if there are none.
    fn of(peer: Text<128>, again: &Again) -> Option<Self> {
        let (first, last) = (again.0.front()?.event.network, again.0.back()?.event.network);
        let again = last.retransmits.saturating_sub(first.retransmits);
        Some(Self { peer, again, segments: last.segments.saturating_sub(first.segments) })
    }
}

impl ConnectionWatch {
    /// The kind of event of which this window has too many, and its limit.
    fn over(&self, window: &Window) -> Option<(Operation, u32)> {
        window.operations().iter().find_map(|(operation, total)| {
            let limit = self.rule.counts.get(operation)?;
            (total.count >= u64::from(*limit)).then_some((*operation, *limit))
        })
    }

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
            let old = again.0.iter().take_while(|one| one.event.end() < since).count();
            again.0.drain(..old);
            !again.0.is_empty()
        });
    }
}

impl Detector for ConnectionWatch {
    fn counts(&self, event: &Event, _: &LongTerm) -> bool {
        !event.flags.in_flight && self.rule.counts.contains_key(&event.operation)
    }

    fn look(&mut self, window: &mut Window, _meanwhile: &Meanwhile<'_>) {
        self.remember(window);
        let has_too_many = self.over(window).is_some();
        let losing = self.again.iter().filter_map(|((_, peer), again)| Losing::of(*peer, again));
        let too_much = losing.filter(|one| one.again >= LEAST_LOST && one.percent() >= self.rule.loss_percent);
        self.losing = too_much.max_by(|one, other| one.percent().total_cmp(&other.percent()));
        let lossy = self.losing.as_ref().map(|losing| losing.peer);
        for ((_, peer), again) in &mut self.again {
            let is_losing = lossy == Some(*peer);
            // Retransmissions before this window belong to the anomaly, too.
            for one in again.0.iter_mut().filter(|one| is_losing && one.belongs == Belongs::Nowhere) {
                window.push(&one.event);
                one.belongs = Belongs::Incident;
            }
            again.end_window(if lossy.is_some() || has_too_many { Belongs::Incident } else { Belongs::Nowhere });
        }
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        if let Some((operation, limit)) = self.over(window) {
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
