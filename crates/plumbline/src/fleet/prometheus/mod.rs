//! Queries a Prometheus for the data that daemons have published: open incidents, mounts, and durations of operations.

mod api;
mod latencies;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, bail};
use diagnose::fleet::{HostGroup, Millis};
use model::{Anomaly, Host, Incident, Mount, RankedMount, Ranking, Verdict, text::printable};

pub use api::Api;
use api::QuerySeries;
pub use latencies::add as add_latencies;

use super::{SourceData, groups, material::server_name};

/// The most values of a series that are queried.
const POINTS: i64 = 240;
/// The least time between two values, seconds: scrapes are no more frequent.
const LEAST_STEP: i64 = 5;
/// The confidence of a verdict with a layer: the least at which a layer is named, since metrics lack the confidence.
const NAMED: f64 = 0.85;
/// The default port in the address of a daemon.
const PORT: &str = ":9437";
/// Labels of a series that are not properties of its host.
const NOT_OF_HOST: [&str; 14] = [
    "__name__",
    "instance",
    "job",
    "rule",
    "type",
    "layer",
    "cause",
    "mount",
    "server",
    "source",
    "fstype",
    "protocol",
    "operation",
    "le",
];
/// The most incidents, and the most mounts, that are read.
const MOST: usize = 1_000_000;

/// An incident is identified by host, rule, mount and server, since its layer and cause may change.
type IncidentKey = (String, String, String, String);

/// Servers by host and `mount` label.
pub type ServersByMount = HashMap<(String, String), String>;

/// Reads the data between `from` and `to`.
///
/// # Errors
/// When Prometheus does not answer, or has no data of Plumbline.
pub fn read(api: &Api, (from, to): (Millis, Millis)) -> Result<(SourceData, ServersByMount)> {
    let mut read = SourceData { span: Some((from, to)), ..SourceData::default() };
    let (begin, end) = (from.div_euclid(1000), to.div_euclid(1000));
    let step = ((end - begin) / POINTS).max(LEAST_STEP);
    let mut warnings = Vec::new();
    let mut ask = |metric: &str| {
        let query = format!("max_over_time({metric}[{step}s])");
        api.range(&query, (begin, end, step), &mut warnings)
    };
    let mounts = ask("plumbline_mount_info")?;
    if mounts.is_empty() {
        bail!("it has no plumbline_mount_info of that time: does it scrape any daemon of Plumbline?");
    }
    let incidents = ask("plumbline_incident_open")?;
    read.understood = (mounts.len() + incidents.len()) as u64;
    warnings.into_iter().for_each(|warning| read.notes.say(format!("Prometheus warns: {warning}")));
    let gaps = take_mounts(&mut read, &mounts, step * 1000);
    if gaps > 0 {
        read.notes.say(format!(
            "{gaps} hosts were not scraped all the time; while they were not, they count as clients that said nothing"
        ));
    }
    take_incidents(&mut read, &incidents, step * 1000);
    let name =
        |series: &QuerySeries| ((host(series), series.label("mount").to_owned()), server_name(series.label("server")));
    Ok((read, mounts.iter().take(MOST).map(name).collect()))
}

/// The name of a host, derived from the address at which it is scraped.
fn host(series: &QuerySeries) -> String {
    let instance = series.label("instance");
    printable(instance.strip_suffix(PORT).unwrap_or(instance).as_bytes())
}

/// The periods in which there were values. A value stands for the `step` milliseconds before it.
fn spans(series: &QuerySeries, step: Millis) -> Vec<(Millis, Millis)> {
    let mut spans: Vec<(Millis, Millis)> = Vec::new();
    for at in series.times() {
        match spans.last_mut().filter(|last| at - last.1 <= step) {
            Some(last) => last.1 = at,
            None => spans.push((at - step, at)),
        }
    }
    spans
}

/// Returns how many hosts had gaps.
fn take_mounts(read: &mut SourceData, all: &[QuerySeries], step: Millis) -> usize {
    let mut with_gaps = BTreeSet::new();
    for series in all.iter().take(MOST).filter(|series| !series.label("server").is_empty()) {
        let (host, spans) = (host(series), spans(series, step));
        if spans.len() > 1 {
            with_gaps.insert(host.clone());
        }
        read.material.seen(&host, series.label("server"), series.label("source"), &spans);
        groups_of(series).for_each(|group| read.material.group(&host, group));
    }
    with_gaps.len()
}

/// The labels that the operator gave to the target, and the network of its address.
fn groups_of(series: &QuerySeries) -> impl Iterator<Item = HostGroup> {
    let labels =
        series.metric.iter().filter(|(name, value)| !NOT_OF_HOST.contains(&name.as_str()) && !value.is_empty());
    let label = |(name, value): (&String, &String)| HostGroup {
        by: printable(name.as_bytes()),
        value: printable(value.as_bytes()),
    };
    labels.map(label).chain(groups::network(series.label("instance")))
}

fn take_incidents(read: &mut SourceData, all: &[QuerySeries], step: Millis) {
    let mut by_key: BTreeMap<IncidentKey, Vec<(Millis, Millis, &QuerySeries)>> = BTreeMap::new();
    for series in all.iter().take(MOST) {
        let key = [series.label("rule"), series.label("mount"), series.label("server")].map(str::to_owned);
        let [rule, mount, server] = key;
        let all = by_key.entry((host(series), rule, mount, server)).or_default();
        all.extend(spans(series, step).into_iter().map(|(from, to)| (from, to, series)));
    }
    let last = read.span.map_or(Millis::MAX, |(_, to)| to);
    for ((host, ..), mut parts) in by_key {
        parts.sort_by_key(|(from, to, _)| (*from, *to));
        let mut incidents: Vec<Vec<(Millis, Millis, &QuerySeries)>> = Vec::new();
        for part in parts {
            let end = incidents.last().and_then(|parts| parts.iter().map(|(_, to, _)| *to).max());
            match incidents.last_mut().filter(|_| end.is_some_and(|end| part.0 <= end + step)) {
                Some(parts) => parts.push(part),
                None => incidents.push(vec![part]),
            }
        }
        for (number, parts) in incidents.iter().enumerate() {
            read.material.incident(&incident(&host, number, parts, last - step));
        }
    }
}

/// The incident that had these labels one after the other. An incident that goes on after `until` counts as open.
fn incident(host: &str, number: usize, parts: &[(Millis, Millis, &QuerySeries)], until: Millis) -> Incident {
    let (from, to) =
        parts.iter().fold((Millis::MAX, Millis::MIN), |(from, to), part| (from.min(part.0), to.max(part.1)));
    let is_named = |(.., series): &&(Millis, Millis, &QuerySeries)| !["", "unknown"].contains(&series.label("layer"));
    let said = parts.iter().rfind(is_named).or(parts.last()).map(|(.., series)| *series);
    let label = |name: &str| printable(said.map_or("", |series| series.label(name)).as_bytes());
    let layer = serde_json::from_value(label("layer").into()).unwrap_or_default();
    let verdict = Verdict {
        layer,
        cause: serde_json::from_value(label("cause").into()).ok(),
        confidence: if layer == model::Layer::Unknown { 0.0 } else { NAMED },
        ..Verdict::default()
    };
    let mount = Mount { mountpoint: label("mount"), server: label("server"), ..Mount::default() };
    let time = |at: Millis| jiff::Timestamp::from_millisecond(at).map(|at| format!("{at:.3}")).unwrap_or_default();
    let mounts = vec![RankedMount { mount, ..RankedMount::default() }];
    Incident {
        id: format!("{} at {} ({number})", label("rule"), label("mount")),
        first_seen: time(from),
        last_seen: time(to),
        closed: to <= until,
        anomaly: Anomaly { name: label("rule"), kind: label("type").into(), ..Anomaly::default() },
        verdict,
        top: Ranking { mounts, ..Ranking::default() },
        host: Host { name: host.to_owned(), ..Host::default() },
        ..Incident::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Groups;

    const STEP: i64 = 15;

    fn series(labels: &str, steps: &[i64]) -> QuerySeries {
        let values: Vec<_> = steps.iter().map(|step| serde_json::json!([step * STEP, "1"])).collect();
        let metric: serde_json::Value = serde_json::from_str(&format!("{{{labels}}}")).unwrap();
        serde_json::from_value(serde_json::json!({"metric": metric, "values": values})).unwrap()
    }

    #[test]
    fn an_incident_whose_verdict_changes_is_one_and_what_comes_after_a_gap_is_another() {
        let of = |layer: &str, cause: &str| {
            format!(
                r#""instance": "10.1.0.7:9437", "rack": "r1", "rule": "nfs_latency", "type": "latency", "layer": "{layer}", "cause": "{cause}", "mount": "/data", "server": "NFS1""#
            )
        };
        let all = [
            series(&of("unknown", ""), &[2, 3]),
            series(&of("server", "slow_server"), &[4, 5]),
            series(&of("unknown", ""), &[9, 10]),
        ];
        let mounts = [series(
            r#""instance": "10.1.0.7:9437", "rack": "r1", "mount": "/data", "server": "NFS1", "source": "nfs1:/data""#,
            &[1, 2, 3, 4, 5, 9, 10],
        )];
        let mut read = SourceData { span: Some((0, 10 * STEP * 1000)), ..SourceData::default() };
        assert_eq!(take_mounts(&mut read, &mounts, STEP * 1000), 1);
        take_incidents(&mut read, &all, STEP * 1000);
        let fleet = read.material.fleet((Millis::MIN, Millis::MAX), &Groups::default());
        let told: Vec<_> = fleet
            .sightings
            .iter()
            .map(|one| {
                (
                    one.from / 1000 / STEP,
                    one.to / 1000 / STEP,
                    one.is_open,
                    one.verdict.layer.name(),
                    one.server.as_str(),
                )
            })
            .collect();
        assert_eq!(told, [(1, 5, false, "server", "nfs1"), (8, 10, true, "unknown", "nfs1")]);
        let groups: Vec<_> = fleet.groups["10.1.0.7"].iter().map(|group| group.value.as_str()).collect();
        assert_eq!(groups, ["10.1.0.0/24", "r1"]);
        assert_eq!(fleet.clients[0].seen.len(), 2);
    }
}
