//! What is read of directories and of incidents.

use std::{fs, path::Path};

use diagnose::fleet::{Fleet, Millis, OperationKind};
use model::{Anomaly, Cause, Host, Incident, Mount, RankedMount, RankedOperation, Ranking, Share, Verdict};
use proptest::prelude::*;

use super::{FleetMaterial, Groups, folder};

fn incident(host: &str, servers: &[&str]) -> Incident {
    let mount = |server: &&str| RankedMount {
        mount: Mount { server: (*server).into(), source: format!("{server}:/x"), ..Mount::default() },
        share: Share { count: 10, total_ms: 100.0 },
        ..RankedMount::default()
    };
    let operation =
        |name: &str, total_ms| RankedOperation { operation: name.into(), share: Share { count: 10, total_ms } };
    Incident {
        id: "20261124T100203Z-nfs-latency-1".into(),
        first_seen: "2026-11-24T10:02:00Z".into(),
        last_seen: "2026-11-24T10:05:00Z".into(),
        anomaly: Anomaly { probe: "nfs".into(), kind: "latency".into(), ..Anomaly::default() },
        verdict: Verdict { cause: Some(Cause::SlowServer), confidence: 0.9, ..Verdict::default() },
        top: Ranking {
            mounts: servers.iter().map(mount).collect(),
            operations: vec![operation("READ", 750.0), operation("WRITE", 250.0)],
            ..Ranking::default()
        },
        host: Host { name: host.into(), addresses: vec!["10.1.0.7/24".into()], ..Host::default() },
        ..Incident::default()
    }
}

fn bundle(path: &Path, files: &[(&str, Vec<u8>)]) {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        archive.append_data(&mut header, name, data.as_slice()).unwrap();
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = zstd::stream::write::Encoder::new(fs::File::create(path).unwrap(), 1).unwrap();
    encoder.window_log(20).unwrap();
    std::io::Write::write_all(&mut encoder, &archive.into_inner().unwrap()).unwrap();
    encoder.finish().unwrap();
}

fn all(material: FleetMaterial) -> Fleet {
    material.fleet((Millis::MIN, Millis::MAX), &Groups::default())
}

const SUMMARY: &str = r#"{"from": "2026-11-24T00:00:00Z", "to": "2026-11-24T12:00:00Z", "mounts": [{"server": "S2", "source": "s2:/y",
    "operations": [{"probe": "nfs", "operation": "READ", "count": 5, "p50_ms": 3.0}]}]}"#;

#[test]
fn an_incident_is_told_of_each_of_its_servers_with_what_was_slow() {
    let mut material = FleetMaterial::default();
    assert!(material.incident(&incident("a", &["S1", "[fd00::1]"])));
    assert!(material.incident(&incident("b", &[])));
    assert_eq!(material.local, 1);
    let fleet = all(material);
    let servers: Vec<_> = fleet.sightings.iter().map(|one| one.server.as_str()).collect();
    assert_eq!(servers, ["fd00::1", "s1"]);
    let one = &fleet.sightings[1];
    assert_eq!(
        (one.kinds[&OperationKind::Reads], one.slow_ms, one.normal_ms, one.source.as_str()),
        (0.75, Some(75.0), None, "S1:/x")
    );
    assert_eq!(fleet.groups["a"].iter().next().unwrap().value, "10.1.0.0/24");
}

#[test]
fn an_incident_that_says_neither_when_nor_where_is_refused() {
    for wrong in [
        Incident::default(),
        Incident { host: Host::default(), ..incident("a", &["s"]) },
        Incident { last_seen: "x".into(), ..incident("a", &["s"]) },
    ] {
        assert!(!FleetMaterial::default().incident(&wrong));
    }
}

#[test]
fn a_bundle_that_is_there_twice_is_one_and_the_newer_one_counts() {
    let mut material = FleetMaterial::default();
    let open = incident("a", &["s"]);
    material.incident(&Incident { last_seen: "2026-11-24T10:07:00Z".into(), closed: true, ..open.clone() });
    material.incident(&open);
    let fleet = all(material);
    assert_eq!((fleet.sightings.len(), fleet.sightings[0].is_open), (1, false));
}

#[test]
fn a_summary_of_before_belongs_to_the_host_of_the_bundles_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let json = |incident: &Incident| serde_json::to_vec(incident).unwrap();
    bundle(
        &path("one/incidents/20261124T100203Z-nfs-latency-1.tar.zst"),
        &[("incident.json", json(&incident("a", &["s1"])))],
    );
    for folder in ["one", "two"] {
        fs::create_dir_all(path(folder).join("summaries")).unwrap();
        fs::write(path(folder).join("summaries/2026-11-24.json"), SUMMARY).unwrap();
    }
    // Without files of its own, a host has the summary of its newest bundle.
    let old = [
        ("incident.json", json(&incident("c", &["s2"]))),
        ("events.jsonl", vec![]),
        ("summary.json", format!("[{SUMMARY}]").into_bytes()),
    ];
    bundle(&path("three/incidents/20261124T100203Z-nfs-latency-1.tar.zst"), &old);
    let read = folder::read(dir.path(), Millis::MAX).unwrap();
    assert_eq!((read.understood, read.damaged, read.notes.lines().count()), (4, 0, 0));
    let fleet = all(read.material);
    let clients: Vec<_> = fleet.clients.iter().map(|client| (client.host.as_str(), client.server.as_str())).collect();
    assert_eq!(clients, [("a", "s1"), ("a", "s2"), ("c", "s2"), ("two", "s2")]);
    let one = &fleet.clients[2];
    let hour: Millis = 3_600_000;
    assert_eq!((one.kinds.len(), one.seen[0].1 - one.seen[0].0), (1, 13 * hour));
    assert_eq!(fleet.sightings.iter().find(|one| one.host == "c").unwrap().normal_ms, Some(3.0));
}

#[test]
fn what_began_too_late_is_not_even_opened() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("20261124T100203Z-nfs-latency-1.tar.zst"), "damaged").unwrap();
    let until = |time: &str| super::material::millis(time).unwrap();
    assert_eq!(folder::read(dir.path(), until("2026-11-24T10:02:02Z")).unwrap().damaged, 0);
    assert_eq!(folder::read(dir.path(), until("2026-11-24T10:02:03Z")).unwrap().damaged, 1);
}

proptest! {
    #[test]
    fn no_file_breaks_it(name in "[a-z]{1,3}(\\.tar\\.zst|\\.jsonl|\\.json|)", folder in "(summaries|x)", content in prop::collection::vec(any::<u8>(), 0..200), like_ours: bool) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(&folder)).unwrap();
        let content = if like_ours { [b"{\"resourceLogs\": [{\"plumbline.incident.id\"".as_slice(), &content].concat() } else { content };
        fs::write(dir.path().join(&folder).join(&name), content).unwrap();
        let read = folder::read(dir.path(), Millis::MAX).unwrap();
        prop_assert!(all(read.material).sightings.is_empty());
    }
}
