//! What TCP counted while slow operations were under way: whether the path carried all that it can, or the server took nothing more.
//!
//! TCP counts for how long something was sent and not acknowledged (`chrono_stat`). The peer's TCP acknowledges whether or not its service reads, until its
//! window is full, and that is counted as well. So a slow server makes no connection busy: requests are acknowledged long before they are answered. A path
//! that is too narrow does, and the rate at which data is acknowledged is then its own.

use model::{Direction, Event, Nanos, SocketTotals};

use super::scene::{JIFFY, Scene, covered, flight, not_between, union};
use crate::{
    order::median,
    units::{MS, SECOND},
};

/// From this share of the time on something was not acknowledged, the connection is busy.
const BUSY: f64 = 0.6;
/// And so much of the time the path needs for what was written, at its rate: delayed acknowledgements make a connection busy without a load.
const NEEDED: f64 = 0.4;
/// Up to this share of the time, the peer's window was not why.
const OPEN: f64 = 0.1;

/// Shares of the time in which slow operations were under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    /// Something was sent and not acknowledged.
    pub busy: f64,
    /// What waited to be sent did not fit the peer's window.
    pub window: f64,
    /// How long the path takes for what was written.
    needed: f64,
    /// At which data was acknowledged, bytes a second.
    rate: f64,
}

impl Sending {
    /// `None` where the totals are not known.
    pub fn of(scene: &Scene) -> Option<Self> {
        let mut seen: Vec<_> =
            scene.during.iter().filter_map(|event| Some((flight(event), event.progress.as_ref()?.socket?))).collect();
        seen.sort_by_key(|((_, received), _)| *received);
        let flights = union(seen.iter().map(|(flight, _)| *flight).collect());
        let (mut busy, mut window, mut under_way, mut all) = (0, 0, 0, 0);
        for pair in seen.windows(2) {
            let [((_, from), before), ((_, to), now)] = pair else { continue };
            let elapsed = to - from;
            let Some(grown) = Grown::of(before, now, elapsed) else { continue };
            let within = covered(&flights, (*from, *to));
            busy += not_between(grown.busy.min(elapsed), elapsed, within);
            window += not_between(grown.window.min(elapsed), elapsed, within);
            under_way += within;
            all += elapsed;
        }
        let (((_, from), _), ((_, to), _)) = (seen.first()?, seen.last()?);
        let written = |event: &&&Event| {
            event.operation.direction() == Some(Direction::Written) && event.end() > *from && event.end() <= *to
        };
        let bytes: f64 = scene.during.iter().filter(written).map(|event| event.bytes as f64).sum();
        let rates: Vec<_> = seen.iter().filter(|(_, totals)| !totals.application_limited).collect();
        let rate = median(rates.into_iter().map(|(_, totals)| totals.delivery_rate).collect()).unwrap_or(0) as f64;
        let time = |time: Nanos| (time as f64).max(1.0);
        (under_way > 0).then(|| Self {
            busy: busy as f64 / time(under_way),
            window: window as f64 / time(under_way),
            needed: if rate > 0.0 { bytes / rate * SECOND as f64 / time(all) } else { 0.0 },
            rate,
        })
    }

    /// Whether data was on its way most of the time, and not for want of the peer's window.
    pub fn is_busy(&self) -> bool {
        self.busy >= BUSY && self.window <= OPEN
    }

    /// Whether the path carried all that it can.
    pub fn is_saturated(&self) -> bool {
        self.is_busy() && self.needed >= NEEDED
    }

    /// Said where either was so.
    pub fn sentence(&self) -> Option<String> {
        if self.is_saturated() {
            return Some(format!(
                "While slow operations were under way, data was on its way to the server for {:.0} % of the time, and acknowledged at {:.1} Mbit/s: the path carried no more.",
                self.busy * 100.0,
                self.rate * 8.0 / 1e6
            ));
        }
        (self.window > OPEN).then(|| {
            format!(
                "For {:.0} % of the time of slow operations, what was to be sent did not fit the server's window: it reads too slowly.",
                self.window * 100.0
            )
        })
    }
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
