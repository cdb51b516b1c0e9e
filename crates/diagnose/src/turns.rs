//! How many round trips an exchange with a server may take.

/// Exchanges that one request or answer may take on top of the one that transports it: a client that sends a request in several parts
/// waits for the acknowledgement of the first before it sends the last (Nagle's algorithm, RFC 896).
const PARTS: u64 = 2;
/// What TCP sends in its first round trip after it was idle: ten segments (RFC 6928) of Ethernet's size.
const INITIAL_WINDOW: u64 = 10 * 1_448;

/// The most round trips that an exchange of so many bytes takes: one, those of its parts, and, since the window doubles with each, those that its bytes take.
pub(crate) fn turns(bytes: u64) -> u64 {
    let windows = bytes.div_ceil(INITIAL_WINDOW).max(1).next_power_of_two().ilog2();
    1 + PARTS + u64::from(windows)
}

/// The part of an extra time that are round trips which the exchange took more than usual, at most, where each takes so long: whole ones.
pub(crate) fn more_turns(bytes: u64, round_trip: u64, extra: u64) -> u64 {
    // Up to a quarter of one is the measurement's.
    let whole = extra.saturating_add(round_trip / 4).checked_div(round_trip).unwrap_or(0);
    whole.min(turns(bytes) - 1).saturating_mul(round_trip).min(extra)
}
