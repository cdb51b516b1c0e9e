//! Connections that this host ended itself, by a reset.
//!
//! A program with the right to do so may end any connection (`tcp_abort()`: `ss -K`, agents of a VPN, security software). The kernel then sends a reset and
//! closes the socket at once. TCP also resets a connection that it gives up after unanswered keep-alive probes. So a reset counts only if the server
//! answered shortly before it.

use model::{Cause, Event, Level, MountKey, Nanos};

use super::{conclude::Candidate, drops::LOST, reset::RESET};
use crate::units::{MS, SECOND, counted};

const RESET_SENT: &str = "TCP_RESET_SENT";
const NO_ANSWER: &str = "TCP_NO_ANSWER";
/// TCP's state after a reset (include/net/tcp_states.h), which a `CONNECTION_LOST` event has as its status.
const CLOSE: u32 = 7;
/// The client notices within this time that its connection is gone, nanoseconds.
const AT_ONCE: u64 = 100 * MS;
/// The server was alive if it answered within this time before the reset, nanoseconds. Keep-alive probes give up after two seconds at the earliest
/// (NFS with `timeo=10`).
const ALIVE: u64 = 3 * SECOND / 2;
/// Most losses must have begun with a reset of this host.
const MOST: f64 = 0.6;
/// The probability that something on this host ended the connections.
const OWN_RESET: f64 = 0.9;

/// The connections that this host ended.
pub(super) struct OwnResets {
    ended: u64,
    lost: u64,
}

impl OwnResets {
    /// `None` if this host ended less than [`MOST`] of the connections that were lost, if it received a reset, or if TCP sent data in vain. `events`: with
    /// those losses. `around`: events of connections, and requests. Events of connections name the first mount of a server, so requests on its other mounts
    /// are not found.
    pub fn of(events: &[Event], around: &[Event]) -> Option<Self> {
        let is = |event: &&Event, name| event.operation.name() == name;
        let mut resets: Vec<_> =
            around.iter().filter(|event| is(event, RESET_SENT)).map(|event| (event.mount, event.start)).collect();
        let is_other = |event: &Event| [RESET, NO_ANSWER].contains(&event.operation.name());
        if resets.is_empty() || events.iter().chain(around).any(is_other) {
            return None;
        }
        resets.sort_unstable();
        let is_answer = |event: &&Event| event.operation.level() == Level::Request && !event.flags.unanswered;
        let mut answers: Vec<_> = around.iter().filter(is_answer).map(|event| (event.mount, event.end())).collect();
        answers.sort_unstable();
        // The newest time by `by` in a sorted list, for a mount.
        let newest = |times: &[(MountKey, Nanos)], mount, by| {
            let last = times.partition_point(|time| *time <= (mount, by)).checked_sub(1)?;
            times.get(last).filter(|(of, _)| *of == mount).map(|(_, at)| *at)
        };
        let is_ended_here = |lost: &Event| {
            let reset = newest(&resets, lost.mount, lost.start).filter(|at| at.saturating_add(AT_ONCE) >= lost.start);
            let answer = reset.and_then(|at| newest(&answers, lost.mount, at));
            lost.status == CLOSE && reset.zip(answer).is_some_and(|(at, end)| end.saturating_add(ALIVE) >= at)
        };
        let (mut ended, mut lost) = (0, 0);
        for event in events.iter().filter(|event| is(event, LOST)) {
            lost += event.operations();
            ended += if is_ended_here(event) { event.operations() } else { 0 };
        }
        (ended > 0 && ended as f64 >= lost as f64 * MOST).then_some(Self { ended, lost })
    }

    pub fn candidates(&self) -> Vec<Candidate> {
        vec![(Cause::OwnReset, OWN_RESET), (Cause::Closed, (1.0 - OWN_RESET) / 2.0)]
    }

    pub fn sentence(&self) -> String {
        let of = if self.ended < self.lost { format!(" (of {} that were lost)", self.lost) } else { String::new() };
        format!(
            "This host itself ended {}{of} by a reset, shortly after the server had answered. A program or an administrator can do that, for example with `ss -K`.",
            counted(self.ended, "connection"),
        )
    }
}
