//! Whether this host asked for much more than before, and got it: then its own load makes the operations slow.
//!
//! A faulty server or path serves no more than before. A server that serves several times as much as ever is busy, not
//! faulty. That holds only if the requests would keep it busy for much of the time at its usual speed.

use std::collections::BTreeMap;

use model::{Event, Nanos, Operation};

use super::{NS_PER_BYTE, history::answered, scene::Scene};
use crate::{order::median, units::SECOND};

/// A burst is at least this many times the busiest rate of answered operations, or of their bytes, before.
const BURST: f64 = 3.0;
/// A burst would keep a server of the usual speed busy for at least this share of the time.
const BUSY: f64 = 0.15;
/// Fewer bytes per second are no load.
const LEAST_BYTES: f64 = 1e6;
/// Fewer operations are no burst. An operation counts once for each `PIECE` of bytes that it moves.
const LEAST_OPERATIONS: usize = 20;
const PIECE: u64 = 64 << 10;
/// The burst is measured over at least `LEAST_LENGTH`. The time before is divided into stretches of the same length,
/// but at most `MOST_LENGTH`. Nanoseconds.
const LEAST_LENGTH: u64 = SECOND / 2;
const MOST_LENGTH: u64 = SECOND;
/// Fewer stretches do not show how busy a connection usually gets.
const STRETCHES: usize = 3;
/// Stretches further back than this are ignored: ten minutes in the shortest stretches.
const MOST_STRETCHES: usize = 1200;
/// Fewer operations of a kind do not show how long that kind takes.
const LEAST_OF_KIND: usize = 5;
/// A process with at least this share of the load is named.
const MOST_OF_LOAD: f64 = 0.6;

/// Answered operations and their bytes, per second.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    operations: f64,
    bytes: f64,
}

/// Where the load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the connection that is judged.
    Here,
    /// On another mount of the same server.
    Beside,
}

/// A load that is several times what it was before.
#[derive(Debug)]
pub(super) struct Burst {
    place: Place,
    now: Rate,
    before: Rate,
    /// Few operations moved the load.
    is_of_few: bool,
    /// The load's own operations take at least twice as long as usual. A server that answers them as fast as ever is not busy with them.
    is_slow: bool,
    /// The process with most of the load: its share (0 to 1), its id and its name.
    whose: Option<(f64, u32, String)>,
}

impl Burst {
    /// A burst on the judged connection, or else on another mount of the same server. `None` if there is no burst, or the load before is not
    /// known.
    pub fn of(scene: &Scene) -> Option<Self> {
        let here: Vec<_> = scene.before.iter().chain(&scene.during).copied().filter(|event| answered(event)).collect();
        let usual = ServiceTime::of(scene, scene.fast_before());
        Self::among(scene, Place::Here, &here, &usual).or_else(|| Self::beside(scene))
    }

    fn beside(scene: &Scene) -> Option<Self> {
        let mut mounts = BTreeMap::<_, Vec<&Event>>::new();
        for event in scene.beside.iter().copied().filter(|event| answered(event)) {
            mounts.entry(event.mount).or_default().push(event);
        }
        mounts.values().find_map(|events| {
            let before = events.iter().copied().filter(|event| event.end() < scene.from);
            let usual = ServiceTime::of(scene, before);
            Self::among(scene, Place::Beside, events, &usual).filter(|burst| burst.is_slow)
        })
    }

    /// `events`: in the order of ending.
    fn among(scene: &Scene, place: Place, events: &[&Event], usual: &ServiceTime) -> Option<Self> {
        let end = scene.during.iter().map(|event| event.end()).max()?;
        let from = scene.from.min(end.saturating_sub(LEAST_LENGTH));
        let length = end - from;
        let of_burst: Vec<_> = events.iter().copied().filter(|event| (from..=end).contains(&event.end())).collect();
        let pieces: u64 = of_burst.iter().map(|event| (event.bytes / PIECE).max(1)).sum();
        if pieces < LEAST_OPERATIONS as u64 {
            return None;
        }
        let now = rate(&of_burst, length);
        let stretches = stretches(events.iter().copied(), from, length.min(MOST_LENGTH));
        let busiest = |of: fn(&Rate) -> f64| busiest(&stretches.iter().map(of).collect::<Vec<_>>(), of(&now));
        let recorded = busiest(|rate| rate.operations).zip(busiest(|rate| rate.bytes));
        let first = of_burst.first()?;
        let learned = scene.long_term.busiest(first.mount, first.operation.protocol());
        let (operations, bytes) = match (recorded, learned) {
            (Some((operations, bytes)), Some((usual, moved))) => (operations.max(usual), bytes.max(moved)),
            (one, other) => one.or(other)?,
        };
        let before = Rate { operations, bytes };
        // Load after an idle time is no burst, since the usual load is not known.
        let is_more =
            operations > 0.0 && (now.operations >= operations * BURST || now.bytes >= (bytes * BURST).max(LEAST_BYTES));
        let needed = usual.needed(&of_burst);
        let is_busy = needed as f64 >= length as f64 * BUSY;
        let wire = of_burst.iter().map(|event| event.phases.wire).fold(0, u64::saturating_add);
        let is_slow = wire / 2 >= needed;
        let is_of_few = of_burst.len() < LEAST_OPERATIONS;
        (is_more && is_busy).then(|| Self { place, now, before, is_of_few, is_slow, whose: whose(scene, &of_burst) })
    }

    /// Whether the burst may be a coincidence: few operations moved the load, so their normal time is hardly known; or the load is on another mount,
    /// which may be on another disk.
    pub fn may_be_chance(&self) -> bool {
        self.is_of_few || self.place == Place::Beside
    }

    pub fn sentence(&self) -> String {
        let told = |rate: Rate| {
            format!("{:.0} operations and {:.1} MiB a second", rate.operations, rate.bytes / f64::from(1 << 20))
        };
        let place = if self.place == Place::Beside { " on another mount of the same server" } else { "" };
        let mut text = format!(
            "This host's load{place} was much higher than before, and the server served it: {}; before, at most {}.",
            told(self.now),
            told(self.before)
        );
        if let Some((share, pid, name)) = &self.whose {
            text.push_str(&format!(" {:.0} % of that load came from {name} ({pid}).", share * 100.0));
        }
        text
    }
}

fn rate(events: &[&Event], length: u64) -> Rate {
    let seconds = length.max(1) as f64 / SECOND as f64;
    let bytes: f64 = events.iter().map(|event| event.bytes as f64).sum();
    Rate { operations: events.len() as f64 / seconds, bytes: bytes / seconds }
}

/// The rates before `from`, in stretches of this length (nanoseconds), the latest first.
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
    // The earliest stretch is incomplete.
    stretches.pop();
    stretches.iter().map(|events| rate(events, length)).collect()
}

/// The highest rate before the burst. A burst begins before anything is slow, so the latest stretches may belong to it:
/// they are skipped until three in a row do not. `None` if fewer than three stretches are left.
fn busiest(stretches: &[f64], now: f64) -> Option<f64> {
    let is_other = |rates: &[f64]| rates.iter().all(|rate| rate * BURST <= now);
    let begin = stretches.windows(STRETCHES).position(is_other).unwrap_or(0);
    let earlier = stretches.get(begin..).filter(|earlier| earlier.len() >= STRETCHES)?;
    Some(earlier.iter().copied().fold(0.0, f64::max))
}

/// How long a healthy server takes for an operation, without the round trip.
struct ServiceTime<'a> {
    scene: &'a Scene<'a>,
    round_trip: u64,
    /// By kind: the median time on the wire, nanoseconds, and the median number of bytes.
    kinds: BTreeMap<Operation, (u64, u64)>,
}

impl<'a> ServiceTime<'a> {
    /// `healthy`: operations from before the incident.
    fn of<'e>(scene: &'a Scene<'a>, healthy: impl Iterator<Item = &'e Event>) -> Self {
        let mut groups = BTreeMap::<Operation, (Vec<u64>, Vec<u64>)>::new();
        for event in healthy.filter(|event| answered(event)) {
            let (wires, bytes) = groups.entry(event.operation).or_default();
            wires.push(event.phases.wire);
            bytes.push(event.bytes);
        }
        groups.retain(|_, (wires, _)| wires.len() >= LEAST_OF_KIND);
        let kinds = groups.into_iter().filter_map(|(of, (wires, bytes))| Some((of, (median(wires)?, median(bytes)?))));
        let round_trip = scene.usual_round_trip.unwrap_or(0);
        Self { scene, round_trip, kinds: kinds.collect() }
    }

    /// The time that the server would need for these operations one after the other, nanoseconds. Operations that are larger
    /// than usual, or of an unknown kind, count at least by their bytes.
    fn needed(&self, events: &[&Event]) -> u64 {
        let one = |event: &&Event| {
            let (wire, usual) = match self.kinds.get(&event.operation) {
                Some((wire, bytes)) => (*wire, *bytes),
                None => (self.scene.normal(event).wire, 0),
            };
            let times = if usual > 0 { event.bytes as f64 / usual as f64 } else { 1.0 };
            let by_bytes = event.bytes.saturating_sub(usual) as f64 * NS_PER_BYTE;
            (wire.saturating_sub(self.round_trip) as f64 * times.max(1.0)).max(by_bytes) as u64
        };
        events.iter().map(one).fold(0, u64::saturating_add)
    }
}

/// The process with most of the load, by bytes if any are moved, else by operations. `None` if no process has most, or
/// its name is not known.
fn whose(scene: &Scene, events: &[&Event]) -> Option<(f64, u32, String)> {
    let moves = events.iter().any(|event| event.bytes > 0);
    let weight = |event: &Event| if moves { event.bytes as f64 } else { 1.0 };
    let mut by_process = BTreeMap::<u32, f64>::new();
    for event in events {
        *by_process.entry(event.requester.pid).or_default() += weight(event);
    }
    let all: f64 = by_process.values().sum();
    let (pid, most) = by_process.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let is_named = |event: &&&Event| event.requester.pid == pid && pid != 0 && !event.requester.comm.is_empty();
    let named = scene.judged.iter().chain(events).find(is_named);
    let name = named?.requester.comm.to_string();
    Some((most / all.max(1.0), pid, name)).filter(|(share, ..)| *share >= MOST_OF_LOAD)
}
