//! Whether this host asked for much more than before, and got it: then what is slow is slow for its own load.
//!
//! A server or a path that is at fault serves less than before, or as much. One that serves several times as much as it ever did is busy, not slow, if what it is
//! asked for would keep it busy for much of the time even if it took as little as ever for each.

use std::collections::BTreeMap;

use model::{Event, Nanos, Operation};

use super::{
    history::{answered, round_trip},
    scene::Scene,
};
use crate::{order::median, units::SECOND};

/// So many times what was asked for and answered before, at the busiest, is a burst.
const BURST: f64 = 3.0;
/// At least for this part of the time a server would be busy with it that took as little as ever for each.
const BUSY: f64 = 0.15;
/// Fewer bytes in a second are no load.
const LEAST_BYTES: f64 = 1e6;
/// Fewer operations are none.
const LEAST_OPERATIONS: usize = 20;
/// What is looked at is at least so long; what was before, in stretches as long as it, but at most this long; nanoseconds.
const LEAST_LENGTH: u64 = SECOND / 2;
const MOST_LENGTH: u64 = SECOND;
/// How busy a connection gets is not known from fewer stretches.
const STRETCHES: usize = 3;
/// And not from more either: ten minutes.
const MOST_STRETCHES: usize = 1200;
/// From fewer operations of a kind it is not known how long they take.
const LEAST_OF_KIND: usize = 5;
/// From this share on, the load is one process's.
const MOST_OF_LOAD: f64 = 0.6;

/// What was asked for and answered in a second.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    operations: f64,
    bytes: f64,
}

/// A load that is several times what it was before.
#[derive(Debug)]
pub(super) struct Burst {
    now: Rate,
    before: Rate,
    /// Whose it is: share, process, name.
    whose: Option<(f64, u32, String)>,
}

impl Burst {
    /// `None` if there is none, or it is not known what was before.
    pub fn of(scene: &Scene) -> Option<Self> {
        let all = || scene.before.iter().chain(&scene.during).copied().filter(|event| answered(event));
        let end = scene.during.iter().map(|event| event.end()).max()?;
        let from = scene.from.min(end.saturating_sub(LEAST_LENGTH));
        let length = end - from;
        let of_burst: Vec<_> = all().filter(|event| event.end() >= from).collect();
        if of_burst.len() < LEAST_OPERATIONS {
            return None;
        }
        let now = rate(&of_burst, length);
        let stretches = stretches(all(), from, length.min(MOST_LENGTH));
        let busiest = |of: fn(&Rate) -> f64| busiest(&stretches.iter().map(of).collect::<Vec<_>>(), of(&now));
        let recorded = busiest(|rate| rate.operations).zip(busiest(|rate| rate.bytes));
        let first = of_burst.first()?;
        let learned = scene.long_term.busiest(first.mount, first.operation.protocol());
        let (operations, bytes) = match (recorded, learned) {
            (Some((operations, bytes)), Some((usual, moved))) => (operations.max(usual), bytes.max(moved)),
            (one, other) => one.or(other)?,
        };
        let before = Rate { operations, bytes };
        // What follows an idle while is no burst: nobody knows what is much here.
        let is_more =
            operations > 0.0 && (now.operations >= operations * BURST || now.bytes >= (bytes * BURST).max(LEAST_BYTES));
        let is_busy = Service::of(scene).needed(&of_burst) as f64 >= length as f64 * BUSY;
        (is_more && is_busy).then(|| Self { now, before, whose: whose(scene, &of_burst) })
    }

    pub fn sentence(&self) -> String {
        let told = |rate: Rate| {
            format!("{:.0} operations and {:.1} MiB a second", rate.operations, rate.bytes / f64::from(1 << 20))
        };
        let mut text = format!(
            "This host asked for much more than before, and got it: {}; before, it was {} at the most.",
            told(self.now),
            told(self.before)
        );
        if let Some((share, pid, name)) = &self.whose {
            text.push_str(&format!(" {:.0} % of that are of {name} ({pid}).", share * 100.0));
        }
        text
    }
}

fn rate(events: &[&Event], length: u64) -> Rate {
    let seconds = length.max(1) as f64 / SECOND as f64;
    let bytes: f64 = events.iter().map(|event| event.bytes as f64).sum();
    Rate { operations: events.len() as f64 / seconds, bytes: bytes / seconds }
}

/// What was asked for and answered before `from`, in stretches of this length, the latest first.
fn stretches<'e>(events: impl Iterator<Item = &'e Event>, from: Nanos, length: u64) -> Vec<Rate> {
    let mut stretches = Vec::<Vec<&Event>>::new();
    for event in events.take_while(|event| event.end() < from) {
        let stretch = usize::try_from((from - event.end()) / length).unwrap_or(usize::MAX);
        if stretch >= MOST_STRETCHES {
            continue;
        }
        if stretches.len() <= stretch {
            stretches.resize(stretch + 1, Vec::new());
        }
        stretches.get_mut(stretch).into_iter().for_each(|events| events.push(event));
    }
    // The first is not whole.
    stretches.pop();
    stretches.iter().map(|events| rate(events, length)).collect()
}

/// The most that there was in any stretch, but for those right before that belong to the burst, which begins before anything is slow: until there are three in a
/// row that do not. `None` if too little is left to say.
fn busiest(stretches: &[f64], now: f64) -> Option<f64> {
    let is_other = |rates: &[f64]| rates.iter().all(|rate| rate * BURST <= now);
    let begin = stretches.windows(STRETCHES).position(is_other).unwrap_or(0);
    let earlier = stretches.get(begin..).filter(|earlier| earlier.len() >= STRETCHES)?;
    Some(earlier.iter().copied().fold(0.0, f64::max))
}

/// How long the server takes for an operation when all is well, without the way to it: by kind, with the bytes that it takes that long for.
struct Service<'a> {
    scene: &'a Scene<'a>,
    round_trip: u64,
    kinds: BTreeMap<Operation, (u64, u64)>,
}

impl<'a> Service<'a> {
    fn of(scene: &'a Scene<'a>) -> Self {
        let mut groups = BTreeMap::<Operation, (Vec<u64>, Vec<u64>)>::new();
        for event in scene.fast_before().filter(|event| answered(event)) {
            let (wires, bytes) = groups.entry(event.operation).or_default();
            wires.push(event.phases.wire);
            bytes.push(event.bytes);
        }
        groups.retain(|_, (wires, _)| wires.len() >= LEAST_OF_KIND);
        let kinds = groups.into_iter().filter_map(|(of, (wires, bytes))| Some((of, (median(wires)?, median(bytes)?))));
        let round_trips = scene.before.iter().filter_map(|event| round_trip(event)).collect();
        let round_trip = median(round_trips).or_else(|| scene.learned_round_trip()).unwrap_or(0);
        Self { scene, round_trip, kinds: kinds.collect() }
    }

    /// What all of these would take one after the other, nanoseconds. Of kinds of which nothing is known, they count for nothing.
    fn needed(&self, events: &[&Event]) -> u64 {
        let one = |event: &&Event| {
            let (wire, times) = match self.kinds.get(&event.operation) {
                Some((wire, bytes)) => (*wire, event.bytes as f64 / (*bytes).max(1) as f64),
                None => (self.scene.normal(event).wire, 1.0),
            };
            (wire.saturating_sub(self.round_trip) as f64 * times.max(1.0)) as u64
        };
        events.iter().map(one).fold(0, u64::saturating_add)
    }
}

/// Whose most of the load is, by bytes where any are moved.
fn whose(scene: &Scene, events: &[&Event]) -> Option<(f64, u32, String)> {
    let moves = events.iter().any(|event| event.bytes > 0);
    let weight = |event: &Event| if moves { event.bytes as f64 } else { 1.0 };
    let mut by_process = BTreeMap::<u32, f64>::new();
    for event in events {
        *by_process.entry(event.requester.pid).or_default() += weight(event);
    }
    let all: f64 = by_process.values().sum();
    let (pid, most) = by_process.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let named = scene.judged.iter().find(|event| event.requester.pid == pid && pid != 0);
    let name = named?.requester.comm.to_string();
    Some((most / all.max(1.0), pid, name)).filter(|(share, ..)| *share >= MOST_OF_LOAD)
}
