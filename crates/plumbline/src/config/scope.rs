//! `only` and `except` of a rule: the operations that the rule judges.

use diagnose::rule::Rule;
use model::{FileNames, Level};

use super::{
    commands::once_each,
    node::{YamlEntry, YamlNode, YamlValue as Written},
    reader::{ConfigReader, did_you_mean, find, quoted},
};
use crate::{
    scope::{Condition, LONGEST_PROCESS, Pattern, SHORT_CONTAINER, Scope, ScopeKey, ScopeValue},
    view::users,
};

/// The keys of a rule for its scope.
pub const KEYS: [&str; 2] = ["only", "except"];

/// The longest value, bytes: PATH_MAX.
const LONGEST: usize = 4096;

/// Reads the scope of a rule.
pub fn read(reader: &mut ConfigReader<'_>, rule: &[YamlEntry]) -> Scope {
    let [only, except] = KEYS.map(|key| find(rule, key).map(|entry| conditions(reader, entry)).unwrap_or_default());
    Scope { only, except }
}

/// Refuses properties that the rule's probe does not know of its operations.
pub fn check(reader: &mut ConfigReader<'_>, entries: &[YamlEntry], rule: &dyn Rule) {
    for part in KEYS.iter().filter_map(|key| find(entries, key)) {
        let Written::Map(asked) = &part.value.value else { continue };
        for entry in asked {
            let Some(key) = ScopeKey::named(&entry.key) else { continue };
            if let Some(reason) = unknown(key, rule, find(entries, "acceptable_percent").is_some()) {
                reader.refuse(
                    entry.at,
                    format!("the rule {} cannot know the {}: {reason}", quoted(rule.name()), entry.key),
                );
            } else if key == ScopeKey::File && rule.protocol().file_names == FileNames::Last {
                last_components(reader, entry, rule);
            }
        }
    }
}

/// Why the rule's probe does not know this property, and what to do; `None` if it knows the property.
fn unknown(key: ScopeKey, rule: &dyn Rule, has_share: bool) -> Option<String> {
    let protocol = rule.protocol();
    let probe = protocol.name;
    if protocol.level == Level::Connection {
        let known = matches!(key, ScopeKey::Server | ScopeKey::Fstype);
        let why = "a connection belongs to a server, and serves all its mounts and whoever uses them; write `server`";
        return (!known).then(|| why.to_owned());
    }
    if protocol.level == Level::Proxy && key.is_of_mount() {
        return Some(format!("what probe `{probe}` sees goes to no mount of this host; remove the key"));
    }
    if rule.counts_all() && !key.is_of_mount() {
        let else_do = if has_share { "or remove `acceptable_percent`" } else { "or remove the key" };
        return Some(format!(
            "it judges what is counted by operation and mount, whoever asked; write `mount`, `server` or `fstype`, {else_do}"
        ));
    }
    if key == ScopeKey::File && protocol.file_names == FileNames::None {
        return Some(format!("probe `{probe}` names no files; remove the key"));
    }
    let is_unnamed = rule.sees_in_flight().is_some() && !probes::names_files_in_flight(protocol);
    (key == ScopeKey::File && is_unnamed)
        .then(|| format!("probe `{probe}` does not name the files of what has not returned; remove the key"))
}

/// Refuses paths if the probe knows only the last component of a file's name.
fn last_components(reader: &mut ConfigReader<'_>, entry: &YamlEntry, rule: &dyn Rule) {
    for node in one_or_more(entry) {
        let (Written::Plain(text) | Written::Quoted(text)) = &node.value else { continue };
        if let Some((_, last)) = text.rsplit_once('/') {
            let probe = rule.protocol().name;
            let instead = if last.is_empty() { String::new() } else { format!(", {} say", quoted(last)) };
            reader.refuse(
                node.at,
                format!("probe `{probe}` knows no more of a file's name than what is behind the last slash; write that alone{instead}"),
            );
        }
    }
}

fn conditions(reader: &mut ConfigReader<'_>, part: &YamlEntry) -> Vec<Condition> {
    let names = ScopeKey::ALL.map(|(name, _)| name);
    let before = reader.problems.len();
    let Some(entries) = reader.section(part, &names) else { return Vec::new() };
    if entries.is_empty() && reader.problems.len() == before {
        let text = format!("`{}` has no keys; write one of {}, or remove it", part.key, names.join(", "));
        reader.refuse(part.at, text);
    }
    entries.iter().filter_map(|entry| condition(reader, entry)).collect()
}

fn condition(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Condition> {
    let key = ScopeKey::named(&entry.key)?;
    let nodes = one_or_more(entry);
    if nodes.is_empty() || matches!(entry.value.value, Written::Null) {
        reader.refuse(entry.at, format!("`{}` has no values; write one, or remove the key", entry.key));
        return None;
    }
    let mut written = Vec::new();
    let mut values = Vec::new();
    for node in nodes {
        let Some(text) = reader.text(&quoted(&entry.key), node) else { continue };
        written.push((text, node.at));
        match value(key, text) {
            Ok(value) => values.push(value),
            Err(problem) => reader.refuse(node.at, problem),
        }
    }
    once_each(reader, written.into_iter());
    Some(Condition { key, values })
}

/// One value, or a list of them.
pub(super) fn one_or_more(entry: &YamlEntry) -> &[YamlNode] {
    match &entry.value.value {
        Written::List(items) => items,
        _ => std::slice::from_ref(&entry.value),
    }
}

/// Parses a value.
///
/// # Errors
/// What is wrong with it, and what to do.
fn value(key: ScopeKey, text: &str) -> Result<ScopeValue, String> {
    let name = key.name();
    if text.is_empty() {
        return Err(format!("an empty {name} matches nothing; write one, or `*` for any that is known"));
    }
    if text.len() > LONGEST {
        return Err(format!("{} is longer than {LONGEST} bytes; no {name} is", quoted(text)));
    }
    let like = |text: &str| Ok(ScopeValue::Like(Pattern::new(text)));
    match key {
        ScopeKey::User => user_number(text).map(|uid| ScopeValue::User(text.to_owned(), uid)),
        ScopeKey::Mount | ScopeKey::Cgroup if !text.starts_with(['/', '*', '?']) => {
            let what = if key == ScopeKey::Mount { "a mount point" } else { "the path of a cgroup" };
            Err(format!("{what} begins with `/`, and {} does not; write the whole path", quoted(text)))
        }
        ScopeKey::Mount | ScopeKey::Cgroup => like(if text.len() > 1 { text.trim_end_matches('/') } else { text }),
        ScopeKey::Process if text.bytes().filter(|byte| *byte != b'*').count() > LONGEST_PROCESS => {
            let cut: String = text.chars().take_while(|c| c.is_ascii()).take(LONGEST_PROCESS).collect();
            Err(format!(
                "the kernel keeps {LONGEST_PROCESS} bytes of a process's name, and {} has more; write {}, say",
                quoted(text),
                quoted(&cut)
            ))
        }
        ScopeKey::Container => like(short_container(text)),
        _ => like(text),
    }
}

/// The user id of a user by name or number.
///
/// # Errors
/// When there is no such user; the error says what to do.
pub fn user_number(user: &str) -> Result<u32, String> {
    users::number_of(user).map_err(|known| {
        let hint = did_you_mean(user, known.iter().map(String::as_str));
        let hint = hint.unwrap_or_else(|| "write the user's number, which `id -u NAME` prints".to_owned());
        format!("there is no user {} in /etc/passwd; {hint}", quoted(user))
    })
}

/// A container's id in our short form.
pub fn short_container(id: &str) -> &str {
    let is_long = id.len() > SHORT_CONTAINER && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    id.get(..SHORT_CONTAINER).filter(|_| is_long).unwrap_or(id)
}
