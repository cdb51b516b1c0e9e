//! What is in a bundle, and when there is one.

use crate::evidence::collector::Refused;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

use super::*;

#[test]
fn a_bundle_holds_the_incident_the_attachments_and_every_action() {
    let dir = tempfile::tempdir().unwrap();
    // However many processes and sockets this machine has.
    let collector = Collector::start(Settings { output_cap: 64 << 20, ..settings(dir.path()) }).unwrap();
    let id = collector.next_id("2025-11-20T10:24:14Z".parse().unwrap(), "smb", "latency");
    assert_eq!(id.as_str(), "20251120T102414Z-smb-latency-1");
    let actions = ["dmesg", "mounts", "processes", "sockets"].map(|name| action(name, &[])).to_vec();
    let done = one(&collector, request(&id, vec![text("events.jsonl", "{}\n".repeat(10_000))], actions));
    let path = written(&done);
    assert_eq!(path, incidents(&dir).join("20251120T102414Z-smb-latency-1.tar.zst"));
    let parts = unpack(path);
    let names: Vec<&str> = parts.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "dmesg.txt",
            "events.jsonl",
            "incident.json",
            "manifest.json",
            "mounts.txt",
            "processes.txt",
            "report.html",
            "sockets.txt"
        ]
    );
    assert_eq!(parts["events.jsonl"].len(), 30_000);
    let incident: serde_json::Value = serde_json::from_slice(&parts["incident.json"]).unwrap();
    assert_eq!(incident["id"], id.as_str());
    for record in manifest(path) {
        assert_eq!((&record["status"], &record["truncated"]), (&"ok".into(), &false.into()), "{record}");
        assert_eq!(record["bytes"], parts[record["file"].as_str().unwrap()].len(), "{record}");
    }
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(incidents(&dir)).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(listing(dir.path()).len(), 1);
}

#[test]
fn every_built_in_action_ends_and_says_how() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let actions = ACTIONS.iter().map(|known| action(known.name, &[])).collect();
    let done = one(&collector, request(&id(1), vec![], actions));
    for record in manifest(written(&done)) {
        let failed = record["status"] == "failed";
        assert!(failed || record["status"] == "ok" || record["status"] == "truncated", "{record}");
        assert_eq!(failed, record["error"].is_string(), "{record}");
    }
    assert_eq!(manifest(written(&done)).len(), ACTIONS.len());
}

#[test]
fn the_stock_tools_can_read_a_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let done = one(&start(&dir), request(&id(1), vec![noise("events.jsonl", 3 << 20)], vec![action("mounts", &[])]));
    let Ok(tar) = std::process::Command::new("tar").arg("--zstd").arg("-tf").arg(written(&done)).output() else {
        return eprintln!("SKIPPED: tar is not installed");
    };
    if String::from_utf8_lossy(&tar.stderr).contains("zstd: Cannot exec") {
        return eprintln!("SKIPPED: zstd is not installed");
    }
    assert_eq!(
        String::from_utf8_lossy(&tar.stdout),
        "incident.json\nevents.jsonl\nmounts.txt\nmanifest.json\nreport.html\n"
    );
}

#[test]
fn hostile_action_names_stay_inside_the_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["../../etc/passwd", "a\nb\x1b[2J", "", "....", "../../etc/passwd", "Ünï", "_.2"];
    let actions = names.iter().map(|name| action(name, &["echo", "hi"])).collect();
    let done = one(&start(&dir), request(&id(1), vec![], actions));
    let parts = unpack(written(&done));
    let names: Vec<&str> = parts.keys().map(String::as_str).filter(|name| name.ends_with(".txt")).collect();
    let expected = ["_.._etc_passwd.2", "_.._etc_passwd", "_.2.2", "_.2", "_", "_n_", "a_b__2J"];
    assert_eq!(names, expected.map(|name| format!("{name}.txt")));
}

#[test]
fn an_update_replaces_the_incident_and_keeps_the_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let first = request(&id(1), vec![text("events.jsonl", "one\n")], vec![shell("mine", "echo $$")]);
    let before = unpack(written(&one(&collector, first)));
    collector
        .update(
            id(1),
            Incident { windows: 7, operations: 9, ..Incident::default() },
            vec![text("events.jsonl", "one\ntwo\n")],
            None,
        )
        .unwrap();
    let done = answers(&collector, 1).remove(0);
    let after = unpack(written(&done));
    assert_eq!(after["events.jsonl"], b"one\ntwo\n");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&after["incident.json"]).unwrap()["windows"], 7);
    for kept in ["manifest.json", "mine.txt"] {
        assert_eq!(before[kept], after[kept], "{kept}");
    }
    let page = |parts: &BTreeMap<String, Vec<u8>>| String::from_utf8(parts["report.html"].clone()).unwrap();
    assert!(page(&before).contains("No event was lost") && !page(&before).contains("9 operations counted"));
    assert!(page(&after).contains("9 operations counted") && page(&after).contains("echo $$"), "the page is made anew");
    assert_eq!(after.len(), before.len());
    assert_eq!(listing(dir.path()), [id(1).bundle()]);
}

#[test]
fn an_update_with_a_part_adds_the_files_of_its_rule() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let before = unpack(written(&one(&collector, request(&id(1), vec![], vec![shell("mine", "echo first")]))));
    let actions = vec![shell("mine", "echo second"), shell("broken", "exit 3")];
    let part = BundleAddition { rule: "armed".to_owned(), actions, cuts: vec![], scope: IncidentScope::default() };
    collector.update(id(1), Incident::default(), vec![], Some(part)).unwrap();
    let after = unpack(written(&answers(&collector, 1).remove(0)));
    assert_eq!((&*after["mine.txt"], &*after["armed.mine.txt"]), (&b"first\n"[..], &b"second\n"[..]));
    let manifest = |parts: &BTreeMap<String, Vec<u8>>| {
        serde_json::from_slice::<Vec<serde_json::Value>>(&parts["manifest.json"]).unwrap()
    };
    assert_eq!(manifest(&after)[..1], manifest(&before)[..]);
    let added: BTreeMap<_, _> =
        manifest(&after)[1..].iter().map(|one| (one["file"].to_string(), one["status"].to_string())).collect();
    let expected = [("armed.mine.txt", "ok"), ("armed.broken.txt", "failed")];
    assert_eq!(added, expected.map(|(file, status)| (format!("\"{file}\""), format!("\"{status}\""))).into());
    assert!(String::from_utf8(after["report.html"].clone()).unwrap().contains("armed.mine.txt"));
}

#[test]
fn an_update_of_a_bundle_that_is_gone_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    collector.update(id(1), Incident::default(), vec![], None).unwrap();
    assert_eq!(lost(&answers(&collector, 1)[0]), LossReason::Gone);
    assert_eq!(listing(dir.path()), [""; 0]);
}

#[test]
fn a_failed_update_leaves_the_old_bundle_whole() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let path = written(&one(&collector, request(&id(1), vec![text("events.jsonl", "one\n")], vec![]))).to_owned();
    let before = fs::read(&path).unwrap();
    let broken = Attachment { name: "events.jsonl", write: Box::new(|_| Err(io::Error::other("no more"))) };
    collector.update(id(1), Incident::default(), vec![broken], None).unwrap();
    assert_eq!(lost(&answers(&collector, 1)[0]), LossReason::Io);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(listing(dir.path()), [id(1).bundle()]);
}

#[test]
fn an_attachment_that_panics_costs_its_bundle_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let broken = Attachment { name: "events.jsonl", write: Box::new(|_| panic!("this panic belongs to the test")) };
    assert_eq!(lost(&one(&collector, request(&id(1), vec![broken], vec![]))), LossReason::Panic);
    written(&one(&collector, request(&id(2), vec![], vec![])));
    assert_eq!(collector.counters().restarts, 1);
    assert_eq!(listing(dir.path()), [id(2).bundle()]);
}

#[test]
fn an_id_that_is_taken_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let path = written(&one(&collector, request(&id(1), vec![text("events.jsonl", "first")], vec![]))).to_owned();
    assert_eq!(lost(&one(&collector, request(&id(1), vec![text("events.jsonl", "second")], vec![]))), LossReason::Io);
    assert_eq!(unpack(&path)["events.jsonl"], b"first");
    assert_eq!(listing(dir.path()).len(), 1);
}

#[test]
fn numbers_go_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    written(&one(&start(&dir), request(&id(41), vec![], vec![])));
    assert_eq!(start(&dir).next_id(jiff::Timestamp::UNIX_EPOCH, "smb", "latency"), id(42));
}

#[test]
fn a_flood_of_requests_is_accepted_or_refused_and_never_waits() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { queue: 8, ..settings(dir.path()) }).unwrap();
    let (release, held) = mpsc::channel::<()>();
    let wait = Attachment { name: "events.jsonl", write: Box::new(move |_| held.recv().map_err(io::Error::other)) };
    let mut attachments = vec![wait];
    let sent: Vec<_> =
        (1..=100).map(|n| collector.submit(request(&id(n), std::mem::take(&mut attachments), vec![]))).collect();
    assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 8);
    assert_eq!(sent.iter().filter(|sent| **sent == Err(Refused::Busy)).count(), 92);
    assert_eq!(collector.counters().refused, 92);
    release.send(()).unwrap();
    // Answers that nobody reads are bounded, too.
    wait_until("the last is written", || listing(dir.path()).contains(&id(8).bundle()));
    assert_eq!(collector.submit(request(&id(101), vec![], vec![])), Err(Refused::Busy));
    assert_eq!(answers(&collector, 8).len(), 8);
    assert_eq!(listing(dir.path()).len(), 8);
    written(&one(&collector, request(&id(101), vec![], vec![])));
}

#[test]
fn a_shutdown_finishes_what_was_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let slow = ActionSpec { limits: Some((Duration::from_secs(60), 1024)), ..shell("slow", "echo begun; sleep 60") };
    for n in 1..=3 {
        collector.submit(request(&id(n), vec![text("events.jsonl", "x")], vec![slow.clone()])).unwrap();
    }
    // Commands may take three fifths of it. The rest is more than three bundles need on any host, however busy.
    let left = collector.shutdown(Duration::from_secs(25));
    assert_eq!((left.done.len(), left.unfinished), (3, 0));
    let cut = left.done.iter().map(|done| record(written(done), "slow")["status"].clone());
    assert_eq!(cut.collect::<Vec<_>>(), ["timeout", "failed", "failed"]);
}

#[test]
fn a_shutdown_that_takes_too_long_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let (begun, begins) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let write = move |_: &mut dyn Write| {
        begun.send(()).map_err(io::Error::other)?;
        held.recv().map_err(io::Error::other)
    };
    let wait = Attachment { name: "events.jsonl", write: Box::new(write) };
    collector.submit(request(&id(1), vec![wait], vec![])).unwrap();
    collector.submit(request(&id(2), vec![], vec![])).unwrap();
    begins.recv().unwrap();
    assert_eq!(listing(dir.path()).len(), 1);
    let left = collector.shutdown(Duration::from_millis(100));
    assert_eq!((left.done.len(), left.unfinished), (0, 2));
    assert!(listing(dir.path()).is_empty());
    drop(release);
}
