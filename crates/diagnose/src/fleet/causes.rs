//! How likely each possible cause is: by Bayes' rule, from which clients it would affect, and what these say themselves.
//!
//! A cause of a server affects each of its clients with the same, unknown probability: high as a rule, since few clients ask for
//! nothing or too little to notice. Other clients have an incident of their own meanwhile with the probability that the records of
//! other times show. The hosts' own verdicts count, too, but not as many times as there are hosts: what misleads one misleads others.

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
/// A group is one of many that might have been to blame: its prior is divided by the number of values of its property, and at most by this.
const GROUPS: usize = 10;
/// The share of the clients that a fault of all affects is distributed as Beta(5, 1): five of six on average.
const REACHED: f64 = 5.0;
const NOT_REACHED: f64 = 1.0;
/// However many hosts say the same, their verdicts count as those of so many.
const INDEPENDENT: f64 = 4.0;
/// How often a verdict of one host is of no use.
const USELESS: f64 = 0.1;
/// How often a host has incidents at other servers, too: if it is itself, or its network, to blame, and if one server is.
const ELSEWHERE: f64 = 0.7;
const ELSEWHERE_BY_CHANCE: f64 = 0.05;
/// How often a server that is slow with one kind of operation shows as that, and how often any other one does.
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

/// Clients that a cause would affect, and others: how many of each were affected, and were not.
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

/// The same, with the logarithm of each one's probability up to a constant.
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
    // That at least one host is affected is why this is looked at.
    let some = 1.0 - (1.0 - scene.background).powi(scene.known().try_into().unwrap_or(i32::MAX));
    all.push(candidate(FleetCause::Hosts, HOSTS, nobody.likelihood(scene.background) - some.ln()));
    for kind in scene.kinds() {
        let split = ClientSplit::of(scene, |does| does.does.is_empty() || does.does.contains(&kind));
        let likelihood = split.likelihood(scene.background) + sparing(scene, Some(kind));
        all.push(FleetCandidate { kind: Some(kind), ..candidate(FleetCause::ServerOperation, OPERATION, likelihood) });
    }
    // Where everybody has mounted the same, a share is the server.
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

    /// The logarithm of the probability that just these are affected.
    fn likelihood(&self, background: f64) -> f64 {
        of_beta(REACHED, NOT_REACHED, self.hit, self.spared)
            + self.beside as f64 * background.ln()
            + self.outside as f64 * (1.0 - background).ln()
    }

    /// The likelihood, if every share of affected clients is as likely.
    fn of_any_share(&self) -> f64 {
        of_beta(1.0, 1.0, self.hit, self.spared)
    }
}

/// The logarithm of the probability that just these hosts are hit, and those spared, by what hits a share that is distributed as Beta(`a`, `b`).
fn of_beta(a: f64, b: f64, hit: usize, spared: usize) -> f64 {
    let rising = |from: f64, count: usize| (0..count).map(|step| (from + step as f64).ln()).sum::<f64>();
    rising(a, hit) + rising(b, spared) - rising(a + b, hit + spared)
}

/// Sums up what each affected host says, as if there were [`INDEPENDENT`] of them at most.
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
            // What stands in front of a server may answer for it.
            FleetCause::Front => 0.85 * network + 0.15 * server,
            FleetCause::GroupNetwork => 0.9 * network + 0.1 * server,
            FleetCause::GroupHosts | FleetCause::Group | FleetCause::AllHosts => client,
            FleetCause::Part => 1.0 / 3.0,
            // A link of its own, or a file that only it asks for.
            FleetCause::Hosts => 0.5 * client + 0.3 * network + 0.2 * server,
        };
        // Without a verdict, each is a third.
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

/// Whether the server was slow with one kind only. `kind`: the one, if it is the cause.
fn sparing(scene: &FleetScene, kind: Option<OperationKind>) -> f64 {
    together(scene, |host| {
        let only = host.only_kind();
        // Who does nothing else cannot tell.
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

/// Whether hosts with several shares found only this one slow.
fn one_share(scene: &FleetScene, source: &String) -> f64 {
    together(scene, |host| match () {
        () if host.about.mounted.len() < 2 => 0.0,
        // Of all causes but this one, that is seldom.
        () if host.sources.len() == 1 && host.sources.contains(source) => (SPARING / SPARING_BY_CHANCE).ln(),
        () => (SPARING_BY_CHANCE / SPARING).ln(),
    })
}

/// The groups that some affected host is in and some client is not, each with the number of values that its property has here. Of groups with the
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
