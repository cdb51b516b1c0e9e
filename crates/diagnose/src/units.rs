//! Durations, sizes and counts as text for people.

use std::time::Duration;

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000 * MS;

/// A duration in nanoseconds, the unit of every event.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds with a unit and at most three digits that matter: `204 ms`, `2.5 s`, `350 us`.
pub fn span(nanos: u64) -> String {
    let (unit, name) = match nanos {
        0 => return "0 ms".to_owned(),
        SECOND.. => (SECOND, "s"),
        MS.. => (MS, "ms"),
        _ => (1_000, "us"),
    };
    let value = nanos as f64 / unit as f64;
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {name}")
}

/// Bytes with a unit, rounded up: `8 KiB`, `3 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes.div_ceil(1_024)),
        _ => format!("{} MiB", bytes.div_ceil(1_048_576)),
    }
}

/// `7 operations`, `1 operation`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `7 operations were`, `1 operation was`.
pub(crate) fn were(count: u64, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_no_needless_digits() {
        let cases = [
            (0, "0 ms"),
            (350_000, "350 us"),
            (MS, "1 ms"),
            (1_250_000, "1.25 ms"),
            (204 * MS, "204 ms"),
            (SECOND, "1 s"),
            (2_500 * MS, "2.5 s"),
            (100 * SECOND, "100 s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(span(nanos), text);
        }
    }

    #[test]
    fn one_of_a_thing_has_no_plural() {
        assert_eq!(counted(1, "operation"), "1 operation");
        assert_eq!(counted(0, "operation"), "0 operations");
    }
}
