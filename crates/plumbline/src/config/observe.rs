//! `observe` and `summaries`: what is collected and counted while nothing is wrong.

use std::time::Duration;

use super::{
    Observation, actions,
    native::ConfigSection,
    node::{YamlEntry, YamlValue},
    reader::{ConfigReader, NumberRange, find, written},
};

const DAY_SEC: f64 = 86_400.0;
/// The most observations: enough for the different intervals that are used in practice.
const MOST: usize = 8;
const KEEP: Duration = Duration::from_secs(86_400);

/// The list of observations.
pub fn read(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Vec<Observation> {
    let items = reader.list(entry).unwrap_or_default();
    let mut all: Vec<Observation> = Vec::new();
    for item in items {
        let YamlValue::Map(entries) = &item.value else {
            reader.refuse(item.at, "an observation is keys with values; write {every: 10m, actions: [sockets]}");
            continue;
        };
        reader.only_keys(entries, &["every", "actions", "keep"], &[]);
        let actions = find(entries, "actions").map(|entry| actions::read(reader, entry)).unwrap_or_default();
        if actions.is_empty() {
            reader.refuse(item.at, "the observation collects nothing; write `actions: [sockets]`, say");
        }
        let Some(every) = find(entries, "every") else {
            reader.refuse(item.at, "the observation does not say how often; write `every: 10m`, say");
            continue;
        };
        let keep = find(entries, "keep").map_or(Some(KEEP), |entry| reader.span(entry, 60.0, 3650.0 * DAY_SEC));
        let at = every.at;
        let (Some(every), Some(keep)) = (reader.span(every, 10.0, DAY_SEC), keep) else { continue };
        let name = written(every.as_secs_f64());
        if all.iter().any(|other| other.name == name) {
            reader.refuse(at, format!("two observations are made every {name}; put their actions into one"));
        }
        all.push(Observation { every, name, actions, keep });
    }
    if items.len() > MOST {
        reader.refuse(entry.at, format!("there are more than {MOST} observations; put the actions of some together"));
    }
    all
}

/// How long summaries of days are kept.
pub fn summaries(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<Duration> {
    let section = all.section(reader, "summaries", &["keep_days"])?;
    let keep = section.get(reader, "keep_days")?;
    let days = reader.number(keep, NumberRange::new(0.0, 3650.0, "days"))?;
    Some(Duration::from_secs_f64(days * DAY_SEC))
}
