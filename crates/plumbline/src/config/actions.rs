//! Lists of actions, and the operator's own commands.

use std::time::Duration;

use super::{
    ConfiguredAction, CustomAction, EvidenceLimits, aod_captures, captures,
    native::{kilobytes, timeout},
    node::{YamlEntry, YamlNode, YamlValue},
    reader::{ConfigReader, did_you_mean, find, quoted},
};

/// The memory of each process of an operator's own action, bytes: enough for an interpreter. The limit of the systemd unit is for all together.
const DEFAULT_MEMORY: u64 = 256 << 20;

/// Reads a list of names, or a map in which captures have `after_sec` and AOD's captures have arguments.
pub fn read(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Vec<ConfiguredAction> {
    let mut actions: Vec<ConfiguredAction> = Vec::new();
    let mut add = |reader: &mut ConfigReader<'_>, node: &YamlNode, action: Option<ConfiguredAction>| match action {
        Some(action) if actions.iter().any(|other| other.name == action.name) => {
            reader.refuse(node.at, format!("the action {} is given twice; remove one", quoted(&action.name)));
        }
        action => actions.extend(action),
    };
    match &entry.value.value {
        YamlValue::Map(entries) => {
            for action in entries {
                let read = with_keys(reader, action);
                add(reader, &YamlNode { at: action.at, value: YamlValue::Null }, read);
            }
        }
        _ => {
            for node in reader.list(entry).unwrap_or_default() {
                let read = match &node.value {
                    YamlValue::Map(entries) if entries.len() == 1 => {
                        entries.first().and_then(|action| with_keys(reader, action))
                    }
                    _ => reader.text("an action", node).and_then(|name| action(reader, node, name, Vec::new(), None)),
                };
                add(reader, node, read);
            }
        }
    }
    actions
}

/// An action with its own settings: a capture's time, or arguments.
fn with_keys(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<ConfiguredAction> {
    let at = YamlNode { at: entry.at, value: YamlValue::Null };
    if let YamlValue::Map(_) = &entry.value.value {
        if !reader.captures.contains(&entry.key) && !aod_captures::is_one(&entry.key) {
            let name = quoted(&entry.key);
            reader.refuse(entry.at, format!("only a capture has keys, and {name} is none; write the name alone"));
            return None;
        }
        let entries = reader.section(entry, &["after_sec"])?;
        let after = find(entries, "after_sec").and_then(|entry| captures::after_sec(reader, entry));
        return action(reader, &at, &entry.key, Vec::new(), after);
    }
    let args = texts(reader, entry);
    action(reader, &at, &entry.key, args, None)
}

/// The action of this name; `None` if there is none, or it cannot take these arguments.
fn action(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    name: &str,
    args: Vec<String>,
    after: Option<Duration>,
) -> Option<ConfiguredAction> {
    if aod_captures::is_one(name) {
        let name = aod_captures::add(reader, name, &args);
        return Some(ConfiguredAction { name, args, after });
    }
    check(reader, node, name, &args).then(|| ConfiguredAction { name: name.to_owned(), args, after })
}

/// Whether there is such an action, and it can take these arguments.
fn check(reader: &mut ConfigReader<'_>, node: &YamlNode, name: &str, args: &[String]) -> bool {
    if reader.captures.iter().any(|capture| capture == name) {
        if !args.is_empty() {
            reader.refuse(node.at, format!("the capture `{name}` takes no arguments; put them under `captures`"));
        }
        return args.is_empty();
    }
    let custom = reader.custom_actions.iter().any(|custom| custom == name);
    if !custom && !reader.known.actions.contains(&name) {
        let custom = reader.custom_actions.iter().map(String::as_str);
        let names = reader.known.actions.iter().copied().chain(aod_captures::NAMES);
        let names = names.chain(reader.captures.iter().map(String::as_str)).chain(custom);
        let hint = did_you_mean(name, names.clone())
            .unwrap_or_else(|| format!("the actions are {}; or define it under `custom_actions`", join(names)));
        reader.refuse(node.at, format!("there is no action {}; {hint}", quoted(name)));
        return false;
    }
    if !args.is_empty() {
        let cure = if custom { "put them into its `command`" } else { "define a command under `custom_actions`" };
        reader.refuse(node.at, format!("the action `{name}` takes no arguments; {cure}"));
        return false;
    }
    true
}

/// The names of the operator's own actions. They are read first, since rules earlier in the file may use them.
pub fn names(entries: &[YamlEntry]) -> Vec<String> {
    entries.iter().map(|entry| entry.key.clone()).collect()
}

/// The operator's own actions. `defaults`: the values that they may leave out; `None` if these are invalid.
pub fn custom(
    reader: &mut ConfigReader<'_>,
    entries: &[YamlEntry],
    defaults: Option<&EvidenceLimits>,
) -> Vec<CustomAction> {
    entries.iter().filter_map(|entry| custom_action(reader, entry, defaults)).collect()
}

fn custom_action(
    reader: &mut ConfigReader<'_>,
    entry: &YamlEntry,
    defaults: Option<&EvidenceLimits>,
) -> Option<CustomAction> {
    let name = entry.key.as_str();
    check_name(reader, entry);
    if reader.known.actions.contains(&name) || aod_captures::is_one(name) {
        reader.refuse(entry.at, format!("`{name}` is an action already; give yours another name"));
    }
    let entries = reader.section(entry, &["command", "timeout_sec", "max_kb", "max_memory_mb"])?;
    let Some(command_entry) = find(entries, "command") else {
        reader.refuse(
            entry.at,
            format!("the action {} has no command; write `command: [program, argument]`", quoted(name)),
        );
        return None;
    };
    let before = reader.problems.len();
    let command = texts(reader, command_entry);
    if reader.problems.len() == before {
        check_program(reader, command_entry, &command);
    }
    let timeout = match find(entries, "timeout_sec") {
        Some(entry) => timeout(reader, entry),
        None => defaults.map(|defaults| defaults.timeout),
    };
    let max_bytes = match find(entries, "max_kb") {
        Some(entry) => kilobytes(reader, entry),
        None => defaults.map(|defaults| defaults.max_bytes),
    };
    let max_memory = match find(entries, "max_memory_mb") {
        Some(entry) => reader.whole(entry, 1..=65_536).map(|mb| u64::from(mb) << 20),
        None => Some(DEFAULT_MEMORY),
    };
    let (timeout, max_bytes, max_memory) = (timeout?, max_bytes?, max_memory?);
    Some(CustomAction { name: name.to_owned(), command, timeout, max_bytes, max_memory })
}

/// Checks the name of a rule or an action, which becomes part of labels and file names.
pub fn check_name(reader: &mut ConfigReader<'_>, entry: &YamlEntry) {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if entry.key.is_empty() || entry.key.len() > 64 || !entry.key.chars().all(good) {
        let name = quoted(&entry.key);
        reader.refuse(entry.at, format!("{name} cannot be a name; write 1 to 64 letters, digits, `_` or `-`"));
    }
}

/// A program and its arguments; none if the list is empty.
pub fn optional_command(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Vec<String> {
    let before = reader.problems.len();
    let command = texts(reader, entry);
    if reader.problems.len() == before && !command.is_empty() {
        check_program(reader, entry, &command);
    }
    command
}

pub fn check_program(reader: &mut ConfigReader<'_>, entry: &YamlEntry, command: &[String]) {
    let at = entry.value.at;
    match command.first().map(String::as_str) {
        None | Some("") => reader.refuse(at, "`command` is empty; write [program, argument]"),
        Some(program) if program.contains('/') && !program.starts_with('/') => {
            let program = quoted(program);
            reader.refuse(at, format!("{program} depends on the working directory; write a name or an absolute path"));
        }
        Some(_) if command.iter().any(|word| word.contains('\0')) => {
            reader.refuse(at, "`command` has a NUL byte in it; remove it: no argument can hold one");
        }
        Some(_) => {}
    }
}

pub fn texts(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Vec<String> {
    let nodes = reader.list(entry).unwrap_or_default();
    nodes.iter().filter_map(|node| reader.text("an argument", node).map(str::to_owned)).collect()
}

fn join<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
