//! Whether the path became longer: seen by all round trips of a connection together.
//!
//! One round-trip sample says little. A peer may delay an acknowledgement by 40 ms (RFC 1122 4.2.3.2), and send it with the answer if that
//! is ready first, so a slow server can stretch a sample. It does not stretch all of them: it acknowledges every second full segment at
//! once. A longer path stretches every sample. So the round trip that nine of ten samples reach or exceed is taken for the path's.

use std::collections::BTreeMap;

use model::{Direction, Event, Operation};

use super::scene::{Scene, flight, local};
use super::wire::{ACK_DELAY, answered, round_trip};
use crate::units::MS;

/// Fewer samples say nothing of the path.
const LEAST_SAMPLES: usize = 5;
/// One sample in so many may be smaller than the path's round trip, for it was taken before the fault began.
const OUTLIERS: usize = 10;
/// As many are needed of each kind of operation where kinds are compared.
const LEAST_OF_KIND: usize = 3;
/// A request of so many bytes is several segments: a peer acknowledges every second full one at once (RFC 9293 3.8.6.3), so that the round trip of a
/// large write is seldom a delayed acknowledgement's.
const LARGE: u64 = 8 << 10;
/// Round trips are alike if they differ by at most this part, and this time.
const ALIKE: (u64, u64) = (10, MS / 2);
/// A path that is longer by less is not.
const LEAST: u64 = MS;
/// Exchanges that one request or answer may take on top of the one that transports it: a client that sends a request in several parts
/// waits for the acknowledgement of the first before it sends the last (Nagle's algorithm, RFC 896).
const PARTS: u64 = 2;
/// What TCP sends in its first round trip after it was idle: ten segments (RFC 6928) of Ethernet's size.
const INITIAL_WINDOW: u64 = 10 * 1_448;

/// The round trip of a connection, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// Before; `None` if that is not known.
    pub normal: Option<u64>,
    /// Meanwhile, without what this host's queueing discipline held back where that is known.
    pub now: u64,
    /// A slow server that delays its acknowledgements cannot be the reason.
    pub is_certain: bool,
}

impl Path {
    /// The connection's path, if its round trips became longer while the slow operations lasted.
    pub fn longer(scene: &Scene) -> Option<Self> {
        let from = scene.judged.iter().map(|event| event.start).min()?;
        let is_of_now = |event: &&&Event| answered(event) && flight(event).0 >= from;
        let mut during: Vec<_> = scene.during.iter().filter(is_of_now).copied().collect();
        // A slow operation is there twice: as an event, and as the recorder has it.
        let identity = |event: &&Event| (event.end(), event.operation, event.requester.tid);
        during.sort_by_key(identity);
        during.dedup_by_key(|event| identity(event));
        let samples: Vec<_> = during.iter().filter_map(|event| round_trip(event)).collect();
        if samples.len() < LEAST_SAMPLES {
            return None;
        }
        // Where nothing is known of how long operations take normally, what came before may be the fault as well.
        let normal = scene
            .normal_duration()
            .and_then(|_| low(scene.before.iter().filter_map(|event| round_trip(event)).collect()));
        let own = low(during.iter().filter(|event| event.transit.is_some()).map(|event| local(event)).collect());
        let now = low(samples)?.saturating_sub(own.unwrap_or(0));
        let usual = normal.unwrap_or(0);
        let more = now.saturating_sub(usual);
        let agree = kinds_agree(&during);
        let is_certain = more > ACK_DELAY || (agree && has_large_writes(&during));
        (more >= LEAST.max(usual) && (is_certain || agree)).then_some(Self { normal, now, is_certain })
    }

    /// The most that the longer path adds to this operation: to each round trip that it may have taken.
    pub fn part(&self, event: &Event) -> u64 {
        let windows = event.bytes.div_ceil(INITIAL_WINDOW).max(1).next_power_of_two().ilog2();
        let more = self.now.saturating_sub(self.normal.unwrap_or(0));
        // The window doubles with each round trip.
        more.saturating_mul(1 + PARTS + u64::from(windows))
    }
}

fn has_large_writes(during: &[&Event]) -> bool {
    let is_large_write = |event: &&&Event| {
        event.bytes >= LARGE && event.operation.direction() == Some(Direction::Written) && round_trip(event).is_some()
    };
    during.iter().filter(is_large_write).count() >= LEAST_OF_KIND
}

/// Whether several kinds of operations have the same round trip. What a server takes differs from kind to kind, and so does what it adds to the
/// round trip of a request that it acknowledges with the answer.
fn kinds_agree(during: &[&Event]) -> bool {
    let mut kinds = BTreeMap::<Operation, Vec<u64>>::new();
    for event in during {
        kinds.entry(event.operation).or_default().extend(round_trip(event));
    }
    let lows: Vec<_> = kinds.into_values().filter(|samples| samples.len() >= LEAST_OF_KIND).filter_map(low).collect();
    let (part, time) = ALIKE;
    let (Some(least), Some(most)) = (lows.iter().min(), lows.iter().max()) else { return false };
    lows.len() > 1 && *most <= least + least / part + time
}

/// What nine of ten values reach or exceed.
fn low(mut values: Vec<u64>) -> Option<u64> {
    let index = values.len() / OUTLIERS;
    (!values.is_empty()).then(|| *values.select_nth_unstable(index).1)
}
