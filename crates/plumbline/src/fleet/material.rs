//! Collects what hosts have recorded (incidents and summaries) by host and server, as the input of the verdict.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diagnose::{
    connection, error,
    fleet::{ClientHost, Fleet, HostGroup, HostSighting, Millis, OperationKind},
};
use jiff::Timestamp;
use model::{Direction, Host, Incident, Level, RankedMount, SNAPSHOT};

use super::groups::{self, Groups};
use crate::summary::KeptSummary;

/// The least share of a server in an incident's time for the incident to count for that server.
const SHARE: f64 = 0.1;
/// Summaries are written once an hour, so a host counts as seen for an hour after its summary.
const WRITTEN_EVERY: Millis = 3_600_000;
/// The most servers, and the most operations of a mount, that are read from one file; no host has as many.
const MOST: usize = 4096;

/// The data read so far.
#[derive(Debug, Default)]
pub struct FleetMaterial {
    seen: Vec<ServerIncident>,
    clients: BTreeMap<(String, String), ClientHost>,
    hosts: BTreeMap<String, BTreeSet<HostGroup>>,
    /// By host, server and operation: the number of operations, and their normal duration, milliseconds.
    normals: HashMap<(String, String, String), (u64, f64)>,
    summarised: BTreeSet<String>,
    /// The number of incidents without a server.
    pub local: u64,
}

/// An incident of one server, and its main operation.
#[derive(Debug)]
struct ServerIncident {
    sighting: HostSighting,
    operation: String,
}

/// A server's name in a form that is the same on all hosts: in lower case, an address without brackets.
pub fn server_name(name: &str) -> String {
    name.trim_matches(['[', ']']).to_ascii_lowercase()
}

/// Milliseconds since 1970; `None` if the text is not a time.
pub fn millis(time: &str) -> Option<Millis> {
    time.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

impl FleetMaterial {
    /// Adds an incident. Returns false if its time or server is missing.
    pub fn incident(&mut self, incident: &Incident) -> bool {
        let name = &incident.host.name;
        let (Some(from), Some(to)) = (millis(&incident.first_seen), millis(&incident.last_seen)) else { return false };
        if name.is_empty() {
            return false;
        }
        self.host(&incident.host);
        self.labels(name, &incident.labels);
        if incident.anomaly.kind == SNAPSHOT {
            return true;
        }
        let servers = servers(incident);
        if servers.is_empty() {
            self.local += 1;
        }
        for (server, mounts) in servers {
            let sources = mounts.iter().map(|mount| mount.mount.source.clone()).filter(|source| !source.is_empty());
            let client = self.client(name, &server);
            client.seen.push((from, to));
            client.sources.extend(sources.clone());
            let sighting = HostSighting {
                host: name.clone(),
                server,
                source: sources.into_iter().next().unwrap_or_default(),
                incident: incident.id.clone(),
                from,
                to,
                is_open: !incident.closed,
                kinds: kinds(incident),
                verdict: model::Verdict { because: Vec::new(), ..incident.verdict.clone() },
                slow_ms: slow_ms(incident),
                normal_ms: None,
            };
            let operation = incident.top.operations.first().map(|top| top.operation.clone()).unwrap_or_default();
            self.seen.push(ServerIncident { sighting, operation });
        }
        true
    }

    /// Adds a host's summary: the servers that it used, and how.
    pub fn summary(&mut self, kept: &KeptSummary, host: &Host) {
        let (Some(from), Some(to)) = (millis(&kept.from), millis(&kept.to)) else { return };
        if host.name.is_empty() {
            return;
        }
        self.host(host);
        self.summarised.insert(host.name.clone());
        for mount in kept.mounts.iter().filter(|mount| !mount.server.is_empty()).take(MOST) {
            let server = server_name(&mount.server);
            let client = self.client(&host.name, &server);
            client.seen.push((from, to.max(from).saturating_add(WRITTEN_EVERY)));
            client.sources.extend(Some(mount.source.clone()).filter(|source| !source.is_empty()));
            for one in mount.operations.iter().take(MOST).filter(|one| one.count > 0) {
                client.kinds.extend(kind(&one.probe, &one.operation));
            }
            for one in mount.operations.iter().take(MOST).filter(|one| one.count > 0 && one.p50_ms.is_finite()) {
                let key = (host.name.clone(), server.clone(), one.operation.clone());
                let known = self.normals.entry(key).or_default();
                // The summary with the most operations gives the best normal.
                if one.count > known.0 {
                    *known = (one.count, one.p50_ms);
                }
            }
        }
    }

    /// Adds a client, with the times for which there are records of it.
    pub fn seen(&mut self, host: &str, server: &str, source: &str, spans: &[(Millis, Millis)]) {
        let client = self.client(host, &server_name(server));
        client.seen.extend(spans);
        client.sources.extend(Some(source.to_owned()).filter(|source| !source.is_empty()));
    }

    /// Whether a summary of the host was read.
    pub fn has_summary(&self, host: &str) -> bool {
        self.summarised.contains(host)
    }

    /// Adds a host to a group.
    pub fn group(&mut self, host: &str, group: HostGroup) {
        self.hosts.entry(host.to_owned()).or_default().insert(group);
    }

    fn host(&mut self, host: &Host) {
        for network in host.addresses.iter().filter_map(|address| groups::network(address)) {
            self.group(&host.name, network);
        }
    }

    fn labels(&mut self, host: &str, labels: &BTreeMap<String, String>) {
        for (by, value) in labels {
            self.group(host, HostGroup { by: by.clone(), value: value.clone() });
        }
    }

    fn client(&mut self, host: &str, server: &str) -> &mut ClientHost {
        let client = || ClientHost { host: host.to_owned(), server: server.to_owned(), ..ClientHost::default() };
        self.clients.entry((host.to_owned(), server.to_owned())).or_insert_with(client)
    }

    /// Adds the data that another thread has read.
    pub fn merge(&mut self, other: Self) {
        self.seen.extend(other.seen);
        for (key, client) in other.clients {
            match self.clients.get_mut(&key) {
                Some(mine) => {
                    mine.seen.extend(client.seen);
                    mine.kinds.extend(client.kinds);
                    mine.sources.extend(client.sources);
                }
                None => _ = self.clients.insert(key, client),
            }
        }
        for (host, groups) in other.hosts {
            self.hosts.entry(host).or_default().extend(groups);
        }
        for (key, normal) in other.normals {
            let known = self.normals.entry(key).or_default();
            if normal.0 > known.0 {
                *known = normal;
            }
        }
        self.summarised.extend(other.summarised);
        self.local += other.local;
    }

    /// The input of the verdict: the data of the time between `from` and `to`, with these groups.
    pub fn fleet(self, (from, to): (Millis, Millis), groups: &Groups) -> Fleet {
        // An incident may have several bundles. The one that was written last counts.
        let mut newest: BTreeMap<(String, String, String), ServerIncident> = BTreeMap::new();
        for one in self.seen.into_iter().filter(|one| one.sighting.to >= from && one.sighting.from <= to) {
            let HostSighting { host, server, incident, .. } = &one.sighting;
            let key = (host.clone(), server.clone(), incident.clone());
            let is_newer = newest.get(&key).is_none_or(|known| {
                (known.sighting.to, !known.sighting.is_open) <= (one.sighting.to, !one.sighting.is_open)
            });
            if is_newer {
                newest.insert(key, one);
            }
        }
        let normals = self.normals;
        let sighting = |one: ServerIncident| {
            let ServerIncident { sighting, operation } = one;
            let key = (sighting.host.clone(), sighting.server.clone(), operation);
            let normal_ms = sighting.normal_ms.or_else(|| normals.get(&key).map(|(_, ms)| *ms));
            HostSighting { normal_ms: normal_ms.filter(|_| sighting.slow_ms.is_some()), ..sighting }
        };
        let sightings = newest.into_values().map(sighting).collect();
        let hosts = self.hosts;
        let clients: Vec<ClientHost> = self.clients.into_values().map(joined).collect();
        let names: BTreeSet<String> = clients.iter().map(|client| client.host.clone()).collect();
        let groups = groups.of(names.into_iter().map(|host| {
            let known = hosts.get(&host).cloned().unwrap_or_default();
            (host, known)
        }));
        Fleet { sightings, clients, groups }
    }
}

/// Joins overlapping periods of a client.
fn joined(mut client: ClientHost) -> ClientHost {
    client.seen.sort_unstable();
    let mut spans: Vec<(Millis, Millis)> = Vec::new();
    for (from, to) in client.seen.drain(..) {
        match spans.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => spans.push((from, to)),
        }
    }
    ClientHost { seen: spans, ..client }
}

/// The servers of an incident, each with its mounts.
fn servers(incident: &Incident) -> BTreeMap<String, Vec<&RankedMount>> {
    let all: f64 = incident.top.mounts.iter().map(|mount| mount.share.total_ms.max(0.0)).sum();
    let mut servers: BTreeMap<String, Vec<&RankedMount>> = BTreeMap::new();
    for mount in incident.top.mounts.iter().take(MOST).filter(|mount| !mount.mount.server.is_empty()) {
        servers.entry(server_name(&mount.mount.server)).or_default().push(mount);
    }
    let time = |mounts: &[&RankedMount]| mounts.iter().map(|mount| mount.share.total_ms.max(0.0)).sum::<f64>();
    servers.retain(|_, mounts| time(mounts) >= SHARE * all);
    servers
}

/// The kind of an operation; `None` if applications do not request it.
pub fn kind(probe: &str, operation: &str) -> Option<OperationKind> {
    let protocol = probes::protocol(probe)?;
    if protocol.level >= Level::Transport {
        return None;
    }
    Some(match (protocol.direction)(operation) {
        Some(Direction::Read) => OperationKind::Reads,
        Some(Direction::Written) => OperationKind::Writes,
        None => OperationKind::Others,
    })
}

fn kinds(incident: &Incident) -> BTreeMap<OperationKind, f64> {
    let mut kinds: BTreeMap<OperationKind, f64> = BTreeMap::new();
    for top in &incident.top.operations {
        if let Some(kind) = kind(&incident.anomaly.probe, &top.operation) {
            *kinds.entry(kind).or_default() += top.share.total_ms.max(0.0);
        }
    }
    let all: f64 = kinds.values().sum();
    kinds.values_mut().for_each(|time| *time /= all.max(f64::MIN_POSITIVE));
    kinds
}

/// The mean duration of the incident's main kind of operation, if the incident is about durations.
fn slow_ms(incident: &Incident) -> Option<f64> {
    let is_about_time = ![error::KIND, connection::KIND].contains(&incident.anomaly.kind.as_ref());
    let top = incident.top.operations.first().filter(|top| is_about_time && top.share.count > 0)?;
    Some(top.share.total_ms / top.share.count as f64).filter(|ms| ms.is_finite() && *ms >= 0.0)
}
