//! Daily summaries of how each mount was used, written once an hour, at the end of the day and when the daemon stops.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};

use super::Daemon;
use crate::{
    config::Config,
    evidence::Attachment,
    source::EventSource,
    summary::{FILE, Period, SummaryFolder, day_of},
};

/// How often a day's file is written.
const EVERY: Duration = Duration::from_secs(3600);

/// The summary of the current day.
pub struct Summaries {
    files: SummaryFolder,
    keep: Duration,
    day: String,
    /// `None`: no summaries are wanted.
    period: Option<Period>,
    written: Instant,
}

impl Summaries {
    /// Continues today's file, if there is one.
    pub fn begin(config: &Config, source: &dyn EventSource) -> Self {
        let (files, now) = (SummaryFolder::of(&config.output_dir), Timestamp::now());
        let (keep, day) = (config.keep_summaries, day_of(now));
        let mut period = (!keep.is_zero()).then(|| Period::begin(source, now));
        if let Some(period) = &mut period
            && let Err(error) = files.go_on(&day, period)
        {
            tracing::warn!("cannot read today's summary, so it begins anew: {error:#}");
        }
        Self { files, keep, day, period, written: Instant::now() }
    }

    /// Whether an hour has passed since the file was written, or the day is over.
    fn is_due(&self) -> bool {
        self.period.is_some() && (self.written.elapsed() >= EVERY || day_of(Timestamp::now()) != self.day)
    }

    /// Writes the file, and begins another day if the day is over.
    fn look(&mut self, source: &dyn EventSource) {
        self.write(source);
        let today = day_of(Timestamp::now());
        if today != self.day {
            self.day = today;
            self.period = self.period.as_ref().map(|_| Period::begin(source, Timestamp::now()));
            self.files.tidy(Timestamp::now(), self.keep);
        }
    }

    /// Writes the day's file.
    pub fn write(&mut self, source: &dyn EventSource) {
        self.written = Instant::now();
        let Some(period) = &mut self.period else { return };
        let result = period.add(source).and_then(|()| {
            let summary = period.summary(Timestamp::now(), true);
            if summary.mounts.is_empty() { Ok(()) } else { Ok(self.files.write(&self.day, &summary)?) }
        });
        if let Err(error) = result {
            tracing::warn!("the summary of {} cannot be written: {error:#}", self.day);
        }
    }

    /// The summaries for an incident's bundle: yesterday's file and today's figures so far. `None` if there is neither.
    pub fn attachment(&mut self, source: &dyn EventSource) -> Option<Attachment> {
        let period = self.period.as_mut()?;
        if let Err(error) = period.add(source) {
            tracing::warn!("the last hour is not in an incident's summary: {error:#}");
        }
        let now = Timestamp::now();
        let yesterday = now.checked_sub(SignedDuration::from_hours(24)).ok().map(day_of);
        let yesterday = yesterday.filter(|day| self.files.has(day));
        let today = Some(period.summary(now, false)).filter(|today| !today.mounts.is_empty());
        if yesterday.is_none() && today.is_none() {
            return None;
        }
        let files = self.files.clone();
        let write = move |out: &mut dyn Write| {
            let yesterday = yesterday.and_then(|day| files.summary(&day));
            let days: Vec<_> = [yesterday, today].into_iter().flatten().collect();
            Ok(serde_json::to_writer(out, &days)?)
        };
        Some(Attachment { name: FILE, write: Box::new(write) })
    }
}

impl Daemon {
    /// Writes the day's summary when it is due.
    pub(super) fn look_after_summaries(&mut self) {
        if self.summaries.is_due() {
            self.source.begin_interval();
            self.summaries.look(&self.source);
        }
    }
}
