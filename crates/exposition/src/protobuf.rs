//! Prometheus' protobuf format: messages of `io.prometheus.client` (prometheus/client_model, metrics.proto), each preceded by its length. Only this
//! format has native histograms. The page also has the classic histograms, for collectors that want both.

use prost::Message;

mod read;

pub use read::{ReadFamily, ReadPoint, ReadValue, read};

use crate::{Family, FamilyKind, LabelName, Native, Point, PointValue, classic, seconds};

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(string, tag = 2)]
    help: String,
    #[prost(enumeration = "MetricType", tag = 3)]
    kind: i32,
    #[prost(message, repeated, tag = 4)]
    metric: Vec<ProtobufMetric>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Summary = 2,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct ProtobufMetric {
    #[prost(message, repeated, tag = 1)]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = 2)]
    gauge: Option<ProtobufNumber>,
    #[prost(message, optional, tag = 3)]
    counter: Option<ProtobufNumber>,
    #[prost(message, optional, tag = 4)]
    summary: Option<ProtobufSummary>,
    #[prost(message, optional, tag = 7)]
    histogram: Option<ProtobufHistogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(string, tag = 2)]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct ProtobufNumber {
    #[prost(double, optional, tag = 1)]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProtobufSummary {
    #[prost(uint64, optional, tag = 1)]
    count: Option<u64>,
    #[prost(double, optional, tag = 2)]
    sum: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProtobufHistogram {
    #[prost(uint64, optional, tag = 1)]
    count: Option<u64>,
    #[prost(double, optional, tag = 2)]
    sum: Option<f64>,
    #[prost(message, repeated, tag = 3)]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = 5)]
    schema: Option<i32>,
    #[prost(double, optional, tag = 6)]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = 7)]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = 12)]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = 13)]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = 1)]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = 2)]
    upper_bound: Option<f64>,
}

/// A run of adjacent buckets of a native histogram.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct BucketSpan {
    /// The distance from the end of the previous span; for the first span, from bucket 0.
    #[prost(sint32, optional, tag = 1)]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = 2)]
    length: Option<u32>,
}

/// Writes all families.
pub fn write<L: LabelName>(families: &[Family<'_, L>]) -> Vec<u8> {
    let mut page = Vec::new();
    for family in families.iter().filter(|family| !family.points.is_empty()) {
        // Encodes one family at a time, so that only one family is in memory twice.
        page.extend(message(family).encode_length_delimited_to_vec());
    }
    page
}

fn message<L: LabelName>(family: &Family<'_, L>) -> MetricFamily {
    let (suffix, kind) = match family.kind {
        FamilyKind::Counter => ("_total", MetricType::Counter),
        FamilyKind::Gauge => ("", MetricType::Gauge),
        FamilyKind::Info => ("_info", MetricType::Gauge),
        FamilyKind::Summary => ("", MetricType::Summary),
        FamilyKind::Histogram => ("", MetricType::Histogram),
    };
    MetricFamily {
        name: format!("{}{suffix}", family.name),
        help: family.help.to_owned(),
        kind: kind as i32,
        metric: family.points.iter().map(|point| metric(kind, point)).collect(),
    }
}

fn metric<L: LabelName>(kind: MetricType, point: &Point<'_, L>) -> ProtobufMetric {
    let pair = |(label, value): &(L, &str)| LabelPair { name: label.name().to_owned(), value: (*value).to_owned() };
    let mut metric = ProtobufMetric { label: point.labels.iter().map(pair).collect(), ..ProtobufMetric::default() };
    match (point.value, kind) {
        (PointValue::Number(value), MetricType::Counter) => {
            metric.counter = Some(ProtobufNumber { value: Some(value) })
        }
        (PointValue::Number(value), _) => metric.gauge = Some(ProtobufNumber { value: Some(value) }),
        (PointValue::Sum { sum, count }, _) => {
            metric.summary = Some(ProtobufSummary { count: Some(count), sum: Some(sum as f64) });
        }
        (PointValue::Histogram(histogram), _) => metric.histogram = Some(both(histogram)),
    }
    metric
}

/// A histogram in both forms, classic and native.
fn both(histogram: &model::Histogram) -> ProtobufHistogram {
    let native = Native::of(histogram);
    let bucket = |(bound, count)| Bucket { cumulative_count: Some(count), upper_bound: Some(seconds(bound)) };
    let (positive_span, positive_delta) = spans(&native);
    ProtobufHistogram {
        count: Some(native.count),
        sum: Some(seconds(histogram.sum)),
        bucket: classic(histogram).map(bucket).collect(),
        schema: Some(Native::SCHEMA),
        zero_threshold: Some(seconds(Native::ZERO_THRESHOLD)),
        zero_count: Some(native.zero),
        positive_span,
        positive_delta,
    }
}

/// The buckets as runs of adjacent ones, and each count as the difference from the previous count.
fn spans(native: &Native) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<BucketSpan>, Vec<i64>) = Default::default();
    let (mut next, mut before) = (0, 0);
    for (index, count) in &native.buckets {
        match spans.last_mut().filter(|_| *index == next) {
            Some(BucketSpan { length: Some(length), .. }) => *length += 1,
            _ => spans.push(BucketSpan { offset: Some(index - next), length: Some(1) }),
        }
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (index + 1, count);
    }
    if spans.is_empty() {
        // Prometheus would take a histogram without any span for a classic one.
        spans.push(BucketSpan { offset: Some(0), length: Some(0) });
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_runs_with_differences() {
        let native = Native { zero: 0, count: 12, buckets: vec![(-3, 5), (-2, 3), (4, 4)] };
        let (spans, deltas) = spans(&native);
        let spans: Vec<_> = spans.iter().map(|span| (span.offset.unwrap(), span.length.unwrap())).collect();
        assert_eq!((spans, deltas), (vec![(-3, 2), (5, 1)], vec![5, -2, 1]));
    }

    #[test]
    fn a_family_comes_back_as_it_was_written() {
        let labels = vec![("mount", "/a\"\n")];
        let points = vec![Point { labels, value: PointValue::Sum { sum: 4096, count: 2 } }];
        let unit = crate::MetricUnit::Bytes;
        let family = Family { name: "x_bytes", otel: "", help: "Help.", unit, kind: FamilyKind::Summary, points };
        let page = write(&[family]);
        let read = MetricFamily::decode_length_delimited(&*page).unwrap();
        assert_eq!((&*read.name, read.kind, &*read.metric[0].label[0].value), ("x_bytes", 2, "/a\"\n"));
        assert_eq!(read.metric[0].summary.as_ref().unwrap().sum, Some(4096.0));
    }
}
