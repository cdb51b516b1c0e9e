//! Reads the files of an OpenTelemetry collector's file exporter: the log records of incidents, and the metric of mounts.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use diagnose::fleet::Millis;
use jiff::Timestamp;
use model::{Anomaly, Host, Incident, IncidentState, Mount, RankedMount, RankedOperation, Ranking, Share, Verdict};
use serde::Deserialize;

use super::SourceData;

/// The longest line that is read, bytes; a collector's batch of metrics has some megabytes.
const LONGEST: u64 = 32 << 20;
/// The most incidents of one file that are kept.
const MOST: usize = 1_000_000;
/// A host that sends nothing for longer counts as not seen in that time, milliseconds.
const SENDS_EVERY: Millis = 300_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct OtlpLine {
    resource_logs: Vec<OfResource>,
    resource_metrics: Vec<OfResource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfResource {
    resource: OtlpAttributes,
    scope_logs: Vec<OfScope>,
    scope_metrics: Vec<OfScope>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfScope {
    log_records: Vec<OtlpRecord>,
    metrics: Vec<OtlpMetric>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OtlpRecord {
    time_unix_nano: String,
    event_name: String,
    attributes: Vec<Attribute>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OtlpMetric {
    name: String,
    gauge: OtlpPoints,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OtlpPoints {
    data_points: Vec<OtlpRecord>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OtlpAttributes {
    attributes: Vec<Attribute>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attribute {
    key: String,
    value: AttributeValue,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttributeValue {
    string_value: String,
    array_value: Values,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Values {
    values: Vec<AttributeValue>,
}

/// Attributes by name.
struct AttributesByName<'a>(&'a [Attribute]);

impl<'a> AttributesByName<'a> {
    fn value(&self, key: &str) -> Option<&'a AttributeValue> {
        self.0.iter().find(|one| one.key == key).map(|one| &one.value)
    }

    fn text(&self, key: &str) -> String {
        self.value(key).map(|value| value.string_value.clone()).unwrap_or_default()
    }
}

/// Incidents by host and name; the times at which mounts were reported by host, server and source.
#[derive(Default)]
struct OtlpContents {
    incidents: BTreeMap<(String, String), Incident>,
    mounts: BTreeMap<(String, String, String), Vec<(Millis, Millis)>>,
}

/// Reads a file.
///
/// # Errors
/// When the file cannot be read, or no line is a collector's.
pub fn read(path: &Path, read: &mut SourceData) -> Result<()> {
    let mut told = OtlpContents::default();
    let (mut lines, mut broken) = (0_u64, 0_u64);
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        file.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        // Lines without data of Plumbline are not parsed.
        let is_ours = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
        if !line.starts_with(b"{\"resource") || !line.trim_ascii_end().ends_with(b"}") {
            broken += 1;
        } else if is_ours(b"plumbline.incident.id") || is_ours(b"\"plumbline.mount\"") {
            match serde_json::from_slice::<OtlpLine>(&line) {
                Ok(one) => told.take(&one),
                Err(_) => broken += 1,
            }
            lines += 1;
        } else {
            lines += 1;
        }
    }
    ensure!(lines > 0, "it is neither a summary nor a file of an OpenTelemetry collector");
    if broken > 0 {
        // The last line may be incomplete.
        read.notes.say(format!("{}: {broken} lines are not a collector's, or damaged", super::folder::shown(path)));
    }
    for (key, incident) in told.incidents {
        read.material
            .incident(&incident)
            .then_some(())
            .with_context(|| format!("{} of {}: it says too little", key.1, key.0))?;
    }
    for ((host, server, source), spans) in told.mounts {
        read.material.seen(&host, &server, &source, &spans);
    }
    Ok(())
}

impl OtlpContents {
    fn take(&mut self, line: &OtlpLine) {
        for of in &line.resource_logs {
            let host = host(&of.resource);
            let records = of.scope_logs.iter().flat_map(|scope| &scope.log_records);
            for record in records.filter(|_| !host.name.is_empty()) {
                if record.event_name == "plumbline.incident"
                    || record.attributes.iter().any(|one| one.key == "plumbline.incident.id")
                {
                    self.incident(&host, record);
                }
            }
        }
        for of in &line.resource_metrics {
            let host = host(&of.resource);
            let metrics = of.scope_metrics.iter().flat_map(|scope| &scope.metrics);
            let mounts =
                metrics.filter(|metric| metric.name == "plumbline.mount").flat_map(|metric| &metric.gauge.data_points);
            for point in mounts.filter(|_| !host.name.is_empty()) {
                self.mount(&host, point);
            }
        }
    }

    /// An incident has two records: one when it begins, one when it is over.
    fn incident(&mut self, host: &Host, record: &OtlpRecord) {
        let named = AttributesByName(&record.attributes);
        let of = |key: &str| named.text(&format!("plumbline.incident.{key}"));
        let key = (host.name.clone(), of("id"));
        if self.incidents.len() >= MOST && !self.incidents.contains_key(&key) {
            return;
        }
        let at = record.at().map(|at| format!("{at:.3}")).unwrap_or_default();
        let known = self.incidents.entry(key).or_default();
        let is_over = of("state") == "over";
        let told = |time: String| if time.is_empty() { at.clone() } else { time };
        if known.first_seen.is_empty() {
            known.first_seen = told(of("first_seen"));
        }
        if known.closed && !is_over {
            return;
        }
        let word = |text: String| serde_json::from_value(serde_json::Value::String(text)).ok();
        let mount = Mount {
            mountpoint: named.text("system.filesystem.mountpoint"),
            source: named.text("system.device"),
            server: named.text("server.address"),
            fstype: named.text("system.filesystem.type"),
            pv: named.text("k8s.persistentvolume.name"),
        };
        // The records lack the share of each kind of operation, so the main one stands for all.
        let mean_ms = of("mean_ms").parse().ok();
        let top_operation = RankedOperation {
            operation: named.text("plumbline.operation"),
            share: Share { count: mean_ms.is_some().into(), total_ms: mean_ms.unwrap_or(1.0) },
        };
        *known = Incident {
            id: of("id"),
            first_seen: std::mem::take(&mut known.first_seen),
            last_seen: told(of("last_seen")),
            anomaly: Anomaly {
                name: of("rule"),
                kind: of("type").into(),
                probe: named.text("plumbline.protocol").into(),
                ..Anomaly::default()
            },
            verdict: Verdict {
                layer: serde_json::from_value(of("layer").into()).unwrap_or_default(),
                cause: word(of("cause")),
                confidence: of("confidence").parse().unwrap_or(0.0),
                ..Verdict::default()
            },
            top: Ranking {
                operations: vec![top_operation],
                mounts: vec![RankedMount { mount, ..RankedMount::default() }],
                ..Ranking::default()
            },
            state: IncidentState::of(is_over),
            closed: is_over,
            host: host.clone(),
            ..Incident::default()
        };
    }

    fn mount(&mut self, host: &Host, point: &OtlpRecord) {
        let named = AttributesByName(&point.attributes);
        let (server, source) = (named.text("server.address"), named.text("system.device"));
        let Some(at) = point.at().map(Timestamp::as_millisecond).filter(|_| !server.is_empty()) else { return };
        if self.mounts.len() >= MOST {
            return;
        }
        let spans = self.mounts.entry((host.name.clone(), server, source)).or_default();
        match spans.last_mut().filter(|last| at >= last.0 && at <= last.1 + SENDS_EVERY) {
            Some(last) => last.1 = last.1.max(at),
            None => spans.push((at, at)),
        }
    }
}

impl OtlpRecord {
    fn at(&self) -> Option<Timestamp> {
        Timestamp::from_nanosecond(self.time_unix_nano.parse().ok()?).ok()
    }
}

fn host(resource: &OtlpAttributes) -> Host {
    let named = AttributesByName(&resource.attributes);
    let addresses = named.value("host.ip").map(|value| &value.array_value.values).into_iter().flatten();
    Host {
        name: named.text("host.name"),
        plumbline: named.text("service.version"),
        addresses: addresses.map(|value| value.string_value.clone()).collect(),
        ..Host::default()
    }
}
