//! The description of metrics, independent of the format.

use model::Histogram;

/// The name of a label, which distinguishes the figures of a family.
pub trait LabelName: Copy {
    /// The label's name in Prometheus.
    fn name(self) -> &'static str;
}

impl LabelName for &'static str {
    fn name(self) -> &'static str {
        self
    }
}

/// All figures with the same name.
pub struct Family<'s, L> {
    /// Prometheus' name, without the suffix `_total` of a counter or `_info` of an info metric.
    pub name: &'static str,
    /// OpenTelemetry's name; empty if the family is not sent to OpenTelemetry.
    pub otel: &'static str,
    /// A description in one sentence.
    pub help: &'static str,
    /// The unit of the figures.
    pub unit: MetricUnit,
    /// The type of the figures.
    pub kind: FamilyKind,
    /// The figures.
    pub points: Vec<Point<'s, L>>,
}

/// The type of a family's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A number that only increases.
    Counter,
    /// A number that increases and decreases.
    Gauge,
    /// Durations.
    Histogram,
    /// A sum, and the number of values in the sum.
    Summary,
    /// Always 1: the labels contain the information.
    Info,
}

/// The unit of a family's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number without a unit.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// One figure.
pub struct Point<'s, L> {
    /// The labels that distinguish this figure from others of the family.
    pub labels: Vec<(L, &'s str)>,
    /// The figure's value.
    pub value: PointValue<'s>,
}

/// The value of a figure. Values are exact up to 2^53.
#[derive(Clone, Copy)]
pub enum PointValue<'s> {
    /// One number.
    Number(f64),
    /// Durations in nanoseconds.
    Histogram(&'s Histogram),
    /// A sum, and the number of values in the sum.
    Sum {
        /// The sum.
        sum: u64,
        /// The number of values.
        count: u64,
    },
}
