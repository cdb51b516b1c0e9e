//! What is normal here over hours: what is learned, what is not, and what follows from it.

mod common;

use std::time::Duration;

use common::{
    MS,
    faults::{self, SimulatedScene},
    rule, smb,
};
use model::{Cause, Event, Layer, MountKey, Network};
use plumbline_diagnose::{
    long_term::{LongTerm, PERIOD, PeriodSample},
    rule::Rule,
    verdict,
};

const SHARE: &str = "//server/share";

fn period(number: u64) -> u64 {
    (number + 1) * PERIOD.as_nanos() as u64
}

/// Learns so many periods of the same events.
fn learn(long_term: &mut LongTerm, from: u64, periods: u64, events: &[Event], in_trouble: bool) {
    long_term.name(MountKey::source(SHARE.as_bytes()), SHARE);
    for number in from..from + periods {
        let length = PERIOD.as_nanos() as u64;
        long_term.learn(&PeriodSample { now: period(number), length, each: 1.0, events, in_trouble: &|_| in_trouble });
    }
}

fn learned(periods: u64, events: &[Event]) -> LongTerm {
    let mut long_term = LongTerm::default();
    learn(&mut long_term, 0, periods, events, false);
    long_term
}

fn writes(count: u64, wire: f64) -> Vec<Event> {
    (0..count).map(|index| smb("SMB2_WRITE", index as f64 * 100.0, [0.0, wire, 0.1])).collect()
}

#[test]
fn a_server_is_named_for_what_remains_where_only_hours_say_what_is_normal() {
    let scene: SimulatedScene = faults::without_past(faults::slow_writes(25.0, 10));
    let known = learned(3, &SimulatedScene::healthy().around);
    let new = verdict(&scene.slow, &scene.around, &LongTerm::default());
    assert_eq!(new.layer, Layer::Unknown, "{new:?}");
    let judged = verdict(&scene.slow, &scene.around, &known);
    assert_eq!((judged.layer, judged.cause), (Layer::Server, Some(Cause::SlowOperation)), "{judged:?}");
    assert!(judged.because[0].contains("in the last hours of activity)"), "{judged:?}");
}

#[test]
fn a_server_that_answers_others_at_once_is_slow_with_some_though_their_normal_is_not_known() {
    let of = |ms| {
        let scene = faults::without_past(faults::slow_writes(ms, 10));
        let judged = verdict(&scene.slow, &scene.around, &LongTerm::default());
        (judged.layer, judged.cause)
    };
    assert_eq!(of(60.0), (Layer::Server, Some(Cause::SlowOperation)));
    assert_eq!(of(25.0), (Layer::Unknown, None), "a disk may always take that long");
}

#[test]
fn a_path_is_longer_than_it_was_for_hours_though_nothing_came_before() {
    let mut scene = faults::without_past(faults::longer_path(60.0));
    // TCP itself has seen no shorter one.
    let lengthened = |event: &mut Event| event.network.min_rtt_us = event.network.rtt_us;
    scene.slow.iter_mut().chain(&mut scene.around).for_each(lengthened);
    let mut healthy = SimulatedScene::healthy().around;
    healthy.iter_mut().for_each(|event| event.network = Network { rtt_us: 300, ..event.network });
    let judged = verdict(&scene.slow, &scene.around, &learned(3, &healthy));
    assert_eq!((judged.layer, judged.cause), (Layer::Network, Some(Cause::LongerPath)), "{judged:?}");
    assert_ne!(verdict(&scene.slow, &scene.around, &LongTerm::default()).layer, Layer::Server);
}

#[test]
fn what_a_distant_server_takes_for_hours_is_not_slow_and_twice_that_is() {
    let latency = rule(10);
    let as_ever = smb("SMB2_WRITE", 0.0, [0.0, 30.0, 0.1]);
    let slow = smb("SMB2_WRITE", 0.0, [0.0, 80.0, 0.1]);
    let larger = Event { bytes: 1 << 20, ..as_ever.clone() };
    let counts = |long_term: &LongTerm, event: &Event| latency.detector().counts(event, long_term);
    let an_hour = learned(360, &writes(10, 28.0));
    assert!(!counts(&an_hour, &as_ever) && counts(&an_hour, &slow));
    assert!(counts(&an_hour, &larger), "of this size nothing is known");
    assert!(counts(&learned(330, &writes(10, 28.0)), &as_ever), "less than an hour overrules no threshold");
    assert!(counts(&LongTerm::default(), &as_ever));
    let by_threshold = plumbline_diagnose::latency::LatencyRule { normal_factor: 0.0, ..latency.clone() };
    assert!(by_threshold.detector().counts(&as_ever, &an_hour));
    // Nor is what always takes longer than the ceiling.
    let archive = learned(360, &writes(10, 1_500.0));
    assert!(!counts(&archive, &smb("SMB2_WRITE", 0.0, [0.0, 1_600.0, 0.0])));
}

#[test]
fn nothing_is_learned_of_trouble_unless_there_is_trouble_most_of_the_time() {
    let (healthy, trouble) = (writes(10, 1.0), writes(10, 100.0));
    let mut long_term = learned(720, &healthy);
    learn(&mut long_term, 720, 600, &trouble, true);
    let usual = |long_term: &LongTerm| long_term.usual_most(&healthy[0]).unwrap() / MS;
    assert_eq!(usual(&long_term), 1);
    learn(&mut long_term, 1_320, 4_000, &trouble, true);
    assert!(usual(&long_term) > 80, "by now that is the normal");
}

#[test]
fn the_past_fades_and_nothing_grows_without_bound() {
    let mut long_term = learned(360, &writes(10, 30.0));
    learn(&mut long_term, 360, 30_000, &writes(10, 1.0), false);
    assert_eq!(long_term.usual_most(&writes(1, 1.0)[0]).unwrap() / MS, 1);
    let count = long_term.places()[SHARE].operations;
    assert!(count < 100_000.0, "{count} of 303 600, three and a half days later");

    for server in 0..300_u64 {
        let key = MountKey(1 << 63 | server);
        long_term.name(key, &format!("//server{server}/share"));
        let sized = |power: u32| Event { mount: key, bytes: 1 << power, ..writes(1, 1.0)[0].clone() };
        let events: Vec<_> = (0..20).map(sized).collect();
        let now = period(40_000 + server);
        long_term.learn(&PeriodSample { now, length: 1, each: 1.0, events: &events, in_trouble: &|_| false });
    }
    let kinds: usize = long_term.places().values().map(|place| place.kinds.len()).sum();
    assert!(long_term.places().len() <= 128 && kinds == 512, "{} {kinds}", long_term.places().len());
    assert_eq!(long_term.places()["//server299/share"].kinds.len(), 20, "what was seen last is kept");
}

#[test]
fn what_waits_by_design_has_no_answer_or_no_name_is_not_learned() {
    let mut events = writes(3, 1.0);
    events[0].operation = common::operation("SMB2_CHANGE_NOTIFY");
    events[1].flags.unanswered = true;
    events[2].mount = MountKey(7);
    assert!(learned(1, &events).places().is_empty());
    assert_eq!(PERIOD, Duration::from_secs(10), "docs/verdicts.md says so");
}
