//! How figures are listed, whatever the format.

use model::Histogram;

/// What figures are told apart by.
pub trait LabelName: Copy {
    /// Prometheus' name of it.
    fn name(self) -> &'static str;
}

impl LabelName for &'static str {
    fn name(self) -> &'static str {
        self
    }
}

/// All figures of one name.
pub struct Family<'s, L> {
    /// Prometheus' name, without the `_total` of a counter and the `_info` of an information.
    pub name: &'static str,
    /// OpenTelemetry's name; empty if it is not sent.
    pub otel: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// What is counted.
    pub unit: MetricUnit,
    /// What the figures are.
    pub kind: FamilyKind,
    /// The figures.
    pub points: Vec<Point<'s, L>>,
}

/// What a family's figures are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations.
    Histogram,
    /// A sum and how many it is of.
    Summary,
    /// Always 1: the labels are what is said.
    Info,
}

/// What the figures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// Things.
    None,
    /// Time.
    Seconds,
    /// Data.
    Bytes,
}

/// One figure.
pub struct Point<'s, L> {
    /// The labels that distinguish this figure from others of the family.
    pub labels: Vec<(L, &'s str)>,
    /// The figure's value.
    pub value: PointValue<'s>,
}

/// Figures are exact up to 2^53.
#[derive(Clone, Copy)]
pub enum PointValue<'s> {
    /// One number.
    Number(f64),
    /// Durations in nanoseconds.
    Histogram(&'s Histogram),
    /// So much, of so many.
    Sum {
        /// So much.
        sum: u64,
        /// Of so many.
        count: u64,
    },
}
