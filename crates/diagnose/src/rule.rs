//! What the configuration asks to be noticed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{Code, Operation, Protocol};

use crate::{Detector, baseline::Baseline, throughput::Throughput};

/// A rule of any kind.
#[derive(Debug, Clone)]
pub enum Rule {
    /// Slow operations.
    Latency(LatencyRule),
    /// Failing operations.
    Error(ErrorRule),
    /// Operations that do not return.
    Stall(StallRule),
    /// Connections that break or starve.
    Connection(ConnectionRule),
    /// Latency that departs from its own recent normal.
    Baseline(BaselineRule),
    /// Throughput that does.
    Throughput(ThroughputRule),
}

impl Rule {
    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        match self {
            Self::Latency(rule) => &rule.name,
            Self::Error(rule) => &rule.name,
            Self::Stall(rule) => &rule.name,
            Self::Connection(rule) => &rule.name,
            Self::Baseline(rule) => &rule.name,
            Self::Throughput(rule) => &rule.name,
        }
    }

    /// Whose operations it judges.
    pub fn protocol(&self) -> &'static Protocol {
        match self {
            Self::Latency(rule) => rule.protocol,
            Self::Error(rule) => rule.protocol,
            Self::Stall(rule) => rule.protocol,
            Self::Connection(rule) => rule.protocol,
            Self::Baseline(rule) => rule.protocol,
            Self::Throughput(rule) => rule.protocol,
        }
    }

    /// The rule at work.
    pub fn detector(&self) -> Box<dyn Detector> {
        match self {
            Self::Latency(rule) => Box::new(rule.clone()),
            Self::Error(rule) => Box::new(rule.clone()),
            Self::Stall(rule) => Box::new(rule.clone()),
            Self::Connection(rule) => Box::new(rule.clone()),
            Self::Baseline(rule) => Box::new(Baseline::new(rule.clone())),
            Self::Throughput(rule) => Box::new(Throughput::new(rule.clone())),
        }
    }
}

/// Slow operations: at least `acceptable_count` at or over their threshold in one window, or one at or over `ceiling`.
#[derive(Debug, Clone)]
pub struct LatencyRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
    /// The threshold of every operation that it judges. What is not in here is not judged.
    pub thresholds: BTreeMap<Operation, Duration>,
    /// This many in one window are an anomaly; at least 1.
    pub acceptable_count: u32,
    /// One operation this slow is an anomaly by itself.
    pub ceiling: Duration,
}

/// Failing operations: at least `acceptable_count` in one window, and, if that is set, at least that share of all.
#[derive(Debug, Clone)]
pub struct ErrorRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// The failures that it counts.
    pub codes: Codes,
    /// This many in one window are an anomaly; at least 1.
    pub acceptable_count: u32,
    /// But only if they are this share of all the operations judged, per cent.
    pub acceptable_percent: Option<f64>,
}

/// Which failures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Codes {
    /// These.
    Only(BTreeSet<Code>),
    /// All but these.
    AllBut(BTreeSet<Code>),
}

/// Operations that have not returned after `limit`: one is an anomaly.
#[derive(Debug, Clone)]
pub struct StallRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// In flight for longer is stalled.
    pub limit: Duration,
}

/// What happens to connections: so many of a kind in one window are an anomaly.
#[derive(Debug, Clone)]
pub struct ConnectionRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations the happenings are.
    pub protocol: &'static Protocol,
    /// How many of each are an anomaly; at least 1. What is not in here does not count.
    pub counts: BTreeMap<Operation, u32>,
}

/// How fast a normal is learned, and how long a departure from it must last to be believed. A window counts once it has
/// enough operations; windows with fewer are put together, ten at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Fewer operations are neither learned nor judged; at least 1.
    pub operations: u64,
    /// Windows to be learned before any is judged; at most `history`.
    pub warm_up: usize,
    /// Windows that are remembered. What has departed for that long is the normal from then on.
    pub history: usize,
    /// Windows one after the other that are a departure, or its end; at least 1.
    pub sustained: usize,
}

/// Latency that departs from its own recent normal: the median or the 99th percentile of one operation on one mount is at
/// least `factor` times its normal, and at least `least_shift` more.
#[derive(Debug, Clone)]
pub struct BaselineRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// Times the normal; above 1.
    pub factor: f64,
    /// More than the normal.
    pub least_shift: Duration,
    /// How long it takes.
    pub pace: Pace,
}

/// Throughput that departs from its own recent normal: one operation on one mount moves less than `share` of its normal
/// bytes a second, by less than that share of its normal operations, with as many of them in flight.
#[derive(Debug, Clone)]
pub struct ThroughputRule {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
    /// The operations that it judges; of these only what moves data.
    pub operations: BTreeSet<Operation>,
    /// Of the normal: above 0, below 1.
    pub share: f64,
    /// A normal of fewer bytes a second is not judged.
    pub least_bytes: f64,
    /// How long it takes.
    pub pace: Pace,
}
