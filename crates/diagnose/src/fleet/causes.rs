//! How likely each possible cause is, by Bayes' rule: from the clients that the cause would affect, and from these clients' own verdicts.
//!
//! A fault of a server affects each of its clients with the same, unknown probability. This probability is usually high, since few clients send no
//! request, or too few to notice the fault. The other clients have incidents of their own meanwhile, with the probability that the records of other
//! times show. The hosts' own verdicts count, too, but less than their number suggests: what misleads one host misleads others.

use std::collections::BTreeMap;

use super::{
    FleetCause, HostGroup, OperationKind,
    hosts::ClientAttributes,
    scene::{Affected, Belief, FleetScene},
};

/// The probabilities of causes before anything is known.
const SERVER: f64 = 0.3;
const OPERATION: f64 = 0.12;
const SHARE: f64 = 0.08;
const FRONT: f64 = 0.1;
const ALL_HOSTS: f64 = 0.03;
const GROUP_NETWORK: f64 = 0.15;
const GROUP_HOSTS: f64 = 0.05;
const PART: f64 = 0.05;
const HOSTS: f64 = 0.17;
/// A group is one of many that might be to blame. So its prior is divided by the number of values of its property, but by at most this.
const GROUPS: usize = 10;
/// The share of clients that a common fault affects is distributed as Beta(5, 1): five of six on average.
const REACHED: f64 = 5.0;
const NOT_REACHED: f64 = 1.0;
/// The verdicts of all hosts together count as at most this many independent ones.
const INDEPENDENT: f64 = 4.0;
/// The probability that one host's verdict is useless.
const USELESS: f64 = 0.1;
/// The probability that a host has incidents at other servers, too: if the host or its network is to blame, and if one server is.
const ELSEWHERE: f64 = 0.7;
const ELSEWHERE_BY_CHANCE: f64 = 0.05;
/// The probability that only one kind of operation appears slow: if the server is slow with that kind only, and with any other cause.
const SPARING: f64 = 0.85;
const SPARING_BY_CHANCE: f64 = 0.15;
/// Most groups of hosts that are weighed.
const MOST_GROUPS: usize = 200;

/// A possible cause, and how likely it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FleetCandidate {
    pub cause: FleetCause,
    pub group: Option<HostGroup>,
    pub kind: Option<OperationKind>,
    pub source: Option<String>,
    /// 0 to 1; those of all candidates add up to 1.
    pub likely: f64,
}

/// Clients that a cause would affect: how many were affected (`hit`) and were not (`spared`). Other clients: how many were affected (`beside`) and
/// were not (`outside`).
#[derive(Default)]
struct ClientSplit {
    hit: usize,
    spared: usize,
    beside: usize,
    outside: usize,
}

/// All causes that are possible, the likeliest first.
pub(super) fn weigh(scene: &FleetScene) -> Vec<FleetCandidate> {
    let mut all = causes(scene);
    let most = all.iter().map(|one| one.likely).fold(f64::NEG_INFINITY, f64::max);
    all.iter_mut().for_each(|one| one.likely = (one.likely - most).exp());
    let sum: f64 = all.iter().map(|one| one.likely).sum();
    all.iter_mut().for_each(|one| one.likely /= sum.max(f64::MIN_POSITIVE));
    all.sort_by(|one, other| other.likely.total_cmp(&one.likely).then(one.cause.cmp(&other.cause)));
    all
}

/// All possible causes; `likely` is the logarithm of the probability, up to a constant.
fn causes(scene: &FleetScene) -> Vec<FleetCandidate> {
    let everybody = ClientSplit { hit: scene.affected.len(), spared: scene.unaffected.len(), ..ClientSplit::default() };
    let nobody = ClientSplit { beside: everybody.hit, outside: everybody.spared, ..ClientSplit::default() };
    let of_all = everybody.likelihood(scene.background);
    let candidate = |cause, prior: f64, likelihood: f64| {
        let likely = prior.ln() + likelihood + own_verdicts(scene, cause) + elsewhere(scene, cause);
        FleetCandidate { cause, group: None, kind: None, source: None, likely }
    };
    let mut all = vec![
        candidate(FleetCause::Server, SERVER, of_all + sparing(scene, None)),
        candidate(FleetCause::Front, FRONT, of_all),
    ];
    if scene.known() > 1 {
        all.push(candidate(FleetCause::AllHosts, ALL_HOSTS, of_all));
        all.push(candidate(FleetCause::Part, PART, everybody.of_any_share()));
    }
    // There is no scene unless at least one host is affected, so the probability is conditional on that.
    let some = 1.0 - (1.0 - scene.background).powi(scene.known().try_into().unwrap_or(i32::MAX));
    all.push(candidate(FleetCause::Hosts, HOSTS, nobody.likelihood(scene.background) - some.ln()));
    for kind in scene.kinds() {
        let split = ClientSplit::of(scene, |does| does.does.is_empty() || does.does.contains(&kind));
        let likelihood = split.likelihood(scene.background) + sparing(scene, Some(kind));
        all.push(FleetCandidate { kind: Some(kind), ..candidate(FleetCause::ServerOperation, OPERATION, likelihood) });
    }
    // If no client has mounted another share, a share cannot be told from the server.
    let mut sources: Vec<&String> = scene.affected.iter().flat_map(|host| &host.sources).collect();
    sources.sort();
    sources.dedup();
    for source in sources.into_iter().take(MOST_GROUPS) {
        let split = ClientSplit::of(scene, |has| has.mounted.is_empty() || has.mounted.contains(source));
        let spares_another = |host: &Affected| host.about.mounted.iter().any(|other| !host.sources.contains(other));
        if split.beside + split.outside > 0 || scene.affected.iter().any(spares_another) {
            let likelihood = split.likelihood(scene.background) + one_share(scene, source);
            let share = candidate(FleetCause::ServerShare, SHARE, likelihood);
            all.push(FleetCandidate { source: Some(source.clone()), ..share });
        }
    }
    for (group, values) in groups(scene) {
        let split = ClientSplit::of(scene, |has| has.groups.contains(&group));
        let likelihood = split.likelihood(scene.background);
        for (cause, prior) in [(FleetCause::GroupNetwork, GROUP_NETWORK), (FleetCause::GroupHosts, GROUP_HOSTS)] {
            let prior = prior / values.clamp(1, GROUPS) as f64;
            all.push(FleetCandidate { group: Some(group.clone()), ..candidate(cause, prior, likelihood) });
        }
    }
    all
}

impl ClientSplit {
    fn of(scene: &FleetScene, is_reached: impl Fn(&ClientAttributes) -> bool) -> Self {
        let mut split = Self::default();
        for host in &scene.affected {
            if is_reached(&host.about) { split.hit += 1 } else { split.beside += 1 }
        }
        for host in &scene.unaffected {
            if is_reached(&host.about) { split.spared += 1 } else { split.outside += 1 }
        }
        split
    }

    /// The logarithm of the probability that exactly these clients are affected.
    fn likelihood(&self, background: f64) -> f64 {
        of_beta(REACHED, NOT_REACHED, self.hit, self.spared)
            + self.beside as f64 * background.ln()
            + self.outside as f64 * (1.0 - background).ln()
    }

    /// The logarithm of this probability, if all shares of affected clients are equally likely.
    fn of_any_share(&self) -> f64 {
        of_beta(1.0, 1.0, self.hit, self.spared)
    }
}

/// The logarithm of the probability that exactly these hosts are hit and those spared, if the share that is hit is distributed as Beta(`a`, `b`).
fn of_beta(a: f64, b: f64, hit: usize, spared: usize) -> f64 {
    let rising = |from: f64, count: usize| (0..count).map(|step| (from + step as f64).ln()).sum::<f64>();
    rising(a, hit) + rising(b, spared) - rising(a + b, hit + spared)
}

/// The sum of `says` over the affected hosts, scaled down as if there were at most [`INDEPENDENT`] of them.
fn together(scene: &FleetScene, says: impl Fn(&Affected) -> f64) -> f64 {
    let all = scene.affected.len() as f64;
    scene.affected.iter().map(says).sum::<f64>() * (INDEPENDENT / all).min(1.0)
}

fn own_verdicts(scene: &FleetScene, cause: FleetCause) -> f64 {
    together(scene, |host| {
        let Belief { client, network, server } = host.belief;
        let fits = match cause {
            FleetCause::Server | FleetCause::ServerOperation | FleetCause::ServerShare | FleetCause::ServerOrFront => {
                server
            }
            // A device in front of a server may answer for it.
            FleetCause::Front => 0.85 * network + 0.15 * server,
            FleetCause::GroupNetwork => 0.9 * network + 0.1 * server,
            FleetCause::GroupHosts | FleetCause::Group | FleetCause::AllHosts => client,
            FleetCause::Part => 1.0 / 3.0,
            // The cause may be the host's own link, or a file that only this host uses.
            FleetCause::Hosts => 0.5 * client + 0.3 * network + 0.2 * server,
        };
        // Without a verdict, each layer has a third.
        (3.0 * ((1.0 - USELESS) * fits + USELESS / 3.0)).ln()
    })
}

fn elsewhere(scene: &FleetScene, cause: FleetCause) -> f64 {
    if cause == FleetCause::Part {
        return 0.0;
    }
    let often = if cause.is_of_hosts() { ELSEWHERE } else { ELSEWHERE_BY_CHANCE };
    together(scene, |host| match host.elsewhere {
        Some(true) => often.ln(),
        Some(false) => (1.0 - often).ln(),
        None => 0.0,
    })
}

/// The log-likelihood of whether only one kind of operation was slow. `kind`: the slow kind, if the cause is limited to one.
fn sparing(scene: &FleetScene, kind: Option<OperationKind>) -> f64 {
    together(scene, |host| {
        let only = host.only_kind();
        // A host that does nothing else cannot tell.
        let does_more = host.about.does.len() > 1 || host.spares_a_kind() == Some(true);
        let is_sparing = match (host.spares_a_kind(), only) {
            (_, None) => false,
            (Some(spares), Some(_)) if does_more => spares,
            (None, Some(_)) if does_more => true,
            _ => return 0.0,
        };
        let fits = is_sparing && kind.is_none_or(|kind| only == Some(kind));
        match kind {
            Some(_) => {
                if fits {
                    SPARING.ln()
                } else {
                    (1.0 - SPARING).ln()
                }
            }
            None => {
                if is_sparing {
                    SPARING_BY_CHANCE.ln()
                } else {
                    (1.0 - SPARING_BY_CHANCE).ln()
                }
            }
        }
    })
}

/// The log-likelihood ratio of whether hosts with several shares found only this one slow.
fn one_share(scene: &FleetScene, source: &String) -> f64 {
    together(scene, |host| match () {
        () if host.about.mounted.len() < 2 => 0.0,
        // With any other cause, this is rare.
        () if host.sources.len() == 1 && host.sources.contains(source) => (SPARING / SPARING_BY_CHANCE).ln(),
        () => (SPARING_BY_CHANCE / SPARING).ln(),
    })
}

/// The groups that at least two affected hosts are in and some client is not, each with the number of values that its property has here. Of groups with the
/// same hosts, the first.
fn groups(scene: &FleetScene) -> Vec<(HostGroup, usize)> {
    let affected = scene.affected.iter().map(|host| (&host.about.groups, true));
    let all = affected.chain(scene.unaffected.iter().map(|host| (&host.about.groups, false)));
    let (mut members, mut values) =
        (BTreeMap::<&HostGroup, (Vec<usize>, usize)>::new(), BTreeMap::<&str, usize>::new());
    for (number, (groups, is_affected)) in all.enumerate() {
        for group in groups {
            let (hosts, hit) = members.entry(group).or_insert_with(|| {
                *values.entry(&group.by).or_default() += 1;
                Default::default()
            });
            hosts.push(number);
            *hit += usize::from(is_affected);
        }
    }
    let known = scene.known();
    let mut seen: Vec<Vec<usize>> = Vec::new();
    let mut kept = Vec::new();
    for (group, (hosts, hit)) in members {
        if hit < 2 || hosts.len() == known || seen.contains(&hosts) || kept.len() >= MOST_GROUPS {
            continue;
        }
        seen.push(hosts);
        kept.push((group.clone(), values.get(group.by.as_str()).copied().unwrap_or(1)));
    }
    kept
}
