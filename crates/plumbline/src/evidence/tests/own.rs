//! Actions of the operator's own: what they get, what they may take, and labels.

use super::*;

/// Runs actions, and returns the manifest's records by action, and the bundle's parts.
fn run(actions: Vec<ActionSpec>) -> (BTreeMap<String, serde_json::Value>, BTreeMap<String, Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let done = one(&collector, request(&id(1), vec![text("events.jsonl", "")], actions));
    let path = written(&done);
    let records = manifest(path).into_iter().map(|record| (record["action"].as_str().unwrap().to_owned(), record));
    (records.collect(), unpack(path))
}

fn labels_of(parts: &BTreeMap<String, Vec<u8>>) -> serde_json::Value {
    serde_json::from_slice::<serde_json::Value>(&parts["incident.json"]).unwrap()["labels"].clone()
}

#[test]
fn an_action_has_the_incident_on_its_standard_input() {
    let (records, parts) = run(vec![shell("mine", "cat")]);
    assert_eq!(records["mine"]["status"], "ok");
    let message: serde_json::Value = serde_json::from_slice(&parts["mine.txt"]).unwrap();
    assert_eq!(message["event"], "opened");
    assert_eq!(message["incident"]["id"], id(1).as_str());
    assert!(message["bundle"].as_str().unwrap().ends_with(&format!("/incidents/{}", id(1).bundle())), "{message}");
    assert!(message["text"].as_str().unwrap().starts_with("Plumbline on "), "{message}");
}

#[test]
fn actions_label_the_incident_and_add_files() {
    let (records, parts) = run(vec![
        shell("ticket", r#"echo ticket=4711 >> "$PLUMBLINE_LABELS"; echo opened a ticket"#),
        shell("team", r#"sh -c 'printf "team=storage\nfloor=2" > "$PLUMBLINE_LABELS"'; exit 3"#),
        action("dmesg", &[]),
    ]);
    assert_eq!(labels_of(&parts), serde_json::json!({"floor": "2", "team": "storage", "ticket": "4711"}));
    assert_eq!(parts["ticket.txt"], b"opened a ticket\n");
    // One that fails may have said something all the same.
    assert_eq!((&records["team"]["status"], &records["team"]["exit_code"]), (&"failed".into(), &3.into()));
    let page = String::from_utf8_lossy(&parts["report.html"]).into_owned();
    assert!(page.contains("<th>Label</th><td>ticket: 4711</td>"), "{page}");
    // Without labels, there is no such field.
    assert_eq!(labels_of(&run(vec![shell("none", "true")]).1), serde_json::Value::Null);
}

#[test]
fn wrong_labels_are_told_and_the_others_stay() {
    let (records, parts) = run(vec![shell("mine", r#"printf 'a=1\nno label\n' > "$PLUMBLINE_LABELS""#)]);
    assert_eq!(labels_of(&parts), serde_json::json!({"a": "1"}));
    assert_eq!(records["mine"]["status"], "failed");
    assert_eq!(records["mine"]["error"], "line 2 of the labels: it has no `=`; write key=value");
}

#[test]
fn labels_survive_updates_of_the_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let mine = shell("mine", r#"echo ticket=4711 > "$PLUMBLINE_LABELS""#);
    one(&collector, request(&id(1), vec![text("events.jsonl", "1")], vec![mine]));
    // Whoever updates the incident may not know of its labels yet.
    let incident = Incident { id: id(1).as_str().into(), closed: true, ..Incident::default() };
    collector.update(id(1), incident.clone(), vec![text("events.jsonl", "2")], None).unwrap();
    let done = answers(&collector, 1).remove(0);
    let BundleOutcome::Written { path, labels, .. } = &done.outcome else { panic!("{done:?}") };
    assert_eq!(labels.get("ticket").map(String::as_str), Some("4711"));
    let parts = unpack(path);
    assert_eq!(labels_of(&parts), serde_json::json!({"ticket": "4711"}));
    let written_then: serde_json::Value = serde_json::from_slice(&parts["incident.json"]).unwrap();
    assert_eq!((&written_then["closed"], parts["events.jsonl"].as_slice()), (&true.into(), &b"2"[..]));
    // What another rule collects into the same bundle adds to them.
    let team = shell("team", r#"echo team=storage > "$PLUMBLINE_LABELS""#);
    let part =
        BundleAddition { rule: "closer".into(), actions: vec![team], cuts: vec![], scope: IncidentScope::default() };
    collector.update(id(1), incident, vec![], Some(part)).unwrap();
    let parts = unpack(written(&answers(&collector, 1).remove(0)));
    assert_eq!(labels_of(&parts), serde_json::json!({"team": "storage", "ticket": "4711"}));
}

#[test]
fn endless_labels_are_cut_and_keep_nobody_waiting() {
    let (records, parts) = run(vec![
        shell(
            "flood",
            r#"i=0; while [ $i -lt 3000 ]; do echo "key=0123456789012345678901234567890123456789"; i=$((i+1)); done > "$PLUMBLINE_LABELS""#,
        ),
        shell("fine", "echo hi"),
    ]);
    assert_eq!(records["flood"]["status"], "failed");
    assert_eq!(records["flood"]["error"], "labels: more than 16 KiB; what is beyond is left out");
    assert_eq!(labels_of(&parts).as_object().map(|labels| labels.len()), Some(1));
    assert_eq!(parts["fine.txt"], b"hi\n");
}

#[test]
fn an_action_has_no_more_memory_than_it_may_have_and_the_others_go_on() {
    let hungry =
        ActionSpec { memory: 24 << 20, ..shell("hungry", "head -c 100000000 /dev/zero | tail -c 90000000 | wc -c") };
    let (records, parts) = run(vec![hungry, shell("fine", "echo hi")]);
    let output = String::from_utf8_lossy(&parts["hungry.txt"]).into_owned();
    assert!(output.contains("memory") && !output.contains("90000000"), "{output}");
    assert_eq!((&records["fine"]["status"], parts["fine.txt"].as_slice()), (&"ok".into(), &b"hi\n"[..]));
    let (_, parts) = run(vec![shell("first", "cat /proc/self/oom_score_adj; ulimit -c")]);
    assert_eq!(parts["first.txt"], b"1000\n0\n");
}

#[test]
fn an_action_that_starts_too_many_processes_is_killed_with_all_of_them() {
    let marker = format!("{}.71", std::process::id());
    let script = format!("i=0; while [ $i -lt 60 ]; do sleep {marker} & i=$((i+1)); done; wait");
    let (records, parts) = run(vec![shell("forks", &script), shell("fine", "echo hi")]);
    assert_eq!(records["forks"]["status"], "failed");
    let error = "it had more than 32 processes at a time: it is killed, and what it has started";
    assert_eq!(records["forks"]["error"], error);
    wait_until("no process of it is left", || !super::commands::runs(&marker));
    assert_eq!(parts["fine.txt"], b"hi\n");
    // As many as it may have.
    let (records, _) = run(vec![shell("some", "i=0; while [ $i -lt 25 ]; do sleep 0.3 & i=$((i+1)); done; wait")]);
    assert_eq!(records["some"]["status"], "ok", "{records:?}");
}
