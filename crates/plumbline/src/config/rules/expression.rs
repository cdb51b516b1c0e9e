//! Rules that are an expression over the figures of a window.

use std::{collections::BTreeSet, sync::Arc};

use diagnose::{
    error::Codes,
    expression::{Expression, ExpressionRule, Figure, Mistake, Per},
};
use model::Level;

use crate::config::{
    node::YamlEntry,
    reader::{ConfigReader, did_you_mean, find, quoted},
    rules::{RuleDraft, RuleKind, RuleSource},
};

/// The kind, and the keys that only its rules have.
pub const KIND: RuleKind = RuleKind {
    word: diagnose::expression::KIND,
    keys: &["expression", "per", "windows", "track_commands", "exclude_commands"],
    read: |reader, draft| Some(Arc::new(read(reader, draft)?)),
    probe: || None,
};

const PER: [(&str, Per); 3] = [("operation", Per::Operation), ("mount", Per::Mount), ("rule", Per::Rule)];

/// Reads a rule; `None` if its probe is not there yet, or something is wrong.
fn read(reader: &mut ConfigReader<'_>, draft: &RuleDraft<'_>) -> Option<ExpressionRule> {
    let expression = match find(draft.entries, "expression") {
        Some(entry) => expression(reader, entry),
        None => {
            let text = "has no expression; write `expression: p99 > 100 && errors > 0`, say";
            reader.refuse(draft.at, format!("the rule {} {text}", quoted(draft.name)));
            None
        }
    };
    let per = find(draft.entries, "per").map_or(Some(Per::Operation), |entry| reader.choice(entry, &PER));
    let windows = find(draft.entries, "windows").map_or(Some(1), |entry| reader.whole(entry, 1..=100));
    let operations = draft.operations(reader);
    let RuleSource::Probe(protocol) = draft.source else { return None };
    if protocol.level == Level::Connection {
        let at = find(draft.entries, "probe").map_or(draft.at, |entry| entry.value.at);
        let probe = protocol.name;
        reader.refuse(
            at,
            format!("what probe `{probe}` sees has no figures; write `type: connection`, or another probe"),
        );
        return None;
    }
    // The default of rules of type `error`.
    let codes = Codes::AllBut(protocol.ordinary.iter().copied().collect::<BTreeSet<_>>());
    let windows = usize::try_from(windows?).ok()?;
    let (subject, expression) = (draft.subject(protocol), expression?);
    Some(ExpressionRule { subject, operations: operations?, codes, expression, per: per?, windows })
}

fn expression(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Expression> {
    let text = reader.word(entry)?;
    let expression = match Expression::new(text) {
        Ok(expression) => expression,
        Err(Mistake { at, text: said, unknown }) => {
            let names = || Figure::ALL.map(|(name, _)| name);
            let hint = unknown.map(|name| {
                did_you_mean(&name, names()).unwrap_or_else(|| format!("the figures are {}", names().join(", ")))
            });
            let said = hint.map_or(said.clone(), |hint| format!("{said}; {hint}"));
            let at = reader.place_in(&entry.value, text, at);
            reader.refuse(at, said);
            return None;
        }
    };
    if expression.figures().is_empty() {
        let text = "the expression names no figure, so it is always the same; compare one, such as p99, with a number";
        reader.refuse(entry.value.at, text);
        return None;
    }
    Some(expression)
}
