//! Rules: what the configuration defines as an anomaly.

use std::{any::Any, collections::BTreeSet, fmt, time::Duration};

use model::{Anomaly, Operation, Protocol};

use crate::{Detector, error::Codes};

/// A rule's name and its protocol.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// The protocol whose operations it judges.
    pub protocol: &'static Protocol,
}

impl Subject {
    /// The beginning of a rule's description; `operations` is the number of operations that it judges.
    pub(crate) fn describe(&self, operations: usize) -> String {
        format!("{}: {operations} operations of {}", self.name, self.protocol.name)
    }
}

/// A rule of some kind. A new kind is a file with a type that implements this trait, and one that implements
/// [`Detector`].
pub trait Rule: Any + fmt::Debug + Send + Sync {
    /// Its kind: the word in the configuration, file names, JSON and metrics.
    fn kind(&self) -> &'static str;

    /// Its name and its protocol.
    fn subject(&self) -> &Subject;

    /// Whether operations of this kind are among those that it judges.
    fn judges(&self, operation: Operation) -> bool;

    /// Its description in words; `interval` is the length of a window.
    fn describe(&self, interval: Duration) -> String;

    /// A new detector for this rule.
    fn detector(&self) -> Box<dyn Detector>;

    /// Whether it judges numbers of all operations, which are counted by operation and mount, whoever asked.
    fn counts_all(&self) -> bool {
        self.detector().histograms_needed().is_some()
    }

    /// Its name in the configuration.
    fn name(&self) -> &str {
        &self.subject().name
    }

    /// The protocol whose operations it judges.
    fn protocol(&self) -> &'static Protocol {
        self.subject().protocol
    }

    /// An anomaly of this rule, with its description, the observation and the limit in words.
    fn anomaly(&self, rule: String, observed: String, limit: String) -> Anomaly {
        let (name, kind, probe) = (self.name().to_owned(), self.kind().into(), self.protocol().name.into());
        Anomaly { name, kind, probe, rule, observed, limit }
    }

    /// The operations whose events it needs, each with the least duration of these events.
    fn sees(&self) -> Vec<(Operation, Duration)> {
        Vec::new()
    }

    /// The operations whose failures it needs as events, however fast, and the codes of these failures; `None`: none.
    fn sees_failures(&self) -> Option<(&BTreeSet<Operation>, &Codes)> {
        None
    }

    /// The age from which on it needs operations in flight; `None`: it needs none.
    fn sees_in_flight(&self) -> Option<Duration> {
        None
    }
}

/// How fast a normal is learned, and how long a departure from it must last to count. Windows with too few operations
/// are merged, ten at most, until they have enough; such merged windows count as one below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Operations that a window needs to be learned or judged; at least 1.
    pub operations: u64,
    /// Windows to learn before any is judged; at most `history`.
    pub warm_up: usize,
    /// Windows that are remembered. A departure that lasts this long becomes the normal.
    pub history: usize,
    /// Consecutive windows that make a departure, or end it; at least 1.
    pub sustained: usize,
}

impl Pace {
    /// How long a departure must last, in words.
    pub(crate) fn describe(self, interval: Duration) -> String {
        format!("{} windows of {interval:?} with {} operations or more", self.sustained, self.operations)
    }
}
