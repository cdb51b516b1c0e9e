//! How long a verdict takes for an incident of 10 000 operations, 1 000 of them slow at once; milliseconds: `bench/judge`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::{env, hint::black_box, time::Instant};

use common::smb;
use model::Event;
use plumbline_diagnose::{latency, long_term::LongTerm};

const OPERATIONS: u32 = 10_000;

fn main() {
    let rounds = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(31_usize).max(1);
    let around = operations();
    let slow: Vec<_> = around.iter().filter(|event| event.duration >= 50 * common::MS).cloned().collect();
    let long_term = LongTerm::default();
    let mut took: Vec<_> = (0..rounds)
        .map(|_| {
            let from = Instant::now();
            black_box(plumbline_diagnose::judge(latency::KIND, black_box(&slow), &around, &[], &long_term));
            from.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    took.sort_by(f64::total_cmp);
    let [least, median, most] = [0, rounds / 2, rounds - 1].map(|at| took.get(at).copied().unwrap_or_default());
    println!(
        "{} of {} operations are slow: {median:.2} ms ({least:.2} to {most:.2}); budget 10 ms",
        slow.len(),
        around.len()
    );
}

/// Reads of 0.5 ms, one a millisecond; in the middle, all of a second take 4 s, so that many are under way at once.
fn operations() -> Vec<Event> {
    let one = |n: u32| {
        let is_slow = (OPERATIONS / 2..OPERATIONS / 2 + 1_000).contains(&n);
        let kind = if n.is_multiple_of(8) { "SMB2_WRITE" } else { "SMB2_READ" };
        smb(kind, f64::from(n), [0.05, if is_slow { 4_000.0 } else { 0.4 }, 0.05])
    };
    let mut events: Vec<_> = (0..OPERATIONS).map(one).collect();
    events.sort_by_key(Event::end);
    events
}
