//! Rules about operations that do not return.

use std::{sync::Arc, time::Duration};

use diagnose::stall::StallRule;

use crate::config::{
    reader::{ConfigReader, find},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::stall::KIND,
    keys: &["limit_ms", "track_commands", "exclude_commands"],
    read: |reader, draft| Some(Arc::new(read(reader, draft)?)),
    probe: || None,
};

const DEFAULT_LIMIT: Duration = Duration::from_secs(5);

/// Reads a rule; `None` if its probe is not there yet, or something is wrong.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<StallRule> {
    let limit = match find(draft.entries, "limit_ms") {
        Some(entry) => reader.milliseconds(entry, 1.0),
        None => Some(DEFAULT_LIMIT),
    };
    let operations = draft.operations(reader);
    let RuleSource::Probe(protocol) = draft.source else { return None };
    let (limit, operations) = (limit?, operations?);
    if !probes::shows_in_flight(protocol) {
        let name = protocol.name;
        reader.note(format!(
            "the rule `{}` detects nothing yet: probe `{name}` keeps no list of what is in flight",
            draft.name
        ));
    }
    Some(StallRule { subject: draft.subject(protocol), operations, limit })
}
