//! How many round trips an exchange with a server may take.

/// Round trips that a request and its answer may take in addition to the first. A client that sends a request in
/// several parts waits for the acknowledgement of the first before it sends the last (Nagle's algorithm, RFC 896).
const PARTS: u64 = 2;
/// Bytes that TCP sends in its first round trip after idle time: ten segments (RFC 6928) of Ethernet's size.
const INITIAL_WINDOW: u64 = 10 * 1_448;

/// The most round trips that an exchange of `bytes` takes: one, [`PARTS`], and those of slow start.
pub(crate) fn turns(bytes: u64) -> u64 {
    1 + PARTS + windows(bytes)
}

/// The round trips of slow start in addition to the first: the window doubles with each.
fn windows(bytes: u64) -> u64 {
    u64::from(bytes.div_ceil(INITIAL_WINDOW).max(1).next_power_of_two().ilog2())
}

/// The largest part of `extra` that additional round trips of the exchange can explain, nanoseconds. It is a whole
/// number of `round_trip`, or `extra` if that is less.
pub(crate) fn more_turns(bytes: u64, round_trip: u64, extra: u64) -> u64 {
    explained(PARTS + windows(bytes), round_trip, extra)
}

/// The same for an exchange that took its usual round trips before, over the same path. Only the window can be smaller
/// than before, since TCP reduces it while the connection is idle: the parts of a request are the same.
pub(crate) fn more_windows(bytes: u64, round_trip: u64, extra: u64) -> u64 {
    explained(windows(bytes), round_trip, extra)
}

fn explained(most: u64, round_trip: u64, extra: u64) -> u64 {
    // A round trip that is short by up to a quarter counts as whole: measurement error.
    let whole = extra.saturating_add(round_trip / 4).checked_div(round_trip).unwrap_or(0);
    whole.min(most).saturating_mul(round_trip).min(extra)
}
