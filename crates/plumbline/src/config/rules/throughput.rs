//! Rules about throughput that falls below its own recent normal.

use std::sync::Arc;

use diagnose::throughput::ThroughputRule;

use super::baseline::pace;
use crate::config::{
    reader::{ConfigReader, NumberRange, find},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::throughput::KIND,
    keys: &[
        "fall_to_percent",
        "min_mb_per_sec",
        "min_operations",
        "windows",
        "warm_up_windows",
        "history_windows",
        "track_commands",
        "exclude_commands",
    ],
    read: |reader, draft| Some(Arc::new(read(reader, draft)?)),
    probe: || None,
};

const DEFAULT_PERCENT: f64 = 50.0;
const DEFAULT_MB: f64 = 1.0;

/// Reads a rule; `None` if its probe is not there yet, or something is wrong.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<ThroughputRule> {
    let mut number = |key, range, default| match find(draft.entries, key) {
        Some(entry) => reader.number(entry, range),
        None => Some(default),
    };
    let percent = number("fall_to_percent", NumberRange::new(1.0, 90.0, "per cent"), DEFAULT_PERCENT);
    let megabytes = number("min_mb_per_sec", NumberRange::new(0.0, 1_000_000.0, "MB/s"), DEFAULT_MB);
    let pace = pace(reader, draft);
    let operations = draft.operations(reader);
    let RuleSource::Probe(protocol) = draft.source else { return None };
    Some(ThroughputRule {
        subject: draft.subject(protocol),
        operations: operations?,
        share: percent? / 100.0,
        least_bytes: megabytes? * 1e6,
        pace: pace?,
    })
}
