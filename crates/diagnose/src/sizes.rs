//! How long operations of one size may take, given the times of another size. Writes of 1 MiB take longer than writes
//! of 4 KiB although nothing is wrong.

/// Operations of fewer bytes than 2 to this power are treated as of one size: they take about the same time.
pub(crate) const SMALL: u8 = 15;

/// A larger operation may take this many times as long as a smaller one, beside the time for its bytes.
const TIMES: f64 = 2.0;
/// The time that a byte may take, nanoseconds: 10 MB per second.
const NS_PER_BYTE: f64 = 100.0;

/// The longest time of an operation of `bytes` on a healthy mount, nanoseconds, if smaller operations take `smaller`
/// nanoseconds.
pub(crate) fn at_most(smaller: f64, bytes: f64) -> f64 {
    smaller * TIMES + bytes * NS_PER_BYTE
}
