//! Parses the protobuf page, for a program that shows the metrics of another one.

use anyhow::{Context, Result, ensure};
use prost::Message;

use super::{MetricFamily, ProtobufHistogram, ProtobufMetric};
use crate::Native;

/// A larger count is invalid: no real counter reaches it. Sums of valid counts do not overflow.
const MOST: u64 = 1 << 48;

/// All figures with the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadFamily {
    /// The name as on the page: a counter's name ends with `_total`, an info metric's with `_info`.
    pub name: String,
    /// The figures.
    pub points: Vec<ReadPoint>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadPoint {
    /// The name and the value of each label.
    pub labels: Vec<(String, String)>,
    /// The figure's value.
    pub value: ReadValue,
}

/// The value of a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum ReadValue {
    /// The value of a counter or a gauge.
    Number(f64),
    /// The value of a summary.
    Sum {
        /// The sum.
        sum: u64,
        /// The number of values in the sum.
        count: u64,
    },
    /// Durations. The bytes, errors and sizes are zero. A value read from it is off by a factor of 1.33 at most: see [`Native`].
    Histogram(Box<model::Histogram>),
}

/// Parses a page that [`crate::page`] has written as [`crate::Format::Protobuf`]. Parsing takes about ten times the page's memory, so the caller
/// must limit the page.
///
/// # Errors
///
/// When the page has another format, or is damaged.
pub fn read(mut page: &[u8]) -> Result<Vec<ReadFamily>> {
    let mut families = Vec::new();
    while !page.is_empty() {
        let family = MetricFamily::decode_length_delimited(&mut page).context("this is no page of metrics")?;
        let points =
            family.metric.into_iter().map(point).collect::<Result<_>>().with_context(|| family.name.clone())?;
        families.push(ReadFamily { name: family.name, points });
    }
    Ok(families)
}

fn point(metric: ProtobufMetric) -> Result<ReadPoint> {
    let labels = metric.label.into_iter().map(|pair| (pair.name, pair.value)).collect();
    let value = match (metric.histogram, metric.summary) {
        (Some(read), _) => ReadValue::Histogram(Box::new(histogram(&read)?)),
        (None, Some(summary)) => {
            ReadValue::Sum { sum: summary.sum.unwrap_or_default() as u64, count: summary.count.unwrap_or_default() }
        }
        (None, None) => {
            let number = metric.counter.or(metric.gauge).and_then(|number| number.value);
            ReadValue::Number(number.context("a figure without a value")?)
        }
    };
    Ok(ReadPoint { labels, value })
}

fn histogram(read: &ProtobufHistogram) -> Result<model::Histogram> {
    ensure!(read.schema == Some(Native::SCHEMA), "a histogram of another schema than {}", Native::SCHEMA);
    let mut native = Native {
        zero: read.zero_count.unwrap_or_default().min(MOST),
        count: read.count.unwrap_or_default().min(MOST),
        buckets: Vec::with_capacity(read.positive_delta.len()),
    };
    let mut deltas = read.positive_delta.iter();
    let (mut index, mut count) = (0_i32, 0_i64);
    for span in &read.positive_span {
        index = index.checked_add(span.offset.unwrap_or_default()).context("a bucket beyond all bounds")?;
        for _ in 0..span.length.unwrap_or_default() {
            let delta = deltas.next().context("fewer buckets than its spans say")?;
            count = count.checked_add(*delta).filter(|count| *count >= 0).context("fewer than no operations")?;
            native.buckets.push((index, count.unsigned_abs().min(MOST)));
            index = index.checked_add(1).context("a bucket beyond all bounds")?;
        }
    }
    Ok(model::Histogram { sum: (read.sum.unwrap_or_default() * 1e9) as u64, ..native.to_histogram() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, FamilyKind, Format, MetricUnit, Point, PointValue, page};

    fn written(kind: FamilyKind, value: PointValue<'_>) -> Vec<u8> {
        let points = vec![Point { labels: vec![("mount", "/mnt/a")], value }];
        page(&[Family { name: "x", otel: "", help: "", unit: MetricUnit::None, kind, points }], Format::Protobuf)
    }

    fn only_value(page: &[u8]) -> ReadValue {
        let mut families = read(page).unwrap();
        families.remove(0).points.remove(0).value
    }

    #[test]
    fn what_was_written_is_read() {
        let families = read(&written(FamilyKind::Counter, PointValue::Number(3.0))).unwrap();
        assert_eq!(families[0].name, "x_total");
        assert_eq!(families[0].points[0].labels, [("mount".to_owned(), "/mnt/a".to_owned())]);
        assert_eq!(families[0].points[0].value, ReadValue::Number(3.0));
        let sum = only_value(&written(FamilyKind::Summary, PointValue::Sum { sum: 4096, count: 2 }));
        assert_eq!(sum, ReadValue::Sum { sum: 4096, count: 2 });
    }

    #[test]
    fn a_histogram_keeps_its_count_and_sum_and_nearly_its_quantiles() {
        let mut histogram = model::Histogram::default();
        (1..=1_000_u64).for_each(|n| histogram.add(n * 50_000, 0, false));
        let ReadValue::Histogram(read) = only_value(&written(FamilyKind::Histogram, PointValue::Histogram(&histogram)))
        else {
            panic!("a histogram")
        };
        assert_eq!(read.count, 1_000);
        assert!(read.sum.abs_diff(histogram.sum) < 1_000, "{} {}", read.sum, histogram.sum);
        for share in [0.1, 0.5, 0.99] {
            let ratio = read.quantile(share).unwrap() as f64 / histogram.quantile(share).unwrap() as f64;
            assert!((0.75..=1.34).contains(&ratio), "{share}: {ratio}");
        }
    }

    #[test]
    fn what_is_no_page_or_only_half_of_one_is_refused() {
        let mut histogram = model::Histogram::default();
        histogram.add(1 << 20, 0, false);
        let page = written(FamilyKind::Histogram, PointValue::Histogram(&histogram));
        assert!(read(page.get(..page.len() - 3).unwrap()).is_err());
        assert!(read(b"# HELP x\n").is_err());
        assert_eq!(read(b"").unwrap(), []);
        let span = super::super::BucketSpan { offset: Some(i32::MAX), length: Some(u32::MAX) };
        let hostile = ProtobufHistogram {
            schema: Some(2),
            positive_span: vec![span],
            positive_delta: vec![1, 1],
            ..ProtobufHistogram::default()
        };
        assert!(super::histogram(&hostile).is_err());
    }
}
