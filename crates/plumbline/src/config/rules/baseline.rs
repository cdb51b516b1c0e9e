//! Rules about latency that departs from its own recent normal, and the code that they share with rules about throughput.

use std::{sync::Arc, time::Duration};

use diagnose::{baseline::BaselineRule, rule::Pace};

use crate::config::{
    reader::{ConfigReader, NumberRange, find},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::baseline::KIND,
    keys: &[
        "factor",
        "min_shift_ms",
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

const DEFAULT_FACTOR: f64 = 2.0;
const DEFAULT_SHIFT: Duration = Duration::from_millis(5);
/// Operations in a window, windows of a departure, windows to learn, windows to remember.
const DEFAULT_PACE: [u32; 4] = [20, 5, 30, 300];

/// Reads a rule; `None` if its probe is not there yet, or something is wrong.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<BaselineRule> {
    let factor = match find(draft.entries, "factor") {
        Some(entry) => reader.number(entry, NumberRange::new(1.1, 1000.0, "times the normal")),
        None => Some(DEFAULT_FACTOR),
    };
    let least_shift = match find(draft.entries, "min_shift_ms") {
        Some(entry) => reader.milliseconds(entry, 0.0),
        None => Some(DEFAULT_SHIFT),
    };
    let pace = pace(reader, draft);
    let operations = draft.operations(reader);
    let RuleSource::Probe(protocol) = draft.source else { return None };
    let (subject, factor, least_shift) = (draft.subject(protocol), factor?, least_shift?);
    Some(BaselineRule { subject, operations: operations?, factor, least_shift, pace: pace? })
}

/// How fast a normal is learned, and how long a departure must last.
pub fn pace(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<Pace> {
    let ranges = [
        ("min_operations", 1..=1_000_000),
        ("windows", 1..=100),
        ("warm_up_windows", 2..=3600),
        ("history_windows", 10..=3600),
    ];
    let mut read = ranges.into_iter().zip(DEFAULT_PACE).map(|((key, range), default)| {
        find(draft.entries, key).map_or(Some(default), |entry| reader.whole(entry, range))
    });
    let [operations, sustained, warm_up, history] = [read.next()?, read.next()?, read.next()?, read.next()?];
    let (warm_up, history) = (warm_up?, history?);
    if warm_up > history {
        let at = find(draft.entries, "warm_up_windows").or_else(|| find(draft.entries, "history_windows"));
        let text = format!(
            "`warm_up_windows` is {warm_up}, more than `history_windows`, which is {history}: it would learn for ever; \
             make the one smaller or the other larger"
        );
        at.into_iter().for_each(|entry| reader.refuse(entry.value.at, text.clone()));
        return None;
    }
    let windows = |count: u32| usize::try_from(count).ok();
    Some(Pace {
        operations: operations?.into(),
        warm_up: windows(warm_up)?,
        history: windows(history)?,
        sustained: windows(sustained?)?,
    })
}
