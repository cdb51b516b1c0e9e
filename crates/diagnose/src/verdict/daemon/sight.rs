//! What one look at a FUSE daemon shows of the slow requests that were under way then.
//!
//! The kernel tells when data was last sent to the server, when data last arrived, and when an acknowledgement last arrived. If a request was sent
//! and acknowledged, and nothing arrived after it, it waits at the server. If a request stays unacknowledged for longer than a peer may delay an
//! acknowledgement, it is on the network. The kernel counts these times in ticks of 1 to 10 ms, and a request often follows an answer within one
//! tick. Then acknowledgements tell which of the two was last. The request was last if the peer acknowledged it later by a separate segment. It was
//! also last if this host sent no separate acknowledgement: then the request carried the acknowledgement of the last answer.

use std::{cmp::Ordering, sync::Arc};

use model::{DaemonConnection, DaemonLook, Detail, Event, Nanos};

use super::super::{history::ACK_DELAY, scene::JIFFY};
use crate::units::MS;

/// A look comes a little after the event that reports a request in flight: at most this, nanoseconds. By the time of a later look, the request may
/// have returned.
const TOLD_WITHIN: u64 = 100 * MS;

/// A look, and when the oldest of the slow requests that were under way then began.
pub(super) struct DaemonSight {
    pub look: Arc<DaemonLook>,
    pub asked: Nanos,
    /// How long before the look the daemon had last answered another request, nanoseconds; `None`: not known.
    pub answered: Option<Nanos>,
}

/// What the daemon waited for, as its connections show at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitedFor {
    /// The server has had a request, and has not answered it, for at least this long, nanoseconds.
    Server(u64),
    /// Data has not been acknowledged for longer than a peer delays an acknowledgement.
    Acknowledgement,
    /// Data was sent again, and has not been acknowledged.
    SentAgain,
    /// Data that arrived from the server has not been read.
    Reader,
    /// Nothing was sent and nothing arrived since the slow request began.
    NotSent,
    /// The server has had a request, and data that may be its answer arrived in the same clock tick.
    ServerOrDaemon,
    /// None of these.
    Unclear,
}

impl DaemonSight {
    /// The looks at which any of the slow requests was under way, newest first.
    pub fn all<'a>(looks: &[Arc<DaemonLook>], events: impl Iterator<Item = &'a Event> + Clone) -> Vec<Self> {
        let asked = |look: &DaemonLook| {
            let until = |event: &Event| event.end().saturating_add(if event.flags.in_flight { TOLD_WITHIN } else { 0 });
            let slow =
                events.clone().filter(|event| event.duration >= DaemonLook::SLOW && !event.operation.waits_by_design());
            slow.filter(|event| event.start < look.at && look.at < until(event)).map(|event| event.start).min()
        };
        let answered = |look: &DaemonLook| {
            let done = events.clone().filter(|event| !event.flags.in_flight && !event.flags.unanswered);
            done.filter_map(|event| look.at.checked_sub(event.end())).min()
        };
        let sight = |look: &Arc<DaemonLook>| {
            Some(Self { look: Arc::clone(look), asked: asked(look)?, answered: answered(look) })
        };
        looks.iter().filter_map(sight).collect()
    }

    /// What the daemon waited for at this look.
    pub fn waiting(&self) -> WaitedFor {
        let connections = &self.look.tcp;
        if connections.iter().any(|one| one.unacknowledged > 0 && one.resending > 0) {
            return WaitedFor::SentAgain;
        }
        let is_late = |one: &DaemonConnection| one.unacknowledged > 0 && (ago(one.sent_ms) > ACK_DELAY || is_far(one));
        if connections.iter().any(is_late) {
            return WaitedFor::Acknowledgement;
        }
        let waits = connections.iter().filter_map(|one| self.waits_for_server(one));
        if let Some(longest) = waits.max() {
            return WaitedFor::Server(longest);
        }
        if connections.iter().any(|one| one.unread > 0) {
            return WaitedFor::Reader;
        }
        if connections.iter().any(|one| self.was_asked(one) && one.sent_ms == one.received_ms) {
            return WaitedFor::ServerOrDaemon;
        }
        let since = self.since();
        let is_idle = |one: &DaemonConnection| {
            one.unacknowledged == 0
                && one.unsent == 0
                && ago(one.sent_ms) > since.saturating_add(JIFFY)
                && ago(one.received_ms) > since.saturating_add(JIFFY)
        };
        if since >= DaemonLook::SLOW && !connections.is_empty() && connections.iter().all(is_idle) {
            WaitedFor::NotSent
        } else {
            WaitedFor::Unclear
        }
    }

    /// For how long the server has certainly had what was sent on this connection since the request began, nanoseconds; `None` if the server may not
    /// have it, or may have answered.
    fn waits_for_server(&self, one: &DaemonConnection) -> Option<u64> {
        let (sent, received, acknowledged) = (ago(one.sent_ms), ago(one.received_ms), ago(one.acknowledged_ms));
        let came_by_itself = acknowledged.saturating_add(JIFFY) < sent;
        let is_due = received > us(one.rtt_us).saturating_add(ACK_DELAY).saturating_add(JIFFY);
        let went_with_request = one.acks == Some(0) && is_due;
        // Several requests were sent together: the data that arrived then is the answer to another one, which the daemon passed on at once.
        let is_of_another = self.answered.is_some_and(|answered| {
            answered <= received.saturating_add(JIFFY) && received <= answered.saturating_add(2 * JIFFY)
        });
        let is_last = match sent.cmp(&received) {
            Ordering::Less => true,
            Ordering::Equal => came_by_itself || went_with_request,
            Ordering::Greater => is_of_another,
        };
        (self.was_asked(one) && is_last).then_some(acknowledged.min(self.since()))
    }

    /// Whether data was sent on this connection since the request began, all of it has come to the server, and all data that arrived was read.
    fn was_asked(&self, one: &DaemonConnection) -> bool {
        // After a retransmission, an answer may have been sent and lost.
        let is_whole = one.unacknowledged == 0 && one.unsent == 0 && one.unread == 0 && one.resent == 0;
        is_whole && ago(one.sent_ms) <= self.since().saturating_add(JIFFY)
    }

    /// How long before the look the request began, nanoseconds.
    fn since(&self) -> u64 {
        self.look.at.saturating_sub(self.asked)
    }
}

/// Whether the round trip exceeds its recent minimum by more than a peer may delay an acknowledgement.
pub(super) fn is_far(one: &DaemonConnection) -> bool {
    one.min_rtt_us > 0 && us(one.rtt_us) > us(one.min_rtt_us).saturating_add(ACK_DELAY)
}

/// All looks, each once, newest first.
pub(super) fn looks<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Arc<DaemonLook>> {
    let look = |event: &Event| if let Detail::Fuse(fuse) = &event.detail { fuse.look.clone() } else { None };
    let mut looks: Vec<_> = events.filter_map(look).collect();
    looks.sort_by_key(|look| std::cmp::Reverse(look.at));
    looks.dedup_by_key(|look| look.at);
    looks
}

fn ago(ms: u32) -> u64 {
    u64::from(ms) * MS
}

pub(super) fn us(us: u32) -> u64 {
    u64::from(us) * 1_000
}
