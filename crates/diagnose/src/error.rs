//! Failing operations: many of them, or a large share of all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{Anomaly, Code, Event, Operation, Protocol, errno_name};

use crate::{
    Detector, Meanwhile, Window,
    long_term::LongTerm,
    rule::{Rule, Subject},
    units::counted,
};

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "error";

/// Failing operations: at least `acceptable_count` in one window, and, if that is set, at least that share of all.
#[derive(Debug, Clone)]
pub struct ErrorRule {
    /// The rule's name and protocol.
    pub subject: Subject,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// The failures that it counts.
    pub codes: Codes,
    /// This many in one window are an anomaly; at least 1.
    pub acceptable_count: u32,
    /// If set, they are an anomaly only if they are also at least this share, per cent, of all operations judged.
    pub acceptable_percent: Option<f64>,
}

/// Which failures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Codes {
    /// Only failures with one of these codes.
    Only(BTreeSet<Code>),
    /// All failures except those with one of these codes.
    AllBut(BTreeSet<Code>),
}

impl Rule for ErrorRule {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn judges(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }

    fn describe(&self, interval: Duration) -> String {
        let share = self.acceptable_percent.map(|least| format!(" and {least} % of all")).unwrap_or_default();
        format!(
            "{}, {} or more failures{share} in {interval:?}",
            self.subject.describe(self.operations.len()),
            self.acceptable_count
        )
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(self.clone())
    }

    fn sees_failures(&self) -> Option<(&BTreeSet<Operation>, &Codes)> {
        Some((&self.operations, &self.codes))
    }
}

/// How many kinds of failure are named.
const NAMED: usize = 3;

impl Codes {
    /// Whether failures with this code of the protocol count.
    pub fn include(&self, protocol: &Protocol, code: Code) -> bool {
        let errno = match code {
            Code::Status(status) => (protocol.status_errno)(status),
            Code::Errno(errno) => errno,
        };
        let listed = |codes: &BTreeSet<Code>| codes.contains(&code) || codes.contains(&Code::Errno(errno));
        match self {
            Self::Only(codes) => listed(codes),
            Self::AllBut(codes) => !listed(codes),
        }
    }

    /// Whether the failure of this event counts.
    pub(crate) fn count(&self, event: &Event) -> bool {
        match self {
            Self::Only(codes) => codes.iter().any(|code| event.ended_with(*code)),
            Self::AllBut(codes) => !codes.iter().any(|code| event.ended_with(*code)),
        }
    }
}

impl Detector for ErrorRule {
    fn counts(&self, event: &Event, _: &LongTerm) -> bool {
        event.flags.failed && self.operations.contains(&event.operation) && self.codes.count(event)
    }

    fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        self.acceptable_percent.map(|_| &self.operations)
    }

    fn look(&mut self, window: &mut Window, meanwhile: &Meanwhile<'_>) {
        let histograms_needed = self.histograms_needed();
        let judged =
            meanwhile.finished.iter().filter(|one| histograms_needed.is_some_and(|all| all.contains(&one.operation)));
        window.finished = judged.map(|one| one.histogram.count).sum();
    }

    fn detect(&self, window: &Window) -> Option<Anomaly> {
        if window.count() == 0 || window.count() < u64::from(self.acceptable_count) {
            return None;
        }
        // While the kernel side samples, a window can hold more failures than the histograms have operations.
        let share = window.count() as f64 * 100.0 / window.finished.max(window.count()) as f64;
        if self.acceptable_percent.is_some_and(|least| share < least) {
            return None;
        }
        let limit = counted(self.acceptable_count.into(), "failure");
        let (histograms_needed, limit) = match self.acceptable_percent {
            Some(least) => (format!(", {least} % of all or more"), format!("{limit}, {least} %")),
            None => (String::new(), limit),
        };
        let rule = format!(
            "at least {} in one watch interval{histograms_needed}",
            counted(self.acceptable_count.into(), "failed operation")
        );
        Some(self.anomaly(rule, self.observed(window), limit))
    }

    fn observed(&self, window: &Window) -> String {
        let mut text = counted(window.count(), "failure");
        if window.finished > 0 {
            text.push_str(&format!(" of {}", counted(window.finished.max(window.count()), "operation")));
        }
        let mut kinds = BTreeMap::<(Operation, u32, u32, bool), u64>::new();
        for event in window.events() {
            let kind = (event.operation, event.status, event.errno, event.flags.unanswered);
            *kinds.entry(kind).or_default() += event.operations();
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let named = kinds.iter().take(NAMED).map(|((operation, status, errno, unanswered), count)| {
            format!("{count} {} {}", operation.name(), code_name(*operation, *status, *errno, *unanswered))
        });
        let named: Vec<_> = named.collect();
        if !named.is_empty() {
            text.push_str(&format!(" ({})", named.join(", ")));
        }
        if window.dropped > 0 {
            text.push_str(&format!("; {} lost", counted(window.dropped, "event")));
        }
        text
    }
}

/// Describes the failure of an operation that has no error.
pub(crate) const WITHOUT_ANSWER: &str = "without an answer";

/// `STATUS_DISK_FULL (ENOSPC)`, `EIO`, `without an answer`.
pub(crate) fn code_name(operation: Operation, status: u32, errno: u32, unanswered: bool) -> String {
    if unanswered {
        return WITHOUT_ANSWER.to_owned();
    }
    let status_name = match (operation.protocol().status_name)(status) {
        Some(name) => Some(name.to_owned()),
        None if status != 0 => Some(format!("{status:#010x}")),
        None => None,
    };
    let is_number = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let errno_name = errno_name(errno).map(|name| if is_number(&name) { format!("errno {name}") } else { name });
    match (status_name, errno_name) {
        (Some(name), None) => name,
        (Some(name), Some(errno)) if status != 0 => format!("{name} ({errno})"),
        (_, errno) => errno.unwrap_or_else(|| "an unknown error".to_owned()),
    }
}
