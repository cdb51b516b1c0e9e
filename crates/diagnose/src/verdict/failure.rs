//! Judges failed operations, and operations that do not return.

use std::collections::{BTreeMap, BTreeSet};

use model::{Cause, Event, Layer, Operation, PhasesMs, SendTiming, Verdict};

use super::{
    ceph,
    conclude::{Candidate, UNREACHABLE, conclude, share_with_proxy},
    daemon,
    drops::Drops,
    history::LOSSES,
    proxy,
    scene::flight,
};
use crate::{
    error::{WITHOUT_ANSWER, code_name},
    long_term::LongTerm,
    units::{MS, SECOND, counted, span},
};

/// Failures are blamed on the server if it answered at least this share of them.
const MOST: f64 = 0.6;
/// The probability that the server is at fault if it denies a permission to some processes only.
const DENIED: f64 = 0.6;
/// `EPERM` and `EACCES`, on Linux.
const NOT_PERMITTED: u32 = 1;
const DENIED_ACCESS: u32 = 13;
/// A server works if its last answer is younger than the stall's duration divided by this (but at least a second).
const RECENT: u64 = 4;
/// How long, in nanoseconds, after a failed write-back a call may still return its error. Dirty pages are written after
/// 30 s (vm.dirty_expire_centisecs), and the next call that uses the file gets the error.
const REMEMBERED: u64 = 60 * SECOND;
/// Operations are compared with one that does not return from this duration on, nanoseconds.
const SLOW: u64 = 100 * MS;
/// The probability that the cause of other slow operations also keeps an operation from returning.
const SAME_CAUSE: f64 = 0.85;
/// The candidates when a connection broke, and nothing else is known.
const LOST_CONNECTION: [Candidate; 2] = [(Cause::Closed, 0.5), (Cause::NoPath, 0.4)];
/// The candidates when the server answers nothing, and nothing else is known.
const SILENT: [Candidate; 2] = [(Cause::Frozen, 0.5), (Cause::NoPath, 0.3)];

/// Judges failures. The server is to blame for failures that were its own answers. `around`: the requests to the server meanwhile, by which failed
/// system calls are judged, and the events of the server's connections.
pub(super) fn of_errors(failed: &[Event], around: &[Event]) -> Verdict {
    let all = weight(failed.iter());
    let mut kinds = BTreeMap::<String, u64>::new();
    for event in failed {
        let name = code_name(event.operation, event.status, event.errno, event.flags.unanswered);
        *kinds.entry(name).or_default() += event.operations();
    }
    let most = kinds.iter().max_by_key(|(_, count)| **count);
    let mut because: Vec<String> = most
        .map(|(name, count)| {
            let with = if name == WITHOUT_ANSWER { "" } else { "with " };
            format!("{count} of {} failed {with}{name}.", counted(all, "operation"))
        })
        .into_iter()
        .collect();
    if failed.iter().any(|event| proxy::is_proxied(event.operation)) {
        return proxy::of_errors(failed, because);
    }
    if failed.iter().any(|event| daemon::is_served(event.operation)) {
        return daemon::of_errors(failed, because);
    }
    if let Some((candidates, reason)) = ceph::of_errors(failed) {
        because.push(reason);
        return of(candidates, because);
    }
    if !failed.iter().any(|event| event.operation.level().is_remote()) {
        return of_failed_calls(failed, around, because);
    }
    let answered = weight(failed.iter().filter(|event| !event.flags.unanswered && event.status != 0));
    let share = answered as f64 / all.max(1) as f64;
    if share < MOST {
        let from = failed.iter().map(|event| event.start).min().unwrap_or(0);
        let to = failed.iter().map(Event::end).max().unwrap_or(0);
        if let Some(drops) = Drops::lasting(from, to, around) {
            because.push(format!("{} got no answer.", all - answered));
            because.push(drops.sentence());
            return of(drops.candidates(None), because);
        }
        because.push(format!(
            "{} got no answer: the connection broke, or the requester gave up. Which side broke the connection is not known.",
            all - answered
        ));
        return of(vec![(Cause::Closed, 0.5 * (1.0 - share)), (Cause::Refused, share)], because);
    }
    let repeated = weight(failed.iter().filter(|event| event.operation.protocol().repeated.contains(&event.status)));
    if repeated as f64 >= answered as f64 * MOST {
        because.push(
            "The client repeated these requests after their connection had broken, and the server does not execute a request twice. Which side broke the \
             connection is not known."
                .to_owned(),
        );
        return of(LOST_CONNECTION.to_vec(), because);
    }
    because.push(format!("The server itself returned an error in {answered} of {all} cases."));
    if only_these_are_denied(failed, around) {
        because.push(
            "So far, the server has allowed none of these processes such an operation, and it served other processes meanwhile. These processes may lack \
             the permission, and then nothing is wrong."
                .to_owned(),
        );
        return of(vec![(Cause::Refused, DENIED), (Cause::Requester, 1.0 - DENIED)], because);
    }
    of(vec![(Cause::Refused, 0.95 * share), (Cause::Closed, 0.5 * (1.0 - share))], because)
}

/// Whether most failures are denials of a permission to processes for which no such operation succeeded so far, while other processes were served.
fn only_these_are_denied(failed: &[Event], around: &[Event]) -> bool {
    let is_denied = |event: &&Event| matches!(event.errno, NOT_PERMITTED | DENIED_ACCESS);
    if (weight(failed.iter().filter(is_denied)) as f64) < weight(failed.iter()) as f64 * MOST {
        return false;
    }
    let pids: BTreeSet<u32> = failed.iter().map(|event| event.requester.pid).collect();
    let kinds: BTreeSet<Operation> = failed.iter().map(|event| event.operation).collect();
    let from = failed.iter().map(|event| event.start).min().unwrap_or(0);
    let is_served = |event: &&Event| {
        event.operation.level().is_of_requests() && !event.flags.failed && !event.flags.unanswered && event.errno == 0
    };
    let mut served = around.iter().filter(is_served);
    let mut others = served.clone().filter(|event| event.end() >= from && !pids.contains(&event.requester.pid));
    others.next().is_some()
        && !served.any(|event| pids.contains(&event.requester.pid) && kinds.contains(&event.operation))
}

/// How many operations these events stand for.
fn weight<'a>(events: impl Iterator<Item = &'a Event>) -> u64 {
    events.map(Event::operations).sum()
}

/// Judges system calls that failed by the requests that failed before them with the same errno.
fn of_failed_calls(calls: &[Event], around: &[Event], mut because: Vec<String>) -> Verdict {
    let failed = |event: &&Event| event.operation.level().is_of_requests() && event.flags.failed && event.errno != 0;
    let requests: Vec<_> = around.iter().filter(failed).collect();
    let may_be_why = |request: &Event, call: &Event| {
        request.errno == call.errno
            && request.end() <= call.end()
            && request.end().saturating_add(REMEMBERED) >= call.start
    };
    let explained = weight(calls.iter().filter(|call| requests.iter().any(|request| may_be_why(request, call))));
    if (explained as f64) < weight(calls.iter()).max(1) as f64 * MOST {
        because.push("The probe sees the error that the application got. Few or no requests to the server failed with the same error, so its origin is not known.".to_owned());
        return Verdict { because, ..Verdict::unknown("") };
    }
    because
        .push(format!("Before {explained} of them returned, requests to the server had failed with the same error."));
    let below = requests.into_iter().filter(|request| calls.iter().any(|call| may_be_why(request, call)));
    let mut verdict = of_errors(&below.cloned().collect::<Vec<_>>(), around);
    because.append(&mut verdict.because);
    Verdict { because, ..verdict }
}

/// Judges operations in flight. A server that answers other operations meanwhile on the same connection works and is
/// reachable. For NFS, whose connection is known only from an answer, all connections of the same mount count.
pub(super) fn of_stalls(stalled: &[Event], around: &[Event], long_term: &LongTerm) -> Verdict {
    let Some(oldest) = stalled.iter().max_by_key(|event| event.duration) else {
        return Verdict::unknown("There was no operation in flight to judge.");
    };
    let mut because = vec![format!(
        "{} not returned. The oldest, {}, began {} ago.",
        if stalled.len() == 1 { "1 operation has".into() } else { format!("{} operations have", stalled.len()) },
        oldest.operation.name(),
        span(oldest.duration)
    )];
    if !oldest.operation.level().is_remote() {
        because.push(
            "This probe sees that these operations do not return, but not what they wait for. See processes.txt in the bundle, and `calls` in incident.json \
             if present."
                .to_owned(),
        );
        return Verdict { because, ..Verdict::unknown("") };
    }
    let now = oldest.end();
    let meanwhile = around.iter().filter(|event| {
        event.operation.protocol() == oldest.operation.protocol()
            && along(event, oldest)
            && event.start >= oldest.start
            && flight(event).1 <= now // not what came after the look at it: its own answer may have come with that
            && !event.flags.unanswered
    });
    let meanwhile: Vec<_> = meanwhile.collect();
    let (answers, last) =
        meanwhile.iter().fold((0_u64, 0), |(count, last), event| (count + 1, last.max(flight(event).1)));
    if proxy::is_proxied(oldest.operation) {
        return proxy::of_stalls(oldest, answers, because);
    }
    if daemon::is_served(oldest.operation) {
        return daemon::of_stalls(oldest, around, answers, because);
    }
    if let Some((candidates, reasons)) = ceph::of_stall(oldest) {
        because.extend(reasons);
        if !candidates.is_empty() {
            return of(candidates, because);
        }
    }
    let way = if oldest.connection == 0 { "on the same mount" } else { "over the same connection" };
    if let Some(drops) = Drops::lasting(oldest.start, now, around) {
        because.push(drops.sentence());
        return of(drops.candidates(None), because);
    }
    if answers == 0 {
        because.push(format!("Since then, no other request {way} was sent and answered."));
        return silent(oldest, because);
    }
    if let Some(verdict) = own_fault(&meanwhile, around, long_term, &mut because) {
        return verdict;
    }
    let ago = now.saturating_sub(last);
    because.push(format!(
        "Since then, {} sent and answered {way}, the last {} ago.",
        if answers == 1 { "1 other was".into() } else { format!("{answers} others were") },
        span(ago)
    ));
    if ago > (oldest.duration / RECENT).max(SECOND) {
        because.push("After that, the server sent no more answers.".to_owned());
        return silent(oldest, because);
    }
    if sent_again(around, oldest) >= LOSSES {
        because.push(
            "But TCP retransmitted segments repeatedly. Whether this request or its answer was lost, or the server is late with it, is not known."
                .to_owned(),
        );
        return of_one(oldest, vec![(Cause::Loss, 0.6), (Cause::SlowOperation, 0.4)], because);
    }
    because.push("So answers get through the network, and the server is late with this request.".to_owned());
    of_one(oldest, vec![(Cause::SlowOperation, 0.85)], because)
}

/// The verdict if this host made other operations slow that were begun and answered meanwhile. What keeps this host from taking their answers in time
/// can also keep it from taking the answer of an operation that has not returned.
fn own_fault(
    meanwhile: &[&Event],
    around: &[Event],
    long_term: &LongTerm,
    because: &mut Vec<String>,
) -> Option<Verdict> {
    let slow: Vec<Event> =
        meanwhile.iter().filter(|event| event.duration >= SLOW).map(|event| (*event).clone()).collect();
    let of_slow = Some(super::verdict(&slow, around, long_term)).filter(|of_slow| of_slow.layer == Layer::Client)?;
    let cause = of_slow.cause?;
    because.push(format!(
        "{} answered meanwhile took 100 ms or more, and the reason is on this host: {}.",
        if slow.len() == 1 { "1 other that was".into() } else { format!("{} others that were", slow.len()) },
        cause.describe()
    ));
    Some(of(vec![(cause, SAME_CAUSE), (Cause::Frozen, 1.0 - SAME_CAUSE)], std::mem::take(because)))
}

/// Judges a server that answers nothing. Only the stamps of the request's sends can tell whether the request arrived.
fn silent(oldest: &Event, mut because: Vec<String>) -> Verdict {
    let (candidates, reason) = match oldest.send_timing {
        Some(SendTiming { gap: true, .. }) => {
            let reason = "A later part of the server's data has arrived, and an earlier part is missing: the path loses segments.";
            (vec![(Cause::Loss, 0.85)], reason.to_owned())
        }
        Some(SendTiming { unacknowledged: 0, sends, most, .. }) => {
            let last = if sends > 0 { format!(", the last after {}", span(most)) } else { String::new() };
            let reason = format!(
                "All that was sent was acknowledged{last}: the server's host has the request, and its service does not answer."
            );
            (vec![(Cause::Frozen, 0.85)], reason)
        }
        Some(SendTiming { unacknowledged, .. }) => {
            let reason = format!(
                "The sent data has not been acknowledged for {}. Either the network is cut, or the server's host is down: this host cannot tell which.",
                span(unacknowledged)
            );
            (UNREACHABLE.to_vec(), reason)
        }
        None => {
            let reason = "This evidence does not tell a server that hangs from a network that is cut; sockets.txt in the bundle has the connection's state.";
            (SILENT.to_vec(), reason.to_owned())
        }
    };
    because.push(reason);
    of_one(oldest, candidates, because)
}

/// The verdict on an operation in flight, whose request may have been passed on by another program of this host.
fn of_one(oldest: &Event, candidates: Vec<Candidate>, mut because: Vec<String>) -> Verdict {
    let candidates = share_with_proxy(oldest.flags.passed_on, candidates, &mut because);
    of(candidates, because)
}

fn of(candidates: Vec<Candidate>, because: Vec<String>) -> Verdict {
    conclude(candidates, because, PhasesMs::default())
}

/// How often segments were sent again since an operation in flight began, by the counts that operations on the same
/// connection or mount carry.
fn sent_again(around: &[Event], in_flight: &Event) -> usize {
    let near =
        around.iter().filter(|event| event.network.known && along(event, in_flight) && event.end() >= in_flight.start);
    let mut counts: Vec<_> = near.map(|event| event.network.retransmits).collect();
    counts.sort_unstable();
    counts.dedup();
    counts.len().saturating_sub(1)
}

/// Whether an operation uses the connection of one in flight, or its mount if that connection is not known.
fn along(event: &Event, in_flight: &Event) -> bool {
    match in_flight.connection {
        _ if proxy::is_proxied(event.operation) => event.mount == in_flight.mount,
        0 => event.mount == in_flight.mount,
        connection => event.connection == connection,
    }
}
