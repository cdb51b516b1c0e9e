//! What the configuration asks to be noticed.

use std::{any::Any, collections::BTreeSet, fmt, time::Duration};

use model::{Anomaly, Operation, Protocol};

use crate::{Detector, error::Codes};

/// Which rule it is, and about what.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its name in the configuration; also names the incident.
    pub name: String,
    /// Whose operations it judges.
    pub protocol: &'static Protocol,
}

impl Subject {
    /// How what it notices begins in words, where it judges so many operations.
    pub(crate) fn describe(&self, operations: usize) -> String {
        format!("{}: {operations} operations of {}", self.name, self.protocol.name)
    }
}

/// A rule of some kind. A new kind is a file with a type that implements this, and what implements [`Detector`] for it.
pub trait Rule: Any + fmt::Debug + Send + Sync {
    /// Its kind: the word in the configuration, file names, JSON and metrics.
    fn kind(&self) -> &'static str;

    /// Which rule it is, and about what.
    fn subject(&self) -> &Subject;

    /// Whether operations of this kind are among those that it judges.
    fn judges(&self, operation: Operation) -> bool;

    /// What it notices, in words, where windows last `interval`.
    fn describe(&self, interval: Duration) -> String;

    /// The rule at work.
    fn detector(&self) -> Box<dyn Detector>;

    /// Its name in the configuration.
    fn name(&self) -> &str {
        &self.subject().name
    }

    /// Whose operations it judges.
    fn protocol(&self) -> &'static Protocol {
        self.subject().protocol
    }

    /// What it has noticed: `rule` and `limit` say what was passed, `observed` by what.
    fn anomaly(&self, rule: String, observed: String, limit: String) -> Anomaly {
        let (name, kind, probe) = (self.name().to_owned(), self.kind().into(), self.protocol().name.into());
        Anomaly { name, kind, probe, rule, observed, limit }
    }

    /// The operations that it must see one by one, and the duration from which on.
    fn sees(&self) -> Vec<(Operation, Duration)> {
        Vec::new()
    }

    /// The operations of which it must see those that fail, however fast, and with which codes.
    fn sees_failures(&self) -> Option<(&BTreeSet<Operation>, &Codes)> {
        None
    }

    /// The age from which on it must see what has not returned.
    fn sees_in_flight(&self) -> Option<Duration> {
        None
    }
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

impl Pace {
    /// For how long something must last, in words.
    pub(crate) fn describe(self, interval: Duration) -> String {
        format!("{} windows of {interval:?} with {} operations or more", self.sustained, self.operations)
    }
}
