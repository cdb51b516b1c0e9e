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
/// Reads must have at least this share of the slow operations' time on the wire; other answers wait behind the answers to reads.
const READS: f64 = 0.25;
/// Fewer reads do not show a rate.
const LEAST: usize = 3;

/// A receive window that the answers filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnWindow {
    /// The largest window that this host offered, bytes.
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
        let sockets = scene.during.iter().filter_map(|event| event.progress.as_ref()?.socket);
        let window = sockets.map(|socket| u64::from(socket.own_window)).max().filter(|window| *window > 0)?;
        let shortest = scene.during.iter().filter_map(|event| event.network.least_round_trip()).min()?;
        let now = median(scene.during.iter().filter_map(|event| round_trip(event)).collect())?;
        let wire = scene.mean(|event| event.phases.wire);
        let of_reads = scene.mean(|event| if is_read(event) { event.phases.wire } else { 0 });
        if !is_as_short(now, shortest) || of_reads < wire * READS {
            return None;
        }
        let most = window as f64 / shortest as f64 * SECOND as f64;
        let is_filled = |rate: &f64| (FILLED..=MOST).contains(&(rate / most));
        let rate = rate(&scene.during).filter(is_filled)?;
        let was_filled = self::rate(&scene.fast_before().collect::<Vec<_>>()).is_some_and(|rate| is_filled(&rate));
        (!was_filled).then_some(Self { window, round_trip: shortest, rate, filled: rate / most })
    }

    pub fn sentence(self) -> String {
        format!(
            "This host offered a receive window of at most {}, so a round trip of {} brings no more than that. Answers came at {} a second, {:.0} % of what \
             that allows.",
            size(self.window),
            span(self.round_trip),
            size(self.rate as u64),
            self.filled * 100.0,
        )
    }
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
