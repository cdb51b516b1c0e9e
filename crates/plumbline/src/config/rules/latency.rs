//! Rules about slow operations.

use std::{sync::Arc, time::Duration};

use diagnose::latency::LatencyRule;
use model::Operation;

use crate::config::{
    commands::{commands, in_both},
    modes::{ListMode, OperationSelection},
    reader::{ConfigReader, NumberRange, find},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::latency::KIND,
    keys: &[
        "acceptable_count",
        "default_threshold_ms",
        "ceiling_ms",
        "normal_factor",
        "track_commands",
        "exclude_commands",
    ],
    read: |reader, draft| Some(Arc::new(read(reader, draft)?)),
    probe: || None,
};

/// AOD's default for rules without a threshold.
const DEFAULT_THRESHOLD: Duration = Duration::from_millis(10);
const DEFAULT_CEILING: Duration = Duration::from_secs(1);
/// Our own default, since AOD has no normals.
const DEFAULT_NORMAL_FACTOR: f64 = 2.0;

/// Reads a rule; `None` if its probe is not there yet, or something is wrong.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<LatencyRule> {
    let default_threshold = match find(draft.entries, "default_threshold_ms") {
        Some(entry) => reader.milliseconds(entry, 0.0),
        None => Some(DEFAULT_THRESHOLD),
    };
    let ceiling = match find(draft.entries, "ceiling_ms") {
        Some(entry) => reader.milliseconds(entry, 0.001),
        None => Some(DEFAULT_CEILING),
    };
    let normal_factor = match find(draft.entries, "normal_factor") {
        Some(entry) => reader.number(entry, NumberRange::new(0.0, 1_000.0, "times")),
        None if draft.aod => Some(0.0),
        None => Some(DEFAULT_NORMAL_FACTOR),
    };
    let before = reader.problems.len();
    let (track, exclude) = draft.lists(reader, "track_commands", "exclude_commands");
    let track = commands(reader, track, draft.source.protocol(), &["command", "threshold"]);
    let exclude = commands(reader, exclude, draft.source.protocol(), &["command"]);
    in_both(reader, track.iter().map(|one| (&*one.name, one.at)), exclude.iter().map(|one| (&*one.name, one.at)));
    if reader.problems.len() > before {
        return None; // What is left to track is not known.
    }
    let RuleSource::Probe(protocol) = draft.source else {
        if draft.mode == ListMode::TrackOnly && track.is_empty() {
            draft.nothing_left(reader);
        }
        return None;
    };
    let track: Vec<_> = track.iter().filter_map(|one| Some((one.operation?, one.threshold))).collect();
    let exclude: Vec<_> = exclude.iter().filter_map(|one| one.operation).collect();
    let selection = OperationSelection {
        mode: draft.mode,
        default_threshold: default_threshold?,
        track: &track,
        exclude: &exclude,
        waiting_too: draft.aod,
    };
    let thresholds = selection.thresholds(protocol);
    if thresholds.is_empty() {
        draft.nothing_left(reader);
        return None;
    }
    let (subject, acceptable_count) = (draft.subject(protocol), draft.acceptable_count?);
    let (ceiling, normal_factor) = (ceiling?, normal_factor?);
    let rule = LatencyRule { subject, thresholds, acceptable_count, ceiling, normal_factor };
    note_waiting(reader, &rule, &track);
    note_ceiling(reader, &rule);
    Some(rule)
}

/// Notes that an AOD rule judges commands that wait by design, such as change notifications, since this is seldom intended.
fn note_waiting(reader: &mut ConfigReader<'_>, rule: &LatencyRule, track: &[(Operation, Option<Duration>)]) {
    let named = |operation| track.iter().any(|(tracked, _)| *tracked == operation);
    let unnamed = rule.thresholds.keys().filter(|operation| operation.only_by_name() && !named(**operation));
    let waiting: Vec<_> = unnamed.map(|operation| operation.name()).collect();
    if !waiting.is_empty() {
        reader.note(format!(
            "the rule `{}` judges {} too, as AOD does, though they wait by design; exclude them, or write `probe` for `tool`",
            rule.subject.name,
            waiting.join(", ")
        ));
    }
}

fn note_ceiling(reader: &mut ConfigReader<'_>, rule: &LatencyRule) {
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    if let Some((operation, threshold)) = rule.thresholds.iter().find(|(_, threshold)| **threshold > rule.ceiling) {
        reader.note(format!(
            "the rule `{}`: one {} over the ceiling of {} ms is an anomaly, though its threshold is {} ms",
            rule.subject.name,
            operation.name(),
            ms(&rule.ceiling),
            ms(threshold)
        ));
    }
}
