//! Encodes snapshots and incidents as OTLP messages (opentelemetry-proto 1.x). Metrics are sums since the daemon's
//! start, incidents are log records. Names follow OpenTelemetry's semantic conventions where these have one.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use exposition::Native;
use opentelemetry_proto::tonic::{
    collector::{logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest},
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value},
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber},
    metrics::v1::{
        AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, exponential_histogram_data_point::Buckets, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::{Message, bytes::Bytes};

use super::Signal;
use crate::{
    publish::{
        Snapshot,
        families::{FamilyKind, MetricUnit, PointValue, SeriesLabel, SnapshotFamily, SnapshotPoint, families},
    },
    source::this_host,
};

/// An encoded request.
pub struct EncodedRequest {
    pub signal: Signal,
    /// The number of data points of metrics, of log records, or of spans.
    pub items: u64,
    pub body: Bytes,
}

/// An incident that began or is over.
#[derive(Debug, Clone)]
pub struct IncidentRecord {
    pub at: SystemTime,
    pub over: bool,
    /// The text for people.
    pub text: String,
    /// Names and values.
    pub attributes: Vec<(&'static str, String)>,
}

/// The sender of all requests: this daemon on this host.
pub struct OtlpSender {
    pub(super) resource: Resource,
    pub(super) scope: InstrumentationScope,
}

impl OtlpSender {
    /// The OpenTelemetry resource that describes this host; attributes that cannot be read are left out.
    pub fn of_this_host() -> Self {
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let kernel = format!("Linux {}", line("/proc/sys/kernel/osrelease"));
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let attributes = [
            ("service.name", "plumbline".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("host.name", line("/proc/sys/kernel/hostname")),
            ("host.id", line("/etc/machine-id")),
            ("host.arch", architecture.to_owned()),
            ("os.type", "linux".to_owned()),
            ("os.description", kernel),
        ];
        let known = attributes.into_iter().filter(|(_, value)| !value.is_empty());
        let mut attributes: Vec<_> = known.map(|(key, value)| text(key, &value)).collect();
        let addresses = this_host().addresses;
        if !addresses.is_empty() {
            let ip = |address: &String| address.split('/').next().unwrap_or_default().to_owned();
            let values = addresses.iter().map(|address| string(ip(address))).collect();
            let value = Some(AnyValue { value: Some(any_value::Value::ArrayValue(ArrayValue { values })) });
            attributes.push(KeyValue { key: "host.ip".into(), value, ..KeyValue::default() });
        }
        Self {
            resource: Resource { attributes, ..Resource::default() },
            scope: InstrumentationScope {
                name: "plumbline".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                ..InstrumentationScope::default()
            },
        }
    }

    /// A snapshot as metrics.
    pub fn metrics(&self, snapshot: &Snapshot) -> EncodedRequest {
        let times = (nanoseconds(snapshot.since), nanoseconds(snapshot.at));
        let families = families(snapshot);
        // Families without an OpenTelemetry name are attributes of the resource already.
        let exported = families.iter().filter(|family| !family.otel.is_empty() && !family.points.is_empty());
        let items = exported.clone().map(|family| family.points.len() as u64).sum();
        let scope_metrics = ScopeMetrics {
            scope: Some(self.scope.clone()),
            metrics: exported.map(|family| metric(family, times)).collect(),
            ..ScopeMetrics::default()
        };
        let resource_metrics = ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![scope_metrics],
            ..ResourceMetrics::default()
        };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] };
        EncodedRequest { signal: Signal::Metrics, items, body: request.encode_to_vec().into() }
    }

    /// An incident as a log record.
    pub fn logs(&self, incident: &IncidentRecord) -> EncodedRequest {
        let (severity, name) = match incident.over {
            false => (SeverityNumber::Warn, "WARN"),
            true => (SeverityNumber::Info, "INFO"),
        };
        let at = nanoseconds(incident.at);
        let record = LogRecord {
            time_unix_nano: at,
            observed_time_unix_nano: at,
            severity_number: severity.into(),
            severity_text: name.into(),
            body: Some(string(incident.text.clone())),
            attributes: incident.attributes.iter().map(|(key, value)| text(key, value)).collect(),
            event_name: "plumbline.incident".into(),
            ..LogRecord::default()
        };
        let scope_logs =
            ScopeLogs { scope: Some(self.scope.clone()), log_records: vec![record], ..ScopeLogs::default() };
        let resource_logs = ResourceLogs {
            resource: Some(self.resource.clone()),
            scope_logs: vec![scope_logs],
            ..ResourceLogs::default()
        };
        let request = ExportLogsServiceRequest { resource_logs: vec![resource_logs] };
        EncodedRequest { signal: Signal::Logs, items: 1, body: request.encode_to_vec().into() }
    }
}

impl SeriesLabel {
    /// OpenTelemetry's name.
    fn otel(self) -> &'static str {
        match self {
            Self::Protocol => "plumbline.protocol",
            Self::Operation => "plumbline.operation",
            Self::Mount => "system.filesystem.mountpoint",
            Self::Probe => "plumbline.probe",
            Self::Cause => "plumbline.cause",
            Self::Type => "plumbline.incident.type",
            Self::Source => "system.device",
            Self::Server => "server.address",
            Self::Fstype => "system.filesystem.type",
            Self::Pv => "k8s.persistentvolume.name",
            Self::Namespace => "k8s.namespace.name",
            Self::Pod => "k8s.pod.name",
            Self::Workload => "plumbline.workload",
            Self::Version => "service.version",
            Self::Signal => "plumbline.signal",
            Self::Rule => "plumbline.incident.rule",
            Self::Layer => "plumbline.incident.layer",
            Self::Blamed => "plumbline.incident.cause",
        }
    }
}

fn metric(family: &SnapshotFamily<'_>, times: (u64, u64)) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let data_points = || family.points.iter().filter_map(|point| number(family, point, times)).collect();
    let data = match family.kind {
        FamilyKind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
            data_points: family.points.iter().filter_map(|point| histogram(point, times)).collect(),
            aggregation_temporality: cumulative,
        }),
        FamilyKind::Gauge | FamilyKind::Info => Data::Gauge(Gauge { data_points: data_points() }),
        FamilyKind::Counter | FamilyKind::Summary => {
            Data::Sum(Sum { data_points: data_points(), aggregation_temporality: cumulative, is_monotonic: true })
        }
    };
    let unit = match family.unit {
        MetricUnit::None => "1",
        MetricUnit::Seconds => "s",
        MetricUnit::Bytes => "By",
    };
    Metric {
        name: family.otel.into(),
        description: family.help.into(),
        unit: unit.into(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(family: &SnapshotFamily<'_>, point: &SnapshotPoint<'_>, (since, at): (u64, u64)) -> Option<NumberDataPoint> {
    let value = match point.value {
        PointValue::Number(number) if family.unit == MetricUnit::Seconds => number_data_point::Value::AsDouble(number),
        PointValue::Number(number) => number_data_point::Value::AsInt(number as i64),
        PointValue::Sum { sum, .. } => number_data_point::Value::AsInt(i64::try_from(sum).unwrap_or(i64::MAX)),
        PointValue::Histogram(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: since,
        time_unix_nano: at,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(point: &SnapshotPoint<'_>, (since, at): (u64, u64)) -> Option<ExponentialHistogramDataPoint> {
    let PointValue::Histogram(histogram) = point.value else { return None };
    let native = Native::of(histogram);
    let first = native.buckets.first().map_or(0, |(index, _)| *index);
    let mut bucket_counts = Vec::new();
    for (index, count) in &native.buckets {
        bucket_counts.resize(usize::try_from(index - first).ok()?, 0);
        bucket_counts.push(*count);
    }
    Some(ExponentialHistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: since,
        time_unix_nano: at,
        count: native.count,
        sum: Some(histogram.sum as f64 / 1e9),
        scale: Native::SCHEMA,
        zero_count: native.zero,
        zero_threshold: Native::ZERO_THRESHOLD as f64 / 1e9,
        // OpenTelemetry's bucket i begins at 2^(i/4), Prometheus' bucket i ends there.
        positive: Some(Buckets { offset: first - 1, bucket_counts }),
        ..ExponentialHistogramDataPoint::default()
    })
}

fn attributes(point: &SnapshotPoint<'_>) -> Vec<KeyValue> {
    point.labels.iter().filter(|(_, value)| !value.is_empty()).map(|(label, value)| text(label.otel(), value)).collect()
}

fn string(text: String) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text)) }
}

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(string(value.to_owned())), ..KeyValue::default() }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::OperationSeries;

    #[test]
    fn a_histogram_keeps_count_sum_and_place() {
        let mut histogram = model::Histogram::default();
        [100, 1_000_000_000, 1_000_000_000, 4_000_000_000]
            .iter()
            .for_each(|duration| histogram.add(*duration, 7, false));
        let operation = probes::protocol("syscalls").unwrap().operation("read").unwrap();
        let series = vec![OperationSeries { operation, mount: "/a".into(), histogram }];
        let batch = OtlpSender::of_this_host().metrics(&Snapshot { series, ..Snapshot::default() });
        let request = ExportMetricsServiceRequest::decode(&*batch.body).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let points: usize = metrics
            .iter()
            .map(|metric| match metric.data.as_ref().unwrap() {
                Data::Gauge(gauge) => gauge.data_points.len(),
                Data::Sum(sum) => sum.data_points.len(),
                Data::ExponentialHistogram(histogram) => histogram.data_points.len(),
                _ => panic!("{metric:?}"),
            })
            .sum();
        assert_eq!(points as u64, batch.items);
        assert_eq!((&*metrics[0].name, &*metrics[0].unit), ("plumbline.operation.duration", "s"));
        let Some(Data::ExponentialHistogram(histogram)) = &metrics[0].data else { panic!() };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.zero_count, point.scale), (4, 1, 2));
        assert!((point.sum.unwrap() - 6.0000001).abs() < 1e-9);
        // The middles of our buckets are at 1.004 s and 4.017 s, just above 2^0 and 2^(8/4).
        let buckets = point.positive.as_ref().unwrap();
        assert_eq!((buckets.offset, &*buckets.bucket_counts), (0, &[2, 0, 0, 0, 0, 0, 0, 0, 1][..]));
    }
}
