//! Which rules see which operations, live or recorded: from facts to the names of incidents.

use std::collections::BTreeMap;

use diagnose::long_term::LongTerm;
use model::{Detail, Flags, Mount, MountKey, PodNames, Requester, Syscall, text::Text};

use super::{ActiveRules, ChangeExt, Detection, IncidentReport, Reporter};
use crate::{
    config::{Config, KnownNames},
    evidence::IncidentId,
    recording::{self, CgroupFacts, FinishedFacts, IntervalFacts, MountFacts, RecordedEvent, RecordingReader},
    source::{EventSource, RecordedSource, ReplayStep, WantedOperations},
};

const SECOND: u64 = 1_000_000_000;

/// By rule, how many operations its incidents have; `a+b` are those of rule b's episodes that became part of one of rule a.
#[derive(Default)]
struct IncidentsByRule(BTreeMap<String, u64>);

impl Reporter for IncidentsByRule {
    fn next_id(&mut self, detected: jiff::Timestamp, protocol: &str, kind: &str) -> IncidentId {
        IncidentId::new(detected, protocol, kind, 1)
    }

    fn report(&mut self, _: &dyn EventSource, _: &ActiveRules, report: IncidentReport<'_>) -> bool {
        // Without a cool-down, each window that breaks a rule is an incident of its own.
        if report.change.opened() {
            *self.0.entry(report.described.anomaly.name.clone()).or_default() += report.described.operations;
        }
        if let Some(part) = report.part {
            let name = format!("{}+{}", report.described.anomaly.name, part.anomaly.name);
            assert!(report.known && report.described.also.iter().any(|also| also.starts_with(&part.anomaly.name)));
            *self.0.entry(name).or_default() += part.window.count();
        }
        true
    }
}

/// What these rules find in these intervals.
fn found(rules: &str, intervals: Vec<IntervalFacts>) -> BTreeMap<String, u64> {
    found_with("cooldown_sec: 0\nprobes: {vfs: true}", rules, intervals)
}

/// The incidents by rule, with further settings of the configuration.
fn found_with(settings: &str, rules: &str, intervals: Vec<IntervalFacts>) -> BTreeMap<String, u64> {
    let mut found = IncidentsByRule::default();
    judge(settings, rules, intervals, &mut found);
    found.0
}

/// Has the incidents reported that these rules find in these intervals.
fn judge(settings: &str, rules: &str, intervals: Vec<IntervalFacts>, reporter: &mut dyn Reporter) {
    let text = format!("{settings}\nanomalies:\n{rules}");
    let config =
        Config::parse(&text, "f.yaml", &KnownNames::to_this_program()).unwrap_or_else(|errors| panic!("{errors:?}"));
    let wanted = WantedOperations { thresholds: BTreeMap::new(), failures: vec![] };
    let mut source = RecordedSource::new(RecordingReader::of_bytes(recording::of_facts(intervals)).unwrap(), wanted);
    let mut detection = None;
    loop {
        match source.advance().unwrap() {
            ReplayStep::End => break,
            ReplayStep::Run => (),
            ReplayStep::Interval => {
                let detection = detection
                    .get_or_insert_with(|| Detection::new(&config, source.interval_start(), LongTerm::default()));
                detection.drain(&mut source);
                detection.interval(&source, reporter);
            }
        }
    }
    detection.expect("an interval").finish(&source, reporter);
}

/// A write of half a second, of `who`, to a file on mount 1 or 2.
fn slow(who: &str, mount: u64, file: &str) -> RecordedEvent {
    let pid = 70 + u32::try_from(who.len()).unwrap();
    let requester = Requester {
        pid,
        tid: pid,
        uid: if who == "postgres" { 26 } else { 0 },
        comm: Text::new(who.as_bytes()),
        cgroup: 100 + who.len() as u64,
    };
    let detail = Detail::Syscall(Syscall { inode: 9, name: Text::new(file.as_bytes()) });
    RecordedEvent {
        operation: "syscalls:write".to_owned(),
        start: SECOND,
        duration: SECOND / 2,
        mount: MountKey(mount),
        requester,
        detail,
        ..RecordedEvent::default()
    }
}

fn mounted(key: u64, mountpoint: &str) -> MountFacts {
    let mount = Mount {
        mountpoint: mountpoint.to_owned(),
        source: format!("srv{key}:/export"),
        server: format!("srv{key}"),
        fstype: "nfs4".to_owned(),
        ..Mount::default()
    };
    MountFacts { key: MountKey(key), mount, device: Some(MountKey(key)), ..MountFacts::default() }
}

/// One interval in which all of these ended.
fn interval(events: Vec<RecordedEvent>) -> IntervalFacts {
    let cgroup = |who: &str, path: &str| CgroupFacts {
        pid: 70 + u32::try_from(who.len()).unwrap(),
        id: 100 + who.len() as u64,
        path: path.to_owned(),
        ..CgroupFacts::default()
    };
    IntervalFacts {
        began: SECOND,
        at: 2 * SECOND,
        events,
        mounts: vec![mounted(1, "/mnt/a"), mounted(2, "/mnt/b")],
        cgroups: vec![
            CgroupFacts {
                names: PodNames {
                    namespace: "shop".into(),
                    pod: "db-0".into(),
                    container_name: "main".into(),
                    workload: "db".into(),
                },
                ..cgroup("postgres", "/system.slice/postgres.service")
            },
            cgroup("sim", "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"),
        ],
        ..IntervalFacts::default()
    }
}

/// A rule that any slow system call breaks.
fn rule(name: &str, scope: &str) -> String {
    format!("  {name}: {{type: latency, probe: syscalls, acceptable_count: 1, default_threshold_ms: 100{scope}}}\n")
}

/// Twice as many writes of postgres as of sim, on each of two mounts.
fn usual() -> Vec<IntervalFacts> {
    let postgres = |mount, file| slow("postgres", mount, file);
    vec![interval(vec![
        postgres(1, "base.db"),
        postgres(1, "sort.tmp"),
        slow("sim", 1, "out.tmp"),
        postgres(2, "base.db"),
        postgres(2, "sort.tmp"),
        slow("sim", 2, "out.db"),
    ])]
}

fn expected(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
    all.iter().map(|(name, operations)| ((*name).to_owned(), *operations)).collect()
}

#[test]
fn a_rule_sees_what_its_scope_covers() {
    for (scope, operations) in [
        ("", 6),
        (", only: {mount: /mnt/a}", 3),
        (", only: {mount: \"/mnt/*\"}", 6),
        (", only: {mount: [/mnt/a, /mnt/b]}", 6),
        (", only: {server: SRV2}", 3),
        (", only: {fstype: \"nfs*\"}", 6),
        (", only: {user: root}", 2),
        (", only: {user: 26}", 4),
        (", only: {process: postgres}", 4),
        (", only: {file: \"*.tmp\"}", 3),
        (", only: {file: \"*.tmp\", process: sim}", 1),
        (", only: {cgroup: /system.slice}", 6),
        (", only: {cgroup: /system.slice/postgres.service}", 4),
        (", only: {namespace: shop, pod: \"db-?\", workload: db, container: main}", 4),
        (", except: {namespace: \"*\"}", 2),
        (", only: {pod: db}", 0),
        (", only: {job: \"slurm:7.*\"}", 2),
        (", only: {job: 7.0}", 2),
        (", except: {job: \"*\"}", 0),
        (", except: {container: \"*\"}", 2),
        (", except: {mount: /mnt/a, process: sim}", 2),
        (", only: {mount: /mnt/a}, except: {file: base.db}", 2),
        (", only: {container: \"*\"}", 4),
        (", only: {mount: /mnt}", 0),
    ] {
        let wanted = if operations == 0 { expected(&[]) } else { expected(&[("r", operations)]) };
        assert_eq!(found(&rule("r", scope), usual()), wanted, "{scope}");
    }
}

#[test]
fn the_most_specific_rule_judges_alone_and_the_others_what_is_left() {
    let rules = [
        rule("all", ""),
        rule("a", ", only: {mount: /mnt/a}"),
        rule("postgres_a", ", only: {mount: /mnt/a, process: postgres}"),
        rule("tmp", ", only: {file: \"*.tmp\"}"),
    ];
    // sim's out.tmp on /mnt/a is for two rules that are as specific.
    let shares = [("all", 2), ("a", 1), ("postgres_a", 2), ("tmp", 2)];
    assert_eq!(found(&rules.concat(), usual()), expected(&shares));
    let reversed: Vec<_> = rules.into_iter().rev().collect();
    assert_eq!(found(&reversed.concat(), usual()), expected(&shares), "in any order");
}

#[test]
fn a_rule_of_another_type_or_that_leaves_the_command_out_takes_nothing_away() {
    let others = [
        rule("reads", ", mode: trackonly, track_commands: [read], only: {mount: /mnt/a, process: postgres}"),
        "  errors: {type: error, probe: syscalls, only: {mount: /mnt/a}}\n".to_owned(),
        "  vfs: {type: latency, probe: vfs, only: {mount: /mnt/a}}\n".to_owned(),
    ];
    assert_eq!(found(&(rule("all", "") + &others.concat()), usual()), expected(&[("all", 6)]));
}

#[test]
fn a_mount_that_becomes_another_is_known_by_its_new_name() {
    let mut second = interval(vec![slow("sim", 1, "x")]);
    (second.began, second.at) = (2 * SECOND, 3 * SECOND);
    second.mounts = vec![mounted(1, "/mnt/c")];
    let mut third = second.clone();
    (third.began, third.at) = (3 * SECOND, 4 * SECOND);
    third.mounts.clear();
    // What the source says at the end of an interval counts for the next.
    let intervals = vec![interval(vec![slow("sim", 1, "x")]), second, third];
    let rules = rule("a", ", only: {mount: /mnt/a}") + &rule("c", ", only: {mount: /mnt/c}");
    assert_eq!(found(&rules, intervals), expected(&[("a", 2), ("c", 1)]));
}

#[test]
fn operations_in_flight_are_judged_by_scope() {
    let waiting = |who: &str, mount| {
        let flags = Flags { in_flight: true, ..Flags::default() };
        RecordedEvent { duration: 20 * SECOND, flags, ..slow(who, mount, "x") }
    };
    let facts = IntervalFacts { in_flight: vec![waiting("sim", 1), waiting("postgres", 2)], ..interval(vec![]) };
    let stalled = |name: &str, scope: &str| format!("  {name}: {{type: stalled, probe: syscalls{scope}}}\n");
    let rules = stalled("all", "") + &stalled("a", ", only: {mount: /mnt/a, job: 7.0}");
    assert_eq!(found(&rules, vec![facts]), expected(&[("all", 1), ("a", 1)]));
}

#[test]
fn a_share_of_all_operations_is_one_of_those_on_the_mounts_of_the_rule() {
    let failed = |mount| {
        let flags = Flags { failed: true, ..Flags::default() };
        RecordedEvent { duration: 5, errno: 5, flags, ..slow("sim", mount, "x") }
    };
    let finished = |mount| FinishedFacts {
        operation: "syscalls:write".to_owned(),
        mount: MountKey(mount),
        count: if mount == 1 { 2 } else { 98 },
        ..FinishedFacts::default()
    };
    let facts = || IntervalFacts { finished: vec![finished(1), finished(2)], ..interval(vec![failed(1), failed(2)]) };
    let rule = |name: &str, scope: &str| {
        format!("  {name}: {{type: error, probe: syscalls, acceptable_count: 1, acceptable_percent: 10{scope}}}\n")
    };
    assert_eq!(found(&rule("all", ""), vec![facts()]), expected(&[]), "2 of 100");
    let both = rule("all", "") + &rule("a", ", only: {mount: /mnt/a}");
    assert_eq!(found(&both, vec![facts()]), expected(&[("a", 1)]), "1 of 2, and 1 of 98");
}

/// Intervals of a second with these events, one after the other.
fn course(intervals: Vec<Vec<RecordedEvent>>) -> Vec<IntervalFacts> {
    let second =
        |(events, began): (Vec<RecordedEvent>, u64)| IntervalFacts { began, at: began + SECOND, ..interval(events) };
    intervals.into_iter().zip((1..).map(|number| number * SECOND)).map(second).collect()
}

#[test]
fn a_rule_with_when_judges_only_while_it_is_armed_and_where() {
    let sim = || vec![slow("sim", 1, "x"), slow("sim", 2, "x"), slow("sim", 2, "y")];
    let postgres = || vec![slow("postgres", 1, "x")];
    let cases = [
        ("incident: first, within: 1s", 3),
        ("incident: first, within: 1s, on: mount", 1),
        ("incident: first, within: 1s, on: server", 1),
        ("incident: first, within: 2s, on: server", 2),
        ("incident: first, on: job", 0),
        ("incident: second", 0),
    ];
    for (when, operations) in cases {
        let rules = rule("first", ", only: {process: postgres}")
            + &rule("second", ", only: {process: nobody}")
            + &rule("chained", &format!(", only: {{process: sim}}, when: {{{when}}}"));
        // What ends in the interval of the anomaly comes too early.
        let intervals = course(vec![sim(), [postgres(), sim()].concat(), sim(), sim(), vec![]]);
        let mut wanted = expected(&[("first", 1)]);
        if operations > 0 {
            wanted.insert("chained".to_owned(), operations);
        }
        assert_eq!(found(&rules, intervals), wanted, "{when}");
    }
}

#[test]
fn what_an_armed_rule_sees_is_part_of_the_incident_that_armed_it() {
    let rules = rule("first", ", only: {process: postgres}")
        + &rule("second", ", only: {process: sim}, when: {incident: first, on: server}")
        + &rule("third", ", only: {process: sim, mount: /mnt/a}, when: {incident: second, on: mount}");
    let sim = || vec![slow("sim", 1, "x"), slow("sim", 2, "x")];
    let intervals = || course(vec![vec![slow("postgres", 1, "x")], sim(), sim(), vec![]]);
    let wanted = expected(&[("first", 1), ("first+second", 1), ("first+third", 1)]);
    assert_eq!(found_with("cooldown_sec: 60", &rules, intervals()), wanted);
    // Without a cool-down, the first incident is over.
    assert_eq!(found(&rules, intervals()), expected(&[("first", 1), ("second", 2), ("second+third", 1)]));
}

/// Slow requests of an NFS client, on mount 1 or 2.
fn request(who: &str, mount: u64) -> RecordedEvent {
    RecordedEvent { operation: "nfs:WRITE".to_owned(), detail: Detail::None, ..slow(who, mount, "") }
}

#[test]
fn calls_that_hang_on_several_mounts_are_part_of_the_incidents_of_these_mounts_together() {
    let stalled =
        |name: &str, probe: &str, scope: &str| format!("  {name}: {{type: stalled, probe: {probe}{scope}}}\n");
    let hangs = |event: RecordedEvent| {
        let flags = Flags { in_flight: true, ..Flags::default() };
        RecordedEvent { duration: 20 * SECOND, flags, ..event }
    };
    let both = [slow("sim", 1, "x"), slow("postgres", 2, "y"), request("sim", 1), request("postgres", 2)];
    let facts = IntervalFacts { in_flight: both.map(hangs).into(), ..interval(vec![]) };
    let one_of_two = stalled("a", "nfs", ", only: {mount: /mnt/a}") + &stalled("calls", "syscalls", "");
    let found = |rules: &str| found_with("cooldown_sec: 60", rules, vec![facts.clone()]);
    assert_eq!(
        found(&one_of_two),
        expected(&[("a", 1), ("calls", 2)]),
        "nothing is reported of the other mount's requests"
    );
    let all = one_of_two + &stalled("b", "nfs", ", only: {mount: /mnt/b}");
    assert_eq!(found(&all), expected(&[("a", 1), ("b", 1)]));
}

/// The last report of an incident: its operations and their numbers, its processes, and how many events it has.
#[derive(Debug, PartialEq)]
struct LastReport {
    operations: Vec<(String, u64)>,
    processes: Vec<String>,
    events: usize,
}

/// By rule.
#[derive(Default)]
struct LastReports(BTreeMap<String, LastReport>);

impl Reporter for LastReports {
    fn next_id(&mut self, detected: jiff::Timestamp, protocol: &str, kind: &str) -> IncidentId {
        IncidentId::new(detected, protocol, kind, 1)
    }

    fn report(&mut self, _: &dyn EventSource, _: &ActiveRules, report: IncidentReport<'_>) -> bool {
        let top = &report.described.top;
        let operations = top.operations.iter().map(|of| (of.operation.to_string(), of.share.count)).collect();
        let processes = top.processes.iter().map(|of| of.comm.clone()).collect();
        let last = LastReport { operations, processes, events: report.events.len() };
        self.0.insert(report.described.anomaly.name.clone(), last);
        true
    }
}

#[test]
fn an_incident_about_a_connection_lists_whom_it_delayed() {
    let silent = RecordedEvent {
        operation: "connections:TCP_NO_ANSWER".to_owned(),
        duration: 0,
        requester: Requester::default(),
        detail: Detail::None,
        ..slow("", 1, "")
    };
    let rules = "  broken: {type: connection}\n  requests: {type: latency, probe: nfs, acceptable_count: 1, default_threshold_ms: 100}\n".to_owned()
        + &rule("calls", "");
    let delayed = || vec![request("postgres", 1), request("sim", 1), slow("sim", 1, "x")];
    // The requests' episode is over before the connection's.
    let intervals = [vec![silent.clone()], delayed(), vec![], vec![silent], vec![], vec![], vec![], vec![]];
    let mut last = LastReports::default();
    judge("cooldown_sec: 3", &rules, course(intervals.into()), &mut last);
    let wanted = LastReport {
        operations: vec![("WRITE".to_owned(), 2), ("TCP_NO_ANSWER".to_owned(), 2)],
        processes: vec!["sim".to_owned(), "postgres".to_owned()],
        events: 4,
    };
    assert_eq!(last.0, BTreeMap::from([("broken".to_owned(), wanted)]));
}
