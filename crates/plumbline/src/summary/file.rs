//! `summaries/<day>.json` in the output directory: a file for each day (UTC), kept across restarts.

use std::{
    fs::{self, DirBuilder},
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use model::{Histogram, Host};
use serde::Deserialize;

use super::{Period, PeriodSummary, SummarizedMount};
use crate::{recording::operation_named, state_file};

/// The directory below OUTPUT_DIR.
pub const FOLDER: &str = "summaries";
/// The largest count that is read from a file, so that the sum of many stays in range.
const MOST_COUNTED: u64 = 1 << 50;

/// The summary files of an output directory.
#[derive(Clone)]
pub struct SummaryFolder {
    folder: PathBuf,
}

/// A summary as it is read. Missing fields are empty.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct KeptSummary {
    /// When the period begins: ISO 8601, UTC.
    pub from: String,
    /// When the period ends: ISO 8601, UTC.
    pub to: String,
    /// The host.
    pub host: Host,
    /// How each mount was used.
    pub mounts: Vec<SummaryMount>,
}

/// A mount in a summary.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct SummaryMount {
    pub mountpoint: String,
    pub source: String,
    pub server: String,
    pub fstype: String,
    pub operations: Vec<KeptOperation>,
}

/// Operations of one kind.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct KeptOperation {
    pub probe: String,
    pub operation: String,
    pub count: u64,
    errors: u64,
    bytes: u64,
    mean_ms: f64,
    pub p50_ms: f64,
    buckets: Vec<(usize, u64)>,
}

impl SummaryFolder {
    pub fn of(output_dir: &Path) -> Self {
        Self { folder: output_dir.join(FOLDER) }
    }

    /// Writes a day's file. After a crash, the file has the old or the new content; only a power failure can damage it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, day: &str, summary: &PeriodSummary) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        state_file::write(&self.path(day), summary)
    }

    /// Whether a day has a file.
    pub fn has(&self, day: &str) -> bool {
        self.path(day).exists()
    }

    /// A day's summary without the distributions; `None` if there is no file that can be read.
    pub fn summary(&self, day: &str) -> Option<PeriodSummary> {
        let kept = self.kept(day).ok().flatten()?;
        let (to, host) = (kept.to.clone(), kept.host.clone());
        let mut period = Period::empty(Timestamp::UNIX_EPOCH);
        kept.add_to(&mut period);
        Some(PeriodSummary { to, host, ..period.summary(Timestamp::UNIX_EPOCH, false) })
    }

    /// Adds the content of a day's file to a period that continues it.
    ///
    /// # Errors
    /// When the file is not a summary of this program.
    pub fn go_on(&self, day: &str, period: &mut Period) -> Result<()> {
        if let Some(kept) = self.kept(day)? {
            kept.add_to(period);
        }
        Ok(())
    }

    fn kept(&self, day: &str) -> Result<Option<KeptSummary>> {
        let path = self.path(day);
        let Some(text) = state_file::read(&path)? else { return Ok(None) };
        serde_json::from_str(&text).with_context(|| format!("{} is no summary", path.display())).map(Some)
    }

    /// Deletes the files of days that ended longer ago than `keep`.
    pub fn tidy(&self, now: Timestamp, keep: Duration) {
        let Some(first) = now.checked_sub(keep).ok().map(day_of) else { return };
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let day = name.to_str().and_then(|name| name.strip_suffix(".json")).filter(|day| is_day(day));
            if day.is_some_and(|day| *day < *first) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, day: &str) -> PathBuf {
        self.folder.join(format!("{day}.json"))
    }
}

impl KeptSummary {
    fn add_to(self, period: &mut Period) {
        period.from = self.from.parse().unwrap_or(period.from);
        for SummaryMount { mountpoint, source, server, fstype, operations } in self.mounts {
            let place = SummarizedMount { mountpoint, source, server, fstype };
            for one in operations {
                let Some(operation) = operation_named(&format!("{}:{}", one.probe, one.operation)) else { continue };
                period.count(place.clone(), operation, &one.histogram());
            }
        }
    }
}

impl KeptOperation {
    fn histogram(&self) -> Histogram {
        let count = self.count.min(MOST_COUNTED);
        let sum = (self.mean_ms.max(0.0) * 1e6 * count as f64) as u64;
        let (errors, bytes) = (self.errors.min(count), self.bytes);
        let mut histogram = Histogram { count, sum, errors, bytes, ..Histogram::default() };
        for (bucket, count) in &self.buckets {
            if let Some(place) = histogram.buckets.get_mut(*bucket) {
                *place = (*count).min(MOST_COUNTED);
            }
        }
        histogram
    }
}

/// `2026-11-26`, UTC.
pub fn day_of(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

fn is_day(text: &str) -> bool {
    text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() })
}
