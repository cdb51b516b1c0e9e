//! `when` of a rule: the rules whose incidents arm it, for how long, and for which operations.

use std::{collections::BTreeSet, time::Duration};

use diagnose::rule::Rule;
use model::{Level, Protocol};

use super::{
    ConfiguredRule,
    native::ConfigSection,
    node::{YamlEntry, YamlValue},
    reader::{ConfigReader, did_you_mean, find, quoted},
};
use crate::scope::{On, When};

const KEY: &str = "when";
/// The default, which is the default time that an incident stays open without a new anomaly.
const WITHIN: Duration = Duration::from_secs(60);
const DAY_SEC: f64 = 86_400.0;

/// Reads `when` of a rule.
pub fn read(reader: &mut ConfigReader<'_>, rule: &[YamlEntry]) -> Option<When> {
    let entry = find(rule, KEY)?;
    let entries = reader.section(entry, &["incident", "within", "on"])?;
    let Some(armed_by) = find(entries, "incident") else {
        reader
            .refuse(entry.at, "`when` does not say whose incidents arm the rule; write `incident:` and a rule's name");
        return None;
    };
    let names: Vec<_> = super::scope::one_or_more(armed_by).iter().collect();
    let incident: Vec<_> = names.iter().filter_map(|node| reader.text("`incident`", node)).map(str::to_owned).collect();
    if names.is_empty() {
        reader.refuse(armed_by.at, "`incident` has no values; write the name of a rule");
    }
    let within = find(entries, "within").map_or(Some(WITHIN), |entry| reader.span(entry, 1.0, DAY_SEC));
    let on = find(entries, "on").map_or(Some(On::Host), |entry| reader.choice(entry, &On::NAMES));
    let is_complete = !incident.is_empty() && incident.len() == names.len();
    is_complete.then_some(When { incident, origins: BTreeSet::new(), within: within?, on: on? })
}

/// Refuses properties that the rule's probe does not know of its operations.
pub fn check(reader: &mut ConfigReader<'_>, entries: &[YamlEntry], rule: &dyn Rule, when: Option<&When>) {
    let (Some(when), Some(entry)) = (when, find(entries, KEY)) else { return };
    let reason = match (when.on, rule.protocol().level) {
        (On::Mount | On::Job, Level::Connection) => {
            "a connection belongs to a server, and serves all its mounts; write `server`"
        }
        (On::Mount | On::Server, Level::Proxy) => "what its probe sees goes to no mount of this host; write `host`",
        (On::Job, _) if rule.counts_all() => {
            "it judges what is counted by operation and mount, whoever asked; write `mount`, `server` or `host`"
        }
        _ => return,
    };
    let text = format!("the rule {} cannot be armed on a {}: {reason}", quoted(rule.name()), when.on.name());
    reader.refuse(entry.at, text);
}

/// Finds the rules that arm others. Refuses unknown names, and rules that arm each other.
pub fn connect(reader: &mut ConfigReader<'_>, anomalies: &[YamlEntry], rules: &mut [ConfiguredRule]) {
    let arms: Vec<(String, Vec<String>)> = rules
        .iter()
        .filter_map(|one| Some((one.rule.name().to_owned(), one.when.as_ref()?.incident.clone())))
        .collect();
    for configured in rules {
        let name = configured.rule.name().to_owned();
        let Some(when) = &mut configured.when else { continue };
        let at = find(anomalies, &name).and_then(|rule| match &rule.value.value {
            YamlValue::Map(entries) => Some(find(entries, KEY)?.at),
            _ => None,
        });
        let Some(at) = at else { continue };
        for armed_by in when.incident.iter().filter(|armed_by| find(anomalies, armed_by).is_none()) {
            let names = || anomalies.iter().map(|entry| entry.key.as_str());
            let hint = did_you_mean(armed_by, names());
            let hint = hint.unwrap_or_else(|| format!("write one of {}", names().collect::<Vec<_>>().join(", ")));
            reader.refuse(at, format!("`when` names {}, which is no rule; {hint}", quoted(armed_by)));
        }
        when.origins = origins(&when.incident, &arms);
        if when.origins.contains(&name) {
            let text = format!(
                "the rule {} would be armed by its own incidents, at the end of a chain of `when`; name other rules",
                quoted(&name)
            );
            reader.refuse(at, text);
        }
    }
}

/// The rules of these names, and all rules that arm them, directly or through others.
fn origins(names: &[String], arms: &[(String, Vec<String>)]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&String> = names.iter().collect();
    while let Some(name) = left.pop() {
        if found.insert(name.clone()) {
            left.extend(arms.iter().filter(|(rule, _)| rule == name).flat_map(|(_, armed_by)| armed_by));
        }
    }
    found
}

/// Refuses rules that always judge but whose probe is loaded on demand, and notes such a probe that no rule needs.
pub(super) fn check_probes(
    reader: &mut ConfigReader<'_>,
    all: &ConfigSection<'_>,
    on_demand: &[&'static Protocol],
    rules: &[ConfiguredRule],
) {
    let Some(probes) = all.get(reader, "probes") else { return };
    for protocol in on_demand {
        let at = match &probes.value.value {
            YamlValue::Map(entries) => find(entries, protocol.name).map_or(probes.at, |entry| entry.at),
            _ => probes.at,
        };
        let about = || rules.iter().filter(|one| one.rule.protocol() == *protocol);
        if let Some(always) = about().find(|one| one.when.is_none()) {
            let (rule, probe) = (quoted(always.rule.name()), protocol.name);
            reader.refuse(
                at,
                format!(
                    "the rule {rule} always needs its probe, and `probes` loads `{probe}` on demand; give the rule `when`, or write \
                     `{probe}: true`"
                ),
            );
        } else if about().next().is_none() {
            reader.note(format!(
                "the probe `{}` is never loaded: no rule with `when` is about its operations",
                protocol.name
            ));
        }
    }
}
