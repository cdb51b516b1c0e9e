use super::*;
use proptest::prelude::*;

const DAY: &str = "2026-11-26";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn place(mountpoint: &str) -> SummarizedMount {
    SummarizedMount::of(Mount {
        mountpoint: mountpoint.to_owned(),
        source: "srv:/x".to_owned(),
        server: "srv".to_owned(),
        fstype: "nfs4".to_owned(),
        ..Mount::default()
    })
}

fn operation(name: &str) -> Operation {
    probes::protocol("nfs").unwrap().operation(name).unwrap()
}

fn empty() -> Period {
    Period::empty(at("2026-11-26T08:00:00Z"))
}

/// A hundred reads of 1 ms to 100 ms, the slowest of which failed, and a write.
fn used() -> Period {
    let mut period = empty();
    let mut reads = Histogram::default();
    (1..=100).for_each(|ms| reads.add(ms * 1_000_000, 4096, ms == 100));
    period.count(place("/mnt/b"), operation("READ"), &reads);
    let mut write = Histogram::default();
    write.add(2_000_000, 10, false);
    period.count(place("/mnt/a"), operation("WRITE"), &write);
    period
}

#[test]
fn a_summary_has_a_line_for_each_operation_of_each_mount() {
    let summary = serde_json::to_value(used().summary(at("2026-11-26T09:00:00Z"), false)).unwrap();
    assert_eq!((&summary["from"], &summary["to"]), (&"2026-11-26T08:00:00Z".into(), &"2026-11-26T09:00:00Z".into()));
    let mounts = summary["mounts"].as_array().unwrap();
    assert_eq!((mounts.len(), &mounts[0]["mountpoint"], &mounts[1]["server"]), (2, &"/mnt/a".into(), &"srv".into()));
    let reads = &mounts[1]["operations"][0];
    assert_eq!((&reads["probe"], &reads["operation"]), (&"nfs".into(), &"READ".into()));
    assert_eq!((&reads["count"], &reads["errors"], &reads["bytes"]), (&100.into(), &1.into(), &409_600.into()));
    assert_eq!(reads["mean_ms"], 50.5);
    let p90 = reads["p90_ms"].as_f64().unwrap();
    assert!((75.0..=110.0).contains(&p90), "{p90}");
    assert!(reads.get("buckets").is_none());
}

#[test]
fn a_day_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let files = SummaryFolder::of(dir.path());
    files.write(DAY, &used().summary(at("2026-11-26T09:00:00Z"), true)).unwrap();
    let mut period = Period { from: at("2026-11-26T10:00:00Z"), ..empty() };
    files.go_on(DAY, &mut period).unwrap();
    assert_eq!(period.from, at("2026-11-26T08:00:00Z"));
    let (again, before) =
        (period.summary(at("2026-11-26T11:00:00Z"), true), used().summary(at("2026-11-26T11:00:00Z"), true));
    let lines = |summary: &PeriodSummary| {
        let value = serde_json::to_value(summary).unwrap();
        value["mounts"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|mount| mount["operations"].as_array().unwrap().clone())
            .collect::<Vec<_>>()
    };
    for (one, other) in lines(&again).iter().zip(lines(&before)) {
        for key in ["operation", "count", "errors", "bytes", "mean_ms", "p50_ms", "buckets"] {
            assert_eq!(one[key], other[key], "{key}");
        }
    }
    files.go_on("2026-11-27", &mut period).unwrap();
}

#[test]
fn a_bundle_has_a_day_without_its_distributions() {
    let dir = tempfile::tempdir().unwrap();
    let files = SummaryFolder::of(dir.path());
    let to = at("2026-11-26T09:00:00Z");
    files.write(DAY, &used().summary(to, true)).unwrap();
    let value = |summary: &PeriodSummary| serde_json::to_value(summary).unwrap();
    assert_eq!(value(&files.summary(DAY).unwrap()), value(&used().summary(to, false)));
    assert!(files.has(DAY) && !files.has("2026-11-27") && files.summary("2026-11-27").is_none());
}

#[test]
fn what_is_no_summary_is_refused_and_files_of_old_days_go() {
    let dir = tempfile::tempdir().unwrap();
    let files = SummaryFolder::of(dir.path());
    for day in ["2026-11-24", "2026-11-25", DAY] {
        files.write(day, &used().summary(at("2026-11-26T09:00:00Z"), true)).unwrap();
    }
    let folder = dir.path().join("summaries");
    std::fs::write(folder.join("2026-11-24.json"), "{").unwrap();
    assert!(
        files.go_on("2026-11-24", &mut empty()).unwrap_err().to_string().ends_with("2026-11-24.json is no summary")
    );
    std::fs::write(folder.join("notes.json"), "mine").unwrap();
    files.tidy(at("2026-11-26T09:00:00Z"), std::time::Duration::from_secs(86_400));
    let mut left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["2026-11-25.json", "2026-11-26.json", "notes.json"]);
}

#[test]
fn what_is_beyond_the_most_is_counted_together() {
    let mut period = empty();
    let mut one = Histogram::default();
    one.add(1, 0, false);
    for number in 0..MOST + 10 {
        period.count(place(&format!("/mnt/{number}")), operation("READ"), &one);
    }
    assert_eq!(period.counted.len(), MOST + 1);
    assert_eq!(period.counted[&(SummarizedMount::others(), operation("READ"))].count, 10);
}

proptest! {
    #[test]
    fn no_file_breaks_it(count: u64, errors: u64, mean: f64, bucket: usize, number: u64) {
        let dir = tempfile::tempdir().unwrap();
        let files = SummaryFolder::of(dir.path());
        std::fs::create_dir(dir.path().join("summaries")).unwrap();
        let mean = if mean.is_finite() { mean } else { 0.0 };
        let line = format!(r#"{{"probe":"nfs","operation":"READ","count":{count},"errors":{errors},"mean_ms":{mean:e},"buckets":[[{bucket},{number}]]}}"#);
        let text = format!(r#"{{"from":"x","mounts":[{{"operations":[{line},{line}]}}]}}"#);
        std::fs::write(dir.path().join(format!("summaries/{DAY}.json")), text).unwrap();
        let mut period = empty();
        files.go_on(DAY, &mut period).unwrap();
        let _ = serde_json::to_vec(&period.summary(at("2026-11-26T09:00:00Z"), true)).unwrap();
    }
}
