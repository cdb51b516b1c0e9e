//! From causes and how likely they are to a verdict: one is named if it is likely enough, else the two likeliest are.

use model::{Cause, Layer, PhasesMs, Verdict};

/// A cause this likely is named. Below, a verdict is `unknown`: whoever is sent to the wrong team once does not look again.
const NAMED: f64 = 0.8;
/// What is less likely than this is not worth saying.
const WORTH_SAYING: f64 = 0.05;
/// So many alternatives are given at most.
const GIVEN: usize = 2;

/// A cause, and its probability.
pub(super) type Candidate = (Cause, f64);

/// Nothing comes through, and nothing else is known.
pub(super) const UNREACHABLE: [Candidate; 2] = [(Cause::NoPath, 0.5), (Cause::HostGone, 0.5)];

/// The verdict that these causes come to. Their probabilities add up to at most 1; what is missing is none of them.
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
    }
}

/// The likeliest, and what would tell them apart.
fn undecided(candidates: &[Candidate]) -> Option<String> {
    let percent = |(cause, likely): &Candidate| format!("{} ({:.0} %)", cause.describe(), likely * 100.0);
    match candidates {
        [] => None,
        [one] => Some(format!("Likeliest: {}, which is not likely enough to be named.", percent(one))),
        [one, other, ..] => {
            let apart = tells_apart(one.0, other.0);
            Some(format!("Likeliest: {}, or {}. {apart}", percent(one), percent(other)))
        }
    }
}

/// What would show which of two causes it is.
fn tells_apart(one: Cause, other: Cause) -> &'static str {
    let either = |cause| one == cause || other == cause;
    let layers = [one.layer(), other.layer()];
    if either(Cause::HostGone) && either(Cause::NoPath) {
        "Another host's connection to the same server tells them apart."
    } else if either(Cause::OwnQueue) {
        "`tc -s qdisc` shows what waits in this host's queueing disciplines; Linux 6.14 and newer stamp each request there."
    } else if layers.contains(&Layer::Client) {
        "`plumbline ps` and the kernel stacks of the bundle show what this host's threads wait for."
    } else {
        "Plumbline on the server shows how long a request was there; Linux 6.14 and newer here stamp when it was acknowledged."
    }
}
