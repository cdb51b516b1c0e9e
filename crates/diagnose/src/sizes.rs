//! What operations of one size say of those of another: whoever begins to write 1 MiB at a time instead of 4 KiB waits longer for each, and nothing is wrong.

/// Operations of fewer bytes than 2 to this power take about as long as each other.
pub(crate) const SMALL: u8 = 15;

/// Smaller operations are taken to be so many times as slow.
const TIMES: f64 = 2.0;
/// And each byte is taken to cost so much: 10 MB a second.
const NS_PER_BYTE: f64 = 100.0;

/// What an operation of so many bytes takes at most on a healthy mount, nanoseconds, where smaller ones take so long.
pub(crate) fn at_most(smaller: f64, bytes: f64) -> f64 {
    smaller * TIMES + bytes * NS_PER_BYTE
}
