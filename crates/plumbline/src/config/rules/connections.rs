//! Rules about connections that break or stall.

use std::{collections::BTreeMap, sync::Arc};

use diagnose::connection::ConnectionRule;
use model::{Level, Operation, Protocol};

use crate::config::{
    commands::{commands, in_both},
    modes::ListMode,
    reader::{ConfigReader, NumberRange, find},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::connection::KIND,
    keys: &["acceptable_count", "loss_percent", "track_commands", "exclude_commands"],
    read: |reader, draft| Some(Arc::new(read(reader, draft)?)),
    probe: seeing_connections,
};

/// The probe for rules of this type.
fn seeing_connections() -> Option<&'static Protocol> {
    probes::at(Level::Connection).next()
}

/// Loss beyond this makes remote file systems slow: each loss at the end of a request or answer costs 200 ms.
const DEFAULT_LOSS_PERCENT: f64 = 0.5;

/// The number of events of a kind in one window that is an anomaly. Any network loses single segments and calls; of other events, one is enough.
fn default_count(operation: Operation) -> u32 {
    match operation.name() {
        "TCP_RETRANSMIT" => 50,
        "RPC_RETRANSMIT" => 10,
        _ => 1,
    }
}

/// Reads a rule; `None` if its probe has no connections, or something is wrong. `acceptable_count` is the count of events that have no count of
/// their own.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<ConnectionRule> {
    let before = reader.problems.len();
    let RuleSource::Probe(protocol) = draft.source else { return None };
    if protocol.level != Level::Connection {
        let at = find(draft.entries, "probe").or_else(|| find(draft.entries, "tool")).map(|entry| entry.value.at)?;
        let probe = protocol.name;
        let those = seeing_connections().map_or("", |protocol| protocol.name);
        reader.refuse(at, format!("probe `{probe}` sees no connections; write `probe: {those}`"));
        return None;
    }
    let (track, exclude) = draft.lists(reader, "track_commands", "exclude_commands");
    let track = commands(reader, track, Some(protocol), &["command", "count"]);
    let exclude = commands(reader, exclude, Some(protocol), &["command"]);
    in_both(reader, track.iter().map(|one| (&*one.name, one.at)), exclude.iter().map(|one| (&*one.name, one.at)));
    let loss_percent = find(draft.entries, "loss_percent")
        .map_or(Some(DEFAULT_LOSS_PERCENT), |entry| reader.number(entry, NumberRange::new(0.01, 100.0, "per cent")));
    let for_all = find(draft.entries, "acceptable_count").and(draft.acceptable_count);
    let count = |operation: Operation| {
        let tracked = track.iter().find(|one| one.operation == Some(operation));
        let excluded = exclude.iter().any(|one| one.operation == Some(operation));
        let judged = match draft.mode {
            ListMode::TrackOnly => tracked.is_some(),
            ListMode::All | ListMode::ExcludeOnly => !excluded && (tracked.is_some() || !operation.only_by_name()),
        };
        let own = tracked.and_then(|one| one.count);
        judged.then(|| own.or(for_all).unwrap_or_else(|| default_count(operation)))
    };
    let counts: BTreeMap<_, _> =
        protocol.all_operations().filter_map(|operation| Some((operation, count(operation)?))).collect();
    if reader.problems.len() > before {
        return None;
    }
    if counts.is_empty() {
        draft.nothing_left(reader);
        return None;
    }
    Some(ConnectionRule { subject: draft.subject(protocol), counts, loss_percent: loss_percent? })
}
