//! Reads files such as `events.jsonl` line by line, with a bound on the length of lines.

use std::borrow::Cow;

use model::EventLine;
use serde::Deserialize;

/// The longest line, bytes; Plumbline writes no longer ones.
const LONGEST: usize = 64 << 10;

/// The fields of a line that the page needs for every operation. Other fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OperationFields<'a> {
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    #[serde(borrow)]
    pub probe: Cow<'a, str>,
    #[serde(borrow)]
    pub operation: Cow<'a, str>,
    pub duration_ms: f64,
    #[serde(borrow)]
    pub mountpoint: Cow<'a, str>,
    #[serde(borrow)]
    pub source: Cow<'a, str>,
    #[serde(borrow)]
    pub server: Cow<'a, str>,
    pub tid: u32,
    pub failed: bool,
    pub in_flight: bool,
}

impl<'a> From<&'a EventLine<'_>> for OperationFields<'a> {
    fn from(line: &'a EventLine<'_>) -> Self {
        Self {
            time: Cow::Borrowed(&line.time),
            probe: Cow::Borrowed(&line.probe),
            operation: Cow::Borrowed(&line.operation),
            duration_ms: line.duration_ms,
            mountpoint: Cow::Borrowed(&line.mountpoint),
            source: Cow::Borrowed(&line.source),
            server: Cow::Borrowed(&line.server),
            tid: line.tid,
            failed: line.failed,
            in_flight: line.in_flight,
        }
    }
}

impl OperationFields<'_> {
    /// The duration, nanoseconds; an invalid one is 0.
    pub fn nanos(&self) -> u64 {
        (self.duration_ms.max(0.0) * 1e6) as u64
    }
}

/// Splits bytes into lines.
#[derive(Default)]
pub struct Lines {
    line: Vec<u8>,
    too_long: bool,
}

impl Lines {
    /// Takes bytes, and passes each completed line to `see`. A line that is too long is passed as an empty one.
    pub fn take(&mut self, bytes: &[u8], see: &mut dyn FnMut(&[u8])) {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.too_long |= self.line.len() + part.len() > LONGEST;
            if !self.too_long {
                self.line.extend_from_slice(part);
            }
            if parts.peek().is_some() {
                self.end(see);
            }
        }
    }

    /// Passes the last line to `see` if it has no line end.
    pub fn finish(&mut self, see: &mut dyn FnMut(&[u8])) {
        if self.too_long || !self.line.is_empty() {
            self.end(see);
        }
    }

    fn end(&mut self, see: &mut dyn FnMut(&[u8])) {
        see(if self.too_long { b"" } else { &self.line });
        self.line.clear();
        self.too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come_and_bounded() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for part in ["a", "b\nc", "\n\nx"] {
            lines.take(part.as_bytes(), &mut |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        (0..3).for_each(|_| lines.take(&[b'x'; 40 << 10], &mut |_| panic!("no line has ended")));
        assert!(lines.line.capacity() <= 2 * LONGEST);
        lines.finish(&mut |line| seen.push(line.len().to_string()));
        assert_eq!(seen, ["ab", "c", "", "0"]);
    }
}
