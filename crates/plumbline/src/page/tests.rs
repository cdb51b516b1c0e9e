//! Tests of the whole page.

use std::io::Write;

use serde_json::{Value, json};

use super::*;

/// A text that no redacted page may contain. No part of it is a known word, figure or name.
const SECRET: &str = "Quuxville/10.9.8.7";

fn material(incident: &Value) -> PageMaterial {
    let mut incident: model::Incident = serde_json::from_value(incident.clone()).unwrap();
    incident.complete();
    PageMaterial::new(incident)
}

fn add(material: &mut PageMaterial, name: &str, content: &str) {
    material.file(name, content.len() as u64).write_all(content.as_bytes()).unwrap();
}

fn page_of(incident: &Value) -> String {
    material(incident).page(NamesShown::Shown)
}

/// An operation on the share that begins `after` milliseconds after noon.
fn line(after: u32, took: f64) -> Value {
    json!({"time": format!("2026-03-01T12:00:{:02}.{:03}000Z", after / 1_000, after % 1_000), "probe": "smb", "operation": "SMB2_WRITE",
        "duration_ms": took, "mountpoint": "/mnt/a", "source": "//srv/a", "server": "srv", "tid": after})
}

fn lines(lines: impl Iterator<Item = Value>) -> String {
    lines.map(|line| format!("{line}\n")).collect()
}

fn an_incident() -> Value {
    json!({"id": "20260301T120011Z-smb-latency-1", "window": {"from": "2026-03-01T12:00:10Z", "to": "2026-03-01T12:00:12Z"},
        "first_seen": "2026-03-01T12:00:10Z", "last_seen": "2026-03-01T12:00:12Z",
        "anomaly": {"name": "smb_latency", "type": "latency", "probe": "smb"}, "operations": 10, "state": "closed",
        "top": {"operations": [{"operation": "SMB2_WRITE", "count": 10, "total_ms": 2000.0}],
            "mounts": [{"mountpoint": "/mnt/a", "source": "//srv/a", "server": "srv", "fstype": "cifs"}]}})
}

#[test]
fn a_hostile_name_stays_text() {
    let evil = "</style></title><script>alert(1)</script>\" onload=\"x";
    let mut material =
        material(&json!({"id": evil, "anomaly": {"name": evil, "observed": evil}, "host": {"name": evil},
        "top": {"processes": [{"pid": 1, "comm": evil}]}, "verdict": {"because": [evil]}}));
    add(&mut material, evil, evil);
    add(
        &mut material,
        EVENTS,
        &json!({"time": "2026-03-01T12:00:00Z", "probe": "smb", "operation": evil, "comm": evil}).to_string(),
    );
    let page = material.page(NamesShown::Shown);
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && !page.contains("\" onload"));
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn an_unknown_layer_blames_nobody() {
    let page = page_of(&json!({"verdict": {"layer": "unknown", "confidence": 0.0}}));
    assert!(page.contains("The evidence does not show which layer was at fault"));
}

#[test]
fn an_incident_of_nothing_is_a_page_all_the_same() {
    let page = page_of(&json!({}));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>"), "{page}");
    assert!(page.contains("No event was lost."));
}

#[test]
fn the_timeline_has_each_operation_once_and_the_normal_before() {
    let mut material = material(&an_incident());
    let slow = || (0..10).map(|n| line(10_000 + n * 200, 200.0));
    add(&mut material, EVENTS, &lines(slow()));
    let elsewhere = json!({"time": "2026-03-01T12:00:00Z", "probe": "nfs", "operation": "READ", "duration_ms": 1.0});
    let fast = (0..100).map(|n| line(n * 100, 2.0));
    add(&mut material, "recorder.jsonl", &lines(fast.chain(slow()).chain([elsewhere, json!("no operation")])));
    add(&mut material, "after.jsonl", &lines((0..20).map(|n| line(12_500 + n * 100, 2.0))));
    let page = material.page(NamesShown::Shown);
    for said in [
        "All 130 operations",
        "Operations of other mounts or probes that are left out: 1.",
        "Lines of the bundle that could not be read: 1.",
        "instead of 2 ms (the median of the last 100 before)",
        "class=\"window\"",
        "start (UTC)",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert_eq!(page.matches("h0").count(), 130);
}

#[test]
fn a_page_stays_small_whatever_the_bundle_holds() {
    let mut material = material(&an_incident());
    add(&mut material, EVENTS, &lines((0..5_000).map(|n| line(n * 9, f64::from(n)))));
    add(&mut material, "recorder.jsonl", &lines((0..30_000).map(|n| line(n, f64::from(n % 977) / 10.0))));
    (0..100).for_each(|n| add(&mut material, &format!("{n}.txt"), &"long lines\n".repeat(1_000)));
    let page = material.page(NamesShown::Shown);
    assert!(page.len() < 400_000, "{}", page.len());
    assert!(page.contains("where dots would overlap, only the slowest"));
}

/// The same JSON with the secret in place of each string value; keys stay.
fn spoiled(value: &Value) -> Value {
    match value {
        Value::String(_) => Value::String(SECRET.into()),
        Value::Array(values) => values.iter().map(spoiled).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), spoiled(value))).collect(),
        other => other.clone(),
    }
}

/// An incident with all fields set. Add new fields here, or serde's default leaves them out of the test.
fn full_incident() -> Value {
    let call = json!({"time": "t", "probe": "syscalls", "operation": "write", "status": "s", "errno": "EIO", "mountpoint": "m", "source": "s",
        "server": "s", "fstype": "f", "comm": "c", "file": "f", "peer": "p", "caller": "c", "duration_ms": 1.0, "children_count": 1,
        "children_ms": 1.0, "meanwhile_count": 1, "children_incomplete": true, "children": [child()], "meanwhile": [child()]});
    json!({"id": "i", "detected": "d", "window": {"from": "f", "to": "t"},
        "anomaly": {"name": "n", "type": "t", "probe": "p", "rule": "r", "observed": "o", "limit": "l"},
        "verdict": {"layer": "server", "confidence": 0.9, "cause": "slow_server", "because": ["b", "c"],
            "alternatives": [{"layer": "network", "cause": "loss", "confidence": 0.1}]},
        "state": "open", "first_seen": "f", "last_seen": "l",
        "changed": [{"by": "b", "name": "n", "said": "s", "share": 1.0}, {"by": "file", "name": "n", "said": "s", "share": 1.0}],
        "waited": [{"role": "r", "comm": "c", "state": "s", "stack": ["one", "two"]}],
        "top": {"operations": [{"operation": "o", "count": 1}], "files": [{"file": "f", "inode": 1, "mountpoint": "m"}],
            "mounts": [{"mountpoint": "m", "source": "s", "server": "s", "fstype": "f", "pv": "v", "pvc": "c"}],
            "processes": [{"pid": 1, "comm": "c", "cgroup": "c", "container": "c", "job": "j", "namespace": "n", "pod": "p",
                "container_name": "c", "workload": "w"}]},
        "losses": {"smb": {"ring_full": 1}, SECRET: {"ring_full": 2}}, "also": ["a"], "calls": [call], "labels": {SECRET: "v"},
        "host": {"name": "h", "kernel": "k", "plumbline": "p"}})
}

fn child() -> Value {
    json!({"protocol": "p", "operation": "o", "status": "s", "errno": "e", "duration_ms": 1.0})
}

#[test]
fn no_secret_is_on_a_redacted_page_wherever_it_stood() {
    let secrets = || {
        let mut material = material(&spoiled(&full_incident()));
        let line = json!({"time": "2026-03-01T12:00:00Z", "probe": SECRET, "operation": SECRET, "status": SECRET, "errno": SECRET,
            "mountpoint": SECRET, "source": SECRET, "server": SECRET, "fstype": SECRET, "comm": SECRET, "file": SECRET, "peer": SECRET,
            "caller": SECRET, "container": SECRET, "job": SECRET, "namespace": SECRET, "pod": SECRET, "container_name": SECRET,
            "workload": SECRET, "pv": SECRET, "pvc": SECRET, "srtt_ms": 1.0, "retransmits": 1});
        let mut happening = line.clone();
        happening["probe"] = "connections".into();
        add(&mut material, EVENTS, &lines([line.clone(), happening].into_iter()));
        add(&mut material, "recorder.jsonl", &lines([line].into_iter()));
        add(&mut material, SECRET, SECRET);
        add(&mut material, "dmesg.txt", SECRET);
        let action = json!({"action": SECRET, "file": SECRET, "command": SECRET, "status": SECRET, "error": SECRET});
        let lost = json!({"action": SECRET, "command": SECRET, "status": SECRET, "error": SECRET});
        add(&mut material, "manifest.json", &json!([action, lost]).to_string());
        material
    };
    let shown = secrets().page(NamesShown::Shown);
    assert!(shown.matches(SECRET).count() > 40, "the test must show secrets where nothing is redacted: {shown}");
    let redacted = secrets().page(NamesShown::Redacted);
    for part in [SECRET, "Quux", "10.9.8"] {
        assert!(!redacted.contains(part), "{part}: {redacted}");
    }
}

#[test]
fn sentences_lose_names_that_stand_in_them_and_nothing_else() {
    let mut incident = an_incident();
    incident["anomaly"]["observed"] = "37 operations, slowest 204 ms (SMB2_WRITE) on /mnt/a".into();
    incident["verdict"]["because"] = json!(["The server srv at 10.0.0.1 (//srv/a) is slow with /home/quux."]);
    let page = material(&incident).page(NamesShown::Redacted);
    assert!(page.contains("37 operations, slowest 204 ms (SMB2_WRITE) on mount-1"), "{page}");
    assert!(page.contains("The server server-1 at text-1 (source-1) is slow with text-2."), "{page}");
    assert!(page.contains("20260301T120011Z-smb-latency-1") && page.contains("2026-03-01 12:00:10 UTC"));
}
