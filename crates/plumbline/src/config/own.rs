//! `operations`: operations that the site defines itself, from one hook to another.

use probes::own::{self, At, Definition, HOOKS, OwnHook, ValueRoot, ValueSource};

use super::{
    Position,
    node::{YamlEntry, YamlNode, YamlValue},
    reader::{ConfigReader, did_you_mean, find, quoted},
};

const KEYS: [&str; 7] = ["begin", "end", "key", "bytes", "status", "mount", "file"];
/// The most values that match the end of an operation to its beginning.
const MOST_KEYS: usize = 2;
/// PROBE_LENGTH and OPERATION_LENGTH of bpf/event.h, without the zero at the end.
const PROBE_LENGTH: usize = 15;
const OPERATION_LENGTH: usize = 47;

/// Reads all operations, and registers their probes with the reader.
pub fn read(reader: &mut ConfigReader<'_>, all: &YamlEntry) -> Vec<Definition> {
    let mut definitions = Vec::new();
    for probe in reader.map("`operations`", &all.value).unwrap_or_default() {
        let is_known = |name: &str| reader.known.protocols.iter().any(|protocol| protocol.name == name);
        if is_known(&probe.key) || probe.key == "tasks" || probes::aliases().any(|(_, alias)| alias.name == probe.key) {
            reader.refuse(probe.at, format!("{} is a probe already; give yours another name", quoted(&probe.key)));
        }
        check_name(reader, probe, PROBE_LENGTH);
        let operations = reader.map(&format!("the probe {}", quoted(&probe.key)), &probe.value).unwrap_or_default();
        for operation in operations {
            definitions.extend(definition(reader, &probe.key, operation));
        }
    }
    if definitions.len() > own::MOST_OPERATIONS {
        let text = format!("these are {} operations; define at most {}", definitions.len(), own::MOST_OPERATIONS);
        reader.refuse(all.at, text);
        definitions.truncate(own::MOST_OPERATIONS);
    }
    let names: std::collections::BTreeSet<_> = definitions.iter().map(|one| &one.protocol).collect();
    if names.len() > own::MOST_PROTOCOLS {
        reader.refuse(all.at, format!("these are {} probes; define at most {}", names.len(), own::MOST_PROTOCOLS));
        return Vec::new();
    }
    match own::protocols(&definitions) {
        Ok(protocols) => {
            reader.own = protocols;
            definitions
        }
        Err(full) => {
            reader.refuse(all.at, full);
            Vec::new()
        }
    }
}

fn check_name(reader: &mut ConfigReader<'_>, entry: &YamlEntry, longest: usize) {
    if !own::is_good_name(&entry.key, longest) {
        let name = quoted(&entry.key);
        reader.refuse(entry.at, format!("{name} cannot be a name; write 1 to {longest} letters, digits or `_`"));
    }
}

/// Reads one operation; `None` if it is invalid.
fn definition(reader: &mut ConfigReader<'_>, protocol: &str, entry: &YamlEntry) -> Option<Definition> {
    let before = reader.problems.len();
    check_name(reader, entry, OPERATION_LENGTH);
    let entries = reader.section(entry, &KEYS)?;
    let name = quoted(&entry.key);
    let Some(begin) = find(entries, "begin") else {
        let how = "write `begin: {fentry: FUNCTION}`, or another hook";
        reader.refuse(entry.at, format!("the operation {name} has no beginning; {how}"));
        return None;
    };
    let begin = hook(reader, begin)?;
    if begin.value.is_return() {
        let text = "an operation cannot begin where a function returns; write fentry, kprobe or uprobe";
        reader.refuse(position(&begin, entry), text);
    }
    let end = match find(entries, "end") {
        Some(end) => hook(reader, end)?,
        None => match begin.value.return_of() {
            Some(value) => At { value, ..begin },
            None => {
                let how = "write `end:` and a hook";
                reader.refuse(entry.at, format!("the operation {name} has no end; {how}"));
                return None;
            }
        },
    };
    let key = find(entries, "key").map(|entry| keys(reader, entry)).unwrap_or_default();
    let mut value = |key| find(entries, key).and_then(|entry| optional_source(reader, entry));
    let [bytes, status, mount, path] = ["bytes", "status", "mount", "file"].map(&mut value);
    let (protocol, operation) = (protocol.to_owned(), entry.key.clone());
    let definition =
        Definition { protocol, operation, file: reader.file(entry.at), begin, end, key, bytes, status, mount, path };
    (reader.problems.len() == before).then_some(definition)
}

/// A position in the file of an entry.
fn position<T>(at: &At<T>, beside: &YamlEntry) -> Position {
    Position { file: beside.at.file, line: at.line, column: at.column }
}

fn at<T>(node: &YamlNode, value: T) -> At<T> {
    At { value, line: node.at.line, column: node.at.column }
}

/// `{fentry: p9_client_read}`
fn hook(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<At<OwnHook>> {
    let entries = reader.map(&quoted(&entry.key), &entry.value)?;
    let [hook] = entries else {
        let how = "write one word and a name, such as {fentry: FUNCTION}";
        reader.refuse(entry.at, format!("{} is one hook; {how}", quoted(&entry.key)));
        return None;
    };
    if !HOOKS.contains(&hook.key.as_str()) {
        let hint = did_you_mean(&hook.key, HOOKS).unwrap_or_else(|| format!("write one of {}", HOOKS.join(", ")));
        reader.refuse(hook.at, format!("there is no hook {}; {hint}", quoted(&hook.key)));
        return None;
    }
    let text = reader.word(hook)?;
    match OwnHook::parse(&hook.key, text) {
        Ok(value) => Some(at(&hook.value, value)),
        Err(wrong) => {
            reader.refuse(hook.value.at, format!("{} {wrong}", quoted(text)));
            None
        }
    }
}

/// `thread`, `args.rq`, `[args.dev, args.sector]`, or `{begin: ..., end: ...}` of these.
fn keys(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Vec<(At<ValueSource>, At<ValueSource>)> {
    let YamlValue::Map(sides) = &entry.value.value else {
        let both = sources(reader, entry, &entry.value);
        return both
            .iter()
            .filter(|one| one.value.root != ValueRoot::Thread)
            .map(|one| (one.clone(), one.clone()))
            .collect();
    };
    reader.only_keys(sides, &["begin", "end"], &[]);
    let [begin, end] = ["begin", "end"].map(|side| find(sides, side));
    let (Some(begin), Some(end)) = (begin, end) else {
        reader.refuse(entry.value.at, "`key` is the same at both ends, or `{begin: VALUE, end: VALUE}`; write both");
        return Vec::new();
    };
    let (begins, ends) = (sources(reader, begin, &begin.value), sources(reader, end, &end.value));
    if begins.len() != ends.len() {
        reader.refuse(end.value.at, "the key has as many values at the end as at the beginning; write as many");
    }
    begins.into_iter().zip(ends).collect()
}

fn sources(reader: &mut ConfigReader<'_>, entry: &YamlEntry, node: &YamlNode) -> Vec<At<ValueSource>> {
    let nodes = match &node.value {
        YamlValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if nodes.len() > MOST_KEYS {
        reader.refuse(node.at, format!("a key has at most {MOST_KEYS} values; leave the others out"));
    }
    let found: Vec<_> = nodes.iter().filter_map(|node| source(reader, &quoted(&entry.key), node)).collect();
    for of_end in found.iter().filter(|one| matches!(one.value.root, ValueRoot::End | ValueRoot::Return)) {
        let text = "a key is the thread, or arguments that both hooks have; write `thread` or args.NAME";
        reader.refuse(position(of_end, entry), text);
    }
    found
}

/// `none` means no source.
fn optional_source(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<At<ValueSource>> {
    if matches!(&entry.value.value, YamlValue::Plain(text) if text == "none") {
        return None;
    }
    let found = source(reader, &quoted(&entry.key), &entry.value)?;
    if found.value.root == ValueRoot::Thread {
        reader.refuse(entry.value.at, "`thread` can be a key, but not a value; write an argument or `return`");
    }
    Some(found)
}

fn source(reader: &mut ConfigReader<'_>, what: &str, node: &YamlNode) -> Option<At<ValueSource>> {
    let text = reader.text(what, node)?;
    match ValueSource::parse(text) {
        Ok(source) => Some(at(node, source)),
        Err(wrong) => {
            reader.refuse(node.at, format!("{} {wrong}", quoted(text)));
            None
        }
    }
}
