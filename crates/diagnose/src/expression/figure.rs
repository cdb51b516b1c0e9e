//! The figures that an expression can name.

use std::{borrow::Cow, time::Duration};

use model::Histogram;

use crate::long_term::Sketch;

/// A figure of the operations of one group that finished in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Number of operations.
    Count,
    /// Operations per second.
    Rate,
    /// Number of operations that failed, without ordinary failures.
    Errors,
    /// Payload bytes.
    Bytes,
    /// Mean number of operations in flight.
    InFlight,
    /// A latency.
    Latency(Statistic),
    /// The normal value of a latency, for operations of these sizes.
    Normal(Statistic),
}

/// A statistic of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The mean.
    Mean,
    /// The longest.
    Max,
}

impl Figure {
    /// Every figure by its name in expressions.
    pub const ALL: [(&'static str, Self); 14] = [
        ("count", Self::Count),
        ("rate", Self::Rate),
        ("errors", Self::Errors),
        ("bytes", Self::Bytes),
        ("in_flight", Self::InFlight),
        ("p50", Self::Latency(Statistic::P50)),
        ("p90", Self::Latency(Statistic::P90)),
        ("p99", Self::Latency(Statistic::P99)),
        ("mean", Self::Latency(Statistic::Mean)),
        ("max", Self::Latency(Statistic::Max)),
        ("normal.p50", Self::Normal(Statistic::P50)),
        ("normal.p90", Self::Normal(Statistic::P90)),
        ("normal.p99", Self::Normal(Statistic::P99)),
        ("normal.mean", Self::Normal(Statistic::Mean)),
    ];

    /// The figure of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, figure)| figure)
    }

    /// Its name in expressions.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, figure)| *figure == self).map_or("", |(name, _)| name)
    }

    /// `p99 312 ms`; `normal.p99 unknown`.
    pub fn with_value(self, value: Option<f64>) -> String {
        let name = self.name();
        let Some(value) = value else { return format!("{name} unknown") };
        let unit = match self {
            Self::Latency(_) | Self::Normal(_) => " ms",
            Self::Rate => " a second",
            Self::Count | Self::Errors | Self::Bytes | Self::InFlight => "",
        };
        format!("{name} {}{unit}", shown(value))
    }
}

/// The number with at most two decimals, without trailing zeros.
fn shown(value: f64) -> Cow<'static, str> {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "0" && value > 0.0 { "below 0.01".into() } else { text.to_owned().into() }
}

/// What is known of one group's operations in one window.
pub struct WindowFigures<'a> {
    /// All operations that finished.
    pub histogram: &'a Histogram,
    /// Number of operations that failed, without ordinary failures.
    pub errors: f64,
    /// The window's length.
    pub length: Duration,
    /// The normal durations of such operations; `None` if too little is known.
    pub normal: Option<&'a Sketch>,
}

impl WindowFigures<'_> {
    /// A figure's value; times in milliseconds. `None` if it is not known.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        let Self { histogram, length, normal, .. } = self;
        let seconds = length.as_secs_f64();
        let a_second = |value: f64| (seconds > 0.0).then(|| value / seconds);
        let milliseconds = |nanos: f64| nanos / 1e6;
        match figure {
            Figure::Count => Some(histogram.count as f64),
            Figure::Rate => a_second(histogram.count as f64),
            Figure::Errors => Some(self.errors),
            Figure::Bytes => Some(histogram.bytes as f64),
            Figure::InFlight => a_second(histogram.sum as f64 / 1e9),
            Figure::Latency(statistic) => match statistic.share() {
                Some(share) => histogram.quantile(share).map(|nanos| milliseconds(nanos as f64)),
                None => (histogram.count > 0).then(|| milliseconds(histogram.sum as f64 / histogram.count as f64)),
            },
            Figure::Normal(statistic) => match statistic.share() {
                Some(share) => (*normal)?.quantile(share as f32).map(|nanos| milliseconds(nanos as f64)),
                None => (*normal)?.mean().map(milliseconds),
            },
        }
    }
}

impl Statistic {
    /// The quantile, 0 to 1; `None` for the mean.
    fn share(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P99 => Some(0.99),
            Self::Max => Some(1.0),
            Self::Mean => None,
        }
    }
}
