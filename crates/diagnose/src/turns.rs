//! How many round trips an exchange with a server may take.

/// Round trips that a request and its answer may take in addition to the first. A client that sends a request in
/// several parts waits for the acknowledgement of the first before it sends the last (Nagle's algorithm, RFC 896).
const PARTS: u64 = 2;
/// Bytes that TCP sends in its first round trip after idle time: ten segments (RFC 6928) of Ethernet's size.
const INITIAL_WINDOW: u64 = 10 * 1_448;

/// The most round trips that an exchange of `bytes` takes: one, [`PARTS`], and those of slow start, in which the window
/// doubles with each round trip.
pub(crate) fn turns(bytes: u64) -> u64 {
    let windows = bytes.div_ceil(INITIAL_WINDOW).max(1).next_power_of_two().ilog2();
    1 + PARTS + u64::from(windows)
}

/// The largest part of `extra` that additional round trips of the exchange can explain, nanoseconds. It is a whole
/// number of `round_trip`, or `extra` if that is less.
pub(crate) fn more_turns(bytes: u64, round_trip: u64, extra: u64) -> u64 {
    // A round trip that is short by up to a quarter counts as whole: measurement error.
    let whole = extra.saturating_add(round_trip / 4).checked_div(round_trip).unwrap_or(0);
    whole.min(turns(bytes) - 1).saturating_mul(round_trip).min(extra)
}
