use std::{
    fs,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use model::{Cause, EventLine, Host, Incident, Layer};

use super::{join, print};

/// A bundle with these files.
fn bundle(folder: &Path, name: &str, host: &Host, files: &[(&str, Vec<EventLine<'static>>)]) -> PathBuf {
    let incident = Incident { id: format!("{name}-1"), host: host.clone(), ..Incident::default() };
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        archive.append_data(&mut header, name, content).unwrap();
    };
    add("incident.json", &serde_json::to_vec(&incident).unwrap());
    for (name, lines) in files {
        let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        add(name, text.as_bytes());
    }
    let path = folder.join(name);
    fs::write(&path, zstd::encode_all(archive.into_inner().unwrap().as_slice(), 1).unwrap()).unwrap();
    path
}

fn time(ms: i64) -> String {
    let start: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    format!("{:.6}", start + SignedDuration::from_millis(ms))
}

fn line(probe: &'static str, at: i64, phases: [f64; 3], xid: u64) -> EventLine<'static> {
    EventLine {
        time: time(at),
        probe: probe.into(),
        operation: "WRITE".into(),
        duration_ms: phases.iter().sum(),
        queue_ms: Some(phases[0]),
        wire_ms: Some(phases[1]),
        deliver_ms: Some(phases[2]),
        xid: Some(xid),
        connection: if probe == "server" { 0x0a01_0001 } else { 1 },
        ..EventLine::default()
    }
}

/// Twenty requests: the client waited for 62 ms for each, the server had it for `waited` and `executed`.
fn ends(folder: &Path, [waited, executed]: [f64; 2]) -> [PathBuf; 2] {
    let host = |name: &str, address: &str| Host {
        name: name.into(),
        plumbline: "1.0.0".into(),
        addresses: vec!["127.0.0.1/8".into(), address.into()],
        ..Host::default()
    };
    let slow = (0..20).map(|n| line("nfs", n * 100, [0.0, 62.0, 0.1], n as u64)).collect();
    let served: Vec<_> =
        (0..20).map(|n| line("server", n * 100 + 30 - 2_000, [waited, executed, 0.0], n as u64)).collect();
    // An event is in the flight recorder, too.
    let events = served.iter().take(5).cloned().collect();
    [
        bundle(folder, "client", &host("c1", "10.1.0.1/24"), &[("events.jsonl", slow)]),
        bundle(folder, "server", &host("s1", "10.2.0.2/24"), &[("events.jsonl", events), ("recorder.jsonl", served)]),
    ]
}

#[test]
fn two_bundles_tell_where_the_time_was() {
    let folder = tempfile::tempdir().unwrap();
    let [client, server] = ends(folder.path(), [0.0, 1.0]);
    let report = join(&client, &server).unwrap();
    assert_eq!((report.found, report.asked, report.server.requests), (20, 20, 20));
    assert_eq!(
        (report.verdict.layer, report.verdict.cause, report.verdict.proven),
        (Layer::Network, Some(Cause::LongerPath), true)
    );
    assert!((report.clock_offset_ms + 2_000.0).abs() < 40.0, "{}", report.clock_offset_ms);
    assert!((report.mean.network_ms - 61.0).abs() < 0.01, "{:?}", report.mean);
    let mut text = Vec::new();
    print(&mut text, &report, None).unwrap();
    let text = String::from_utf8(text).unwrap();
    for part in ["c1 (Plumbline 1.0.0)", "20 of 20 requests", "behind", "network, proven", "WRITE", "00000009"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let [client, server] = ends(folder.path(), [50.0, 10.0]);
    let report = join(&client, &server).unwrap();
    assert_eq!((report.verdict.layer, report.verdict.cause), (Layer::Server, Some(Cause::NoThread)));
}

#[test]
fn what_is_no_pair_of_ends_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let [client, server] = ends(folder.path(), [0.0, 1.0]);
    let refused = |one: &Path, other: &Path| format!("{:#}", join(one, other).unwrap_err());
    assert!(refused(&server, &client).contains("no slow NFS requests"));
    assert!(refused(&client, &client).contains("no requests that it served"));
    assert!(refused(&client, &folder.path().join("none")).contains("none"));
    let whole = fs::read(&server).unwrap();
    fs::write(&server, &whole[..whole.len() / 2]).unwrap();
    assert!(!refused(&client, &server).is_empty());
    fs::write(&server, b"no bundle").unwrap();
    assert!(refused(&client, &server).contains("server"));
}
