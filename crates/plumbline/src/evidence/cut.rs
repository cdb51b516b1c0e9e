//! The files of a capture in a bundle, within limits, with a record of each.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::output::{Output, OutputBounds};
use super::runner::{ActionRecord, Collected, Context, Status, panic_message};
use super::{Cut, bundle};
use crate::capture::Sink;

/// How long a capture may take to write its files: more than an action, since it writes more.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The limits of time and of bytes before compression: data that do not compress must fit the capture's share, too.
pub fn limits(share: u64) -> (Duration, u64) {
    (TIME_LIMIT, share - share / 16)
}

/// Makes the capture write its files, whose names begin with `of_rule`. `record` makes a record without a file.
pub fn run(
    cut: &Cut,
    of_rule: &str,
    context: &Context,
    bounds: &OutputBounds,
    record: &dyn Fn(Status, Option<String>) -> ActionRecord,
) -> Vec<Collected> {
    let mut files = CutFiles { cut, of_rule, context, bounds, record, written: 0, parts: Vec::new() };
    let ran = catch_unwind(AssertUnwindSafe(|| cut.capture.cut(cut.span, &mut files)));
    let result = ran.unwrap_or_else(|panic| Err(anyhow!("the capture panicked: {}", panic_message(&*panic))));
    let mut parts = files.parts;
    if let Err(error) = result {
        let error = Some(format!("{error:#}"));
        if parts.is_empty() {
            parts.push(Collected::nothing(record(Status::Failed, error)));
        } else if let Some(Collected { record, .. }) = parts.iter_mut().find(|part| part.record.status == Status::Ok) {
            // The file has data, and the error says what is missing.
            (record.status, record.error, record.truncated) = (Status::Truncated, error, true);
        }
    }
    parts
}

struct CutFiles<'a> {
    cut: &'a Cut,
    of_rule: &'a str,
    context: &'a Context,
    bounds: &'a OutputBounds,
    record: &'a dyn Fn(Status, Option<String>) -> ActionRecord,
    written: u64,
    parts: Vec<Collected>,
}

impl Sink for CutFiles<'_> {
    fn limit(&self) -> u64 {
        self.bounds.cap.saturating_sub(self.written)
    }

    fn time_left(&self) -> Duration {
        self.bounds.deadline.map_or(TIME_LIMIT, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn file(&mut self, suffix: &str, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()> {
        let after = if self.cut.is_after { ".after" } else { "" };
        let name = bundle::safe_name(&format!("{}{}{after}{suffix}", self.of_rule, self.cut.capture.name()));
        let bounds = OutputBounds { cap: self.limit(), ..self.bounds.clone() };
        let mut out = Output::create(&self.context.store, &self.context.quota, bounds)?;
        let (status, error) = match write(&mut out) {
            Ok(()) => (Status::Ok, None),
            Err(error) => (Status::Failed, Some(format!("{error:#}"))),
        };
        self.written += out.bytes();
        self.parts.push((self.record)(status, error).with(Some(out), &name));
        Ok(())
    }
}
