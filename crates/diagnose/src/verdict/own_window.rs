//! Whether this host's receive window limits how fast the server may answer.
//!
//! TCP sends no more than the peer's receive window allows, so a round trip brings one window of answers at most. The
//! window grows with the receive buffer, which `net.ipv4.tcp_rmem`, a socket option or a lack of memory may keep small.

use model::{Direction, Event};

use super::{
    history::{is_as_short, round_trip},
    scene::{Scene, flight, union},
};
use crate::{
    order::median,
    units::{SECOND, size, span},
};

/// The window is the limit if the answers filled at least the share `FILLED` of what it allows, and at most `MOST`: beyond `MOST`, the window was
/// larger meanwhile. TCP offers about twice what a round trip brings, so answers fill only half of a window that grows with them.
const FILLED: f64 = 0.6;
const MOST: f64 = 1.5;
/// Reads, and waiting behind the answers to reads, must explain at least this share of the slow operations' time on the wire.
const EXPLAINED: f64 = 0.5;
/// Fewer windows do not show which is usual.
const FEW: usize = 5;
/// Fewer reads do not show a rate.
const LEAST: usize = 3;

/// A receive window that the answers filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnWindow {
    /// The largest window that this host usually offered, bytes.
    window: u64,
    /// The shortest round trip, nanoseconds.
    round_trip: u64,
    /// The rate of the answers, bytes per second.
    rate: f64,
    /// The rate as a share of what the window allows.
    filled: f64,
}

impl OwnWindow {
    /// `None` if the window is not known, if the answers did not fill it, if they filled it before anything was slow, or if round trips take much
    /// longer than the shortest one: then the path is full.
    pub fn of(scene: &Scene) -> Option<Self> {
        let sockets = scene.during.iter().filter_map(|event| event.socket());
        let window =
            usual(sockets.map(|socket| u64::from(socket.own_window)).collect()).filter(|window| *window > 0)?;
        let shortest = scene.during.iter().filter_map(|event| event.network.least_round_trip()).min()?;
        let now = median(scene.during.iter().filter_map(|event| round_trip(event)).collect())?;
        if !is_as_short(now, shortest) {
            return None;
        }
        let most = window as f64 / shortest as f64 * SECOND as f64;
        let is_filled = |rate: &f64| (FILLED..=MOST).contains(&(rate / most));
        let rate = rate(&scene.during).filter(is_filled)?;
        if explained(scene, rate) < EXPLAINED {
            return None;
        }
        let was_filled = self::rate(&scene.fast_before().collect::<Vec<_>>()).is_some_and(|rate| is_filled(&rate));
        (!was_filled).then_some(Self { window, round_trip: shortest, rate, filled: rate / most })
    }

    pub fn sentence(self) -> String {
        format!(
            "This host usually offered a receive window of at most {}, so a round trip of {} brings no more than that. Answers came at {} a second, {:.0} % of what \
             that allows.",
            size(self.window),
            span(self.round_trip),
            size(self.rate as u64),
            self.filled * 100.0,
        )
    }
}

/// The largest of these windows, bytes. Of five and more, the largest tenth (rounded up) does not count: a new connection or a changed setting may have made
/// a few larger.
fn usual(mut windows: Vec<u64>) -> Option<u64> {
    windows.sort_unstable();
    let others = if windows.len() < FEW { 0 } else { windows.len().div_ceil(10) };
    windows.len().checked_sub(1 + others).and_then(|largest| windows.get(largest)).copied()
}

/// The share of the slow operations' time on the wire that reads explain: the time of slow reads, and the time that the answers to reads took at this
/// rate that were outstanding when another slow request was sent.
fn explained(scene: &Scene, rate: f64) -> f64 {
    let reads: Vec<_> =
        scene.during.iter().filter(|event| is_read(event)).map(|event| (flight(event), event.bytes)).collect();
    let (mut part, mut all) = (0.0, 0.0);
    for event in &scene.judged {
        let (sent, wire) = (flight(event).0, event.phases.wire as f64);
        let outstanding = reads.iter().filter(|((from, to), _)| (from..to).contains(&&sent)).map(|(_, bytes)| *bytes);
        let behind = outstanding.fold(0, u64::saturating_add) as f64 / rate.max(1.0) * SECOND as f64;
        all += wire;
        part += if is_read(event) { wire } else { behind.min(wire) };
    }
    part / f64::max(all, 1.0)
}

fn is_read(event: &Event) -> bool {
    event.operation.direction() == Some(Direction::Read) && event.bytes > 0
}

/// The bytes per second that reads brought while any were under way; `None` if there are too few reads.
fn rate(events: &[&Event]) -> Option<f64> {
    let reads: Vec<_> = events.iter().filter(|event| is_read(event)).collect();
    let under_way = union(reads.iter().map(|event| flight(event)).collect());
    let time = under_way.iter().map(|(from, to)| to - from).fold(0, u64::saturating_add);
    let bytes = reads.iter().map(|event| event.bytes).fold(0, u64::saturating_add);
    (reads.len() >= LEAST).then(|| bytes as f64 / time.max(1) as f64 * SECOND as f64)
}
