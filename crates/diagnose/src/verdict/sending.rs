//! What TCP counted while slow operations were under way: whether the path carried all that it can, or the server's window was closed.
//!
//! TCP counts for how long something was sent and not acknowledged (`chrono_stat`). The peer's TCP acknowledges whether or not its service reads, until its
//! window is full, and that is counted as well. So a slow server makes no connection busy, but for acknowledgements that it delays: requests are acknowledged
//! long before they are answered. A path that is too narrow does, and the rate at which data is acknowledged is then its own.

use model::{Direction, Event, Nanos, SocketTotals};

use super::history::ACK_DELAY;
use super::scene::{JIFFY, Scene, covered, flight, not_between, union};
use crate::{
    order::median,
    units::{MS, SECOND},
};

/// From this share of the time on something was not acknowledged, the connection is busy.
const BUSY: f64 = 0.6;
/// And so much of the time the path needs for what was written, at its rate: delayed acknowledgements make a connection busy without a load.
const NEEDED: f64 = 0.4;
/// From this share of the time on, the peer's window was why most of it passed.
const MOSTLY: f64 = 0.5;
/// Up to this share of the time, the peer's window was not why.
const OPEN: f64 = 0.1;

/// From this share of the extra time on, a longer path is why a connection is busy. Else many requests on any path make it so.
const LONGER: f64 = 0.2;

/// Shares of the time in which slow operations were under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    /// Something was sent and not acknowledged: at least.
    busy: f64,
    /// What waited to be sent did not fit the peer's window: at least, and at most.
    window: f64,
    window_at_most: f64,
    /// How long the path takes for what was written.
    needed: f64,
    /// At which data was acknowledged, bytes a second; 0 where that is not known.
    rate: f64,
    /// Answers prove a longer path that is a good part of the extra time.
    is_longer: bool,
    /// TCP spaces what it sends: some of it waits in this host's queueing discipline, whatever the path is like.
    pub is_paced: bool,
}

/// A slow operation's end, when its totals were read; and these.
type Seen = (Nanos, SocketTotals);

impl Sending {
    /// `None` where the totals are not known.
    pub fn of(scene: &Scene) -> Option<Self> {
        let known = || scene.during.iter().filter_map(|event| Some((*event, event.progress.as_ref()?.socket?)));
        let flights = union(known().map(|(event, _)| flight(event)).collect());
        // In the order of ending, as `during` is.
        let seen: Vec<Seen> = known().map(|(event, totals)| (event.end(), totals)).collect();
        let [mut busy, mut window, mut window_at_most, mut under_way, mut all, mut bytes] = [0; 6];
        for pair in seen.windows(2) {
            let [(from, before), (to, now)] = pair else { continue };
            let elapsed = to - from;
            let Some(grown) = Grown::of(before, now, elapsed) else { continue };
            let within = covered(&flights, (*from, *to));
            busy += not_between(grown.busy.min(elapsed), elapsed, within);
            window += not_between(grown.window.min(elapsed), elapsed, within);
            window_at_most += grown.window.min(within);
            under_way += within;
            all += elapsed;
            bytes += written(&scene.during, *from, *to);
        }
        let rates = |is: fn(&SocketTotals) -> bool| {
            let rates = seen.iter().filter(|(_, totals)| is(totals)).map(|(_, totals)| totals.delivery_rate);
            median(rates.collect()).unwrap_or(0)
        };
        // Where there was not always something to send, the path may be faster than its rate says, but not slower.
        let unlimited = rates(|totals| !totals.application_limited);
        let rate = if unlimited > 0 { unlimited.max(rates(|_| true)) as f64 } else { 0.0 };
        let share = |time: u64, of: u64| time as f64 / (of as f64).max(1.0);
        (under_way > 0).then(|| Self {
            busy: share(busy, under_way),
            window: share(window, under_way),
            window_at_most: share(window_at_most, under_way),
            needed: if rate > 0.0 { bytes as f64 / rate * SECOND as f64 / (all as f64) } else { 0.0 },
            rate,
            is_longer: is_longer(scene),
            is_paced: seen.iter().any(|(_, totals)| totals.pacing_rate > 0),
        })
    }

    /// Whether data was on its way most of the time, and not for want of the peer's window.
    pub fn is_busy(&self) -> bool {
        self.busy >= BUSY && self.is_window_open()
    }

    /// Whether what waited to be sent fitted the peer's window.
    pub fn is_window_open(&self) -> bool {
        self.window_at_most <= OPEN
    }

    /// The part of this time for which data was on its way: at least.
    pub fn busy_part(&self, time: Nanos) -> Nanos {
        let part = (time as f64 * self.busy.min(1.0)) as Nanos;
        if self.is_loaded() { part } else { part.saturating_sub(ACK_DELAY) }
    }

    /// The part of this time for which the server's window was closed: at least.
    pub fn window_part(&self, time: Nanos) -> Nanos {
        (time as f64 * self.window.min(1.0)) as Nanos
    }

    /// Whether what waited to be sent did not fit the peer's window for most of the time. A server that does not read closes its window; a middlebox may make it small.
    pub fn is_for_want_of_window(&self) -> bool {
        self.window >= MOSTLY
    }

    /// Whether delayed acknowledgements are not why it was busy.
    fn is_loaded(&self) -> bool {
        self.is_longer || self.needed >= NEEDED
    }

    /// Whether the path carried all that it can.
    pub fn is_saturated(&self) -> bool {
        self.is_busy() && self.is_loaded()
    }

    /// For which share of the time data was on its way, percent.
    pub fn busy_percent(&self) -> f64 {
        self.busy.min(1.0) * 100.0
    }

    /// Said where either was so.
    pub fn sentence(&self) -> Option<String> {
        if self.is_saturated() {
            let rate = if self.needed >= NEEDED {
                format!(", and acknowledged at {:.1} Mbit/s: the path carried no more", self.rate * 8.0 / 1e6)
            } else {
                String::new()
            };
            return Some(format!(
                "While slow operations were under way, data was on its way to the server for {:.0} % of the time{rate}.",
                self.busy_percent(),
            ));
        }
        (self.window > OPEN).then(|| {
            format!(
                "For {:.0} % of the time of slow operations, what was to be sent did not fit the server's window.",
                self.window * 100.0
            )
        })
    }
}

/// Whether answers prove a longer path that is a good part of the extra time.
fn is_longer(scene: &Scene) -> bool {
    let extra = scene.mean(|event| event.phases.wire.saturating_sub(scene.normal(event).wire));
    scene.path.longer().and_then(|path| path.proven).is_some_and(|more| more as f64 >= extra * LONGER)
}

/// The bytes of the writes that ended after `from`, up to `to`. `events`: in the order of ending.
fn written(events: &[&Event], from: Nanos, to: Nanos) -> u64 {
    let first = events.partition_point(|event| event.end() <= from);
    let ended = events.iter().skip(first).take_while(|event| event.end() <= to);
    ended.filter(|event| event.operation.direction() == Some(Direction::Written)).map(|event| event.bytes).sum()
}

/// What two of the totals grew by.
struct Grown {
    busy: Nanos,
    window: Nanos,
}

impl Grown {
    /// `None` if they are not of one connection's socket.
    fn of(before: &SocketTotals, now: &SocketTotals, elapsed: Nanos) -> Option<Self> {
        let since = now.since(before);
        let [busy, window] = [since.busy_ms, since.window_ms].map(|ms| u64::from(ms) * MS);
        (busy <= elapsed + JIFFY && window <= busy + JIFFY).then_some(Self { busy, window })
    }
}
