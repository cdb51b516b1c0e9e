//! AOD's two forms of configuration, turned into ours key by key: everything after this knows one form only.
//!
//! The published form has `guardian: anomalies:`; the newer one groups anomalies by protocol and kind,
//! `anomalies: smb: latency:`. Only a rule's `tool` stays, because AOD's rules read their lists a little differently.

use super::{
    node::{YamlEntry, YamlNode, YamlValue},
    reader::{ConfigReader, find, quoted},
};

/// Top-level keys that only AOD has.
pub const TOP_KEYS: [&str; 3] = ["aod_output_dir", "watcher", "guardian"];
/// AOD's tools, without spaces, and the probe that takes the place of each.
pub const TOOLS: [(&str, &str); 5] =
    [("smbslower", "smb"), ("smbiosnoop", "smb"), ("nfsslower", "nfs"), ("nfsiosnoop", "nfs"), ("ss", "connections")];

const PROTOCOLS: [&str; 2] = ["smb", "nfs"];

/// Renames AOD's keys among the top-level entries, and says so.
pub fn to_native(reader: &mut ConfigReader<'_>, mut entries: Vec<YamlEntry>) -> Vec<YamlEntry> {
    rename(reader, &mut entries, "aod_output_dir", "output_dir");
    rename(reader, &mut entries, "watcher", "snapshot");
    unwrap_guardian(reader, &mut entries);
    if let Some(anomalies) = entries.iter_mut().find(|entry| entry.key == "anomalies")
        && let YamlValue::Map(rules) = &mut anomalies.value.value
    {
        let ungrouped = std::mem::take(rules).into_iter().flat_map(|entry| ungroup(reader, entry)).collect();
        *rules = ungrouped;
        for rule in rules {
            if let YamlValue::Map(entries) = &mut rule.value.value {
                rename(reader, entries, "track_errors", "track_codes");
                rename(reader, entries, "exclude_errors", "exclude_codes");
            }
        }
    }
    entries
}

fn rename(reader: &mut ConfigReader<'_>, entries: &mut Vec<YamlEntry>, from: &str, to: &str) {
    let Some(index) = entries.iter().position(|entry| entry.key == from) else { return };
    if let Some(clash) = find(entries, to).map(|entry| entry.at.line) {
        let twin = entries.remove(index);
        reader.refuse(twin.at, format!("`{from}` is the same as `{to}`, which stands in line {clash}; remove one"));
    } else if let Some(entry) = entries.get_mut(index) {
        reader.note(format!("`{from}` is `{to}` here"));
        entry.key = to.to_owned();
    }
}

/// `guardian: {anomalies: X}` becomes `anomalies: X`.
fn unwrap_guardian(reader: &mut ConfigReader<'_>, entries: &mut Vec<YamlEntry>) {
    let Some(index) = entries.iter().position(|entry| entry.key == "guardian") else { return };
    let guardian = entries.remove(index);
    if let Some(own) = find(entries, "anomalies") {
        let line = own.at.line;
        reader.refuse(
            guardian.at,
            format!("`guardian` holds the `anomalies`, which also stand in line {line}; remove one"),
        );
        return;
    }
    let Some(inner) = reader.section(&guardian, &["anomalies"]) else { return };
    if let Some(anomalies) = find(inner, "anomalies") {
        reader.note("`guardian.anomalies` is `anomalies` here");
        entries.push(anomalies.clone());
    }
}

/// `smb: {latency: {...}}` becomes `smb_latency: {type: latency, ...}`; a rule of our own stays as it is.
fn ungroup(reader: &mut ConfigReader<'_>, group: YamlEntry) -> Vec<YamlEntry> {
    let is_rule = |entries: &[YamlEntry]| ["type", "probe", "tool"].iter().any(|key| find(entries, key).is_some());
    let YamlEntry { key: protocol, at, value: YamlNode { at: value_at, value } } = group;
    match value {
        YamlValue::Map(kinds) if PROTOCOLS.contains(&protocol.as_str()) && !is_rule(&kinds) => {
            kinds.into_iter().map(|rule| name_rule(reader, &protocol, rule)).collect()
        }
        value => vec![YamlEntry { key: protocol, at, value: YamlNode { at: value_at, value } }],
    }
}

fn name_rule(reader: &mut ConfigReader<'_>, protocol: &str, mut rule: YamlEntry) -> YamlEntry {
    let name = format!("{protocol}_{}", rule.key);
    if let YamlValue::Map(entries) = &mut rule.value.value {
        match find(entries, "type") {
            Some(own) => {
                reader.refuse(own.at, format!("the rule's type is its key, {}; remove this", quoted(&rule.key)))
            }
            None => {
                let kind = YamlNode { at: rule.at, value: YamlValue::Plain(rule.key.clone()) };
                entries.push(YamlEntry { key: "type".into(), at: rule.at, value: kind });
            }
        }
    }
    reader.note(format!(
        "`anomalies.{protocol}.{}` is the rule `{name}` here",
        model::text::printable(rule.key.as_bytes())
    ));
    YamlEntry { key: name, ..rule }
}
