//! The report of `plumbline fleet` in its JSON form; docs/fleet.md lists the fields.

use std::collections::BTreeSet;

use diagnose::fleet::{Affected, Fleet, FleetCause, HostGroup, JudgedEpisode, Millis, OperationKind};
use jiff::Timestamp;
use model::{Cause, Layer};
use serde::Serialize;

/// All episodes.
#[derive(Debug, Serialize)]
pub struct FleetReport {
    /// When the first incident began and the last ended, or the requested time.
    pub from: Option<String>,
    pub to: Option<String>,
    /// The number of hosts with records, and of the servers that they use.
    pub hosts: usize,
    pub servers: usize,
    /// The number of incidents of servers; and of other incidents, which are not judged.
    pub incidents: usize,
    pub local_incidents: u64,
    /// The episodes, those with the most hosts first.
    pub episodes: Vec<FleetEpisode>,
    /// Remarks about data that could not be read.
    pub notes: Vec<String>,
}

/// Incidents of several hosts with a common cause.
#[derive(Debug, Serialize)]
pub struct FleetEpisode {
    pub servers: Vec<String>,
    pub from: String,
    pub to: String,
    pub state: &'static str,
    pub verdict: FleetVerdict,
    /// The number of clients of which it is known whether they were affected.
    pub clients: usize,
    pub affected: Vec<AffectedHost>,
    pub unaffected: Vec<String>,
    pub silent: Vec<String>,
    /// Medians of the hosts' figures, milliseconds.
    pub slow_ms: Option<f64>,
    pub normal_ms: Option<f64>,
    pub more_ms: Option<f64>,
    pub slow: Vec<&'static str>,
}

/// The cause.
#[derive(Debug, Serialize)]
pub struct FleetVerdict {
    pub cause: Option<&'static str>,
    pub confidence: f64,
    pub said: String,
    pub group: Option<OfGroup>,
    pub operations: Option<&'static str>,
    pub source: Option<String>,
    pub alternatives: Vec<FleetAlternative>,
    pub because: Vec<String>,
}

/// A property that the affected hosts share.
#[derive(Debug, Serialize)]
pub struct OfGroup {
    pub by: String,
    pub value: String,
}

/// Another possible cause.
#[derive(Debug, Serialize)]
pub struct FleetAlternative {
    pub cause: &'static str,
    pub confidence: f64,
    pub said: String,
}

/// An affected host.
#[derive(Debug, Serialize)]
pub struct AffectedHost {
    pub host: String,
    pub from: String,
    pub to: String,
    pub layer: Layer,
    pub cause: Option<Cause>,
    pub confidence: f64,
    pub slow_ms: Option<f64>,
    pub normal_ms: Option<f64>,
    pub incidents: Vec<String>,
}

/// RFC 3339, UTC.
pub fn time(at: Millis) -> String {
    Timestamp::from_millisecond(at).map(|at| format!("{at:.3}")).unwrap_or_default()
}

fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

impl FleetReport {
    /// The report of a verdict. `span`: the time that the data cover, if the source has one.
    pub fn new(
        fleet: &Fleet,
        judged: &[JudgedEpisode],
        local_incidents: u64,
        span: Option<(Millis, Millis)>,
        notes: Vec<String>,
    ) -> Self {
        let begin = fleet.sightings.iter().map(|one| one.from).min();
        let end = fleet.sightings.iter().map(|one| one.to).max();
        let span = span.or(begin.zip(end));
        let clients = fleet.clients.iter();
        Self {
            from: span.map(|(from, _)| time(from)),
            to: span.map(|(_, to)| time(to)),
            hosts: clients.clone().map(|client| &client.host).collect::<BTreeSet<_>>().len(),
            servers: clients.map(|client| &client.server).collect::<BTreeSet<_>>().len(),
            incidents: fleet.sightings.len(),
            local_incidents,
            episodes: judged.iter().map(FleetEpisode::from).collect(),
            notes,
        }
    }
}

impl From<&JudgedEpisode> for FleetEpisode {
    fn from(judged: &JudgedEpisode) -> Self {
        let (scene, conclusion) = (&judged.scene, &judged.conclusion);
        let group = |group: &HostGroup| OfGroup { by: group.by.clone(), value: group.value.clone() };
        let alternative = |(cause, confidence, said): &(FleetCause, f64, String)| FleetAlternative {
            cause: cause.name(),
            confidence: *confidence,
            said: said.clone(),
        };
        Self {
            servers: judged.servers.clone(),
            from: time(scene.from),
            to: time(scene.to),
            state: if scene.is_open { "open" } else { "closed" },
            verdict: FleetVerdict {
                cause: conclusion.cause.map(FleetCause::name),
                confidence: conclusion.confidence,
                said: conclusion.said.clone(),
                group: conclusion.group.as_ref().map(group),
                operations: conclusion.kind.map(OperationKind::name),
                source: conclusion.source.clone(),
                alternatives: conclusion.alternatives.iter().map(alternative).collect(),
                because: conclusion.because.clone(),
            },
            clients: scene.known(),
            affected: scene.affected.iter().map(AffectedHost::from).collect(),
            unaffected: scene.unaffected.iter().map(|host| host.name.to_string()).collect(),
            silent: scene.silent.iter().map(|name| name.to_string()).collect(),
            slow_ms: scene.median(|host| host.slow_ms).map(rounded),
            normal_ms: scene.median(|host| host.normal_ms).map(rounded),
            more_ms: scene.median(Affected::more_ms).map(rounded),
            slow: scene.kinds().into_iter().map(OperationKind::name).collect(),
        }
    }
}

impl From<&Affected> for AffectedHost {
    fn from(host: &Affected) -> Self {
        let verdict = &host.verdict;
        Self {
            host: host.name.clone(),
            from: time(host.from),
            to: time(host.to),
            layer: verdict.layer,
            cause: verdict.cause.filter(|_| verdict.layer != Layer::Unknown),
            confidence: verdict.confidence,
            slow_ms: host.slow_ms.map(rounded),
            normal_ms: host.normal_ms.map(rounded),
            incidents: host.incidents.clone(),
        }
    }
}
