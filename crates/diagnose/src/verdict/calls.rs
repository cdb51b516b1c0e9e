//! Judges slow system calls. If requests to the server took most of their time, these are judged; else the time that is
//! left was spent on this host.

use std::collections::BTreeMap;

use model::{Cause, Event, Flags, Level, Nanos, PhasesMs, Verdict};

use super::{
    conclude::{are_passed_on, conclude},
    daemon,
    drops::LOST,
    failure::of_stalls,
    no_cpu::NoCpu,
    normals::Normals,
    scene::{JUDGED, Scene, covered, is_late, overlap, stretch, union},
    verdict as of_requests,
};
use crate::{
    error::code_name,
    long_term::LongTerm,
    units::{SECOND, counted, span},
    window::slower_first,
};

/// The shares of a call's time that count as most of it, and as next to nothing.
const MOST: f64 = 0.5;
const LITTLE: f64 = 0.2;
/// A smaller share of late requests is no sign of a slow server or path.
const FEW: f64 = 0.1;
/// The probability that callers waited for nothing remote, if requests took next to nothing of the time of one call
/// (`OF_ONE`), or of at least `SEVERAL` calls.
const OF_ONE: f64 = 0.8;
const OF_SEVERAL: f64 = 0.88;
const SEVERAL: usize = 3;
/// The probability that callers waited for a CPU, if the kernel's counts say so.
const SURE: f64 = 0.95;
/// The probability that callers waited for the server, if it answered "try again later".
const PUT_OFF: f64 = 0.9;
/// The longest that Linux waits before it repeats a request (NFS4_POLL_RETRY_MAX), nanoseconds.
const LONGEST_PAUSE: u64 = 15 * SECOND;

/// Judges calls. `around`: all other operations on the same mounts.
pub(super) fn verdict(scene: &Scene, calls: &[Event], around: &[Event]) -> Verdict {
    let mut slowest: Vec<_> = calls.iter().collect();
    slowest.sort_by(|a, b| slower_first(a, b));
    slowest.truncate(JUDGED);
    let requests: Vec<_> = around
        .iter()
        .filter(|event| event.operation.level().is_of_requests() && !event.operation.waits_by_design())
        .collect();
    let below: Vec<_> = requests
        .iter()
        .filter(|request| slowest.iter().any(|call| overlap(stretch(request), stretch(call)) >= share_of(call, MOST)))
        .collect();
    let under_way = share_covered(&slowest, &requests);
    if !below.is_empty() && under_way >= LITTLE {
        let passed_on = are_passed_on(calls.iter());
        let flags = |event: &Event| Flags { passed_on: event.flags.passed_on || passed_on, ..event.flags };
        let below = below.into_iter().map(|event| Event { flags: flags(event), ..(*event).clone() });
        let below: Vec<Event> = below.collect();
        let below_is_served = below.iter().all(|event| daemon::is_served(event.operation));
        let (waiting, ended): (Vec<_>, Vec<_>) = below.into_iter().partition(|event| event.flags.in_flight);
        let time = |requests: &[Event]| requests.iter().map(|request| request.duration).fold(0, u64::saturating_add);
        // Calls that have ended show more than calls that have not returned yet.
        let mut verdict = if time(&waiting) <= time(&ended) {
            of_requests(&ended, around, scene.long_term)
        } else {
            let answered: Vec<_> = around.iter().filter(|event| !event.flags.in_flight).cloned().collect();
            of_stalls(&waiting, &answered, scene.long_term)
        };
        let to = if below_is_served { "the FUSE daemon" } else { "the server" };
        let why =
            format!("{} The verdict is about the requests to {to}, which took most of that time.", scene.summary());
        verdict.because.insert(0, why);
        return verdict;
    }
    let is_own = slowest.iter().any(|call| call.operation.level() == Level::Own);
    let is_free = under_way < LITTLE;
    if requests.is_empty() || is_own || !(is_free || are_as_fast_as_ever(&slowest, &requests, scene.long_term)) {
        return Verdict::unknown(format!(
            "{} This probe sees how long an operation took, but not in which layer. Whether the file system, its daemon or a server behind it was slow is \
             not known.",
            scene.summary()
        ));
    }
    let no_cpu = NoCpu::of(&slowest);
    let without = share_without_connection(&slowest, &requests, around);
    if !no_cpu.is_seen() && without >= MOST {
        return Verdict::unknown(format!(
            "{} For {:.0} % of that time, the client had no working connection to the server. Which side broke the connection, and why it was not set up \
             again, is not known.",
            scene.summary(),
            without * 100.0
        ));
    }
    if !no_cpu.is_seen()
        && let Some(verdict) = put_off(scene, &slowest, &requests)
    {
        return verdict;
    }
    let likely = if slowest.len() >= SEVERAL { OF_SEVERAL } else { OF_ONE };
    let passed_here = if is_free {
        format!(
            "Requests to the server on the same mount were under way for {:.0} % of that time. The rest passed on this host: {} of the slowest call.",
            under_way * 100.0,
            slowest.first().map_or_else(String::new, |call| span(share_of(call, 1.0 - under_way)))
        )
    } else {
        "Meanwhile the server answered requests on the same mount as fast as before, and no request took most of a call's time. So the callers waited for \
         something on this host, such as a lock."
            .to_owned()
    };
    let mut because = vec![scene.summary(), passed_here];
    because.extend(no_cpu.sentence());
    let candidate = if no_cpu.is_seen() { (Cause::NoCpu, SURE) } else { (Cause::Requester, likely) };
    conclude(vec![candidate], because, PhasesMs::default())
}

/// Whether hardly any request that began during the calls took longer than such requests took before. `false` if the earlier time is not known for
/// most requests.
fn are_as_fast_as_ever(calls: &[&Event], requests: &[&Event], long_term: &LongTerm) -> bool {
    let (Some(from), Some(to)) = (calls.iter().map(|call| call.start).min(), calls.iter().map(|call| call.end()).max())
    else {
        return false;
    };
    let before: Vec<_> = requests.iter().copied().filter(|request| request.end() < from).collect();
    let meanwhile: Vec<_> = requests.iter().copied().filter(|request| (from..to).contains(&request.start)).collect();
    let normals = Normals::of(&before, meanwhile.iter().copied(), long_term);
    let with_normal = meanwhile.iter().map(|request| (request, normals.of_event(request).duration));
    let known: Vec<_> = with_normal.filter(|(_, normal)| *normal > 0).collect();
    let late = known.iter().filter(|(request, normal)| is_late(request.duration, *normal)).count();
    known.len() as f64 > meanwhile.len() as f64 * MOST && (late as f64) < known.len() as f64 * FEW
}

/// Blames the server if it answered "try again later", and the client's pauses cover most of the calls' time.
fn put_off(scene: &Scene, calls: &[&Event], requests: &[&Event]) -> Option<Verdict> {
    let is_put_off = |request: &&&Event| request.operation.protocol().later.contains(&request.status);
    let first = requests.iter().find(is_put_off)?;
    let mut by_process = BTreeMap::<_, Vec<&Event>>::new();
    for request in requests {
        by_process.entry((request.mount, request.requester.pid)).or_default().push(request);
    }
    let mut waited = BTreeMap::new();
    for (process, mut requests) in by_process {
        requests.sort_by_key(|request| request.start);
        // After such an answer, the client pauses until the next request.
        let next = requests.iter().skip(1).map(|request| request.start).chain([Nanos::MAX]);
        let waits = requests.iter().zip(next).filter(|(request, _)| is_put_off(request));
        let waits = waits.map(|(request, next)| (request.start, next.min(request.end().saturating_add(LONGEST_PAUSE))));
        waited.insert(process, union(waits.collect()));
    }
    let time: u64 = calls.iter().map(|call| call.duration).sum();
    let of_call =
        |call: &&Event| waited.get(&(call.mount, call.requester.pid)).map_or(0, |waits| covered(waits, stretch(call)));
    let waited: u64 = calls.iter().map(of_call).sum();
    if (waited as f64) < time as f64 * MOST {
        return None;
    }
    let because = vec![
        scene.summary(),
        format!(
            "For {:.0} % of that time, the client waited before it repeated a request: the server had answered {} with {}.",
            waited as f64 / (time as f64).max(1.0) * 100.0,
            counted(requests.iter().filter(is_put_off).count() as u64, "request"),
            code_name(first.operation, first.status, first.errno, false)
        ),
    ];
    Some(conclude(vec![(Cause::Refused, PUT_OFF)], because, PhasesMs::default()))
}

/// The share of the calls' time that passed between the loss of the connection to the server and the first request that was answered afterwards.
fn share_without_connection(calls: &[&Event], requests: &[&Event], around: &[Event]) -> f64 {
    let is_loss = |event: &&Event| event.operation.level() == Level::Connection && event.operation.name() == LOST;
    let until = |lost: Nanos| {
        let answered = requests
            .iter()
            .filter(|request| request.start >= lost && !request.flags.unanswered && !request.flags.in_flight);
        answered.map(|request| request.start).min().unwrap_or(Nanos::MAX)
    };
    let gaps = around.iter().filter(is_loss).map(|loss| (loss.end(), until(loss.end())));
    share_of_time(calls, gaps.collect())
}

fn share_of(call: &Event, share: f64) -> u64 {
    (call.duration as f64 * share) as u64
}

/// The share of the calls' time during which any of the requests was under way.
fn share_covered(calls: &[&Event], requests: &[&Event]) -> f64 {
    share_of_time(calls, requests.iter().map(|event| stretch(event)).collect())
}

/// The share of the calls' time that lies in any of these stretches.
fn share_of_time(calls: &[&Event], stretches: Vec<(Nanos, Nanos)>) -> f64 {
    let stretches = union(stretches);
    let all: f64 = calls.iter().map(|call| call.duration as f64).sum();
    calls.iter().map(|call| covered(&stretches, stretch(call)) as f64).sum::<f64>() / all.max(1.0)
}
