//! What TCP counted while slow operations were under way: whether the path was saturated, or the server's receive
//! window limited sending.
//!
//! TCP counts how long data was sent and not acknowledged (`chrono_stat`): the connection is busy then. The server's
//! TCP acknowledges data whether or not the service reads it, until the receive window is full. TCP counts that time as
//! well. Requests are acknowledged long before they are answered, so a slow server does not make a connection busy,
//! except by delayed acknowledgements. A saturated path does, and data is then acknowledged at the path's own rate.

use model::{Direction, Event, Nanos, SocketTotals};

use super::history::{ACK_DELAY, is_as_short, round_trip};
use super::scene::{JIFFY, Scene, covered, flight, not_between, union};
use crate::{
    order::median,
    units::{MS, SECOND},
};

/// A connection is busy if sent data was unacknowledged for at least this share of the time.
const BUSY: f64 = 0.6;
/// A busy path is loaded if, at its rate, it needs at least this share of the time for the bytes written. Delayed
/// acknowledgements make a connection busy without load.
const NEEDED: f64 = 0.4;
/// The peer's window is to blame if it limited sending for at least this share of the time.
const MOSTLY: f64 = 0.5;
/// The peer's window counts as open if it limited sending for at most this share of the time.
const OPEN: f64 = 0.1;

/// A longer path explains a busy connection only if it adds at least this share of the extra time, since many requests make any connection busy.
const LONGER: f64 = 0.2;

/// What TCP counted. `busy`, `window` and `window_at_most` are shares of the time in which slow operations were under
/// way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    /// The least share of the time for which sent data was unacknowledged.
    busy: f64,
    /// The least and the greatest share of the time for which data waited because it did not fit the peer's window.
    window: f64,
    window_at_most: f64,
    /// The share of the observed time that the path needs, at `rate`, for the bytes written.
    needed: f64,
    /// The rate at which data was acknowledged, bytes per second; 0: not known.
    rate: f64,
    /// Answers prove a longer path that has a good part of the extra time.
    is_longer: bool,
    /// Round trips are as short as before, and no segment was lost: nothing queues on the path. So a server that takes data late may make the
    /// connection busy.
    pub is_clear: bool,
    /// TCP paces what it sends: some of the data always waits in this host's queueing discipline, whatever the state of the path.
    pub is_paced: bool,
}

/// The end of a slow operation, when the socket's totals were read, and the totals.
type SocketAtEnd = (Nanos, SocketTotals);

impl Sending {
    /// `None` where the totals are not known.
    pub fn of(scene: &Scene) -> Option<Self> {
        let known = || scene.during.iter().filter_map(|event| Some((*event, event.socket()?)));
        let flights = union(known().map(|(event, _)| flight(event)).collect());
        let all_flights = union(scene.during.iter().map(|event| flight(event)).collect());
        // In the order of ending, as `during` is.
        let seen: Vec<SocketAtEnd> = known().map(|(event, totals)| (event.end(), totals)).collect();
        let [mut busy, mut window, mut window_at_most, mut under_way, mut all, mut bytes] = [0; 6];
        for pair in seen.windows(2) {
            let [(from, before), (to, now)] = pair else { continue };
            let elapsed = to - from;
            let Some(grown) = Grown::of(before, now, elapsed) else { continue };
            let within = covered(&flights, (*from, *to));
            // Without an operation under way, TCP has nothing to send.
            let may_send = covered(&all_flights, (*from, *to)).max(within);
            busy += not_between(grown.busy.min(may_send), may_send, within);
            window += not_between(grown.window.min(may_send), may_send, within);
            window_at_most += grown.window.min(within);
            under_way += within;
            all += elapsed;
            bytes += written(&scene.during, *from, *to);
        }
        let rates = |is: fn(&SocketTotals) -> bool| {
            let rates = seen.iter().filter(|(_, totals)| is(totals)).map(|(_, totals)| totals.delivery_rate);
            median(rates.collect()).unwrap_or(0)
        };
        // A rate taken while the application sent too little is a lower bound of what the path carries.
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
            is_clear: is_clear(scene),
            is_paced: seen.iter().any(|(_, totals)| totals.pacing_rate > 0),
        })
    }

    /// Whether sent data was unacknowledged most of the time, and the peer's window was not the reason.
    pub fn is_busy(&self) -> bool {
        self.busy >= BUSY && self.is_window_open()
    }

    /// Whether what waited to be sent fitted the peer's window.
    pub fn is_window_open(&self) -> bool {
        self.window_at_most <= OPEN
    }

    /// The least part of `time`, nanoseconds, for which sent data was unacknowledged, without delayed acknowledgements.
    pub fn busy_part(&self, time: Nanos) -> Nanos {
        let part = (time as f64 * self.busy.min(1.0)) as Nanos;
        if self.is_loaded() { part } else { part.saturating_sub(ACK_DELAY) }
    }

    /// The least part of `time`, nanoseconds, for which the server's window limited sending.
    pub fn window_part(&self, time: Nanos) -> Nanos {
        (time as f64 * self.window.min(1.0)) as Nanos
    }

    /// Whether the peer's window limited sending for most of the time. A server that does not read closes its window; a
    /// middlebox may make it small.
    pub fn is_for_want_of_window(&self) -> bool {
        self.window >= MOSTLY
    }

    /// Whether there is another reason than delayed acknowledgements for the connection to be busy.
    fn is_loaded(&self) -> bool {
        self.is_longer || self.needed >= NEEDED
    }

    /// Whether the path was saturated.
    pub fn is_saturated(&self) -> bool {
        self.is_busy() && self.is_loaded()
    }

    /// The share of the time for which sent data was unacknowledged, percent.
    pub fn busy_percent(&self) -> f64 {
        self.busy.min(1.0) * 100.0
    }

    /// A sentence about a saturated path or a limiting window; `None` if neither was seen.
    pub fn sentence(&self) -> Option<String> {
        if self.is_saturated() {
            let rate = self.rate * 8.0 / 1e6;
            let rate = match self.needed >= NEEDED {
                true if self.is_clear => format!(
                    ", and acknowledged at {rate:.1} Mbit/s. But round trips were as short as before, and nothing was lost: the path, or the server's host, took \
                     no more"
                ),
                true => format!(", and acknowledged at {rate:.1} Mbit/s: the path carried no more"),
                false => String::new(),
            };
            return Some(format!(
                "While slow operations were under way, data was on its way to the server for {:.0} % of the time{rate}.",
                self.busy_percent(),
            ));
        }
        (self.window > OPEN).then(|| {
            format!(
                "For {:.0} % of the time of slow operations, the server's receive window was too small for the data to be sent.",
                self.window * 100.0
            )
        })
    }
}

/// Whether answers prove a longer path that has a good part of the extra time.
fn is_longer(scene: &Scene) -> bool {
    let extra = scene.mean(|event| event.phases.wire.saturating_sub(scene.normal(event).wire));
    scene.path.longer().and_then(|path| path.proven).is_some_and(|more| more as f64 >= extra * LONGER)
}

/// Whether round trips are as short as before, and no segment was retransmitted or arrived out of order. A saturated path queues or drops more.
fn is_clear(scene: &Scene) -> bool {
    let trips = |events: &mut dyn Iterator<Item = &Event>| median(events.filter_map(round_trip).collect());
    let now = trips(&mut scene.judged.iter().copied());
    let Some((now, before)) = now.zip(trips(&mut scene.fast_before())) else { return false };
    let lost = |event: &Event| event.network.known.then_some((event.network.retransmits, event.network.out_of_order));
    let last = scene.during.iter().rev().find_map(|event| lost(event));
    is_as_short(now, before) && last == scene.fast_before().filter_map(lost).max()
}

/// The bytes of the writes that ended after `from`, up to `to`. `events`: in the order of ending.
fn written(events: &[&Event], from: Nanos, to: Nanos) -> u64 {
    let first = events.partition_point(|event| event.end() <= from);
    let ended = events.iter().skip(first).take_while(|event| event.end() <= to);
    ended.filter(|event| event.operation.direction() == Some(Direction::Written)).map(|event| event.bytes).sum()
}

/// By how much two totals grew between two readings, nanoseconds.
struct Grown {
    busy: Nanos,
    window: Nanos,
}

impl Grown {
    /// `None` if the growth is impossible, so the totals are of different sockets.
    fn of(before: &SocketTotals, now: &SocketTotals, elapsed: Nanos) -> Option<Self> {
        let since = now.since(before);
        let [busy, window] = [since.busy_ms, since.window_ms].map(|ms| u64::from(ms) * MS);
        (busy <= elapsed + JIFFY && window <= busy + JIFFY).then_some(Self { busy, window })
    }
}
