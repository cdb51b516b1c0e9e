//! Rules about failing operations.

use std::{collections::BTreeSet, sync::Arc};

use diagnose::error::{Codes, ErrorRule};
use model::{Code, Operation};
use nix::errno::Errno;

use crate::config::{
    commands::{commands, in_both, once_each},
    modes::ListMode,
    node::{Position, YamlEntry},
    reader::{ConfigReader, NumberRange, did_you_mean, find, quoted},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::error::KIND,
    keys: &[
        "acceptable_count",
        "acceptable_percent",
        "track_commands",
        "exclude_commands",
        "track_codes",
        "exclude_codes",
    ],
    read: |reader, draft| Some(Arc::new(read(reader, draft)?)),
    probe: || None,
};

/// Reads a rule; `None` if this version lacks its probe, or something is wrong. The mode is about error codes. The rule judges the tracked
/// commands or, if there are none, all that are not excluded.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<ErrorRule> {
    let before = reader.problems.len();
    let percent = find(draft.entries, "acceptable_percent")
        .map(|entry| reader.number(entry, NumberRange::new(0.001, 100.0, "per cent")));
    let [track, exclude] = ["track_commands", "exclude_commands"]
        .map(|key| commands(reader, find(draft.entries, key), draft.source.protocol(), &["command"]));
    in_both(reader, track.iter().map(|one| (&*one.name, one.at)), exclude.iter().map(|one| (&*one.name, one.at)));
    let (tracked, excluded) = draft.lists(reader, "track_codes", "exclude_codes");
    let (tracked, excluded) = (codes(reader, tracked, draft.source), codes(reader, excluded, draft.source));
    in_both(reader, tracked.iter().map(|one| (one.name, one.at)), excluded.iter().map(|one| (one.name, one.at)));
    if reader.problems.len() > before {
        return None; // What is left to track is not known.
    }
    if draft.mode == ListMode::TrackOnly && tracked.is_empty() {
        draft.nothing_left(reader);
        return None;
    }
    let RuleSource::Probe(protocol) = draft.source else { return None };
    let tracked: BTreeSet<Code> = tracked.iter().map(|one| one.code).collect();
    // AOD's newer rules have no mode: the presence of a list determines it.
    let unsaid = draft.aod && find(draft.entries, "mode").is_none() && !tracked.is_empty();
    if unsaid {
        reader.note(format!("the rule {} counts what its list tracks, and nothing else", quoted(draft.name)));
    }
    let codes = match if unsaid { ListMode::TrackOnly } else { draft.mode } {
        ListMode::TrackOnly => Codes::Only(tracked),
        ListMode::All | ListMode::ExcludeOnly => {
            let tracked = Codes::Only(tracked);
            let ordinary = protocol.ordinary.iter().filter(|code| !tracked.include(protocol, **code)).copied();
            Codes::AllBut(excluded.iter().map(|one| one.code).chain(ordinary).collect())
        }
    };
    let excluded = |operation: &Operation| exclude.iter().any(|one| one.operation == Some(*operation));
    let named = |operation: &Operation| track.is_empty() || track.iter().any(|one| one.operation == Some(*operation));
    let operations: BTreeSet<_> = protocol.all_operations().filter(|one| named(one) && !excluded(one)).collect();
    if operations.is_empty() {
        draft.nothing_left(reader);
        return None;
    }
    let (subject, acceptable_count) = (draft.subject(protocol), draft.acceptable_count?);
    let acceptable_percent = percent.flatten();
    Some(ErrorRule { subject, operations, codes, acceptable_count, acceptable_percent })
}

/// One code of a list.
struct ListedCode<'n> {
    name: &'n str,
    at: Position,
    code: Code,
}

/// Reads a list of error codes: errno names, and the protocol's own.
fn codes<'n>(reader: &mut ConfigReader<'_>, entry: Option<&'n YamlEntry>, source: RuleSource) -> Vec<ListedCode<'n>> {
    let errnos = errnos();
    let mut codes = Vec::new();
    for node in entry.and_then(|entry| reader.list(entry)).unwrap_or_default() {
        let Some(name) = reader.text("a code", node) else { continue };
        let errno = errnos.iter().find(|(known, _)| known == name).map(|(_, number)| Code::Errno(*number));
        let status = || source.protocol().and_then(|protocol| (protocol.status_named)(name)).map(Code::Status);
        if let Some(code) = errno.or_else(status) {
            codes.push(ListedCode { name, at: node.at, code });
            continue;
        }
        let example = || match source.protocol().map_or("", |protocol| protocol.status_example) {
            "" => "write an errno name such as EIO".to_owned(),
            status => format!("write a name such as EIO or {status}"),
        };
        let hint = did_you_mean(name, errnos.iter().map(|(name, _)| name.as_str())).unwrap_or_else(example);
        reader.refuse(node.at, format!("there is no error code {}; {hint}", quoted(name)));
    }
    once_each(reader, codes.iter().map(|code| (code.name, code.at)));
    codes
}

/// Every errno of this system by name, including aliases.
fn errnos() -> Vec<(String, u32)> {
    const LAST: i32 = 133; // EHWPOISON
    let known = |number: i32| (Errno::from_raw(number), number.unsigned_abs());
    let first = (1..=LAST).map(known).filter(|(errno, _)| *errno != Errno::UnknownErrno);
    let second = [("EWOULDBLOCK", Errno::EAGAIN), ("EDEADLOCK", Errno::EDEADLK), ("ENOTSUP", Errno::EOPNOTSUPP)];
    let second = second.map(|(name, errno)| (name.to_owned(), (errno as i32).unsigned_abs()));
    first.map(|(errno, number)| (format!("{errno:?}"), number)).chain(second).collect()
}
