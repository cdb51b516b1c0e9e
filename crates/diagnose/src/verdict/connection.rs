//! Who is to blame for connections that broke or starved.
//!
//! The server is to blame for what it did itself: a reset, an orderly close, a session that it no longer knows. A silence shows no culprit: to this
//! host, a server whose host is gone and a network that is cut look the same.

use std::collections::{BTreeMap, BTreeSet};

use model::{Cause, Detail, Event, Level, Nanos, PhasesMs, Verdict, text::Text};

use super::{
    conclude::{Candidate, UNREACHABLE, are_passed_on, conclude, share_with_proxy},
    drops::{Drops, SENT_AGAIN},
    own_mtu::OwnMtu,
    own_reset::OwnResets,
    path::{Clocks, stood_still},
    reset::{RESET, Sender},
    scene::LATE,
};
use crate::{
    connection::RETRANSMIT,
    units::{SECOND, counted, span, were},
};

/// TCP states, which a `CONNECTION_LOST` event has as its status (include/net/tcp_states.h).
const ESTABLISHED: u32 = 1;
const CLOSE_WAIT: u32 = 8;
/// This many losses, each followed by an answer, show a path that loses segments.
const LOSSES: usize = 5;

/// The probability that the path loses the same segments each time, if the server has acknowledged later ones.
const SEGMENTS_LOST: f64 = 0.87;
/// A connection is made at once if it takes less than this, nanoseconds: TCP repeats the first segment after a second (RFC 6298).
const AT_ONCE: u64 = SECOND;
/// The probability that the path failed on a connection, if the server accepts another connection at once. The server's host may also have come back
/// between the last unacknowledged segment and the new connection.
const NEW_ONE_WORKS: f64 = 0.82;

/// Round trips of at least this many times the shortest show a longer path.
const LONGER: u64 = 3;

/// This many answers after a silence show that the connection works again.
const ANSWERS: usize = 5;
/// The probability that the path was cut, if the connection works again afterwards: the server's host may also have
/// received no packets for a while.
const CAME_BACK: f64 = 0.85;

/// Possible causes, and the sentences that support them.
type Blame = (Vec<Candidate>, Vec<String>);

/// The events of connections, and how many there are of each kind.
struct Happenings<'a> {
    events: &'a [Event],
    counts: BTreeMap<&'static str, u64>,
}

impl Happenings<'_> {
    /// The events of this kind.
    fn of_kind(&self, name: &'static str) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.operation.name() == name)
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The first event's start and the last event's end; `None` without events.
    fn span(&self) -> Option<(Nanos, Nanos)> {
        Some((self.events.iter().map(|event| event.start).min()?, self.events.iter().map(Event::end).max()?))
    }

    /// The number of connections lost while TCP was in this state.
    fn lost_in(&self, state: u32) -> u64 {
        self.of_kind("CONNECTION_LOST").filter(|event| event.status == state).map(Event::operations).sum()
    }

    /// Whether the server no longer knew a session or lease.
    fn is_forgotten(&self) -> bool {
        self.count("SESSION_LOST") + self.count("LEASE_LOST") > 0
    }

    /// The longest duration of an event of this kind, nanoseconds; 0 without one.
    fn longest(&self, name: &'static str) -> u64 {
        self.of_kind(name).map(|event| event.duration).max().unwrap_or(0)
    }
}

/// Judges what happened to connections. `around`: operations of the protocol above, on the same mount.
pub(super) fn of_happenings(events: &[Event], around: &[Event]) -> Verdict {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.operation.name()).or_insert(0) += event.operations();
    }
    if counts.is_empty() {
        return Verdict::unknown("There was nothing to judge.");
    }
    let seen = Happenings { events, counts };
    let (candidates, mut because) = blame(&seen, around);
    let candidates = share_with_proxy(are_passed_on(events.iter()), candidates, &mut because);
    let back = seen.longest("RECONNECT");
    if back > 0 {
        because.push(format!(
            "The client reconnected {}; the longest time without a connection was {}.",
            counted(seen.count("RECONNECT"), "time"),
            span(back)
        ));
    }
    conclude(candidates, because, PhasesMs::default())
}

/// Tries the explanations from the most telling to the least, and returns the first that applies.
fn blame(seen: &Happenings<'_>, around: &[Event]) -> Blame {
    let [resets, closed, silent] = [seen.count(RESET), seen.lost_in(CLOSE_WAIT), seen.count("TCP_NO_ANSWER")];
    if let Some(own) = OwnResets::of(seen.events, around) {
        return (own.candidates(), vec![own.sentence()]);
    }
    if resets + closed > 0 {
        return ended(seen, around, resets, closed);
    }
    if let Some(drops) = own_drops(seen, around) {
        return (drops.candidates(Some(Cause::Loss)), vec![drops.sentence()]);
    }
    let not_sent = seen.count("TCP_NOT_SENT");
    if not_sent > 0 {
        let because = format!(
            "TCP could not send ({} in a row), although the server's receive window was open and nothing was on its way: this host's interface was \
             down or refused packets, or there was no route to the server.",
            counted(row(seen, "TCP_NOT_SENT"), "attempt")
        );
        return (vec![(Cause::OwnInterface, 0.9)], vec![because]);
    }
    let closed_windows = seen.count("TCP_ZERO_WINDOW");
    if closed_windows > 0 {
        let because = format!(
            "The server's receive window stayed closed ({} in a row found it closed): the server's host is reachable, but its service does not read.",
            counted(row(seen, "TCP_ZERO_WINDOW"), "probe")
        );
        return (vec![(Cause::Frozen, 0.85)], vec![because]);
    }
    if silent > 0 {
        return silence(seen, around);
    }
    session(seen).or_else(|| retransmissions(seen, around)).unwrap_or_else(|| unexplained(seen))
}

/// Explains connections that were reset, or closed by the server: how many of each.
fn ended(seen: &Happenings<'_>, around: &[Event], resets: u64, closed: u64) -> Blame {
    let sender = Sender::of(&seen.of_kind(RESET).collect::<Vec<_>>(), around);
    let mut because = Vec::new();
    if resets > 0 {
        because.extend(sender.because(&counted(resets, "TCP reset")));
    }
    // A server that stops sends a FIN, and a server that was restarted has forgotten the session.
    if closed == 0 && !seen.is_forgotten() {
        return (sender.candidates().to_vec(), because);
    }
    let on_path = matches!(sender, Sender::OnPath { refused: false, .. });
    if !on_path {
        because.truncate(1);
    }
    if closed > 0 {
        because.push(format!("The server closed the connection itself, {}.", counted(closed, "time")));
    }
    // A server also gives up a session if a host on the path has reset its connection at both ends.
    let candidates =
        if on_path { vec![(Cause::PathReset, 0.5), (Cause::Closed, 0.45)] } else { vec![(Cause::Closed, 0.9)] };
    (candidates, because)
}

/// Explains `TCP_NO_ANSWER`: segments were sent repeatedly, and none was acknowledged.
fn silence(seen: &Happenings<'_>, around: &[Event]) -> Blame {
    if lost_and_found(seen, around) >= LOSSES {
        return retransmissions(seen, around).unwrap_or_else(|| unexplained(seen));
    }
    let times = counted(row(seen, "TCP_NO_ANSWER") + 1, "time");
    let sent = format!("TCP sent the same data up to {times} in a row, and the server did not acknowledge it");
    if came_back(seen, around) {
        let because = vec![
            format!("{sent}. Then the same connection worked again."),
            "By the server's timestamps, the server's clock did not stop. So the server's host was up, and the path was cut for a while."
                .to_owned(),
        ];
        return (vec![(Cause::NoPath, CAME_BACK), (Cause::HostGone, (1.0 - CAME_BACK) / 2.0)], because);
    }
    let sacked = seen.of_kind("TCP_NO_ANSWER").map(|event| event.network.sacked).max().unwrap_or(0);
    if sacked > 0 {
        let because = vec![
            format!(
                "{sent}. But {} acknowledged that TCP had sent later: the server's host is up.",
                were(sacked.into(), "segment")
            ),
            "The path loses the same segment each time. If the path loses only large segments, a hop has a smaller MTU than this host and does not report \
             it; check with `ping -M do -s 1472 SERVER`.".to_owned(),
        ];
        return (vec![(Cause::Loss, SEGMENTS_LOST), (Cause::Frozen, (1.0 - SEGMENTS_LOST) / 2.0)], because);
    }
    if let Some(took) = new_one_works(seen) {
        let because = vec![
            format!("{sent}."),
            format!(
                "The client connected to the same server again within {}, so the server's host is up. A host that does not know the old connection would \
                 have reset it. So something on the path dropped the old connection, such as a firewall that has lost the connection's state.",
                span(took)
            ),
        ];
        return (vec![(Cause::NoPath, NEW_ONE_WORKS), (Cause::HostGone, (1.0 - NEW_ONE_WORKS) / 2.0)], because);
    }
    let because =
        format!("{sent}. Either the network is cut, or the server's host is down: this host cannot tell which.");
    (UNREACHABLE.to_vec(), vec![because])
}

/// How long it took to make the first connection after another one of the same mount fell silent, if TCP sent its first segment only once. `None` if
/// there is no such connection, or if the server no longer knew the client: the server's host may have been restarted.
fn new_one_works(seen: &Happenings<'_>) -> Option<u64> {
    let silence =
        |made: &&Event| seen.of_kind("TCP_NO_ANSWER").any(|sent| sent.mount == made.mount && sent.end() <= made.start);
    let made = seen.of_kind("RECONNECT").filter(silence).min_by_key(|event| event.start)?;
    (made.duration < AT_ONCE && !seen.is_forgotten()).then_some(made.duration)
}

/// Whether a connection from before the silence works again afterwards, and the server's clock ran all the time. A host that was restarted has
/// forgotten its connections, and the clock of a host that was paused lags by the pause. A connection proves nothing if its mount lost another
/// connection.
fn came_back(seen: &Happenings<'_>, around: &[Event]) -> bool {
    let Some((from, _)) = seen.span() else { return false };
    let Some(to) = seen.of_kind("TCP_NO_ANSWER").map(Event::end).max() else { return false };
    let is_answer = |event: &&Event| {
        let is_request = event.operation.level() != Level::Connection && event.connection != 0;
        is_request && !event.flags.unanswered && event.network.arrival_ms != 0
    };
    // The answers before and after the silence, by connection.
    let mut connections = BTreeMap::<u64, [Vec<&Event>; 2]>::new();
    for event in around.iter().filter(is_answer) {
        let [before, after] = connections.entry(event.connection).or_default();
        if event.end() <= from {
            before.push(event);
        } else if event.start > to {
            after.push(event);
        }
    }
    let has_lost = |event: &&Event| seen.of_kind("CONNECTION_LOST").any(|lost| lost.mount == event.mount);
    let goes_on = |[before, after]: &[Vec<&Event>; 2]| {
        if after.iter().any(&has_lost) {
            return false;
        }
        let clocks = Clocks::of(before.iter().copied()).filter(|_| after.len() >= ANSWERS);
        clocks.is_some_and(|clocks| stood_still(clocks, after.clone()).is_none())
    };
    connections.values().any(goes_on)
}

/// The segments that this host dropped or held, or that another host reports as not delivered, if they explain at least half of the retransmissions.
fn own_drops(seen: &Happenings<'_>, around: &[Event]) -> Option<Drops> {
    let (from, to) = seen.span()?;
    let sent_again: Vec<_> = SENT_AGAIN.iter().flat_map(|name| seen.of_kind(name)).collect();
    // A segment is dropped before it is sent again, so the search begins a second earlier.
    let drops = Drops::between(from.saturating_sub(SECOND), to, around).filter(|drops| drops.explain(&sent_again));
    drops.or_else(|| Drops::held_meanwhile(&sent_again, around))
}

/// The number of retransmissions that were followed by an answer. A path that is cut for a while, or a host that is gone for a while, causes only
/// one.
fn lost_and_found(seen: &Happenings<'_>, around: &[Event]) -> usize {
    let again = seen.of_kind(RETRANSMIT).map(|event| (event.end(), true));
    let answers = around
        .iter()
        .filter(|event| event.operation.level() != Level::Connection && !event.flags.unanswered)
        .map(|event| (event.end(), false));
    let mut order: Vec<_> = again.chain(answers).collect();
    order.sort_unstable();
    order.windows(2).filter(|pair| matches!(pair, [(_, true), (_, false)])).count()
}

/// Explains lost sessions and leases, which the server keeps; `None` if none was lost.
fn session(seen: &Happenings<'_>) -> Option<Blame> {
    let [sessions, leases] = [seen.count("SESSION_LOST"), seen.count("LEASE_LOST")];
    if sessions + leases == 0 {
        return None;
    }
    let because = format!(
        "The server no longer knew the client's session or lease ({}, {}), and no network trouble was seen: it was restarted, \
         or had given up on the client.",
        counted(sessions, "session"),
        counted(leases, "lease")
    );
    Some((vec![(Cause::SessionLost, 0.8)], vec![because]))
}

/// Explains segments that were sent again. If the server's answers came through meanwhile, the path lost the segments.
/// `None` if there was a connection lost, a wait for credits or slots, or a late lease break: retransmissions do not
/// explain these.
fn retransmissions(seen: &Happenings<'_>, around: &[Event]) -> Option<Blame> {
    let sent_again = seen.count(RETRANSMIT);
    let (from, to) = seen.span()?;
    let others = ["CONNECTION_LOST", "CREDIT_STARVATION", "SLOT_STARVATION", "LEASE_BREAK_TIMEOUT"];
    if sent_again == 0 || others.iter().any(|name| seen.count(name) > 0) {
        return None;
    }
    let answered = around
        .iter()
        .filter(|event| event.operation.level() != Level::Connection && !event.flags.unanswered)
        .filter(|event| event.end() >= from && event.end() <= to.saturating_add(SECOND))
        .count();
    let mut because = vec![format!("{} retransmitted.", were(sent_again, "TCP segment"))];
    let mounts: BTreeSet<_> = seen.of_kind(RETRANSMIT).map(|event| event.mount).collect();
    let meanwhile = || around.iter().filter(|event| event.end() >= from && mounts.contains(&event.mount));
    if let Some(mtu) = OwnMtu::of(meanwhile(), meanwhile(), [].into_iter()) {
        because.push(mtu.sentence());
        because.push(
            "The same data takes more packets, which may overfill a queue on the path. Or the path loses segments."
                .to_owned(),
        );
        return Some((vec![(Cause::Loss, 0.45), (Cause::OwnMtu, 0.45)], because));
    }
    if answered == 0 {
        because.push(
            "No answer came meanwhile. Whether the path loses the segments or the server's host drops them is not known."
                .to_owned(),
        );
        return Some((vec![(Cause::Loss, 0.5), (Cause::HostGone, 0.3)], because));
    }
    let queued = seen.of_kind(RETRANSMIT).filter(|event| event.network.own_queue > 0).count();
    if queued * 2 > seen.of_kind(RETRANSMIT).count() {
        because.push(format!(
            "During {queued} of these retransmissions, packets waited in this host's own queueing discipline, which drops or delays packets.",
        ));
        return Some((vec![(Cause::OwnQueue, 0.85), (Cause::Loss, 0.1)], because));
    }
    let answered = were(answered as u64, "operation");
    let needless = needless(seen);
    if needless * 2 >= sent_again && is_longer(seen) {
        because.push(format!(
            "The server reports {needless} of them as duplicates, and round trips took several times as long as the shortest: the path delays segments \
             rather than losing them. Meanwhile {answered} answered: the server works."
        ));
        return Some((vec![(Cause::LongerPath, 0.85), (Cause::HostGone, 0.05)], because));
    }
    because.push(format!("Meanwhile {answered} answered: the server works, and segments get lost on the way."));
    Some((vec![(Cause::Loss, 0.85), (Cause::HostGone, 0.05)], because))
}

/// How many segments TCP sent again although the server had them, as far as the server has reported this (RFC 2883).
fn needless(seen: &Happenings<'_>) -> u64 {
    // By connection: the retransmissions that were needed up to the first and up to the last event, and the events after the first.
    let mut connections = BTreeMap::<Text<128>, (u32, u32, u64)>::new();
    let mut events: Vec<_> = seen.of_kind(RETRANSMIT).filter(|event| event.network.known).collect();
    events.sort_by_key(|event| event.end());
    for event in events {
        let Detail::Connection(at) = event.detail else { continue };
        let now = event.network.retransmits;
        match connections.get_mut(&at.peer).filter(|(first, ..)| *first <= now) {
            Some((_, last, sent)) => (*last, *sent) = (now, *sent + event.operations()),
            None => drop(connections.insert(at.peer, (now, now, 0))),
        }
    }
    connections.values().map(|(first, last, sent)| sent.saturating_sub(u64::from(last - first))).sum()
}

/// Whether the connections' round trips, when segments were sent again, were several times as long as their shortest.
fn is_longer(seen: &Happenings<'_>) -> bool {
    let is_long = |event: &&Event| {
        let smoothed = u64::from(event.network.srtt_us) * 1_000;
        event.network.least_round_trip().is_some_and(|least| smoothed >= (LONGER * least).max(least + LATE))
    };
    seen.of_kind(RETRANSMIT).filter(is_long).count() * 2 > seen.of_kind(RETRANSMIT).count()
}

/// Explains what has no direct evidence: timeouts, waits for credits or slots, and late lease breaks.
fn unexplained(seen: &Happenings<'_>) -> Blame {
    let (mut because, mut candidates) = (Vec::new(), Vec::new());
    let timeouts = seen.count("RPC_TIMEOUT");
    let given_up = seen.lost_in(ESTABLISHED);
    let credits = seen.count("CREDIT_STARVATION");
    let starved = credits + seen.count("SLOT_STARVATION");
    let late = seen.count("LEASE_BREAK_TIMEOUT");
    if timeouts + given_up > 0 {
        candidates.extend([(Cause::Frozen, 0.6), (Cause::NoPath, 0.3)]);
        because.push(format!(
            "{}, and {} that the client gave up, while TCP showed no loss, reset or closed window. The server's host may accept the requests while its \
             service does not answer; this is not certain.",
            counted(timeouts, "RPC timeout"),
            counted(given_up, "connection")
        ));
    }
    if starved > 0 {
        candidates.extend([(Cause::SlowServer, 0.4), (Cause::Queue, 0.4)]);
        // Waits for credits are noticed when the client gives up, after a minute (fs/smb/client/transport.c).
        let longest = if credits > 0 { 60 * SECOND } else { seen.longest("SLOT_STARVATION") };
        because.push(format!(
            "{} for credits or slots (the longest {}): the server grants too few, or this client asks for too much at a time.",
            counted(starved, "long wait"),
            span(longest)
        ));
    }
    if late > 0 {
        because.push(format!(
            "The client took up to {} to answer a lease break, since the client had to write back data first. The reason is the client's own load or a slow server.",
            span(seen.longest("LEASE_BREAK_TIMEOUT"))
        ));
    }
    if because.is_empty() {
        because.push("The evidence does not show which side broke the connection.".to_owned());
    }
    (candidates, because)
}

/// How many times in a row the event has happened, this one included; 0 if not known.
fn times(event: &Event) -> u32 {
    if let Detail::Connection(connection) = event.detail { connection.times } else { 0 }
}

/// The most consecutive events of this kind on one connection.
fn row(seen: &Happenings<'_>, name: &'static str) -> u64 {
    seen.of_kind(name).map(|event| u64::from(times(event))).max().unwrap_or(0)
}
