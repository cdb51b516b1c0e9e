//! Makes a verdict from causes and their probabilities. A cause that is likely enough is named; else the verdict lists
//! the two likeliest.

use model::{Alternative, Cause, Event, Layer, PhasesMs, Verdict};

/// The least probability at which a cause is named; below, the verdict is `unknown`. It is high because an operator whom a verdict once sent to the
/// wrong team ignores the next verdict.
const NAMED: f64 = 0.8;
/// Less likely causes are left out.
const WORTH_SAYING: f64 = 0.05;
/// The most alternatives in a verdict.
const GIVEN: usize = 2;

/// A cause, and its probability.
pub(super) type Candidate = (Cause, f64);

/// The candidates when nothing comes through and nothing else is known.
pub(super) const UNREACHABLE: [Candidate; 2] = [(Cause::NoPath, 0.5), (Cause::HostGone, 0.5)];

/// The sentence about a program of this host that passes requests on.
const PASSED_ON: &str = "The requests go to another program of this host, which forwards them. Plumbline does not see that program's connection to the server.";

/// If a program of this host passes requests on, shares the probability of the server and the path with that program, since the observed connection
/// ends there. A cause that only the server's own answer can show stays with the server.
pub(super) fn share_with_proxy(
    is_passed_on: bool,
    candidates: Vec<Candidate>,
    because: &mut Vec<String>,
) -> Vec<Candidate> {
    if !is_passed_on {
        return candidates;
    }
    because.push(PASSED_ON.to_owned());
    let mut proxy = 0.0;
    let mut shared: Vec<_> = candidates
        .into_iter()
        .map(|(cause, likely)| match cause {
            Cause::Refused | Cause::SessionLost => (cause, likely),
            _ if cause.layer() == Layer::Client => (cause, likely),
            _ => {
                proxy += likely / 2.0;
                (cause, likely / 2.0)
            }
        })
        .collect();
    if proxy > 0.0 {
        shared.push((Cause::OwnProxy, proxy));
    }
    shared
}

/// Whether most of these events' requests were passed on by another program of this host.
pub(super) fn are_passed_on<'a>(events: impl Iterator<Item = &'a Event>) -> bool {
    let (passed_on, all) =
        events.fold((0, 0), |(count, all), event| (count + u64::from(event.flags.passed_on), all + 1));
    passed_on > 0 && passed_on * 2 >= all
}

/// Makes the verdict. The candidates' probabilities add up to at most 1; the rest is for causes that are not among
/// them.
pub(super) fn conclude(mut candidates: Vec<Candidate>, mut because: Vec<String>, phases_ms: PhasesMs) -> Verdict {
    candidates.iter_mut().for_each(|(_, likely)| *likely = (*likely * 100.0).round() / 100.0);
    candidates.retain(|(_, likely)| *likely >= WORTH_SAYING);
    candidates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let named = candidates.first().copied().filter(|(_, likely)| *likely >= NAMED);
    if named.is_some() {
        candidates.remove(0);
    }
    candidates.truncate(GIVEN);
    because.extend(match named {
        Some((cause, _)) => Some(format!("Cause: {}.", cause.describe())),
        None => undecided(&candidates),
    });
    Verdict {
        layer: named.map_or(Layer::Unknown, |(cause, _)| cause.layer()),
        confidence: named.map_or(0.0, |(_, likely)| likely),
        cause: named.map(|(cause, _)| cause),
        alternatives: candidates.into_iter().map(Into::into).collect(),
        because,
        phases_ms,
        proven: false,
    }
}

/// The sentence that lists the likeliest causes and says how to tell them apart; `None` without candidates.
fn undecided(candidates: &[Candidate]) -> Option<String> {
    let percent = |candidate: &Candidate| Alternative::from(*candidate).describe();
    match candidates {
        [] => None,
        [one] => Some(format!("Likeliest: {}. A cause is named from {:.0} % on.", percent(one), NAMED * 100.0)),
        [one, other, ..] => {
            let apart = tells_apart(one.0, other.0);
            Some(format!("Likeliest: {}, or {}. {apart}", percent(one), percent(other)))
        }
    }
}

/// The sentence that says how to find out which of two causes is the right one.
fn tells_apart(one: Cause, other: Cause) -> &'static str {
    let either = |cause| one == cause || other == cause;
    let layers = [one.layer(), other.layer()];
    if either(Cause::HostGone) && either(Cause::NoPath) {
        "To tell these two apart, see whether another host can reach the same server."
    } else if either(Cause::Closed) {
        "A packet capture on the server shows which end, or what on the path, ends the connections."
    } else if either(Cause::OwnRoute) {
        "`ip route get SERVER` shows the new route; over the old one, the same operations show whether the server is slow."
    } else if either(Cause::OwnProxy) {
        "`plumbline net` shows the proxy program's connection to the server. `top` shows whether the program gets CPU time."
    } else if either(Cause::OwnQueue) {
        "`tc -s qdisc` shows what waits in this host's queueing disciplines. On Linux 6.14 and newer, Plumbline measures this for each request."
    } else if either(Cause::NoThread) {
        "More threads (`/proc/fs/nfsd/threads`) help only if the disk (`iostat -x`) is not busy."
    } else if layers.contains(&Layer::Client) {
        "`plumbline ps` and the kernel stacks of the bundle show what this host's threads wait for."
    } else {
        "Plumbline on the server shows how long the server took for a request."
    }
}
