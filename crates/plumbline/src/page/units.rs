//! Formats figures and times for people.

use diagnose::span;
use jiff::{SignedDuration, Timestamp};

/// Formats milliseconds with a unit: `204 ms`, `2.5 s`.
pub fn of_ms(ms: f64) -> String {
    span((ms.max(0.0) * 1e6) as u64)
}

/// Formats a count with non-breaking spaces between groups of three digits: `1 204`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{a0}');
        }
        text.push(digit);
    }
    text
}

/// Formats bytes with a unit: `4 KiB`.
pub fn bytes(count: u64) -> String {
    crate::io::rows::size(count)
}

/// Parses a time such as `2026-03-01T12:00:00.5Z` into microseconds since 1970.
pub fn micros(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

/// Formats a time as `2026-03-01 12:00:00 UTC`; returns the text itself if it is no time.
pub fn moment(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// Formats the time of day of microseconds since 1970, with this many decimals of the second: `12:00:00.5`.
pub fn time_of_day(micros: i64, decimals: usize) -> String {
    let text = Timestamp::from_microsecond(micros).map(|time| time.strftime("%H:%M:%S%.6f").to_string());
    let text = text.unwrap_or_default();
    let length = if decimals == 0 { 8 } else { 9 + decimals };
    text.get(..length).unwrap_or(&text).to_owned()
}

/// Formats the time from `from` to `to`: `12.3 s`, `3 min 10 s`, `2 h 05 min`. `None` if either is no time.
pub fn lasted(from: &str, to: &str) -> Option<String> {
    let (from, to) = (from.parse::<Timestamp>().ok()?, to.parse::<Timestamp>().ok()?);
    let lasted = to.duration_since(from).max(SignedDuration::ZERO);
    let seconds = lasted.as_secs();
    Some(match seconds {
        0..60 => span(u64::try_from(lasted.as_nanos()).unwrap_or(0)),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds % 3_600 / 60),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_for_people() {
        assert_eq!([0, 999, 1_204, 1_234_567].map(grouped), ["0", "999", "1\u{a0}204", "1\u{a0}234\u{a0}567"]);
        assert_eq!(lasted("2026-03-01T12:00:00Z", "2026-03-01T12:00:04.25Z").unwrap(), "4.25 s");
        assert_eq!(lasted("2026-03-01T12:00:00Z", "2026-03-01T14:05:00Z").unwrap(), "2 h 05 min");
        assert_eq!(lasted("", "2026-03-01T14:05:00Z"), None);
        assert_eq!(time_of_day(1_500_000, 1), "00:00:01.5");
        assert_eq!((moment("2026-03-01T12:00:00.123Z"), moment("x")), ("2026-03-01 12:00:00 UTC".into(), "x".into()));
    }
}
