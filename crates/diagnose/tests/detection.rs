//! From events to windows, anomalies and episodes.

mod common;

use std::time::Duration;

use common::{MS, rule, smb, syscall};
use model::{Detail, Event, Histogram, MountKey, Network, Syscall, text::Text};
use plumbline_diagnose::{
    EpisodeChange, FinishedOperations, KEPT, Meanwhile, RuleState, Top, Window,
    latency::LatencyRule,
    long_term::LongTerm,
    rule::{Rule, Subject},
};
use proptest::prelude::*;

const SECOND: u64 = 1_000 * MS;

fn window(events: &[Event]) -> Window {
    let mut window = Window::new(0);
    events.iter().for_each(|event| window.push(event));
    window
}

fn write(start: f64, wire: f64) -> Event {
    smb("SMB2_WRITE", start, [0.0, wire, 0.0])
}

#[test]
fn a_rule_counts_what_is_at_or_over_its_own_threshold() {
    let mut rule = rule(10);
    rule.thresholds.insert(common::operation("SMB2_WRITE"), Duration::from_millis(50));
    rule.thresholds.insert(common::operation("SMB2_CREATE"), Duration::from_secs(5));
    let cases = [
        (write(0.0, 49.999), false),
        (write(0.0, 50.0), true),
        (smb("SMB2_READ", 0.0, [0.0, 20.0, 0.0]), true),
        (smb("SMB2_READ", 0.0, [0.0, 19.999, 0.0]), false),
        (smb("SMB2_CREATE", 0.0, [0.0, 999.0, 0.0]), false),
        (smb("SMB2_CREATE", 0.0, [0.0, 1_000.0, 0.0]), true),
        (smb("SMB2_CHANGE_NOTIFY", 0.0, [0.0, 60_000.0, 0.0]), false),
        (syscall("write", 0.0, 60_000.0), false),
    ];
    for (event, counts) in cases {
        assert_eq!(rule.detector().counts(&event, &LongTerm::default()), counts, "{event:?}");
    }
}

#[test]
fn what_a_long_path_takes_is_not_slow() {
    let on = |path_ms: u32, ms: f64| {
        let event = smb("SMB2_READ", 0.0, [0.0, ms, 0.0]);
        Event { network: Network { min_rtt_us: path_ms * 1_000, ..event.network }, ..event }
    };
    let rule = rule(10);
    // Up to three round trips of 19 ms, and the threshold of 20.
    let cases = [
        (on(0, 20.0), true),
        (on(3, 20.0), true),
        (on(19, 20.0), false),
        (on(19, 76.0), false),
        (on(19, 77.0), true),
        (on(900, 1_000.0), true),
    ];
    for (event, counts) in cases {
        assert_eq!(rule.detector().counts(&event, &LongTerm::default()), counts, "{event:?}");
    }
    let fixed = LatencyRule { normal_factor: 0.0, ..rule };
    assert!(fixed.detector().counts(&on(19, 20.0), &LongTerm::default()), "thresholds alone decide");
}

#[test]
fn one_fewer_than_the_count_is_no_anomaly() {
    let events: Vec<_> = (0..10).map(|index| write(f64::from(index), 30.0 + f64::from(index))).collect();
    assert_eq!(rule(10).detector().detect(&window(&events[..9])), None);
    let anomaly = rule(10).detector().detect(&window(&events)).unwrap();
    assert_eq!(anomaly.observed, "10 operations, slowest 39 ms (SMB2_WRITE)");
    assert_eq!(anomaly.limit, "10 operations");
    assert_eq!((anomaly.name.as_str(), anomaly.probe.as_ref()), ("latency", "smb"));
}

#[test]
fn one_operation_at_the_ceiling_is_an_anomaly_by_itself() {
    assert_eq!(rule(10).detector().detect(&window(&[write(0.0, 999.0)])), None);
    let anomaly = rule(10).detector().detect(&window(&[write(0.0, 2_500.0)])).unwrap();
    assert_eq!(anomaly.observed, "1 operation, slowest 2.5 s (SMB2_WRITE)");
    assert_eq!(anomaly.limit, "1 s");
    assert!(anomaly.rule.contains("one of 1 s or more"), "{}", anomaly.rule);
}

/// Two slow writes a second, of so many milliseconds, and so many fast ones; the incident that comes of them, with the second in which it came.
fn sparse(rule: &LatencyRule, slow_ms: f64, fast: u64) -> Option<(u64, plumbline_diagnose::Episode)> {
    let mut state = RuleState::new(rule.detector(), Duration::from_secs(10), 0);
    (1..=10_u64).find_map(|second| {
        let slow = [0.0, 500.0].map(|at| write((second - 1) as f64 * 1000.0 + at, slow_ms));
        slow.iter().for_each(|event| state.see(event, &LongTerm::default()));
        let histogram = Histogram { count: 2 + fast, ..Histogram::default() };
        let finished = [FinishedOperations { operation: slow[0].operation, mount: slow[0].mount, histogram }];
        let changes =
            state.close(second * SECOND, 0, &Meanwhile { finished: &finished, ..Meanwhile::default() }, &mut 0);
        changes.first().map(|change| (second, change.episode().clone()))
    })
}

#[test]
fn few_slow_operations_a_second_add_up_if_most_of_their_kind_are_slow() {
    let (second, episode) = sparse(&rule(10), 30.0, 2).unwrap();
    assert_eq!((second, episode.window.count(), episode.windows), (5, 10, 1), "{:?}", episode.anomaly);
    assert_eq!(episode.anomaly.limit, "10 operations in 10 s");
    assert!(sparse(&rule(10), 30.0, 3).is_none(), "most are fast");
    assert!(sparse(&rule(21), 30.0, 0).is_none(), "too few within ten seconds");
    let fixed = LatencyRule { normal_factor: 0.0, ..rule(10) };
    assert!(sparse(&fixed, 30.0, 0).is_none(), "a rule with fixed thresholds counts by windows");
    let subject = Subject { name: "latency".to_owned(), protocol: &common::SYSCALLS };
    assert!(sparse(&LatencyRule { subject, ..rule(10) }, 30.0, 0).is_none(), "calls of programs count by windows");
}

#[test]
fn operations_of_half_the_ceiling_add_up_however_many_are_fast() {
    let (second, episode) = sparse(&rule(10), 500.0, 50).unwrap();
    assert_eq!((second, episode.window.count()), (5, 10), "{:?}", episode.anomaly);
    assert!(sparse(&rule(10), 499.0, 50).is_none());
}

#[test]
fn what_was_before_the_last_pause_can_be_forgotten() {
    let mut state = RuleState::new(rule(2).detector(), Duration::from_secs(60), 0);
    let mut end_second = |second: u64, starts_ms: &[f64]| {
        starts_ms.iter().for_each(|start| state.see(&write(*start, 40.0), &LongTerm::default()));
        state.close(second * SECOND, 0, &Meanwhile::default(), &mut 0);
        state.episode().map(|episode| episode.window.count())
    };
    assert_eq!(end_second(1, &[100.0, 200.0, 300.0]), Some(3));
    assert_eq!(end_second(40, &[39_100.0, 39_900.0]), Some(5));
    assert_eq!(state.forget_before_pause(Duration::from_secs(60)).map(|episode| episode.window.count()), Some(5));
    let episode = state.forget_before_pause(Duration::from_secs(10)).unwrap();
    assert_eq!((episode.window.count(), episode.window.from, episode.window.to), (2, 39_100 * MS, 40 * SECOND));
    assert_eq!(episode.anomaly.observed, "2 operations, slowest 40 ms (SMB2_WRITE)");
}

#[test]
fn nothing_seen_is_no_anomaly_even_if_nothing_is_acceptable() {
    assert_eq!(rule(0).detector().detect(&window(&[])), None);
}

#[test]
fn a_sampled_event_counts_for_all_that_it_stands_for() {
    let sampled = Event { weight: 10, ..write(0.0, 30.0) };
    let mut window = window(&[sampled]);
    window.dropped = 3;
    assert_eq!(
        rule(10).detector().detect(&window).unwrap().observed,
        "10 operations, slowest 30 ms (SMB2_WRITE); 3 events lost"
    );
}

/// Feeds one slow second after another, and tells what changed at its end.
struct Run {
    watch: RuleState,
    sequence: u64,
    seconds: u64,
}

impl Run {
    fn new(cooldown: u64) -> Self {
        Self { watch: RuleState::new(rule(10).detector(), Duration::from_secs(cooldown), 0), sequence: 0, seconds: 0 }
    }

    fn second(&mut self, slow: u32) -> Vec<EpisodeChange> {
        for index in 0..slow {
            self.watch.see(&write(self.seconds as f64 * 1e3 + f64::from(index), 30.0), &LongTerm::default());
            self.watch.see(&write(self.seconds as f64 * 1e3 + f64::from(index), 1.0), &LongTerm::default());
        }
        self.seconds += 1;
        self.watch.close(self.seconds * SECOND, 0, &Meanwhile::default(), &mut self.sequence)
    }
}

fn words(changes: &[EpisodeChange]) -> Vec<(&'static str, u64)> {
    let word = |change: &EpisodeChange| match change {
        EpisodeChange::Opened(_) => "opened",
        EpisodeChange::Updated(_) => "updated",
        EpisodeChange::Closed(_) => "closed",
    };
    changes.iter().map(|change| (word(change), change.episode().id)).collect()
}

#[test]
fn one_long_outage_is_one_incident_that_is_updated_less_and_less_often() {
    let mut run = Run::new(10);
    let mut seen = Vec::new();
    for second in 1..=40 {
        seen.extend(words(&run.second(10)).into_iter().map(|(word, id)| (second, word, id)));
    }
    let updates = [2, 4, 8, 16, 26, 36].map(|second| (second, "updated", 1));
    assert_eq!(seen, [&[(1, "opened", 1)], updates.as_slice()].concat());

    for second in 41..50 {
        let expected = if second == 46 { vec![("updated", 1)] } else { vec![] };
        assert_eq!(words(&run.second(9)), expected, "the rest is told when it is due: second {second}");
    }
    let changes = run.second(0);
    assert_eq!(words(&changes), [("closed", 1)]);
    let episode = changes[0].episode();
    assert_eq!((episode.window.count(), episode.windows), (400, 40));
    assert_eq!((episode.window.from, episode.window.to), (0, 40 * SECOND));
    assert_eq!(episode.anomaly.observed, "400 operations, slowest 30 ms (SMB2_WRITE)");
    assert_eq!(words(&run.second(10)), [("opened", 2)]);
}

#[test]
fn a_relapse_within_the_cool_down_is_the_same_incident() {
    let mut run = Run::new(10);
    assert_eq!(words(&run.second(10)), [("opened", 1)]);
    for _ in 0..8 {
        assert!(run.second(0).is_empty());
    }
    assert_eq!(words(&run.second(12)), [("updated", 1)]);
    assert_eq!(run.watch.finish().unwrap().window.count(), 22);
    assert!(run.watch.finish().is_none());
}

#[test]
fn without_a_cool_down_every_anomalous_window_is_an_incident() {
    let mut run = Run::new(0);
    assert_eq!(words(&run.second(10)), [("opened", 1)]);
    assert_eq!(words(&run.second(10)), [("closed", 1), ("opened", 2)]);
    assert_eq!(words(&run.second(0)), [("closed", 2)]);
}

#[test]
fn a_window_longer_than_the_cool_down_does_not_split_an_outage() {
    let mut watch = RuleState::new(rule(1).detector(), Duration::from_secs(10), 0);
    let mut sequence = 6;
    for minute in 1..=3 {
        watch.see(&write(0.0, 30.0), &LongTerm::default());
        let changes = watch.close(minute * 60 * SECOND, 0, &Meanwhile::default(), &mut sequence);
        assert_eq!(words(&changes), [(if minute == 1 { "opened" } else { "updated" }, 7)]);
    }
}

#[test]
fn the_top_ranks_by_time_lost_and_names_what_is_known() {
    let mut events = vec![syscall("read", 0.0, 50.0)];
    for index in 0..20_u32 {
        let mut event = write(f64::from(index), 30.0);
        event.requester.pid = 100 + index;
        let name = Text::new(if index < 15 { b"big.dat" } else { b"small.dat" });
        event.detail = Detail::Syscall(Syscall { inode: 0, name });
        events.push(event);
    }
    events[0].mount = MountKey::NONE;
    events[0].requester.pid = 0;
    let top = Top::of(&window(&events));
    assert_eq!(top.operations.iter().map(|place| place.key.name()).collect::<Vec<_>>(), ["SMB2_WRITE", "read"]);
    assert_eq!((top.mounts.len(), top.mounts[0].total.count), (1, 20));
    assert_eq!(top.processes.iter().map(|place| place.key.pid).collect::<Vec<_>>(), (100..110).collect::<Vec<_>>());
    assert_eq!(
        top.files.iter().map(|place| (place.key.name.to_string(), place.total.count)).collect::<Vec<_>>(),
        [("big.dat".to_owned(), 15), ("small.dat".to_owned(), 5)]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_window_counts_exactly_and_keeps_the_slowest(
        halves in prop::array::uniform2(prop::collection::vec((0_u32..5_000, 1_u32..4), 0..1_500)),
    ) {
        let event = |&(wire, weight): &(u32, u32)| Event { weight, ..write(0.0, f64::from(wire)) };
        let mut merged = Window::new(0);
        for half in &halves {
            merged.absorb(&window(&half.iter().map(event).collect::<Vec<_>>()));
        }
        let all = halves.concat();
        prop_assert_eq!(merged.count(), all.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>());
        let time = all.iter().map(|(wire, weight)| u64::from(*wire) * u64::from(*weight) * MS).sum::<u64>();
        prop_assert_eq!(merged.operations().values().map(|total| total.time).sum::<u64>(), time);
        prop_assert!(merged.events().len() < 2 * KEPT);

        let slowest = |mut durations: Vec<u64>| {
            durations.sort_unstable_by(|a, b| b.cmp(a));
            durations.truncate(KEPT);
            durations
        };
        prop_assert_eq!(
            slowest(merged.events().iter().map(|event| event.duration).collect()),
            slowest(all.iter().map(|(wire, _)| u64::from(*wire) * MS).collect())
        );
    }

    #[test]
    fn anomalies_within_the_cool_down_are_one_incident_with_exact_totals(seconds in prop::collection::vec(0_u32..30, 1..80)) {
        let mut run = Run::new(1_000);
        let mut opened = 0;
        for slow in &seconds {
            opened += words(&run.second(*slow)).iter().filter(|(word, _)| *word == "opened").count();
        }
        let anomalous: Vec<_> = seconds.iter().filter(|slow| **slow >= 10).collect();
        prop_assert_eq!(opened, usize::from(!anomalous.is_empty()));
        if let Some(episode) = run.watch.finish() {
            prop_assert_eq!(episode.windows, anomalous.len() as u64);
            prop_assert_eq!(episode.window.count(), anomalous.into_iter().map(|slow| u64::from(*slow)).sum::<u64>());
        }
    }
}
