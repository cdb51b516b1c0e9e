//! Reads the operations and the incident of a bundle.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use anyhow::{Context, Error, Result, bail};
use jiff::Timestamp;
use model::{EventLine, Incident, text::printable};

use crate::evidence::{each_entry, read_incident};

/// The most files, unpacked bytes and lines that are read. A bundle with more is not from Plumbline.
const FILES: usize = 1_000;
pub const BYTES: u64 = 1 << 30;
const LINES: usize = 4_000_000;
/// The longest line.
const LINE_BYTES: u64 = 1 << 20;

/// The files with operations, the slow ones first.
const SLOW: &str = "events.jsonl";
const OTHERS: [&str; 2] = ["recorder.jsonl", "after.jsonl"];

/// A bundle's incident, and the number of unreadable lines.
pub struct BundleLines {
    pub incident: Incident,
    /// Lines that could not be parsed.
    pub unreadable: u64,
}

/// Opens a bundle, which is read several times.
pub type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Read + 'a>>;

/// Opens a file.
///
/// # Errors
///
/// As open(2).
pub fn opened(path: &Path) -> Result<Box<dyn Read>> {
    Ok(Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?))
}

/// Calls `see` for every operation of a bundle, with true for the slow operations of the incident. `most`: the most bytes when unpacked.
///
/// # Errors
///
/// When the input is not a bundle, or is damaged, cut off or larger.
pub fn each_line(open: Open<'_>, most: u64, mut see: impl FnMut(EventLine<'static>, bool)) -> Result<BundleLines> {
    let incident = read_incident(open()?)?;
    let (mut files, mut total, mut lines, mut unreadable) = (0, 0_u64, 0, 0);
    each_entry(open()?, |name, bytes, content| {
        (files, total) = (files + 1, total.saturating_add(bytes));
        if files > FILES || total > most {
            bail!("it has more files, or larger ones, than any bundle");
        }
        let is_slow = name == SLOW;
        if !is_slow && !OTHERS.contains(&name) {
            return Ok(true);
        }
        let mut reader = BufReader::new(content);
        let mut line = Vec::new();
        while lines < LINES {
            line.clear();
            if (&mut reader).take(LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            lines += 1;
            match serde_json::from_slice::<EventLine<'_>>(&line) {
                Ok(read) => see(owned(read), is_slow),
                Err(_) => unreadable += 1,
            }
        }
        Ok(true)
    })?;
    Ok(BundleLines { incident, unreadable })
}

/// Copies a line, with names that are safe to print: a bundle may come from anywhere.
fn owned(line: EventLine<'_>) -> EventLine<'static> {
    let safe = |text: &str| printable(text.as_bytes());
    EventLine {
        probe: safe(&line.probe).into(),
        operation: safe(&line.operation).into(),
        time: line.time,
        queue_ms: line.queue_ms,
        wire_ms: line.wire_ms,
        deliver_ms: line.deliver_ms,
        duration_ms: line.duration_ms,
        xid: line.xid,
        resent: line.resent,
        connection: line.connection,
        unanswered: line.unanswered,
        in_flight: line.in_flight,
        unread_ms: line.unread_ms,
        own_queue: line.own_queue,
        sends_local_ms: line.sends_local_ms,
        sends_held_ms: line.sends_held_ms,
        ..EventLine::default()
    }
}

/// A time of a line, nanoseconds since 1970.
pub fn wall(time: &str) -> Option<i64> {
    i64::try_from(time.parse::<Timestamp>().ok()?.as_nanosecond()).ok()
}

/// Milliseconds of a line as nanoseconds; 0 if there are none, or the value is not a duration.
pub fn nanos(ms: Option<f64>) -> u64 {
    ms.filter(|ms| ms.is_finite() && *ms > 0.0).map_or(0, |ms| (ms * 1e6).round() as u64)
}

/// The error of a bundle that could not be read. If the bundle was cut off, the error says so.
pub fn explained(path: &Path, error: Error) -> Error {
    let is_cut_off = |cause: &(dyn std::error::Error + 'static)| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        kind == Some(std::io::ErrorKind::UnexpectedEof)
    };
    if error.chain().any(is_cut_off) {
        return error.context(format!("{} is cut off; copy it again", path.display()));
    }
    error.context(format!("cannot read {}", path.display()))
}
