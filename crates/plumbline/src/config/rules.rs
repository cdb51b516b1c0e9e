//! The rules under `anomalies`: the part that all types have in common.

mod baseline;
mod connections;
mod errors;
mod expression;
mod latency;
mod stalls;
mod throughput;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use diagnose::rule::{Rule, Subject};
use model::{Operation, Protocol, text::printable};

use super::{
    ConfiguredRule, NotYet, actions,
    aod::TOOLS,
    commands::{commands, in_both},
    modes::{ListMode, OperationSelection},
    node::{Position, YamlEntry, YamlValue},
    reader::{ConfigReader, find, quoted},
    scope, when,
};

/// AOD's default for a rule without a count.
const DEFAULT_COUNT: u32 = 10;

const COMMON_KEYS: [&str; 8] = ["type", "probe", "tool", "mode", "actions", "only", "except", "when"];

/// The rules of a configuration.
#[derive(Debug, Default)]
pub struct ConfiguredRules {
    /// Rules that this version detects.
    pub detected: Vec<ConfiguredRule>,
    /// Rules that this version only keeps.
    pub not_yet: Vec<NotYet>,
}

/// A type of rule: its name in the configuration, and the function that reads its own keys.
pub struct RuleKind {
    pub word: &'static str,
    /// Keys that only rules of this type have.
    pub keys: &'static [&'static str],
    /// Reads a rule; `None` if this version lacks its probe, or something is wrong.
    pub read: fn(&mut ConfigReader<'_>, &RuleDraft<'_>) -> Option<Arc<dyn Rule>>,
    /// The probe of a rule that names none.
    pub probe: fn() -> Option<&'static Protocol>,
}

/// Every type. `sockconn` is AOD's name.
static KINDS: [RuleKind; 8] = [
    latency::KIND,
    errors::KIND,
    stalls::KIND,
    connections::KIND,
    baseline::KIND,
    throughput::KIND,
    expression::KIND,
    RuleKind { word: "sockconn", ..connections::KIND },
];

/// Whether there are rules of this type.
pub fn is_kind(word: &str) -> bool {
    KINDS.iter().any(|kind| kind.word == word)
}

/// The operations that a rule judges.
#[derive(Clone, Copy)]
pub enum RuleSource {
    /// The operations of this probe.
    Probe(&'static Protocol),
    /// Operations for which AOD has a tool and this version has no probe.
    Later(&'static str),
}

impl RuleSource {
    /// The protocol, if there is a probe for it.
    pub fn protocol(self) -> Option<&'static Protocol> {
        match self {
            Self::Probe(protocol) => Some(protocol),
            Self::Later(_) => None,
        }
    }

    /// The name of the probe, also of one that does not exist yet.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe(protocol) => protocol.name,
            Self::Later(name) => name,
        }
    }
}

/// A rule that is being read.
pub struct RuleDraft<'n> {
    /// The rule's name, and its position.
    pub name: &'n str,
    at: Position,
    /// The rule's keys.
    pub entries: &'n [YamlEntry],
    /// Whose operations.
    pub source: RuleSource,
    /// Whether the rule is written for AOD, whose lists have a slightly different meaning.
    pub aod: bool,
    /// The meaning of the rule's lists.
    pub mode: ListMode,
    /// `None` if the value is invalid.
    pub acceptable_count: Option<u32>,
}

/// Reads every rule.
pub fn read(reader: &mut ConfigReader<'_>, anomalies: &YamlEntry) -> ConfiguredRules {
    let mut rules = ConfiguredRules::default();
    let entries = reader.map("`anomalies`", &anomalies.value).unwrap_or_default();
    for (index, entry) in entries.iter().enumerate() {
        // Keys are unique in the text, but AOD's groups may result in a name that exists already.
        if entries.iter().take(index).any(|other| other.key == entry.key) {
            reader.refuse(entry.at, format!("the rule {} is given twice; rename one", quoted(&entry.key)));
        }
        rule(reader, entry, &mut rules);
    }
    when::connect(reader, entries, &mut rules.detected);
    rules
}

/// Reads a rule; `None` if something is wrong with it.
fn rule(reader: &mut ConfigReader<'_>, entry: &YamlEntry, rules: &mut ConfiguredRules) -> Option<()> {
    actions::check_name(reader, entry);
    let entries = reader.map(&format!("the rule {}", quoted(&entry.key)), &entry.value)?;
    let Some(kind) = find(entries, "type") else {
        reader.refuse(entry.at, format!("the rule {} has no type; write `type: latency`", quoted(&entry.key)));
        return None;
    };
    let kind = reader.choice(kind, &KINDS.each_ref().map(|kind| (kind.word, kind)))?;
    reader.only_keys(entries, &[&COMMON_KEYS, kind.keys].concat(), &[]);
    let scope = scope::read(reader, entries);
    let when = when::read(reader, entries);
    let actions = find(entries, "actions").map(|entry| actions::read(reader, entry)).unwrap_or_default();
    let acceptable_count = match find(entries, "acceptable_count") {
        Some(entry) => reader.whole(entry, 1..=1_000_000),
        None => Some(DEFAULT_COUNT),
    };
    let mode = find(entries, "mode").map_or(Some(ListMode::All), |entry| reader.choice(entry, &ListMode::NAMES));
    let (probe, tool) = (find(entries, "probe"), find(entries, "tool"));
    let source = match (kind.probe)().filter(|_| probe.is_none() && tool.is_none()) {
        Some(protocol) => Some(RuleSource::Probe(protocol)),
        None => source(reader, entry, probe, tool),
    };
    let aod = find(entries, "tool").is_some();
    let mode = mode.unwrap_or(ListMode::All); // A wrong one is noted; this finds what else is wrong.
    let (name, at) = (entry.key.as_str(), entry.at);
    let draft = RuleDraft { name, at, entries, source: source?, aod, mode, acceptable_count };
    let rule = (kind.read)(reader, &draft);
    if let RuleSource::Probe(_) = draft.source {
        let rule = rule?;
        scope::check(reader, entries, &*rule);
        when::check(reader, entries, &*rule, when.as_ref());
        rules.detected.push(ConfiguredRule { rule, scope, when, actions });
        return Some(());
    }
    let probe = draft.source.name();
    reader.note(format!(
        "the rule {} is kept but detects nothing: this version has no {} anomalies of {probe} yet",
        quoted(name),
        kind.word
    ));
    rules.not_yet.push(NotYet { name: name.to_owned(), kind: kind.word, probe, actions });
    Some(())
}

fn source(
    reader: &mut ConfigReader<'_>,
    rule: &YamlEntry,
    probe: Option<&YamlEntry>,
    tool: Option<&YamlEntry>,
) -> Option<RuleSource> {
    let protocols: Vec<_> = reader.protocols().into_iter().map(|protocol| (protocol.name, protocol)).collect();
    match (probe, tool) {
        (Some(_), Some(tool)) => {
            reader.refuse(tool.at, "`tool` is AOD's word for `probe`, and both are here; remove `tool`");
            None
        }
        (Some(probe), None) => reader.choice(probe, &protocols).map(RuleSource::Probe),
        (None, Some(tool)) => {
            let name = reader.choice(tool, &TOOLS)?;
            let Some((_, protocol)) = protocols.iter().find(|(known, _)| *known == name) else {
                return Some(RuleSource::Later(name));
            };
            if let YamlValue::Plain(text) | YamlValue::Quoted(text) = &tool.value.value {
                reader.note(format!("`tool: {}` is `probe: {name}` here", printable(text.as_bytes())));
            }
            Some(RuleSource::Probe(protocol))
        }
        (None, None) => {
            let names: Vec<_> = protocols.iter().map(|(name, _)| *name).collect();
            let rule_name = quoted(&rule.key);
            reader.refuse(
                rule.at,
                format!("the rule {rule_name} has no probe; write `probe:` and one of {}", names.join(", ")),
            );
            None
        }
    }
}

impl<'n> RuleDraft<'n> {
    /// The name of the rule and what it judges.
    pub fn subject(&self, protocol: &'static Protocol) -> Subject {
        Subject { name: self.name.to_owned(), protocol }
    }

    /// The two lists, without the one that the mode does not use. AOD warns of such a list; in our own form, it is refused.
    pub fn lists(
        &self,
        reader: &mut ConfigReader<'_>,
        track: &str,
        exclude: &str,
    ) -> (Option<&'n YamlEntry>, Option<&'n YamlEntry>) {
        let (track, exclude) = (find(self.entries, track), find(self.entries, exclude));
        match self.mode {
            ListMode::All => (track, exclude),
            ListMode::TrackOnly => {
                self.unused(reader, exclude, "trackonly");
                (track, None)
            }
            ListMode::ExcludeOnly => {
                self.unused(reader, track, "excludeonly");
                (None, exclude)
            }
        }
    }

    fn unused(&self, reader: &mut ConfigReader<'_>, list: Option<&YamlEntry>, mode: &str) {
        let Some(entry) = list else { return };
        let (rule, key) = (quoted(self.name), &entry.key);
        match &entry.value.value {
            YamlValue::Null => {}
            YamlValue::List(items) if items.is_empty() => {}
            _ if self.aod => reader.note(format!("the rule {rule}: `{key}` is ignored in mode {mode}, as AOD does")),
            _ => {
                reader.refuse(entry.at, format!("`{key}` contradicts `mode: {mode}`; remove it, or write `mode: all`"))
            }
        }
    }

    /// The operations that remain after the lists, for types of rules that treat all operations alike; `None` if something is wrong, or this version
    /// lacks the probe.
    pub fn operations(&self, reader: &mut ConfigReader<'_>) -> Option<BTreeSet<Operation>> {
        let before = reader.problems.len();
        let (track, exclude) = self.lists(reader, "track_commands", "exclude_commands");
        let [track, exclude] =
            [track, exclude].map(|list| commands(reader, list, self.source.protocol(), &["command"]));
        in_both(reader, track.iter().map(|one| (&*one.name, one.at)), exclude.iter().map(|one| (&*one.name, one.at)));
        let protocol = self.source.protocol()?;
        let (track, exclude): (Vec<_>, Vec<_>) = (
            track.iter().filter_map(|one| Some((one.operation?, None))).collect(),
            exclude.iter().filter_map(|one| one.operation).collect(),
        );
        let default_threshold = Duration::ZERO; // None is asked for.
        let selection = OperationSelection {
            mode: self.mode,
            default_threshold,
            track: &track,
            exclude: &exclude,
            waiting_too: false,
        };
        let operations: BTreeSet<_> = selection.thresholds(protocol).into_keys().collect();
        if reader.problems.len() > before {
            return None; // What is left to track is not known.
        }
        if operations.is_empty() {
            self.nothing_left(reader);
            return None;
        }
        Some(operations)
    }

    /// Refuses a rule that judges nothing.
    pub fn nothing_left(&self, reader: &mut ConfigReader<'_>) {
        let at = find(self.entries, "mode").map_or(self.at, |entry| entry.value.at);
        reader.refuse(
            at,
            format!("the rule {} has nothing left to track; change `mode` or its lists", quoted(self.name)),
        );
    }
}
