//! The list of all metrics with their names, units and values. docs/metrics.md documents them; a test compares the two.

use exposition::LabelName;
pub use exposition::{FamilyKind, MetricUnit, PointValue};
use model::{Cause, Histogram};

use super::{OperationSeries, Snapshot};

/// All series of one metric.
pub type SnapshotFamily<'s> = exposition::Family<'s, SeriesLabel>;
/// One series of a metric: its labels and its value.
pub type SnapshotPoint<'s> = exposition::Point<'s, SeriesLabel>;

/// A label of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesLabel {
    Protocol,
    Operation,
    Mount,
    Probe,
    Cause,
    Type,
    Source,
    Server,
    Fstype,
    Pv,
    Namespace,
    Pod,
    Workload,
    Version,
    Signal,
    Rule,
    Layer,
    /// The cause that a verdict names.
    Blamed,
}

impl LabelName for SeriesLabel {
    fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Operation => "operation",
            Self::Mount => "mount",
            Self::Probe => "probe",
            Self::Cause => "cause",
            Self::Type => "type",
            Self::Source => "source",
            Self::Server => "server",
            Self::Fstype => "fstype",
            Self::Pv => "pv",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
            Self::Workload => "workload",
            Self::Version => "version",
            Self::Signal => "signal",
            Self::Rule => "rule",
            Self::Layer => "layer",
            Self::Blamed => "cause",
        }
    }
}

/// All metrics of a snapshot. A metric without series is in the list, too.
pub fn families(snapshot: &Snapshot) -> Vec<SnapshotFamily<'_>> {
    let [durations, bytes, errors] = operations(snapshot);
    let [lost, run_time, in_flight, attached] = probes(snapshot);
    let single = |value: u64| vec![SnapshotPoint { labels: vec![], value: number(value) }];
    let version =
        vec![SnapshotPoint { labels: vec![(SeriesLabel::Version, env!("CARGO_PKG_VERSION"))], value: number(1) }];
    let sent = |which: fn(&(&'static str, u64, u64)) -> u64| {
        let point = |one: &(&'static str, u64, u64)| SnapshotPoint {
            labels: vec![(SeriesLabel::Signal, one.0)],
            value: number(which(one)),
        };
        snapshot.otlp.iter().map(point).collect()
    };
    let incidents = snapshot.incidents.iter().map(|(probe, kind, count)| SnapshotPoint {
        labels: vec![(SeriesLabel::Protocol, *probe), (SeriesLabel::Type, kind.as_ref())],
        value: number(*count),
    });
    vec![
        SnapshotFamily {
            name: "plumbline_operation_duration_seconds",
            otel: "plumbline.operation.duration",
            help: "Time from when an operation was asked for until the requester had its result.",
            unit: MetricUnit::Seconds,
            kind: FamilyKind::Histogram,
            points: durations,
        },
        SnapshotFamily {
            name: "plumbline_operation_bytes",
            otel: "plumbline.operation.io",
            help: "Payload that operations moved.",
            unit: MetricUnit::Bytes,
            kind: FamilyKind::Summary,
            points: bytes,
        },
        SnapshotFamily {
            name: "plumbline_operation_errors",
            otel: "plumbline.operation.errors",
            help: "Operations that failed, including ordinary failures such as the lookup of a missing file.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: errors,
        },
        SnapshotFamily {
            name: "plumbline_operations_folded",
            otel: "plumbline.operation.folded",
            help: "Operations counted under mount=\"other\", since there were too many series (max_series).",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: single(snapshot.folded),
        },
        SnapshotFamily {
            name: "plumbline_series_retired",
            otel: "plumbline.series.retired",
            help: "Series of mounts that are gone, given up to make room for others (max_series).",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: single(snapshot.retired),
        },
        SnapshotFamily {
            name: "plumbline_incidents",
            otel: "plumbline.incidents",
            help: "Incidents that began. An anomaly that became part of an open incident is not counted.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: incidents.collect(),
        },
        SnapshotFamily {
            name: "plumbline_incidents_closed",
            otel: "plumbline.incidents.closed",
            help: "Incidents that are over, by the layer that their last verdict names.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: closed(snapshot),
        },
        SnapshotFamily {
            name: "plumbline_incident_open",
            otel: "plumbline.incident.open",
            help: "Incidents that are open, by what is known of them now.",
            unit: MetricUnit::None,
            kind: FamilyKind::Gauge,
            points: open(snapshot),
        },
        SnapshotFamily {
            name: "plumbline_bundles_lost",
            otel: "plumbline.bundles.lost",
            help: "Bundles that were not made or not renewed; the log says why.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: single(snapshot.bundles_lost),
        },
        SnapshotFamily {
            name: "plumbline_events_lost",
            otel: "plumbline.events.lost",
            help: "What a probe lost or left out, by cause.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: lost,
        },
        SnapshotFamily {
            name: "plumbline_bpf_run_seconds",
            otel: "plumbline.bpf.run_time",
            help: "Time that a probe's programs ran for in the kernel; only while kernel.bpf_stats_enabled is set.",
            unit: MetricUnit::Seconds,
            kind: FamilyKind::Counter,
            points: run_time,
        },
        SnapshotFamily {
            name: "plumbline_otlp_sent",
            otel: "plumbline.otlp.sent",
            help: "Points of metrics and records of logs that an OpenTelemetry collector has taken.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: sent(|(_, sent, _)| *sent),
        },
        SnapshotFamily {
            name: "plumbline_otlp_dropped",
            otel: "plumbline.otlp.dropped",
            help: "Points of metrics and records of logs that were given up: refused, or too old when the collector was away.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: sent(|(.., dropped)| *dropped),
        },
        SnapshotFamily {
            name: "plumbline_webhook_sent",
            otel: "plumbline.webhook.sent",
            help: "Messages about incidents that the webhook has taken.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.webhook.iter().flat_map(|(sent, _)| single(*sent)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_webhook_dropped",
            otel: "plumbline.webhook.dropped",
            help: "Messages about incidents that were given up: refused, or too many or too old when the webhook was away.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.webhook.iter().flat_map(|(_, dropped)| single(*dropped)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_kubernetes_events_sent",
            otel: "plumbline.kubernetes_events.sent",
            help: "Events about incidents that the API server of Kubernetes has taken.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.kubernetes_events.iter().flat_map(|(sent, _)| single(*sent)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_kubernetes_events_dropped",
            otel: "plumbline.kubernetes_events.dropped",
            help: "Events about incidents that were given up: refused, or too many or too old when the API server was away.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.kubernetes_events.iter().flat_map(|(_, dropped)| single(*dropped)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_on_incident_succeeded",
            otel: "plumbline.on_incident.succeeded",
            help: "Runs of the program `on_incident` that ended well.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.on_incident.iter().flat_map(|(succeeded, _)| single(*succeeded)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_on_incident_failed",
            otel: "plumbline.on_incident.failed",
            help: "Runs of the program `on_incident` that failed, took too long, or found no room to wait.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.on_incident.iter().flat_map(|(_, failed)| single(*failed)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_peers_asked",
            otel: "plumbline.peers.asked",
            help: "Questions about incidents that daemons of servers have answered.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.peers_asked.iter().flat_map(|(answered, _)| single(*answered)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_peers_unanswered",
            otel: "plumbline.peers.unanswered",
            help: "Questions about incidents that daemons of servers have not answered, or have refused.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.peers_asked.iter().flat_map(|(_, failed)| single(*failed)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_peers_told",
            otel: "plumbline.peers.told",
            help: "Questions of daemons of clients that this daemon has answered.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.peers_told.iter().flat_map(|(answered, _)| single(*answered)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_peers_refused",
            otel: "plumbline.peers.refused",
            help: "Questions of others that this daemon has refused, and connections that broke before one was asked.",
            unit: MetricUnit::None,
            kind: FamilyKind::Counter,
            points: snapshot.peers_told.iter().flat_map(|(_, refused)| single(*refused)).collect(),
        },
        SnapshotFamily {
            name: "plumbline_operations_in_flight",
            otel: "plumbline.operation.in_flight",
            help: "Operations in flight: a probe saw their start and not yet their end.",
            unit: MetricUnit::None,
            kind: FamilyKind::Gauge,
            points: in_flight,
        },
        SnapshotFamily {
            name: "plumbline_probe_attached",
            otel: "plumbline.probe.attached",
            help: "1 if a probe is attached, at least in part; plumbline doctor says more.",
            unit: MetricUnit::None,
            kind: FamilyKind::Gauge,
            points: attached,
        },
        SnapshotFamily {
            name: "plumbline_mount",
            otel: "plumbline.mount",
            help: "Watched mounts.",
            unit: MetricUnit::None,
            kind: FamilyKind::Info,
            points: mounts(snapshot),
        },
        SnapshotFamily {
            name: "plumbline_mounts_omitted",
            otel: "plumbline.mount.omitted",
            help: "Mounts that plumbline_mount_info leaves out, since there are too many.",
            unit: MetricUnit::None,
            kind: FamilyKind::Gauge,
            points: single(snapshot.mounts_omitted),
        },
        SnapshotFamily {
            name: "plumbline_process_cpu_seconds",
            otel: "plumbline.process.cpu.time",
            help: "Processor time that the daemon's process has used, the kernel's share included.",
            unit: MetricUnit::Seconds,
            kind: FamilyKind::Counter,
            points: vec![SnapshotPoint { labels: vec![], value: PointValue::Number(snapshot.cost.cpu.as_secs_f64()) }],
        },
        SnapshotFamily {
            name: "plumbline_process_resident_memory_bytes",
            otel: "plumbline.process.memory.usage",
            help: "Memory of the daemon's process that is resident.",
            unit: MetricUnit::Bytes,
            kind: FamilyKind::Gauge,
            points: single(snapshot.cost.resident),
        },
        SnapshotFamily {
            name: "plumbline_build",
            otel: "",
            help: "The version of Plumbline.",
            unit: MetricUnit::None,
            kind: FamilyKind::Info,
            points: version,
        },
    ]
}

fn number(value: u64) -> PointValue<'static> {
    PointValue::Number(value as f64)
}

fn operations<'s>(snapshot: &'s Snapshot) -> [Vec<SnapshotPoint<'s>>; 3] {
    let each = |value: fn(&'s Histogram) -> PointValue<'s>| -> Vec<SnapshotPoint<'s>> {
        let point =
            |one: &'s OperationSeries| SnapshotPoint { labels: operation_labels(one), value: value(&one.histogram) };
        snapshot.series.iter().map(point).collect()
    };
    [
        each(PointValue::Histogram),
        each(|histogram| PointValue::Sum { sum: histogram.bytes, count: histogram.count }),
        each(|histogram| number(histogram.errors)),
    ]
}

fn operation_labels(one: &OperationSeries) -> Vec<(SeriesLabel, &str)> {
    let operation = one.operation;
    vec![
        (SeriesLabel::Protocol, operation.protocol().name),
        (SeriesLabel::Operation, operation.name()),
        (SeriesLabel::Mount, &*one.mount),
    ]
}

fn open(snapshot: &Snapshot) -> Vec<SnapshotPoint<'_>> {
    let all = snapshot.open.iter().map(|(open, count)| SnapshotPoint {
        labels: with_known(
            vec![
                (SeriesLabel::Rule, &*open.rule),
                (SeriesLabel::Type, &*open.kind),
                (SeriesLabel::Layer, open.layer.name()),
                (SeriesLabel::Blamed, open.cause.map_or("", Cause::name)),
                (SeriesLabel::Mount, &*open.mount),
                (SeriesLabel::Server, &*open.server),
            ],
            &[
                (SeriesLabel::Namespace, &open.namespace),
                (SeriesLabel::Pod, &open.pod),
                (SeriesLabel::Workload, &open.workload),
            ],
        ),
        value: number(*count),
    });
    all.collect()
}

/// These labels, and the labels of Kubernetes that have a value. A host without Kubernetes shows no empty labels of it.
fn with_known<'s>(
    mut labels: Vec<(SeriesLabel, &'s str)>,
    more: &[(SeriesLabel, &'s String)],
) -> Vec<(SeriesLabel, &'s str)> {
    labels.extend(more.iter().filter(|(_, value)| !value.is_empty()).map(|(label, value)| (*label, value.as_str())));
    labels
}

fn closed(snapshot: &Snapshot) -> Vec<SnapshotPoint<'_>> {
    let all = snapshot.closed.iter().map(|(rule, layer, count)| SnapshotPoint {
        labels: vec![(SeriesLabel::Rule, &**rule), (SeriesLabel::Layer, layer.name())],
        value: number(*count),
    });
    all.collect()
}

fn probes(snapshot: &Snapshot) -> [Vec<SnapshotPoint<'_>>; 4] {
    let labels = |probe| vec![(SeriesLabel::Probe, probe)];
    let [mut lost, mut run_time, mut in_flight, mut attached] = [const { Vec::new() }; 4];
    for one in &snapshot.probes {
        for (cause, count) in &one.lost {
            let labels = vec![(SeriesLabel::Probe, one.probe), (SeriesLabel::Cause, *cause)];
            lost.push(SnapshotPoint { labels, value: number(*count) });
        }
        if let Some(nanoseconds) = one.run_nanoseconds {
            run_time
                .push(SnapshotPoint { labels: labels(one.probe), value: PointValue::Number(nanoseconds as f64 / 1e9) });
        }
        in_flight.push(SnapshotPoint { labels: labels(one.probe), value: number(one.in_flight) });
        attached.push(SnapshotPoint { labels: labels(one.probe), value: number(one.attached.into()) });
    }
    let all = vec![(SeriesLabel::Probe, "all"), (SeriesLabel::Cause, "not_understood")];
    lost.push(SnapshotPoint { labels: all, value: number(snapshot.not_understood) });
    [lost, run_time, in_flight, attached]
}

fn mounts(snapshot: &Snapshot) -> Vec<SnapshotPoint<'_>> {
    let all = snapshot.mounts.iter().map(|(label, mount)| SnapshotPoint {
        labels: with_known(
            vec![
                (SeriesLabel::Mount, &**label),
                (SeriesLabel::Source, &mount.source),
                (SeriesLabel::Server, &mount.server),
                (SeriesLabel::Fstype, &mount.fstype),
            ],
            &[(SeriesLabel::Pv, &mount.pv)],
        ),
        value: number(1),
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_series_and_no_other() {
        let document = include_str!("../../../../docs/metrics.md");
        let snapshot = Snapshot::default();
        let name = |family: &SnapshotFamily<'_>| match family.kind {
            FamilyKind::Counter => format!("{}_total", family.name),
            FamilyKind::Info => format!("{}_info", family.name),
            _ => family.name.to_owned(),
        };
        let published: Vec<_> = families(&snapshot).iter().map(name).collect();
        let otel = families(&snapshot)
            .iter()
            .all(|family| family.otel.is_empty() || document.contains(&format!("`{}`", family.otel)));
        assert!(otel, "OpenTelemetry's names");
        let (prometheus, _) = document.split_once("## OpenTelemetry").unwrap();
        let rows = prometheus.lines().filter_map(|line| line.strip_prefix("| `plumbline_")?.split('`').next());
        let documented: Vec<_> = rows.map(|name| format!("plumbline_{name}")).collect();
        assert_eq!(published, documented);
        // docs/metrics.md states this bound.
        let operations = probes::protocols().flat_map(|protocol| protocol.all_operations()).count();
        assert!(operations <= 500, "{operations}");
    }
}
