//! Removes all names from a page's material, so that the page can be given to strangers.
//!
//! Only what is known to be no secret stays: figures, times, operations, states, and in sentences the words of
//! `vocabulary.txt`, which are Plumbline's own. Everything else becomes a token; the same text has the same token
//! everywhere.

mod incident;
mod known;
mod prose;
mod tokens;

use model::EventLine;

use self::tokens::Tokens;
use super::material::PageMaterial;
use crate::evidence::ACTIONS;

/// Files that have the same name in every bundle.
const FILES: [&str; 7] =
    ["incident.json", "report.html", "events.jsonl", "recorder.jsonl", "after.jsonl", "stacks.folded", "manifest.json"];

/// Replaces every name of the material, and drops the evidence's content.
pub fn redact(material: &mut PageMaterial) {
    let mut tokens = Tokens::default();
    let incident = std::mem::take(&mut material.incident);
    // Sentences come last, as the names of all other fields are known by then.
    let mut incident = incident::names(incident, &mut tokens);
    for line in &mut material.slowest {
        *line = event(std::mem::take(line), &mut tokens);
    }
    for connection in &mut material.connections.0 {
        tokens.replace("server", &mut connection.server);
    }
    for (_, operation) in &mut material.happenings {
        known::operation(operation, &mut tokens);
    }
    incident::sentences(&mut incident, &mut tokens);
    material.incident = incident;
    evidence(material, &mut tokens);
}

/// Keeps only those fields of a line that the page shows, and replaces names in them.
fn event(line: EventLine<'_>, tokens: &mut Tokens) -> EventLine<'static> {
    let mut shown = EventLine {
        time: known::time(line.time),
        operation: line.operation.into_owned().into(),
        duration_ms: line.duration_ms,
        queue_ms: line.queue_ms,
        wire_ms: line.wire_ms,
        deliver_ms: line.deliver_ms,
        status: line.status,
        errno: line.errno,
        bytes: line.bytes,
        pid: line.pid,
        comm: line.comm,
        file: line.file,
        failed: line.failed,
        in_flight: line.in_flight,
        ..EventLine::default()
    };
    known::operation(shown.operation.to_mut(), tokens);
    known::outcome(&mut shown.status, tokens);
    known::outcome(&mut shown.errno, tokens);
    tokens.replace("process", &mut shown.comm);
    tokens.replace("file", &mut shown.file);
    shown
}

fn evidence(material: &mut PageMaterial, tokens: &mut Tokens) {
    let is_known = |name: &str| {
        FILES.contains(&name)
            || name.strip_suffix(".txt").is_some_and(|stem| ACTIONS.iter().any(|one| one.name == stem))
    };
    let mut name = |name: &mut String| {
        if !is_known(name) {
            tokens.replace("evidence", name);
        }
    };
    material.evidence.withheld = true;
    for file in &mut material.evidence.files {
        file.head.clear();
        name(&mut file.name);
    }
    for action in &mut material.evidence.actions {
        action.file.iter_mut().for_each(&mut name);
        action.command.clear();
        action.error = None;
        if !ACTIONS.iter().any(|one| one.name == action.action) {
            name(&mut action.action);
        }
        if !["ok", "failed", "timeout", "truncated"].contains(&action.status.as_str()) {
            action.status.clear();
        }
    }
}
