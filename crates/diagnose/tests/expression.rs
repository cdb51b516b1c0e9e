//! Expressions of the operator's own over the figures of a window.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;

use common::{MS, SMB, operation, smb};
use model::{Anomaly, Event, Flags, Histogram, MountKey};
use plumbline_diagnose::{
    Detector, FinishedOperations, Meanwhile, Window,
    error::Codes,
    expression::{EvaluationFault, Expression, ExpressionRule, Figure, Mistake, Per},
    long_term::{LongTerm, PeriodSample, Sketch},
    rule::{Rule, Subject},
};
use proptest::prelude::*;

const SECOND: u64 = 1_000 * MS;

/// Whether it holds, where `count` is 4, `errors` is 0, `p99` is 2.5, and nothing else is known.
fn holds(text: &str) -> bool {
    evaluated(text).0
}

fn evaluated(text: &str) -> (bool, Option<EvaluationFault>) {
    let expression = Expression::new(text).unwrap_or_else(|mistake| panic!("{text}: {mistake:?}"));
    let answer = expression.evaluate(|figure| match figure.name() {
        "count" => Some(4.0),
        "errors" => Some(0.0),
        "p99" => Some(2.5),
        _ => None,
    });
    (answer.holds, answer.fault)
}

/// Where the mistake is, and what is said of it.
fn refused(text: &str) -> (usize, String) {
    let Mistake { at, text, .. } = Expression::new(text).expect_err(text);
    (at, text)
}

#[test]
fn operators_bind_as_they_do_everywhere() {
    for text in [
        "count == 4",
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 - 2 - 1 == 4",
        "16 / 4 / 2 == 2",
        "-count + 5 == 1",
        "--count == 4",
        "3 * p99 == 7.5",
        "p99 > 2 && count > 3 || false",
        "true || false && false",
        "!(count > 4)",
        "!false == true",
        "count >= 4 && count <= 4 && count != 5 && !(count < 4)",
        "max(1, p99, 2) == 2.5 && min(count, p99) == 2.5",
        "max(7) == 7",
        "1e3 == 1000 && 1e-3 == 0.001 && .5 == 0.5 && 2.5E+1 == 25",
        " count>3\n\t&&p99<3 ",
    ] {
        assert!(holds(text), "{text}");
    }
}

#[test]
fn what_is_not_known_decides_nothing() {
    assert!(!holds("normal.p99 > 1") && !holds("!(normal.p99 > 1)") && !holds("normal.p99 == normal.p99"));
    assert!(holds("count > 3 || normal.p99 > 1") && holds("normal.p99 > 1 || count > 3"));
    assert!(!holds("count > 3 && normal.p99 > 1"));
    assert!(holds("!(count > 5 && normal.p99 > 1)"));
}

#[test]
fn a_division_by_zero_holds_nothing_and_is_told() {
    assert_eq!(evaluated("count / errors > 1"), (false, Some(EvaluationFault::Zero)));
    assert_eq!(evaluated("!(count / errors > 1)"), (false, Some(EvaluationFault::Zero)));
    assert_eq!(evaluated("count / errors > 1 || count > 1"), (true, Some(EvaluationFault::Zero)));
    assert_eq!(evaluated("1e300 * 1e300 > 1"), (false, Some(EvaluationFault::TooLarge)));
    assert_eq!(evaluated("errors / count < 1"), (true, None));
}

#[test]
fn mistakes_say_where_and_what_to_do() {
    let cases = [
        ("", 0, "the expression ends too early; a figure, a number or a bracket belongs here"),
        ("p99 >", 5, "the expression ends too early; a figure, a number or a bracket belongs here"),
        ("p99", 0, "an expression must be true or false, and this is a number"),
        ("p95 > 1", 0, "there is no figure `p95`"),
        ("count > normal.p95", 8, "there is no figure `normal.p95`"),
        ("p99 > 1 and count > 1", 8, "`and` is not expected here; write `&&` for it"),
        ("p99 > 1 or count > 1", 8, "`or` is not expected here; write `||` for it"),
        ("p99 = 1", 4, "`=` is not expected here; write `==` to compare"),
        ("p99 % 2 == 1", 4, "`%` is not expected here; there is no remainder here"),
        ("p99 > 100ms", 6, "`100ms` is no number; write it without a unit: times are in milliseconds"),
        ("p99 > 1e999", 6, "`1e999` is no number; write it without a unit: times are in milliseconds"),
        ("p99 > 1.2.3", 6, "`1.2.3` is no number; write it without a unit: times are in milliseconds"),
        ("(p99 > 1", 8, "the expression ends too early; a bracket is not closed: write `)`"),
        ("p99 > 1)", 7, "`)` is not expected here; an operator such as `&&`, `>` or `*` belongs here"),
        ("1 < p99 < 3", 8, "`<` follows another comparison; connect the two by `&&`"),
        ("p99 && true", 0, "the left side of `&&` must be true or false, and this is a number"),
        ("true && p99", 8, "the right side of `&&` must be true or false, and this is a number"),
        ("1 + true > 1", 4, "the right side of `+` must be a number, and this is true or false"),
        ("true == 1", 8, "the right side of `==` must be true or false, and this is a number"),
        ("!p99 > 1", 1, "what follows `!` must be true or false, and this is a number"),
        ("-true > 1", 1, "what follows `-` must be a number, and this is true or false"),
        ("max(1, true) > 1", 7, "what `max` takes must be a number, and this is true or false"),
        ("sum(p99) > 1", 0, "there is no figure `sum`"),
        ("p99 > \u{1b}", 6, "`\\u{1b}` is not expected here; a figure, a number or a bracket belongs here"),
    ];
    for (text, at, said) in cases {
        assert_eq!(refused(text), (at, said.to_owned()), "{text}");
    }
    assert_eq!(Expression::new("p95 > 1").unwrap_err().unknown.as_deref(), Some("p95"));
    let deep = format!("{}p99 > 1{}", "(".repeat(40), ")".repeat(40));
    assert!(refused(&deep).1.starts_with("more than 32 brackets"), "{:?}", refused(&deep));
    assert!(refused(&"!".repeat(1000)).1.starts_with("more than 32 brackets"));
    assert_eq!(refused(&"p99 > 1 && ".repeat(100)).1, "it is longer than 1000 bytes; make two rules of it");
}

#[test]
fn each_figure_is_found_by_its_name() {
    for (name, figure) in Figure::ALL {
        assert_eq!((Figure::named(name), figure.name()), (Some(figure), name));
        Expression::new(&format!("{name} > 1")).expect("a number");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Expression::new(&text);
    }

    #[test]
    fn whatever_is_compiled_can_be_evaluated(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "p99", "count", "normal.p99", "errors", "0", "3", "1e308", "true", "(", ")", "!", "-", "+", "*", "/", "&&", "||",
                ">", "<=", "==", "max(", "min(", ",", " ",
            ]), 0..40),
        values in proptest::collection::vec(proptest::option::of(any::<f64>()), 14),
    ) {
        if let Ok(expression) = Expression::new(&words.concat()) {
            let figures: Vec<_> = Figure::ALL.into_iter().map(|(_, figure)| figure).collect();
            let value = |figure| figures.iter().position(|other| *other == figure).and_then(|index| values[index]);
            let once = expression.evaluate(value);
            prop_assert_eq!(once, expression.evaluate(value));
            // Written as one line, it means the same.
            let again = Expression::new(expression.text()).expect("compiled before");
            prop_assert_eq!(once, again.evaluate(value));
        }
    }

    #[test]
    fn arithmetic_is_that_of_numbers(a in -1e6_f64..1e6, b in -1e6_f64..1e6, c in -1e6_f64..1e6) {
        let text = format!("{a:?} + {b:?} * {c:?} - {b:?} > {c:?}");
        let expression = Expression::new(&text).expect("valid");
        prop_assert_eq!(expression.evaluate(|_| None).holds, a + b * c - b > c);
    }
}

fn rule(text: &str, per: Per, windows: usize) -> ExpressionRule {
    ExpressionRule {
        subject: Subject { name: "mine".into(), protocol: &SMB },
        operations: ["SMB2_READ", "SMB2_WRITE"].map(operation).into(),
        codes: Codes::AllBut(BTreeSet::new()),
        expression: Expression::new(text).expect("valid"),
        per,
        windows,
    }
}

/// What finished of an operation on a mount: how long each took, in milliseconds, 4096 bytes each.
fn finished(name: &str, mount: u64, durations: &[f64]) -> FinishedOperations {
    let mut histogram = Histogram::default();
    durations.iter().for_each(|ms| histogram.add((ms * MS as f64) as u64, 4096, false));
    FinishedOperations { operation: operation(name), mount: MountKey(mount), histogram }
}

/// A second of a rule at work. The recorder has what finished in it.
fn second(
    detector: &mut dyn Detector,
    finished: &[FinishedOperations],
    seen: &[Event],
    usual: Option<Sketch>,
) -> (Option<Anomaly>, Window) {
    let mut window = Window::new(10 * SECOND);
    seen.iter().filter(|event| detector.counts(event, &LongTerm::default())).for_each(|event| window.push(event));
    window.to = 11 * SECOND;
    let recorded = |_| {
        let of = |one: &FinishedOperations| {
            let event =
                |ms: f64| Event { mount: one.mount, ..smb(one.operation.name(), 10_500.0 - ms, [0.0, ms, 0.0]) };
            [0.0, 0.5, 1.0].map(|share| event(one.histogram.quantile(share).unwrap() as f64 / MS as f64))
        };
        finished.iter().flat_map(of).collect()
    };
    let meanwhile = Meanwhile {
        finished,
        recorded: &recorded,
        label: &|mount| format!("/mnt/{}", mount.0),
        usual: &|_| usual.clone(),
        ..Meanwhile::default()
    };
    detector.look(&mut window, &meanwhile);
    (detector.detect(&window), window)
}

fn sketch(ms: u64, times: u64) -> Sketch {
    let mut sketch = Sketch::default();
    (0..times).for_each(|_| sketch.add(ms * MS));
    sketch
}

fn failed(name: &str, mount: u64) -> Event {
    let flags = Flags { failed: true, ..Flags::default() };
    Event { errno: 5, flags, mount: MountKey(mount), ..smb(name, 10_100.0, [0.0, 1.0, 0.0]) }
}

#[test]
fn the_anomaly_says_the_figures_that_the_expression_names() {
    let mut detector = rule("p99 > 3 * normal.p99 && errors > 0", Per::Operation, 1).detector();
    let slow = [finished("SMB2_READ", 1, &[100.0; 8]), finished("SMB2_WRITE", 1, &[2.0; 8])];
    let (anomaly, window) =
        second(&mut *detector, &slow, &[failed("SMB2_READ", 1), failed("SMB2_WRITE", 1)], Some(sketch(10, 40)));
    let anomaly = anomaly.expect("it holds for reads");
    assert_eq!((anomaly.kind.as_ref(), anomaly.name.as_str(), anomaly.probe.as_ref()), ("expression", "mine", "smb"));
    assert_eq!(anomaly.limit, "p99 > 3 * normal.p99 && errors > 0");
    assert_eq!(anomaly.rule, "an expression of your own: p99 > 3 * normal.p99 && errors > 0");
    let normal = sketch(10, 40).quantile(0.99).unwrap() as f64 / 1e6;
    let normal = format!("{normal:.2}");
    assert_eq!(
        anomaly.observed,
        format!("SMB2_READ on /mnt/1: errors 1, p99 100 ms, normal.p99 {} ms", normal.trim_end_matches('0'))
    );
    // One failure, and what the recorder has of slow reads; no writes.
    assert!(window.events().iter().all(|event| event.operation == operation("SMB2_READ")));
    assert_eq!(window.events().iter().filter(|event| event.flags.failed).count(), 1);
    assert_eq!(window.count(), 4);
    // Without a normal, it is never true.
    assert_eq!(second(&mut *detector, &slow, &[failed("SMB2_READ", 1)], None).0, None);
    assert_eq!(detector.fault(), None);
}

#[test]
fn figures_are_of_an_operation_a_mount_or_all() {
    let busy = [
        finished("SMB2_READ", 1, &[1.0; 6]),
        finished("SMB2_WRITE", 1, &[1.0; 6]),
        finished("SMB2_WRITE", 2, &[1.0; 6]),
        finished("SMB2_CREATE", 2, &[1.0; 60]),
    ];
    let said = |text: &str, per| {
        let anomaly = second(&mut *rule(text, per, 1).detector(), &busy, &[], None).0;
        anomaly.map_or_else(String::new, |anomaly| anomaly.observed)
    };
    assert_eq!(
        said("count > 5 && bytes > 1", Per::Mount),
        "on /mnt/1: count 12, bytes 49152; on /mnt/2: count 6, bytes 24576"
    );
    assert_eq!(said("count > 12", Per::Rule), "all together: count 18");
    assert_eq!(said("count > 6", Per::Operation), "");
    assert_eq!(
        said("rate == 6 && in_flight < 0.1 && mean < 2 && max < 2", Per::Operation).matches(" on /mnt/").count(),
        3
    );
    assert_eq!(said("rate > 17.9", Per::Rule), "all together: rate 18 a second");
}

#[test]
fn it_must_hold_for_so_many_windows_in_a_row_in_one_place() {
    let mut detector = rule("p50 > 50", Per::Operation, 3).detector();
    let (slow, fast) = (finished("SMB2_READ", 1, &[80.0; 4]), finished("SMB2_READ", 1, &[8.0; 4]));
    let elsewhere = finished("SMB2_READ", 2, &[80.0; 4]);
    let mut broken = |seconds: &[&FinishedOperations]| {
        let seconds = seconds.iter().map(|one| second(&mut *detector, &[(*one).clone()], &[], None).0.is_some());
        seconds.collect::<Vec<_>>()
    };
    assert_eq!(
        broken(&[&slow, &slow, &fast, &slow, &slow, &slow, &slow]),
        [false, false, false, false, false, true, true]
    );
    assert_eq!(
        broken(&[&elsewhere, &slow, &elsewhere, &slow, &elsewhere, &elsewhere, &elsewhere]),
        [false, false, false, false, false, false, true]
    );
}

#[test]
fn what_cannot_be_calculated_is_told_once() {
    let mut detector = rule("count / errors > 3", Per::Operation, 1).detector();
    let operations = [finished("SMB2_READ", 1, &[1.0; 4])];
    assert_eq!(second(&mut *detector, &operations, &[], None).0, None);
    let told = "`count / errors > 3` came to a division by zero: SMB2_READ on /mnt/1: count 4, errors 0";
    assert_eq!(detector.fault().as_deref(), Some(told));
    second(&mut *detector, &operations, &[], None);
    assert_eq!(detector.fault(), None);
    assert!(second(&mut *detector, &operations, &[failed("SMB2_READ", 1)], None).0.is_some());
}

#[test]
fn failures_beyond_those_that_a_window_keeps_are_counted() {
    let mut detector = rule("errors > 4000", Per::Operation, 1).detector();
    let failures = vec![failed("SMB2_WRITE", 1); 5000];
    let operations = [finished("SMB2_WRITE", 1, &[1.0; 5000])];
    let (anomaly, _) = second(&mut *detector, &operations, &failures, None);
    assert_eq!(anomaly.expect("it holds").observed, "SMB2_WRITE on /mnt/1: errors 5000");
}

#[test]
fn the_normal_is_that_of_operations_of_the_same_sizes() {
    let mut long_term = LongTerm::default();
    long_term.name(MountKey(1), "//server/share");
    for period in 1..=4_u64 {
        let event = |ms: f64, bytes| Event { bytes, mount: MountKey(1), ..smb("SMB2_READ", 1.0, [0.0, ms, 0.0]) };
        let events: Vec<_> = (0..20).flat_map(|_| [event(1.0, 4096), event(50.0, 1 << 20)]).collect();
        let sample = PeriodSample {
            now: period * 10 * SECOND,
            length: 10 * SECOND,
            each: 1.0,
            events: &events,
            in_trouble: &|_| false,
        };
        long_term.learn(&sample);
    }
    let of = |bytes: &[u64]| {
        let mut one = finished("SMB2_READ", 1, &[]);
        bytes.iter().for_each(|bytes| one.histogram.add(MS, *bytes, false));
        long_term.usual(&[&one])
    };
    let median = |bytes: &[u64]| of(bytes).expect("known").quantile(0.5).unwrap() as f64 / 1e6;
    assert!((0.8..1.3).contains(&median(&[4096; 9])) && (40.0..65.0).contains(&median(&[1 << 20; 9])));
    let mixed = of(&[4096, 4096, 4096, 1 << 20]).expect("known");
    assert!((10.0..17.0).contains(&(mixed.mean().unwrap() / 1e6)), "{mixed:?}");
    assert_eq!(mixed.count(), 4.0);
    assert_eq!(of(&[1 << 10; 9]), None);
    let elsewhere = FinishedOperations { mount: MountKey(2), ..finished("SMB2_READ", 1, &[1.0; 3]) };
    assert_eq!(long_term.usual(&[&elsewhere]), None);
}
