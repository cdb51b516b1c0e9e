//! Judges requests to the daemon of a FUSE file system. The kernel shows these requests only as far as the daemon. Looks at the daemon's threads and
//! TCP connections tell whether the daemon can wait for a server at all, and what it waits for.

mod evidence;
mod sight;

use std::sync::Arc;

use model::{Cause, DaemonLook, Event, Level, Nanos, Operation, PhasesMs, Verdict};

use super::{
    DOMINANT,
    conclude::{Candidate, conclude},
    scene::Scene,
};
use crate::units::{counted, span};
use evidence::{LookEvidence, SlowRequests, has_no_cpu, no_cpu_sentence};
use sight::{DaemonSight, looks, us};

/// The probability that the daemon itself is late, if it has no connection that it could wait for.
const WITHOUT_CONNECTION: f64 = 0.88;
/// ... if the daemon is stopped, or a helper through which it talks to its server.
const STOPPED: f64 = 0.95;
/// ... if only one look shows that it is stopped.
const STOPPED_ONCE: f64 = 0.85;
/// The probability that the daemon is gone if requests ended without an answer because its connection was aborted. `umount -f` aborts the connection,
/// too.
const GONE: f64 = 0.85;
/// The probability that requesters were late, if most of the time passed after the answers.
const DELIVERED: f64 = 0.8;

/// Whether an operation goes to a daemon of this host.
pub(super) fn is_served(operation: Operation) -> bool {
    operation.level() == Level::Daemon
}

/// Judges slow requests. `around`: other operations, which may carry looks, too.
pub(super) fn verdict(scene: &Scene, slow: &[Event], around: &[Event]) -> Verdict {
    let mean = |time: fn(&Event) -> u64| scene.mean(time) as u64;
    let (queue, wire, deliver) =
        (mean(|event| event.phases.queue), mean(|event| event.phases.wire), mean(|event| event.phases.deliver));
    let all = (queue + wire + deliver).max(1) as f64;
    let mut because = vec![scene.summary()];
    if queue > 0 {
        because.push(format!(
            "On average {} passed until the daemon took a request, {} until it answered, and {} until the requester went on.",
            span(queue),
            span(wire),
            span(deliver)
        ));
    }
    let milliseconds = |ns: u64| Some(ns as f64 / 1e6);
    let phases = PhasesMs { queue: milliseconds(queue), deliver: milliseconds(deliver), ..PhasesMs::default() };
    if deliver as f64 / all >= DOMINANT {
        return conclude(vec![(Cause::Delivery, DELIVERED)], because, phases);
    }
    let events = slow.iter().chain(around).filter(|event| event.mount == scene.slowest.mount);
    let looks = looks(events.clone());
    // Requests that ended before the slow requests began may have waited for something else.
    let from = began(scene);
    let sights = DaemonSight::all(&looks, events.filter(|event| event.end() > from));
    let candidates = {
        let slow = SlowRequests { count: scene.count, wire, fast: fast_share(scene, &sights), silent: None };
        candidates(&looks, &sights, slow, &mut because)
    };
    conclude(candidates, because, phases)
}

/// Judges requests in flight. `answers`: how many other requests the same daemon answered meanwhile.
pub(super) fn of_stalls(oldest: &Event, around: &[Event], answers: u64, mut because: Vec<String>) -> Verdict {
    because.push(if answers == 0 {
        "Since then, this daemon has answered no other request.".to_owned()
    } else {
        format!("Meanwhile the daemon answered {}.", counted(answers, "other request"))
    });
    let events = around.iter().chain([oldest]).filter(|event| event.mount == oldest.mount);
    let looks = looks(events);
    let sights = DaemonSight::all(&looks, [oldest].into_iter());
    let candidates = {
        let slow = SlowRequests { count: 1, wire: oldest.duration, fast: 0.0, silent: Some(answers == 0) };
        candidates(&looks, &sights, slow, &mut because)
    };
    conclude(candidates, because, PhasesMs::default())
}

/// Judges failures: a request that ends without an answer has lost its daemon.
pub(super) fn of_errors(failed: &[Event], mut because: Vec<String>) -> Verdict {
    let gone = failed.iter().filter(|event| event.flags.unanswered && matches!(event.errno, ABORTED | NOT_CONNECTED));
    let gone = gone.count();
    if gone * 2 > failed.len() {
        because.push(format!(
            "{gone} had no answer: the connection to the daemon was aborted. Its process has ended, or somebody aborted the mount (`umount -f`)."
        ));
        return conclude(vec![(Cause::FuseDaemon, GONE)], because, PhasesMs::default());
    }
    because.push(
        "The daemon returned the error. Whether the daemon, or a server behind the daemon, refused is not known: see the daemon's log."
            .to_owned(),
    );
    Verdict { because, ..Verdict::unknown("") }
}

/// When the first of the slow requests began.
fn began(scene: &Scene) -> Nanos {
    scene.judged.iter().map(|event| event.start).min().unwrap_or(0)
}

/// `ECONNABORTED` and `ENOTCONN`, on Linux.
const ABORTED: u32 = 103;
const NOT_CONNECTED: u32 = 107;

/// The share of requests of the same kinds as the slow ones that were fast meanwhile. Requests that took less than any round trip to the server do
/// not count: the daemon answered them itself.
fn fast_share(scene: &Scene, sights: &[DaemonSight]) -> f64 {
    let trips = sights.iter().flat_map(|sight| &sight.look.tcp).map(|one| us(one.min_rtt_us)).filter(|trip| *trip > 0);
    let least = trips.min().unwrap_or(0);
    let from = began(scene);
    let is_such = |event: &Event| scene.judged.iter().any(|slow| slow.operation == event.operation);
    let meanwhile = scene
        .during
        .iter()
        .filter(|event| event.start >= from && event.phases.wire >= least && !event.flags.unanswered && is_such(event));
    let (all, fast) = meanwhile
        .fold((0_u32, 0_u32), |(all, fast), event| (all + 1, fast + u32::from(event.phases.wire < DaemonLook::SLOW)));
    f64::from(fast) / f64::from(all.max(1))
}

/// `looks`: all looks. `sights`: the looks during a slow request; if there are any, only these count. For the rest see [`LookEvidence::candidates`].
fn candidates(
    looks: &[Arc<DaemonLook>],
    sights: &[DaemonSight],
    slow: SlowRequests,
    because: &mut Vec<String>,
) -> Vec<Candidate> {
    // All looks count here: a daemon that is between two connections had one before.
    let had_none = looks.iter().all(|look| look.connections == 0 && look.other_sockets == 0);
    let during: Vec<_> = sights.iter().map(|sight| Arc::clone(&sight.look)).collect();
    let looks = if during.is_empty() { looks } else { &during };
    let Some(newest) = looks.first() else {
        because.push(
            "Plumbline did not look at the daemon meanwhile, so whether the daemon waited for a server is not known."
                .to_owned(),
        );
        return Vec::new();
    };
    because.push(format!(
        "The daemon had {}: {} waited for requests, {} ran, {} waited for files, {} were stopped. It had {} and {}.",
        counted(newest.threads.into(), "thread"),
        newest.free,
        newest.running,
        newest.on_files,
        newest.stopped,
        counted(newest.connections.into(), "TCP connection"),
        counted(newest.other_sockets.into(), "other socket")
    ));
    let every = |is: fn(&DaemonLook) -> bool| looks.iter().all(|look| is(look));
    let stopped = if looks.len() > 1 { STOPPED } else { STOPPED_ONCE };
    if every(|look| look.threads > 0 && look.stopped == look.threads) {
        return vec![(Cause::FuseDaemon, stopped)];
    }
    if every(|look| look.helpers > 0 && look.stopped_helpers == look.helpers) {
        because.push("A helper process that connects the daemon to its server was stopped.".to_owned());
        return vec![(Cause::FuseDaemon, stopped)];
    }
    if had_none && every(|look| look.on_files == 0 && look.helpers == 0) {
        because.push("So the daemon waited for no server.".to_owned());
        if has_no_cpu(looks.iter()) {
            because.push(no_cpu_sentence(looks.iter()));
            return vec![(Cause::NoCpu, WITHOUT_CONNECTION), (Cause::FuseDaemon, 1.0 - WITHOUT_CONNECTION)];
        }
        return vec![(Cause::FuseDaemon, WITHOUT_CONNECTION)];
    }
    if every(|look| look.connections == 0) {
        because.push("It may wait for another program, or another file system, of this host.".to_owned());
        return vec![(Cause::FuseDaemon, 0.6), (Cause::SlowServer, 0.2)];
    }
    if sights.iter().any(|sight| !sight.look.tcp.is_empty()) {
        return LookEvidence::of(sights).candidates(slow, because);
    }
    if every(|look| look.resending > 0) {
        because.push("On one of the daemon's connections, data was retransmitted and not acknowledged.".to_owned());
        return vec![(Cause::NoPath, 0.4), (Cause::Loss, 0.35)];
    }
    because
        .push("Plumbline did not see what the daemon's connections waited for during a slow request; `ss -tip` shows the connections.".to_owned());
    vec![(Cause::SlowServer, 0.5), (Cause::FuseDaemon, 0.25)]
}
