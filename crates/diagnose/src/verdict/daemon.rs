//! Judges requests to the daemon of a FUSE file system. What the kernel shows ends at the daemon; looks at its threads and
//! connections tell whether it can wait for a server at all. Where it can, the daemon, the path and the server look the same.

use model::{Cause, DaemonLook, Detail, Event, Level, Operation, PhasesMs, Verdict};

use super::{
    DOMINANT,
    conclude::{Candidate, conclude},
    scene::Scene,
};
use crate::units::{counted, span};

/// The probability that the daemon itself is late, if it has no connection that it could wait for.
const WITHOUT_CONNECTION: f64 = 0.88;
/// ... if it is stopped.
const STOPPED: f64 = 0.95;
/// ... that it is gone, if requests end without an answer since the connection to it is aborted. `umount -f` aborts it, too.
const GONE: f64 = 0.85;
/// The probability that requesters were late, if most of the time passed after the answers.
const DELIVERED: f64 = 0.8;

/// Whether an operation goes to a daemon of this host.
pub(super) fn is_served(operation: Operation) -> bool {
    operation.level() == Level::Daemon
}

/// Judges slow requests. `around`: what may have a look, too.
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
    let looks = looks(slow.iter().chain(around).filter(|event| event.mount == scene.slowest.mount));
    let candidates = candidates(&looks, &mut because);
    conclude(candidates, because, phases)
}

/// Judges requests in flight. `answers`: how many others the same daemon answered meanwhile.
pub(super) fn of_stalls(oldest: &Event, around: &[Event], answers: u64, mut because: Vec<String>) -> Verdict {
    because.push(if answers == 0 {
        "Nothing else was asked of this daemon and answered meanwhile.".to_owned()
    } else {
        format!("Meanwhile the daemon answered {}.", counted(answers, "other request"))
    });
    let looks = looks(around.iter().chain([oldest]).filter(|event| event.mount == oldest.mount));
    let candidates = candidates(&looks, &mut because);
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
        "The daemon answered so; whether it, or a server behind it, refused is not known: see the daemon's log."
            .to_owned(),
    );
    Verdict { because, ..Verdict::unknown("") }
}

/// `ECONNABORTED` and `ENOTCONN`, on Linux.
const ABORTED: u32 = 103;
const NOT_CONNECTED: u32 = 107;

/// Every look once, newest first.
fn looks<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<DaemonLook> {
    let look = |event: &Event| if let Detail::Fuse(fuse) = event.detail { fuse.look } else { None };
    let mut looks: Vec<_> = events.filter_map(look).collect();
    looks.sort_by_key(|look| std::cmp::Reverse(look.at));
    looks.dedup_by_key(|look| look.at);
    looks
}

fn candidates(looks: &[DaemonLook], because: &mut Vec<String>) -> Vec<Candidate> {
    let Some(newest) = looks.first() else {
        because
            .push("Nobody has looked at the daemon meanwhile: whether it waited for a server is not known.".to_owned());
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
    let every = |is: fn(&DaemonLook) -> bool| looks.iter().all(is);
    if every(|look| look.threads > 0 && look.stopped == look.threads) {
        return vec![(Cause::FuseDaemon, STOPPED)];
    }
    if every(|look| look.connections == 0 && look.other_sockets == 0 && look.on_files == 0) {
        because.push("So there was no server that it could wait for.".to_owned());
        return vec![(Cause::FuseDaemon, WITHOUT_CONNECTION)];
    }
    if every(|look| look.connections == 0) {
        because.push("It may wait for another program, or another file system, of this host.".to_owned());
        return vec![(Cause::FuseDaemon, 0.6), (Cause::SlowServer, 0.2)];
    }
    if every(|look| look.resending > 0) {
        because.push("On a connection of it, data was sent again and not acknowledged.".to_owned());
        return vec![(Cause::NoPath, 0.4), (Cause::Loss, 0.35)];
    }
    because.push("The daemon, the path to its server and that server look the same from here; `ss -tip` shows the daemon's connections.".to_owned());
    vec![(Cause::SlowServer, 0.5), (Cause::FuseDaemon, 0.25)]
}
