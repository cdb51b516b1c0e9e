//! Fleets of fifty hosts, each with a recording of a real client. Some hosts have a fault, whose cause and hosts must be found.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use diagnose::fleet::{FleetCause, JudgedEpisode, Millis, OperationKind, judge};
use jiff::Timestamp;
use model::{Host, Incident};

use super::{FleetMaterial, Groups, report};
use crate::{cli::incidents_of_recording, summary::KeptSummary};

const SERVER: [&str; 9] = [
    "server-quota-200",
    "server-hog",
    "server-hog-128k",
    "slow-disk-30",
    "frozen-server",
    "frozen-server-2s",
    "nfsd-1-thread",
    "slow-names-60",
    "server-quota-500",
];
const WRITES: [&str; 8] = [
    "slow-write-100",
    "slow-write-100-mix",
    "slow-write-60-backup",
    "slow-write-60-seal-v3",
    "slow-write-60-sign-v4.0",
    "slow-smbd-write-60",
    "slow-write-100-burst",
    "slow-write-60-4k",
];
const NETWORK: [&str; 9] = [
    "delay-20",
    "delay-50",
    "delay-100",
    "delay-down-50",
    "loss-4",
    "jitter-20",
    "rate-down-4m",
    "rate-up-2m",
    "delay-40-names",
];
const CLIENT: [&str; 7] =
    ["receiver-hog", "receiver-quota", "own-queue-100", "own-queue-30", "requester-quota", "few-slots", "own-drops-in"];
const HEALTHY: [&str; 5] = ["healthy-steady", "healthy-backup", "healthy-build", "healthy-bursts", "healthy-4k"];

const HOSTS: usize = 50;
const RACKS: usize = 5;
const DRAWS: usize = 100;
const DAY: Millis = 86_400_000;

/// The incidents of a recording, and when its fault began.
type Replayed = HashMap<&'static str, (Vec<Incident>, f64)>;

/// xorshift64*, so that the draws are the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }
}

/// The fault of a fleet, and the expected verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FleetFault {
    Server,
    Writes,
    Front,
    Rack,
    Host,
    None,
}

struct SimulatedClient {
    name: String,
    rack: usize,
    writes: bool,
    /// Whether the host uses the second server, too.
    both: bool,
    /// Whether the host has summaries.
    is_known: bool,
}

fn replay() -> Replayed {
    let faults = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/faults");
    let all: BTreeSet<&str> = [&SERVER[..], &WRITES, &NETWORK, &CLIENT, &HEALTHY].concat().into_iter().collect();
    let one = |name: &'static str| {
        let path = faults.join(format!("recordings/6.12/{name}.plumbrec"));
        let incidents = incidents_of_recording(&path, &faults.join("rules.yaml")).unwrap();
        let done = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let done: serde_json::Value = serde_json::from_str(&done).unwrap();
        let is_healthy = HEALTHY.contains(&name);
        assert_eq!(incidents.is_empty(), is_healthy, "{name} has {} incidents", incidents.len());
        (name, (incidents, done["fault_from"].as_f64().unwrap_or(0.0)))
    };
    let (threads, names) = (2, all.into_iter().collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let work = names.chunks(names.len().div_ceil(threads));
        let work: Vec<_> =
            work.map(|part| scope.spawn(move || part.iter().map(|name| one(name)).collect::<Vec<_>>())).collect();
        work.into_iter().flat_map(|work| work.join().unwrap()).collect()
    })
}

fn clients(draw: &mut Draw) -> Vec<SimulatedClient> {
    let client = |number: usize| SimulatedClient {
        name: format!("c{number:02}"),
        rack: number % RACKS,
        writes: !draw.chance(30),
        both: draw.chance(80),
        is_known: !draw.chance(10),
    };
    (0..HOSTS).map(client).collect()
}

impl SimulatedClient {
    fn host(&self) -> Host {
        let address = format!("10.{}.0.{}/24", self.rack, self.name.get(1..).unwrap());
        Host { name: self.name.clone(), addresses: vec![address], ..Host::default() }
    }

    /// The summary of the host's daemon for this day.
    fn summary(&self, day: Millis) -> KeptSummary {
        let operations: &[&str] = if self.writes { &["READ", "WRITE", "OPEN"] } else { &["READ", "OPEN"] };
        let operations: Vec<_> = operations
            .iter()
            .map(|name| serde_json::json!({"probe": "nfs", "operation": name, "count": 5000, "p50_ms": 2.0}))
            .collect();
        let servers: &[&str] = if self.both { &["nfs1", "nfs2"] } else { &["nfs1"] };
        let mounts: Vec<_> = servers
            .iter()
            .map(|server| serde_json::json!({"mountpoint": "/data", "source": format!("{server}:/data"), "server": server, "operations": operations}))
            .collect();
        let summary = serde_json::json!({"from": report::time(day), "to": report::time(day + DAY), "mounts": mounts});
        serde_json::from_value(summary).unwrap()
    }

    /// The incidents of a recording as if they were this host's and its fault had begun at that time.
    fn incidents(&self, (incidents, fault): &(Vec<Incident>, f64), at: Millis, servers: [&str; 2]) -> Vec<Incident> {
        let later = at - (fault * 1e3) as Millis;
        let moved = |time: &str| report::time(time.parse::<Timestamp>().unwrap().as_millisecond() + later);
        let one = |incident: &Incident| {
            let mut incident = incident.clone();
            (incident.first_seen, incident.last_seen) = (moved(&incident.first_seen), moved(&incident.last_seen));
            incident.id = format!("{} at {at}", incident.id);
            for ranked in &mut incident.top.mounts {
                let server = servers[usize::from(ranked.mount.server == "10.2.0.2")];
                (ranked.mount.server, ranked.mount.source) = (server.to_owned(), format!("{server}:/data"));
            }
            incident.host = self.host();
            incident
        };
        incidents.iter().map(one).collect()
    }

    fn both(&self) -> [&'static str; 2] {
        if self.both { ["nfs1", "nfs2"] } else { ["nfs1", "nfs1"] }
    }
}

/// One fleet: its verdicts, the hosts with the fault, and the hosts with another fault at another time.
fn fleet(
    draw: &mut Draw,
    replayed: &Replayed,
    fault: FleetFault,
) -> (Vec<JudgedEpisode>, BTreeSet<String>, Vec<String>, Millis) {
    let day: Millis = 1_764_115_200_000;
    let at = day + 36_000_000 + draw.below(3_600_000) as Millis;
    let clients = clients(draw);
    let mut material = FleetMaterial::default();
    for client in clients.iter().filter(|client| client.is_known) {
        material.summary(&client.summary(day), &client.host());
    }
    let (rack, one) = (draw.below(RACKS), draw.below(HOSTS));
    let mut hit = BTreeSet::new();
    for (number, client) in clients.iter().enumerate() {
        // A host that asks the server for nothing at that time notices nothing.
        let is_busy = !draw.chance(20);
        let (recordings, servers): (&[&str], _) = match fault {
            FleetFault::Server if is_busy => (&SERVER, ["nfs1"; 2]),
            FleetFault::Writes if is_busy && client.writes => (&WRITES, ["nfs1"; 2]),
            FleetFault::Front if is_busy => (&NETWORK, ["nfs1"; 2]),
            FleetFault::Rack if is_busy && client.rack == rack => (&NETWORK, client.both()),
            FleetFault::Host if number == one => (&CLIENT, client.both()),
            _ => (&HEALTHY, ["nfs1"; 2]),
        };
        let name = draw.one(recordings);
        let clock = draw.below(2_000) as Millis - 1_000;
        for incident in client.incidents(&replayed[name], at + clock, servers) {
            assert!(material.incident(&incident));
            hit.insert(client.name.clone());
        }
    }
    let others = if fault == FleetFault::None { 0 } else { 3 };
    let mut alone = Vec::new();
    for number in 0..others {
        let client = &clients[draw.below(HOSTS)];
        let name = draw.one(&CLIENT);
        for incident in client.incidents(&replayed[name], at + (number + 1) * 7_200_000, client.both()) {
            assert!(material.incident(&incident));
        }
        alone.push(client.name.clone());
    }
    let fleet = material.fleet((0, Millis::MAX), &Groups::default());
    (judge(&fleet), hit, alone, at)
}

fn is_right(
    judged: &[JudgedEpisode],
    fault: FleetFault,
    hit: &BTreeSet<String>,
    alone: &[String],
    at: Millis,
) -> Result<(), String> {
    let names = |one: &JudgedEpisode| one.scene.affected.iter().map(|host| host.name.clone()).collect::<BTreeSet<_>>();
    let told = |one: &JudgedEpisode| {
        let conclusion = &one.conclusion;
        let of = names(one);
        format!(
            "{:?} {:?} {} of {:?}: {:?} {:?}",
            conclusion.cause,
            conclusion.group,
            of.len(),
            one.servers,
            conclusion.alternatives,
            conclusion.because
        )
    };
    let is_meant = |one: &&JudgedEpisode| (one.scene.from - at).abs() < 1_800_000;
    let (meant, others): (Vec<_>, Vec<_>) = judged.iter().partition(is_meant);
    let wrong: Vec<_> = others
        .iter()
        .filter(|one| one.conclusion.cause != Some(FleetCause::Hosts) || !alone.contains(&one.scene.affected[0].name))
        .map(|one| told(one))
        .collect();
    if !wrong.is_empty() || others.len() != alone.len() {
        return Err(format!("beside it: {wrong:?}, {} of {}", others.len(), alone.len()));
    }
    let cause = match (fault, meant.as_slice()) {
        (FleetFault::None, []) => return Ok(()),
        (FleetFault::Server, [_]) => FleetCause::Server,
        (FleetFault::Writes, [_]) => FleetCause::ServerOperation,
        (FleetFault::Front, [_]) => FleetCause::Front,
        (FleetFault::Rack, [_]) => FleetCause::GroupNetwork,
        (FleetFault::Host, [_]) => FleetCause::Hosts,
        (_, several) => {
            return Err(format!(
                "{} episodes: {:?}",
                several.len(),
                several.iter().map(|one| told(one)).collect::<Vec<_>>()
            ));
        }
    };
    let one = meant[0];
    let is_kind = cause != FleetCause::ServerOperation || one.conclusion.kind == Some(OperationKind::Writes);
    if one.conclusion.cause == Some(cause) && is_kind && names(one) == *hit { Ok(()) } else { Err(told(one)) }
}

#[test]
fn of_a_hundred_fleets_with_one_cause_the_right_one_is_named_with_the_right_hosts() {
    let replayed = replay();
    let mut draw = Draw(0x5eed_0001);
    let faults = [
        FleetFault::Server,
        FleetFault::Writes,
        FleetFault::Front,
        FleetFault::Rack,
        FleetFault::Host,
        FleetFault::None,
    ];
    let (mut right, mut sure, mut by_fault) = (0, Vec::new(), BTreeMap::<String, (usize, usize)>::new());
    for number in 0..DRAWS {
        let fault = faults[number % faults.len()];
        let (judged, hit, alone, at) = fleet(&mut draw, &replayed, fault);
        let result = is_right(&judged, fault, &hit, &alone, at);
        let counted = by_fault.entry(format!("{fault:?}")).or_default();
        counted.1 += 1;
        match result {
            Ok(()) => (right, counted.0) = (right + 1, counted.0 + 1),
            Err(why) => {
                eprintln!("draw {number}, {fault:?} in {} hosts: {why}", hit.len());
                // A wrong verdict with high confidence would be the worst result.
                let meant = judged.iter().filter(|one| (one.scene.from - at).abs() < 1_800_000);
                sure.extend(meant.filter(|one| one.conclusion.cause.is_some()).map(|_| number));
            }
        }
    }
    eprintln!("right: {right} of {DRAWS} fleets {by_fault:?}; wrong though sure: {sure:?}");
    assert!(right >= 95, "{right} of {DRAWS}");
}
