//! Latency and throughput against their own recent normal.

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{MS, SMB, operation};
use model::{Anomaly, Histogram, MountKey};
use plumbline_diagnose::{
    Detector, FinishedOperations, Ledger, Meanwhile, Window,
    baseline::BaselineRule,
    rule::{Pace, Rule, Subject},
    throughput::ThroughputRule,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000 * MS;
const MOUNT: MountKey = MountKey(49);
const PACE: Pace = Pace { operations: 20, warm_up: 30, history: 300, sustained: 5 };

fn operations() -> BTreeSet<model::Operation> {
    ["SMB2_READ", "SMB2_WRITE"].map(operation).into()
}

fn baseline(pace: Pace) -> BaselineRule {
    let least_shift = Duration::from_millis(5);
    BaselineRule {
        subject: Subject { name: "r".into(), protocol: &SMB },
        operations: operations(),
        factor: 2.0,
        least_shift,
        pace,
    }
}

fn throughput(pace: Pace) -> ThroughputRule {
    ThroughputRule {
        subject: Subject { name: "r".into(), protocol: &SMB },
        operations: operations(),
        share: 0.5,
        least_bytes: 1e3,
        pace,
    }
}

/// A rule that is shown one second after another.
struct Seconds {
    detector: Box<dyn Detector>,
    now: u64,
    /// To the server, milliseconds.
    round_trip: f64,
}

impl Seconds {
    fn of(rule: &dyn Rule) -> Self {
        Self { detector: rule.detector(), now: 0, round_trip: 0.0 }
    }

    /// A second in which operations took so long, in milliseconds, and moved so many bytes each.
    fn next(&mut self, name: &str, durations: &[f64], bytes: u64) -> Option<Anomaly> {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|ms| histogram.add((ms * MS as f64) as u64, bytes, false));
        let finished = [FinishedOperations { operation: operation(name), mount: MOUNT, histogram }];
        let finished = if durations.is_empty() { &[][..] } else { &finished };
        let mut window = Window::new(self.now * SECOND);
        self.now += 1;
        window.to = self.now * SECOND;
        let round_trip = (self.round_trip * MS as f64) as u64;
        let meanwhile = Meanwhile {
            finished,
            label: &|_| "/mnt/a".into(),
            round_trip: &|_| Some(round_trip),
            ..Meanwhile::default()
        };
        self.detector.look(&mut window, &meanwhile);
        self.detector.detect(&window)
    }

    /// So many equal seconds; how many of them were anomalous.
    fn repeat(&mut self, seconds: usize, name: &str, durations: &[f64], bytes: u64) -> usize {
        (0..seconds).filter(|_| self.next(name, durations, bytes).is_some()).count()
    }
}

/// What `threads` that wait for each operation get done in a second, each taking so many milliseconds and a random part
/// more.
fn closed_loop(threads: usize, ms: f64, jitter: &mut Jitter) -> Vec<f64> {
    let one = |jitter: &mut Jitter| {
        let (mut durations, mut sum) = (Vec::new(), 0.0);
        while sum < 1_000.0 {
            durations.push(ms * jitter.lognormal());
            sum += durations.last().copied().unwrap_or(1.0);
        }
        durations
    };
    (0..threads).flat_map(|_| one(jitter)).collect()
}

/// A reproducible source of chance (xorshift64*).
struct Jitter(u64);

impl Jitter {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Median 1, sigma 0.7: the slowest hundredth takes five times as long.
    fn lognormal(&mut self) -> f64 {
        let normal = (-2.0 * self.uniform().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (0.7 * normal).exp()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_stationary_random_load_never_alarms(seed in 1_u64.., ms in 0.5_f64..30.0, threads in 1_usize..6, mean in 1_usize..60) {
        let mut jitter = Jitter(seed);
        let mut closed = [Seconds::of(&baseline(PACE)), Seconds::of(&throughput(PACE))];
        let mut open = [Seconds::of(&baseline(PACE)), Seconds::of(&throughput(PACE))];
        for second in 0..4_000 {
            // Threads that wait, and a load that comes as it comes, with pauses and with few operations.
            let durations = if second < 400 { closed_loop(threads, ms, &mut jitter) } else { Vec::new() };
            for rule in closed.iter_mut().take(if second < 400 { 2 } else { 0 }) {
                prop_assert_eq!(rule.next("SMB2_WRITE", &durations, 4096), None);
            }
            let count = (mean as f64 * 2.0 * jitter.uniform()) as usize;
            let durations: Vec<_> = (0..count).map(|_| ms * jitter.lognormal()).collect();
            for rule in &mut open {
                prop_assert_eq!(rule.next("SMB2_READ", &durations, 4096), None);
            }
        }
    }

    #[test]
    fn a_quiet_mount_never_alarms(seed in 1_u64.., every in 2_usize..40) {
        // Less than 20 operations in ten windows, and each as slow as it likes.
        let mut jitter = Jitter(seed);
        let mut rules = [Seconds::of(&baseline(PACE)), Seconds::of(&throughput(PACE))];
        for second in 0..5_000_usize {
            let busy = second.is_multiple_of(every);
            let durations = if busy { vec![10_000.0 * jitter.uniform(); 1 + second % 2] } else { vec![] };
            for rule in &mut rules {
                prop_assert_eq!(rule.next("SMB2_WRITE", &durations, 1 << 20), None);
            }
        }
    }

    #[test]
    fn three_times_the_latency_is_noticed_within_as_many_windows_as_it_must_last(seed in 1_u64.., ms in 4.0_f64..30.0, learned in 30_usize..400) {
        let mut jitter = Jitter(seed);
        let mut rule = Seconds::of(&baseline(PACE));
        for _ in 0..learned {
            prop_assert_eq!(rule.next("SMB2_WRITE", &closed_loop(4, ms, &mut jitter), 4096), None);
        }
        let slow: Vec<_> = (0..5).map(|_| rule.next("SMB2_WRITE", &closed_loop(4, ms * 3.0, &mut jitter), 4096)).collect();
        prop_assert!(slow[..4].iter().all(Option::is_none), "{slow:?}");
        prop_assert!(slow[4].is_some());
    }

    #[test]
    fn a_third_of_the_throughput_is_noticed_within_as_many_windows_as_it_must_last(seed in 1_u64.., ms in 1.0_f64..20.0, learned in 30_usize..400) {
        let mut jitter = Jitter(seed);
        let mut rule = Seconds::of(&throughput(PACE));
        for _ in 0..learned {
            prop_assert_eq!(rule.next("SMB2_WRITE", &closed_loop(4, ms, &mut jitter), 1 << 20), None);
        }
        let slow: Vec<_> = (0..5).map(|_| rule.next("SMB2_WRITE", &closed_loop(4, ms * 3.0, &mut jitter), 1 << 20)).collect();
        prop_assert!(slow[..4].iter().all(Option::is_none) && slow[4].is_some(), "{slow:?}");
    }
}

#[test]
fn a_departure_says_what_was_normal_and_ends_half_of_the_way_back() {
    let mut rule = Seconds::of(&baseline(PACE));
    assert_eq!(rule.repeat(60, "SMB2_WRITE", &[4.0; 30], 4096), 0);
    assert_eq!(rule.repeat(4, "SMB2_WRITE", &[40.0; 30], 4096), 0);
    let anomaly = rule.next("SMB2_WRITE", &[40.0; 30], 4096).unwrap();
    assert_eq!((anomaly.kind.as_ref(), anomaly.probe.as_ref(), anomaly.name.as_str()), ("baseline", "smb", "r"));
    assert_eq!(anomaly.observed, "SMB2_WRITE on /mnt/a: median 37.7 ms, normally 3.93 ms");
    // 9 ms is the limit, and 6.5 ms half of the way back to it: still too much, if it was more before.
    assert_eq!(rule.repeat(10, "SMB2_WRITE", &[8.0; 30], 4096), 10);
    assert_eq!(rule.repeat(10, "SMB2_WRITE", &[5.0; 30], 4096), 0);
    assert_eq!(rule.repeat(10, "SMB2_WRITE", &[8.0; 30], 4096), 0, "it was well, and 8 ms is not out of the normal");
}

#[test]
fn a_few_that_take_very_long_are_seen_in_the_mean() {
    let mut rule = Seconds::of(&baseline(PACE));
    assert_eq!(rule.repeat(60, "SMB2_WRITE", &[1.0; 30], 4096), 0);
    let mut few = [1.0; 30];
    few[0] = 600.0;
    assert_eq!(rule.repeat(4, "SMB2_WRITE", &few, 4096), 0);
    assert_eq!(
        rule.next("SMB2_WRITE", &few, 4096).unwrap().observed,
        "SMB2_WRITE on /mnt/a: mean 21 ms, normally 1 ms"
    );
}

#[test]
fn what_lasts_as_long_as_is_remembered_is_the_normal() {
    let mut rule = Seconds::of(&baseline(Pace { history: 50, ..PACE }));
    assert_eq!(rule.repeat(50, "SMB2_WRITE", &[4.0; 30], 4096), 0);
    assert_eq!(rule.repeat(500, "SMB2_WRITE", &[40.0; 30], 4096), 45);
    assert_eq!(rule.repeat(5, "SMB2_WRITE", &[400.0; 30], 4096), 1, "and that is left as ever");
}

#[test]
fn a_short_departure_is_part_of_the_normal() {
    let mut rule = Seconds::of(&baseline(PACE));
    rule.repeat(40, "SMB2_WRITE", &[4.0; 30], 4096);
    for _ in 0..50 {
        assert_eq!(rule.repeat(4, "SMB2_WRITE", &[40.0; 30], 4096), 0);
        assert_eq!(rule.repeat(1, "SMB2_WRITE", &[4.0; 30], 4096), 0);
    }
}

#[test]
fn the_slowest_hundredth_is_judged_apart() {
    let mut rule = Seconds::of(&baseline(PACE));
    let mut durations = vec![4.0; 300];
    rule.repeat(60, "SMB2_WRITE", &durations, 4096);
    durations[..10].fill(200.0);
    assert_eq!(rule.repeat(4, "SMB2_WRITE", &durations, 4096), 0);
    let anomaly = rule.next("SMB2_WRITE", &durations, 4096).unwrap();
    assert!(anomaly.observed.starts_with("SMB2_WRITE on /mnt/a: 99th percentile "), "{}", anomaly.observed);
}

#[test]
fn larger_operations_have_a_normal_of_their_own() {
    let of = |ms: f64, bytes| {
        let mut rule = Seconds::of(&baseline(PACE));
        assert_eq!(rule.repeat(60, "SMB2_WRITE", &[1.0; 30], 4 << 10), 0);
        rule.repeat(20, "SMB2_WRITE", &[ms; 30], bytes)
    };
    assert_eq!((of(60.0, 4 << 10), of(60.0, 1 << 20)), (16, 0), "1 MiB may take 100 ns for each byte");
    assert_eq!(of(1_000.0, 1 << 20), 16, "but not much more");
    let mut rule = Seconds::of(&baseline(PACE));
    rule.repeat(60, "SMB2_WRITE", &[1.0; 30], 4 << 10);
    rule.repeat(60, "SMB2_WRITE", &[10.0; 30], 1 << 20);
    assert_eq!(rule.repeat(20, "SMB2_WRITE", &[60.0; 30], 1 << 20), 16, "what is known is not guessed");
    assert_eq!(rule.repeat(20, "SMB2_WRITE", &[1.0; 30], 4 << 10), 0);
    assert_eq!(rule.repeat(20, "SMB2_WRITE", &[8.0; 30], 4 << 10), 16, "larger ones that take longer are no excuse");
}

#[test]
fn more_round_trips_than_usual_are_no_departure() {
    for (round_trip, departed) in [(0.3, 16), (20.0, 0)] {
        let mut rule = Seconds::of(&baseline(PACE));
        rule.round_trip = round_trip;
        assert_eq!(rule.repeat(60, "SMB2_WRITE", &[20.0; 30], 4096), 0);
        // In two parts, the second of which waits for the acknowledgement of the first.
        assert_eq!(rule.repeat(20, "SMB2_WRITE", &[60.0; 30], 4096), departed, "{round_trip} ms");
    }
}

#[test]
fn what_nobody_waits_for_is_no_departure() {
    // The slowest hundredth of so many a second takes 10 ms more: 2 ms of waiting in a second, or 20. The former is not normal either.
    let mut rule = Seconds::of(&baseline(Pace { operations: 2, ..PACE }));
    rule.repeat(60, "SMB2_WRITE", &[1.0; 20], 4096);
    for (operations, departed) in [(20, 0), (200, 16)] {
        let mut durations = vec![1.0; operations];
        durations[..operations.div_ceil(50)].fill(11.0);
        assert_eq!(rule.repeat(20, "SMB2_WRITE", &durations, 4096), departed, "{operations} a second");
    }
}

/// What a job does that is no anomaly: it is shown after a minute of four threads with 1 MiB in 10 ms.
#[test]
fn what_a_job_does_is_no_fall_of_the_throughput() {
    let cases: [(&str, &[f64], u64); 7] = [
        ("it ends", &[], 0),
        ("it does half as much", &[10.0; 40], 1 << 20),
        ("it does very little", &[10.0; 3], 1 << 20),
        ("it begins with small pieces", &[5.0; 800], 4096),
        ("it has sixteen threads, and the server is at its limit", &[40.0; 400], 1 << 20),
        ("it does less in larger pieces", &[40.0; 100], 4 << 20),
        ("it thinks longer, and is a little slower", &[14.0; 60], 1 << 20),
    ];
    for (what, durations, bytes) in cases {
        let mut rule = Seconds::of(&throughput(PACE));
        assert_eq!(rule.repeat(60, "SMB2_WRITE", &[10.0; 400], 1 << 20), 0);
        assert_eq!(rule.repeat(100, "SMB2_WRITE", durations, bytes), 0, "{what}");
    }
    let mut rule = Seconds::of(&throughput(PACE));
    rule.repeat(60, "SMB2_WRITE", &[10.0; 400], 1 << 20);
    assert_eq!(rule.repeat(100, "SMB2_READ", &[100.0; 40], 1 << 20), 0, "reads follow writes");
}

#[test]
fn a_slow_server_is_a_fall_of_the_throughput() {
    let mut rule = Seconds::of(&throughput(PACE));
    rule.repeat(60, "SMB2_WRITE", &[10.0; 400], 1 << 20);
    assert_eq!(rule.repeat(4, "SMB2_WRITE", &[100.0; 40], 1 << 20), 0);
    let anomaly = rule.next("SMB2_WRITE", &[100.0; 40], 1 << 20).unwrap();
    assert_eq!(
        (anomaly.kind.as_ref(), anomaly.observed.as_str()),
        ("throughput", "SMB2_WRITE on /mnt/a: 41.9 MB/s with 4.00 operations in flight, normally 419.4 MB/s with 4.00")
    );
    assert_eq!(anomaly.limit, "209.7 MB/s");
    // Slower still, so that a window has not enough operations: each takes two.
    assert_eq!(rule.repeat(10, "SMB2_WRITE", &[400.0; 10], 1 << 20), 5);
    assert_eq!(rule.repeat(10, "SMB2_WRITE", &[10.0; 400], 1 << 20), 0);
}

#[test]
fn a_ledger_tells_what_was_added() {
    let key = (operation("SMB2_READ"), MOUNT);
    let total = |durations: &[u64]| {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|ms| histogram.add(ms * MS, 1, false));
        vec![(key.0, key.1, histogram)]
    };
    let mut ledger = Ledger::default();
    let mut count = |now, wanted: &BTreeSet<_>| -> Vec<_> {
        ledger.since(now, wanted).iter().map(|one| (one.histogram.count, one.histogram.even_quantile(1.0))).collect()
    };
    let of = |ms: u64| Histogram::lower_bound(Histogram::bucket_of(ms * MS) + 1);
    assert_eq!(count(total(&[1, 1]), &operations()), [(2, Some(of(1)))]);
    assert_eq!(count(total(&[1, 1]), &operations()), []);
    assert_eq!(count(total(&[1, 1, 9]), &operations()), [(1, Some(of(9)))]);
    assert_eq!(count(total(&[9]), &operations()), [(1, Some(of(9)))], "it was given up, and began again");
    assert_eq!(count(total(&[9, 9]), &BTreeSet::new()), []);
}

#[test]
fn a_ledger_tells_in_the_same_order_whatever_order_it_is_told_in() {
    let one = |name, mount| {
        let mut histogram = Histogram::default();
        histogram.add(MS, 1, false);
        (operation(name), MountKey(mount), histogram)
    };
    let keys = [("SMB2_WRITE", 1), ("SMB2_READ", 2), ("SMB2_READ", 1)];
    let told = |keys: Vec<(&'static str, u64)>| -> Vec<_> {
        let now = keys.into_iter().map(|(name, mount)| one(name, mount));
        let finished = Ledger::default().since(now, &operations());
        finished.iter().map(|one| (one.operation.name(), one.mount.0)).collect()
    };
    let sorted = [("SMB2_READ", 1), ("SMB2_READ", 2), ("SMB2_WRITE", 1)];
    assert_eq!((told(keys.to_vec()), told(sorted.to_vec())), (sorted.to_vec(), sorted.to_vec()));
}
