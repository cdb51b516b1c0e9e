//! Rules about operations that do not return.

use std::time::Duration;

use diagnose::rule::StallRule;

use super::{
    commands::{commands, in_both},
    modes::Selection,
    reader::{Reader, find},
    rules::{Draft, Source},
};

/// Keys that only rules of this kind have.
pub const KEYS: [&str; 3] = ["limit_ms", "track_commands", "exclude_commands"];

const DEFAULT_LIMIT: Duration = Duration::from_secs(5);

/// Reads a rule; `None` if its probe is not there yet, or something is wrong.
pub fn read(reader: &mut Reader<'_>, draft: &Draft<'_>) -> Option<StallRule> {
    let limit = match find(draft.entries, "limit_ms") {
        Some(entry) => reader.milliseconds(entry, 1.0),
        None => Some(DEFAULT_LIMIT),
    };
    let before = reader.problems.len();
    let (track, exclude) = draft.lists(reader, "track_commands", "exclude_commands");
    let track = commands(reader, track, draft.source.protocol(), &["command"]);
    let exclude = commands(reader, exclude, draft.source.protocol(), &["command"]);
    in_both(reader, track.iter().map(|one| (&*one.name, one.at)), exclude.iter().map(|one| (&*one.name, one.at)));
    let Source::Probe(protocol) = draft.source else { return None };
    let (track, exclude): (Vec<_>, Vec<_>) = (
        track.iter().filter_map(|one| Some((one.operation?, None))).collect(),
        exclude.iter().filter_map(|one| one.operation).collect(),
    );
    let limit = limit?;
    let selection =
        Selection { mode: draft.mode, default_threshold: limit, track: &track, exclude: &exclude, waiting_too: false };
    let operations: std::collections::BTreeSet<_> = selection.thresholds(protocol).into_keys().collect();
    if reader.problems.len() > before {
        return None;
    }
    if operations.is_empty() {
        draft.nothing_left(reader);
        return None;
    }
    if !probes::shows_in_flight(protocol) {
        let name = protocol.name;
        reader.note(format!(
            "the rule `{}` detects nothing yet: probe `{name}` keeps no list of what is in flight",
            draft.name
        ));
    }
    Some(StallRule { name: draft.name.to_owned(), protocol, operations, limit })
}
