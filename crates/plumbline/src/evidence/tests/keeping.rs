//! Retention: what is deleted, and what never is.

use crate::evidence::retention::Deleted;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::SystemTime;

use proptest::prelude::*;

use super::*;
use crate::evidence::retention::DiskQuota;
use crate::evidence::store::on_disk;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Puts a bundle of this size and age into a store.
fn put(incidents: &Path, sequence: u64, bytes: u64, age: Duration) -> IncidentId {
    let id = id(sequence);
    let file = File::create(incidents.join(id.bundle())).unwrap();
    file.set_len(bytes).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
    id
}

/// Files that look a little like bundles, and are not.
fn put_foreign(incidents: &Path, outside: &Path) -> BTreeSet<String> {
    fs::write(outside, "precious").unwrap();
    fs::write(incidents.join("notes.tar.zst"), vec![0; 100_000]).unwrap();
    fs::write(incidents.join(".notes.tmp"), "x").unwrap();
    fs::write(incidents.join(format!("{}.bak", id(900).bundle())), "x").unwrap();
    fs::create_dir(incidents.join(id(901).bundle())).unwrap();
    symlink(outside, incidents.join(id(902).bundle())).unwrap();
    symlink(outside, incidents.join(id(903).temporary())).unwrap();
    let names = fs::read_dir(incidents).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("notes") || name.contains("-90")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pass_keeps_the_newest_that_fit_and_nothing_of_others_goes(
        bundles in prop::collection::vec((0_u64..200_000, 0_u64..100_000), 0..25),
        limit in 0_u64..2_000_000,
        max_age in 0_u64..100_000,
        spared in prop::option::of(0_u64..25),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), INCIDENTS).unwrap());
        let mut before = BTreeMap::new();
        for (sequence, (bytes, age)) in bundles.iter().enumerate() {
            // Half a second off, so that no age is exactly the limit.
            let age = Duration::from_millis(age * 1000 + 500);
            before.insert(put(&incidents(&dir), sequence as u64, *bytes, age), (*bytes, age));
        }
        let outside = dir.path().join("outside");
        let foreign = put_foreign(&incidents(&dir), &outside);
        let quota = DiskQuota::default();
        let spared = spared.map(id);
        let max_age = Duration::from_secs(max_age);
        quota.survey(store, limit, &|_| max_age, SystemTime::now(), spared.as_ref()).unwrap();

        let names: BTreeSet<String> = listing(dir.path()).into_iter().collect();
        prop_assert!(names.is_superset(&foreign));
        prop_assert_eq!(fs::read_to_string(outside).unwrap(), "precious");
        let (kept, gone): (Vec<_>, Vec<_>) = before.iter().partition(|(id, _)| names.contains(&id.bundle()));
        prop_assert_eq!(names.len(), foreign.len() + kept.len());

        let free: Vec<_> = kept.iter().filter(|(id, _)| Some(*id) != spared.as_ref()).collect();
        let total: u64 = kept.iter().map(|(_, (bytes, _))| on_disk(*bytes)).sum();
        prop_assert!(total <= limit || free.is_empty(), "{} of {} bytes", total, limit);
        prop_assert!(free.iter().all(|(_, (_, age))| *age <= max_age));
        prop_assert!(gone.iter().all(|(id, _)| Some(*id) != spared.as_ref()));
        for (_, (_, age)) in &gone {
            prop_assert!(free.iter().all(|(_, (_, other))| other <= age), "an older one was kept");
        }

        let sweep = quota.take_sweep();
        let told: BTreeSet<&IncidentId> = sweep.deleted.iter().map(|deleted| &deleted.id).collect();
        prop_assert_eq!(told, gone.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>());
        prop_assert_eq!(sweep.failed, 0);
        let last_for_size = sweep.deleted.iter().rfind(|deleted| deleted.why == Why::Size);
        prop_assert!(last_for_size.is_none_or(|last| total + last.bytes > limit), "it could have stayed");
        for deleted in &sweep.deleted {
            prop_assert_eq!(deleted.why == Why::Age, before[&deleted.id].1 > max_age);
        }
    }
}

#[test]
fn a_new_bundle_pushes_out_the_oldest_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { max_bytes: 1 << 20, ..settings(dir.path()) }).unwrap();
    put(&incidents(&dir), 1, 300_000, DAY / 2);
    put(&incidents(&dir), 2, 300_000, DAY / 4);
    put(&incidents(&dir), 3, 300_000, DAY / 8);
    // While it is copied from its temporary file it takes twice its size.
    let done = one(&collector, request(&id(4), vec![noise("events.jsonl", 200_000)], vec![]));
    written(&done);
    let deleted: Vec<(u64, Why)> = done.sweep.deleted.iter().map(|gone| (gone.id.sequence(), gone.why)).collect();
    assert_eq!(deleted, [(1, Why::Size)]);
    assert_eq!(listing(dir.path()), [2, 3, 4].map(|n| id(n).bundle()));
}

#[test]
fn a_bundle_larger_than_the_limit_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { max_bytes: 128 << 10, ..settings(dir.path()) }).unwrap();
    let done = one(&collector, request(&id(1), vec![noise("events.jsonl", 1 << 20)], vec![]));
    assert_eq!(lost(&done), LossReason::Budget);
    assert_eq!(listing(dir.path()), [""; 0]);
    written(&one(&collector, request(&id(2), vec![], vec![])));
}

#[test]
fn an_action_that_leaves_no_room_costs_its_own_file_only() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { max_bytes: 256 << 10, ..settings(dir.path()) }).unwrap();
    let greedy = action("greedy", &["head", "-c", "800000", "/dev/urandom"]);
    let done =
        one(&collector, request(&id(1), vec![text("events.jsonl", "x")], vec![greedy, shell("modest", "echo hi")]));
    let record = record(written(&done), "greedy");
    assert_eq!((&record["status"], &record["file"]), (&"failed".into(), &serde_json::Value::Null), "{record}");
    assert!(
        record["error"].as_str().unwrap().contains("its share of the limit of all bundles, 32768 bytes"),
        "{record}"
    );
    assert_eq!(unpack(written(&done))["modest.txt"], b"hi\n");
}

#[test]
fn an_update_does_not_push_out_what_it_updates() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { max_bytes: 480 << 10, ..settings(dir.path()) }).unwrap();
    written(&one(&collector, request(&id(1), vec![noise("recorder.jsonl", 150_000)], vec![])));
    put(&incidents(&dir), 2, 150_000, Duration::ZERO);
    let modified = SystemTime::now() - DAY;
    File::open(incidents(&dir).join(id(1).bundle())).unwrap().set_modified(modified).unwrap();
    collector.update(id(1), Incident::default(), vec![noise("events.jsonl", 40_000)], None).unwrap();
    let done = answers(&collector, 1).remove(0);
    assert_eq!(unpack(written(&done))["recorder.jsonl"].len(), 150_000);
    assert_eq!(listing(dir.path()), [id(1).bundle()]);
}

#[test]
fn tidying_deletes_what_is_too_old_and_follows_a_new_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { max_age: 2 * DAY, ..settings(dir.path()) }).unwrap();
    put(&incidents(&dir), 1, 10, 3 * DAY);
    put(&incidents(&dir), 2, 10, DAY);
    collector.tidy().unwrap();
    let done = answers(&collector, 1).remove(0);
    assert!(matches!(done.outcome, BundleOutcome::Tidied));
    assert_eq!(done.sweep.deleted, [Deleted { id: id(1), bytes: 4096, why: Why::Age }]);
    collector.reconfigure(Settings { max_age: DAY / 2, ..settings(dir.path()) }).unwrap();
    collector.tidy().unwrap();
    assert_eq!(answers(&collector, 1).remove(0).sweep.deleted, [Deleted { id: id(2), bytes: 4096, why: Why::Age }]);
}

#[test]
fn an_output_directory_that_is_not_to_be_trusted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |name: &str| format!("{:#}", Store::open(&dir.path().join(name), INCIDENTS).unwrap_err());
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(refusal("file").contains("is not a directory"), "{}", refusal("file"));
    fs::create_dir(dir.path().join("real")).unwrap();
    symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
    assert!(refusal("link").contains("is a symbolic link"), "{}", refusal("link"));
    symlink(dir.path().join("nowhere"), dir.path().join("dangling")).unwrap();
    assert!(refusal("dangling").contains("is a symbolic link"), "{}", refusal("dangling"));
    fs::create_dir(dir.path().join("open")).unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path().join("open"), everybody).unwrap();
    assert!(refusal("open").contains("can be written by others"), "{}", refusal("open"));
    fs::create_dir(dir.path().join("trap")).unwrap();
    symlink(dir.path().join("real"), dir.path().join("trap/incidents")).unwrap();
    assert!(refusal("trap").contains("is a symbolic link"), "{}", refusal("trap"));
    if is_root() {
        fs::create_dir(dir.path().join("theirs")).unwrap();
        std::os::unix::fs::chown(dir.path().join("theirs"), Some(12345), None).unwrap();
        assert!(refusal("theirs").contains("belongs to user 12345"), "{}", refusal("theirs"));
    }
    assert_eq!(fs::read_dir(dir.path().join("real")).unwrap().count(), 0);
    Store::open(&dir.path().join("new/deeper"), INCIDENTS).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(dir.path().join("new/deeper")).unwrap());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn looking_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    Store::existing(dir.path(), INCIDENTS).unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn bundles_are_listed_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), INCIDENTS).unwrap();
    for (name, seconds) in [("20250101T000000Z-smb-latency-1", 20), ("20250101T000000Z-smb-latency-2", 10)] {
        let file = File::create(incidents(&dir).join(format!("{name}.tar.zst"))).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    let sequences: Vec<u64> = store.list().unwrap().iter().map(|stored| stored.id.sequence()).collect();
    assert_eq!(sequences, [1, 2]);
}
