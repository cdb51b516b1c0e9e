//! Makes a fleet verdict from the possible causes: the most specific cause that is likely enough, else the two
//! likeliest.

use std::collections::BTreeMap;

use model::{Cause, Layer};

use super::{
    FleetCause, HostGroup, OperationKind,
    causes::FleetCandidate,
    scene::{Affected, FleetScene},
};
use crate::units::{counted, span};

/// The least probability at which a cause is named.
const NAMED: f64 = 0.8;
/// Less likely causes are left out.
const WORTH_SAYING: f64 = 0.05;
/// The most alternatives.
const GIVEN: usize = 2;

/// The cause, or the two likeliest.
#[derive(Debug, Clone, Default)]
pub struct Conclusion {
    /// The cause; `None` if none is likely enough.
    pub cause: Option<FleetCause>,
    /// How likely it is, 0.8 to 1; 0 if there is none.
    pub confidence: f64,
    /// The group that the cause is about, if any.
    pub group: Option<HostGroup>,
    /// The kind of operations that the cause is about, if any.
    pub kind: Option<OperationKind>,
    /// The share or export that the cause is about, if any.
    pub source: Option<String>,
    /// The cause in words.
    pub said: String,
    /// Other causes, the likeliest first, each with its probability and in words.
    pub alternatives: Vec<(FleetCause, f64, String)>,
    /// The evidence, one sentence for each figure.
    pub because: Vec<String>,
}

/// Narrow causes, and the wider cause that covers them together.
const WIDER: [(&[FleetCause], FleetCause); 3] = [
    (&[FleetCause::Server, FleetCause::ServerOperation, FleetCause::ServerShare], FleetCause::Server),
    (
        &[FleetCause::Server, FleetCause::ServerOperation, FleetCause::ServerShare, FleetCause::Front],
        FleetCause::ServerOrFront,
    ),
    (&[FleetCause::GroupNetwork, FleetCause::GroupHosts], FleetCause::Group),
];

/// Makes the verdict, still without its sentences of evidence.
pub(super) fn conclude(scene: &FleetScene, candidates: Vec<FleetCandidate>) -> Conclusion {
    let named = named(&candidates);
    let is_part = |one: &FleetCandidate| {
        named.as_ref().is_some_and(|named| match named.cause {
            cause if cause == one.cause => true,
            FleetCause::Group => one.group == named.group && one.group.is_some(),
            cause => WIDER.iter().any(|(parts, whole)| *whole == cause && parts.contains(&one.cause)),
        })
    };
    let others = candidates.iter().filter(|one| !is_part(one) && one.likely >= WORTH_SAYING).take(GIVEN);
    let alternatives: Vec<_> = others.map(|one| (one.cause, rounded(one.likely), said(scene, one))).collect();
    let Some(named) = named else {
        let said = "no single cause is likely enough to be named".to_owned();
        return Conclusion { said, alternatives, ..Conclusion::default() };
    };
    Conclusion {
        cause: Some(named.cause),
        confidence: rounded(named.likely),
        said: said(scene, &named),
        group: named.group,
        kind: named.kind,
        source: named.source,
        alternatives,
        because: Vec::new(),
    }
}

/// The evidence, one sentence for each figure.
pub(super) fn because(scene: &FleetScene, conclusion: &Conclusion) -> Vec<String> {
    let mut all = figures(scene);
    all.extend(rest(scene));
    all.extend(undecided(&conclusion.alternatives).filter(|_| conclusion.cause.is_none()));
    all
}

/// The most specific cause that is likely enough.
fn named(candidates: &[FleetCandidate]) -> Option<FleetCandidate> {
    let best = candidates.first()?;
    if best.likely >= NAMED {
        return Some(best.clone());
    }
    WIDER.iter().find_map(|(parts, whole)| {
        let is_part = |one: &&FleetCandidate| {
            parts.contains(&one.cause)
                && (*whole != FleetCause::Group || one.group == best.group && best.group.is_some())
        };
        let likely: f64 = candidates.iter().filter(is_part).map(|one| one.likely).sum();
        let group = best.group.clone().filter(|_| *whole == FleetCause::Group);
        (likely >= NAMED).then_some(FleetCandidate { cause: *whole, group, kind: None, source: None, likely })
    })
}

/// Rounds to hundredths, and to 0.99 at most.
fn rounded(likely: f64) -> f64 {
    ((likely * 100.0).round() / 100.0).min(0.99)
}

fn said(scene: &FleetScene, candidate: &FleetCandidate) -> String {
    let FleetCandidate { cause, group, kind, source, .. } = candidate;
    let group = group.as_ref().map_or_else(String::new, |group| format!("{} {}", group.by, group.value));
    match cause {
        FleetCause::Server => "the server".into(),
        FleetCause::ServerOperation => {
            format!("the server, with {}", kind.map_or("some operations", OperationKind::name))
        }
        FleetCause::ServerShare => format!("the server, with {}", source.as_deref().unwrap_or("one share")),
        FleetCause::Front => "the network in front of the server".into(),
        FleetCause::ServerOrFront => "the server or what is in front of it".into(),
        FleetCause::GroupNetwork if group.starts_with("network ") => format!("the {group}"),
        FleetCause::GroupNetwork => format!("the network of {group}"),
        FleetCause::GroupHosts => format!("the hosts of {group} themselves"),
        FleetCause::Group => format!("what the hosts of {group} have in common"),
        FleetCause::Part => "something that only the affected hosts have in common".into(),
        FleetCause::AllHosts => "all clients at the same time".into(),
        FleetCause::Hosts => match scene.affected.as_slice() {
            [one] => format!("{} alone", one.name),
            several => format!("{} hosts, each by itself", several.len()),
        },
    }
}

/// How many hosts were affected, what their own verdicts say, how slow operations were, and which operations.
fn figures(scene: &FleetScene) -> Vec<String> {
    let (affected, known) = (scene.affected.len(), scene.known());
    let were = if affected == 1 { "was" } else { "were" };
    let mut all = vec![format!("{affected} of {} {were} affected.", counted(known as u64, "known client"))];
    if !scene.silent.is_empty() {
        let silent = counted(scene.silent.len() as u64, "more client");
        all.push(format!("There are no records of {silent} for that time."));
    }
    if let Some(more) = scene.median(Affected::more_ms) {
        let [slow, normal] =
            [|host: &Affected| host.slow_ms, |host: &Affected| host.normal_ms].map(|of| scene.median(of));
        let of = |ms: Option<f64>| of_ms(ms.unwrap_or_default());
        all.push(format!(
            "Slow operations took {} more, {} instead of {} (medians of the hosts' means).",
            of_ms(more),
            of(slow),
            of(normal)
        ));
    } else if let Some(slow) = scene.median(|host| host.slow_ms) {
        all.push(format!("Slow operations took {} (median of the hosts' means).", of_ms(slow)));
    }
    all.extend(match scene.kinds().as_slice() {
        [] => None,
        [one] => Some(format!("Nearly all slow operations were {}.", one.name())),
        several => {
            Some(format!("The slow operations were {}.", listed(several.iter().map(|kind| kind.name().to_owned()))))
        }
    });
    all.push(format!("The hosts' own verdicts: {}.", own_verdicts(scene)));
    all.extend(elsewhere(scene));
    all
}

fn own_verdicts(scene: &FleetScene) -> String {
    let mut count: BTreeMap<(Layer, Option<&'static str>), usize> = BTreeMap::new();
    for host in &scene.affected {
        let cause = host.verdict.cause.map(Cause::name).filter(|_| host.verdict.layer != Layer::Unknown);
        *count.entry((host.verdict.layer, cause)).or_default() += 1;
    }
    let mut all: Vec<_> = count.into_iter().collect();
    all.sort_by_key(|(_, hosts)| std::cmp::Reverse(*hosts));
    let said = |((layer, cause), hosts): ((Layer, Option<&str>), usize)| match cause {
        Some(cause) => format!("{hosts} {} ({cause})", layer.name()),
        None => format!("{hosts} {}", layer.name()),
    };
    listed(all.into_iter().map(said))
}

fn elsewhere(scene: &FleetScene) -> Option<String> {
    let with_others: Vec<bool> = scene.affected.iter().filter_map(|host| host.elsewhere).collect();
    let slow = with_others.iter().filter(|slow| **slow).count();
    (!with_others.is_empty()).then(|| {
        let what = match slow {
            0 => "none of them had an incident there".to_owned(),
            slow => format!("{slow} had incidents there, too"),
        };
        format!("{} of the affected hosts use other servers, too: {what}.", with_others.len())
    })
}

/// What the unaffected clients have in common that no affected host has.
fn rest(scene: &FleetScene) -> Option<String> {
    let first = scene.unaffected.first()?;
    let is_theirs = |group: &&HostGroup| {
        scene.unaffected.iter().all(|host| host.about.groups.contains(group))
            && !scene.affected.iter().any(|host| host.about.groups.contains(group))
    };
    let group = first.about.groups.iter().find(is_theirs).filter(|_| scene.unaffected.len() > 1)?;
    let others = scene.unaffected.len();
    Some(format!("The {others} others are in {} {}, where no host was affected.", group.by, group.value))
}

fn undecided(alternatives: &[(FleetCause, f64, String)]) -> Option<String> {
    let percent = |(_, likely, said): &(FleetCause, f64, String)| format!("{said} ({:.0} %)", likely * 100.0);
    match alternatives {
        [] => None,
        [one] => Some(format!("Likeliest: {}. A cause is named from {:.0} % on.", percent(one), NAMED * 100.0)),
        [one, other, ..] => {
            Some(format!("Likeliest: {}, or {}. {}", percent(one), percent(other), tells_apart(one.0, other.0)))
        }
    }
}

/// How to find out which of two causes is the right one.
fn tells_apart(one: FleetCause, other: FleetCause) -> &'static str {
    let either = |cause| one == cause || other == cause;
    if either(FleetCause::Part) {
        "To tell these apart, give what only these hosts have in common (a switch, a role) with `--groups`."
    } else if either(FleetCause::Hosts) || either(FleetCause::AllHosts) {
        "To tell these apart, collect records of more clients of the server."
    } else if either(FleetCause::GroupNetwork) || either(FleetCause::GroupHosts) {
        "To tell these apart, compare with a host outside the group that uses the same server, or with a host in the group that uses another server."
    } else if either(FleetCause::Front) {
        "To tell these apart, run Plumbline on the server, or compare with a client that does not use the network in front of the server."
    } else {
        "To tell these apart, see whether clients that use other operations or shares of the server are slow, too."
    }
}

fn listed(words: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = words.collect();
    match all.pop() {
        Some(last) if all.is_empty() => last,
        Some(last) => format!("{} and {last}", all.join(", ")),
        None => String::new(),
    }
}

fn of_ms(ms: f64) -> String {
    span((ms.max(0.0) * 1e6) as u64)
}
