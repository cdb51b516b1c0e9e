//! What a server has answered, in the bundle of a client's incident.

use model::{Cause, EventLine, Host, Layer};

use super::*;

const CLIENT: u64 = 0x0a01_0001;

fn lines(probe: &'static str, ms: f64) -> String {
    let line = |xid: u64| EventLine {
        time: format!("2026-03-01T12:00:{xid:02}.000000Z"),
        probe: probe.into(),
        operation: "WRITE".into(),
        duration_ms: ms,
        queue_ms: Some(0.0),
        wire_ms: Some(ms),
        deliver_ms: Some(0.0),
        xid: Some(xid),
        connection: CLIENT,
        ..EventLine::default()
    };
    (0..20).map(|xid| serde_json::to_string(&line(xid)).unwrap() + "\n").collect()
}

fn host(name: &str) -> Host {
    Host { name: name.into(), plumbline: "1.0.0".into(), addresses: vec!["10.1.0.1/24".into()], ..Host::default() }
}

/// A bundle of a client whose twenty writes took 200 ms each; by itself it says that this is the network's.
fn client(collector: &Collector) -> PathBuf {
    let mut request = request(&id(1), vec![text("events.jsonl", lines("nfs", 200.0))], vec![]);
    request.incident.host = host("client1");
    request.incident.verdict = own();
    written(&one(collector, request)).to_owned()
}

fn own() -> Verdict {
    Verdict { layer: Layer::Network, confidence: 0.81, because: vec!["So it seems.".into()], ..Verdict::default() }
}

/// What a server answers that had each for so long.
fn answer(ms: f64) -> Vec<u8> {
    let about = Incident { id: "asked".into(), host: host("server1"), ..Incident::default() };
    let about = serde_json::to_vec(&about).unwrap();
    in_memory(&[("incident.json", &about), ("recorder.jsonl", lines("server", ms).as_bytes())]).unwrap()
}

fn joined(collector: &Collector, answer: Vec<u8>) -> (Incident, Option<Verdict>) {
    collector.join(id(1), answer).unwrap();
    match answers(collector, 1).remove(0).outcome {
        BundleOutcome::Written { path, proven, .. } => {
            (read_incident(File::open(path).unwrap()).unwrap(), proven.map(|proven| *proven))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_verdict_of_both_ends_is_the_incidents_and_outlives_its_updates() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let path = client(&collector);
    let whole = answer(199.0); // made once: it says when, in seconds
    let (incident, proven) = joined(&collector, whole.clone());
    assert_eq!((incident.verdict.layer, incident.verdict.cause), (Layer::Server, Some(Cause::SlowExecution)));
    assert!(incident.verdict.proven && incident.own_verdict == Some(own()), "{incident:?}");
    assert_eq!(proven, Some(incident.verdict.clone()), "the daemon hears of it");
    let parts = unpack(&path);
    assert_eq!(parts["server-1.tar.zst"], whole, "as it came");
    let story: serde_json::Value = serde_json::from_slice(&parts["joined.json"]).unwrap();
    assert_eq!((story["found"].as_u64(), story["server"]["host"].as_str()), (Some(20), Some("server1")));
    // The daemon has described the incident before it heard of the answer.
    let late = Incident { id: id(1).as_str().into(), host: host("client1"), verdict: own(), ..Incident::default() };
    collector.update(id(1), late, vec![text("events.jsonl", lines("nfs", 200.0))], None).unwrap();
    answers(&collector, 1);
    let after = read_incident(File::open(&path).unwrap()).unwrap();
    assert_eq!((after.verdict, after.own_verdict), (incident.verdict, Some(own())));
    assert!(unpack(&path).contains_key("server-1.tar.zst"));
}

#[test]
fn an_answer_that_is_no_bundle_or_of_another_time_is_a_reason_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let path = client(&collector);
    let whole = answer(199.0);
    let none = in_memory(&[("incident.json", b"{}")]).unwrap();
    let bomb = in_memory(&[("incident.json", b"{}"), ("recorder.jsonl", &vec![0; 40 << 20])]).unwrap();
    let wrong: [&[u8]; 6] = [b"", b"no bundle", &whole[..whole.len() / 2], &answer(5_000.0), &none, &bomb];
    for answer in wrong {
        let (incident, proven) = joined(&collector, answer.to_vec());
        assert_eq!((incident.verdict.layer, incident.verdict.confidence, &proven), (Layer::Network, 0.81, &None));
        let [first, said] = &incident.verdict.because[..] else { panic!("{:?}", incident.verdict.because) };
        assert!(
            first == "So it seems." && said.starts_with("The server was asked: its answer cannot be used: "),
            "{said}"
        );
        assert!(!unpack(&path).keys().any(|name| name.starts_with("server-") || name == "joined.json"));
    }
    assert!(joined(&collector, whole).0.verdict.proven, "one that can be used still is");
}

#[test]
fn a_bundle_that_is_gone_takes_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    fs::remove_file(client(&collector)).unwrap();
    collector.join(id(1), answer(199.0)).unwrap();
    assert_eq!(lost(&answers(&collector, 1).remove(0)), LossReason::Gone);
}
