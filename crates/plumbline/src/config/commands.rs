//! The lists of a rule: what to track and what to leave out.

use std::time::Duration;

use model::{Operation, Protocol};

use super::{
    node::{Position, YamlEntry, YamlNode, YamlValue},
    reader::{ConfigReader, did_you_mean, find, quoted},
};

/// One command of a list.
pub struct ConfiguredCommand {
    /// Its name as the probe has it.
    pub name: String,
    /// The operation; `None` if this version has no such probe.
    pub operation: Option<Operation>,
    /// A threshold of its own.
    pub threshold: Option<Duration>,
    /// A count of its own.
    pub count: Option<u32>,
    /// The position in the file.
    pub at: Position,
}

/// Reads `track_commands` (with thresholds or counts, if the keys have them) or `exclude_commands` (without).
pub fn commands(
    reader: &mut ConfigReader<'_>,
    entry: Option<&YamlEntry>,
    protocol: Option<&'static Protocol>,
    keys: &[&str],
) -> Vec<ConfiguredCommand> {
    let nodes = entry.and_then(|entry| reader.list(entry)).unwrap_or_default();
    let commands: Vec<_> = nodes.iter().filter_map(|node| command(reader, node, protocol, keys)).collect();
    once_each(reader, commands.iter().map(|command| (command.name.as_str(), command.at)));
    commands
}

/// A name, or `{command: NAME, threshold: MS}`, or `{command: NAME, count: N}`.
fn command(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    protocol: Option<&'static Protocol>,
    keys: &[&str],
) -> Option<ConfiguredCommand> {
    let (name_node, threshold, count) = match &node.value {
        YamlValue::Map(entries) => {
            reader.only_keys(entries, keys, &[]);
            let threshold = find(entries, "threshold").filter(|_| keys.contains(&"threshold"));
            let threshold = threshold.and_then(|entry| reader.milliseconds(entry, 0.0));
            let count = find(entries, "count").filter(|_| keys.contains(&"count"));
            let count = count.and_then(|entry| reader.whole(entry, 1..=1_000_000));
            let Some(name) = find(entries, "command") else {
                reader.refuse(node.at, "no command is named here; write `command: NAME`");
                return None;
            };
            (&name.value, threshold, count)
        }
        _ => (node, None, None),
    };
    let name = reader.text("a command", name_node)?;
    let at = name_node.at;
    let Some(protocol) = protocol else {
        let plausible = (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plausible {
            reader.refuse(at, format!("{} is no command name; write letters, digits and `_`", quoted(name)));
        }
        return plausible.then(|| ConfiguredCommand {
            name: name.to_ascii_uppercase(),
            operation: None,
            threshold,
            count,
            at,
        });
    };
    let Some(operation) = protocol.operation(name) else {
        let hint = unknown_command(reader, name, protocol);
        reader.refuse(at, format!("probe `{}` has no command {}; {hint}", protocol.name, quoted(name)));
        return None;
    };
    Some(ConfiguredCommand { name: operation.name().to_owned(), operation: Some(operation), threshold, count, at })
}

fn unknown_command(reader: &ConfigReader<'_>, name: &str, protocol: &'static Protocol) -> String {
    if let Some(other) = reader.protocols().into_iter().find(|other| other.operation(name).is_some()) {
        return format!("it is one of probe `{0}`: move it to a rule with `probe: {0}`", other.name);
    }
    let names = || protocol.all_operations().map(Operation::name);
    did_you_mean(name, names().chain(names().filter_map(|name| name.strip_prefix("SMB2_"))))
        .unwrap_or_else(|| format!("its commands are {}", names().collect::<Vec<_>>().join(", ")))
}

/// Refuses duplicates in a list.
pub fn once_each<'n>(reader: &mut ConfigReader<'_>, names: impl Iterator<Item = (&'n str, Position)>) {
    let mut seen: Vec<(&str, Position)> = Vec::new();
    for (name, at) in names {
        match seen.iter().find(|(other, _)| *other == name) {
            Some((_, first)) => {
                reader.refuse(at, format!("`{name}` is given twice (first in line {}); remove one", first.line));
            }
            None => seen.push((name, at)),
        }
    }
}

/// Refuses names that are both tracked and excluded.
pub fn in_both<'n>(
    reader: &mut ConfigReader<'_>,
    track: impl Iterator<Item = (&'n str, Position)>,
    exclude: impl Iterator<Item = (&'n str, Position)>,
) {
    let tracked: Vec<_> = track.collect();
    for (name, at) in exclude {
        if let Some((_, first)) = tracked.iter().find(|(tracked, _)| *tracked == name) {
            let first = reader.place(*first, at);
            reader.refuse(at, format!("`{name}` is excluded here but tracked in {first}; remove one"));
        }
    }
}
