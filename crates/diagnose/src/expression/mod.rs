//! A rule whose condition the operator wrote: an expression over the figures of a window, such as `p99 > 3 * normal.p99 && errors > 0`.

mod compile;
mod evaluate;
mod figure;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::{Anomaly, Event, Histogram, MountKey, Operation};

pub use compile::{LONGEST, Mistake};
pub use evaluate::{Evaluation, EvaluationFault};
pub use figure::{Figure, Statistic, WindowFigures};

use crate::{
    Detector, FinishedOperations, Meanwhile, Window,
    error::Codes,
    long_term::LongTerm,
    rule::{Rule, Subject},
};

/// The rule's kind in the configuration and in output.
pub const KIND: &str = "expression";

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    steps: Vec<compile::EvaluationStep>,
    figures: BTreeSet<Figure>,
}

impl Expression {
    /// Compiles a text of at most [`LONGEST`] bytes that is true or false.
    ///
    /// # Errors
    /// The first mistake.
    pub fn new(text: &str) -> Result<Self, Mistake> {
        let steps = compile::compile(text)?;
        let figures = steps.iter().filter_map(|step| match step {
            compile::EvaluationStep::Figure(figure) => Some(*figure),
            _ => None,
        });
        let figures = figures.collect();
        Ok(Self { text: text.split_whitespace().collect::<Vec<_>>().join(" "), steps, figures })
    }

    /// The expression as written, in one line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The figures that the expression names.
    pub fn figures(&self) -> &BTreeSet<Figure> {
        &self.figures
    }

    /// Whether the expression is true; `figure` returns a figure's value, `None` if it is not known.
    pub fn evaluate(&self, figure: impl Fn(Figure) -> Option<f64>) -> Evaluation {
        evaluate::evaluate(&self.steps, figure)
    }

    fn has_normals(&self) -> bool {
        self.figures.iter().any(|figure| matches!(figure, Figure::Normal(_)))
    }
}

/// Which operations are judged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// Each kind of operation on each mount.
    Operation,
    /// All that the rule judges on one mount.
    Mount,
    /// All that the rule judges.
    Rule,
}

/// A rule that is broken if its expression is true for several windows in a row.
#[derive(Debug, Clone)]
pub struct ExpressionRule {
    /// The rule's name and protocol.
    pub subject: Subject,
    /// The operations that it judges.
    pub operations: BTreeSet<Operation>,
    /// The failures that `errors` counts.
    pub codes: Codes,
    /// The expression that must be true.
    pub expression: Expression,
    /// Which operations are judged together.
    pub per: Per,
    /// For how many windows in a row it must be true; at least 1.
    pub windows: usize,
}

impl ExpressionRule {
    fn counts_errors(&self) -> bool {
        self.expression.figures.contains(&Figure::Errors)
    }

    fn lasts(&self) -> String {
        if self.windows == 1 { String::new() } else { format!(", for {} windows in a row", self.windows) }
    }
}

impl Rule for ExpressionRule {
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
        let described = self.subject.describe(self.operations.len());
        format!("{described}, {} in {interval:?}{}", self.expression.text, self.lasts())
    }

    fn detector(&self) -> Box<dyn Detector> {
        Box::new(ExpressionWatch {
            rule: self.clone(),
            runs: BTreeMap::new(),
            broken: Vec::new(),
            observed: String::new(),
            fault: None,
        })
    }

    fn sees_failures(&self) -> Option<(&BTreeSet<Operation>, &Codes)> {
        self.counts_errors().then_some((&self.operations, &self.codes))
    }
}

/// Operations that are judged together; `None` stands for all operations, or for all mounts.
type FigureGroup = (Option<Operation>, Option<MountKey>);

/// A rule at work.
struct ExpressionWatch {
    rule: ExpressionRule,
    /// For how many windows in a row the expression has been true, for each group for which it was true in the last window.
    runs: BTreeMap<FigureGroup, usize>,
    /// The groups for which it has held long enough.
    broken: Vec<FigureGroup>,
    observed: String,
    /// What could not be calculated, and whether that was reported; it is reported once.
    fault: Option<(String, bool)>,
}

/// How many groups are named.
const NAMED: usize = 3;
/// An operation is evidence if it took at least this part of the geometric mean of median and 99th percentile, which are both exact to a quarter.
const NEAR: f64 = 0.75;

impl ExpressionWatch {
    fn group(&self, operation: Operation, mount: MountKey) -> FigureGroup {
        match self.rule.per {
            Per::Operation => (Some(operation), Some(mount)),
            Per::Mount => (None, Some(mount)),
            Per::Rule => (None, None),
        }
    }

    /// The failures of each group: exact, or extrapolated if the window has discarded some.
    fn errors(&self, window: &Window) -> BTreeMap<FigureGroup, f64> {
        let mut errors = BTreeMap::new();
        let mut kept = BTreeMap::<Operation, u64>::new();
        window.events().iter().for_each(|event| *kept.entry(event.operation).or_default() += event.operations());
        for event in window.events() {
            let (all, kept) = (window.operations().get(&event.operation), kept.get(&event.operation));
            let part = match (all, kept) {
                (Some(all), Some(kept)) if *kept > 0 => all.count as f64 / *kept as f64,
                _ => 1.0,
            };
            *errors.entry(self.group(event.operation, event.mount)).or_insert(0.0) += event.operations() as f64 * part;
        }
        errors
    }

    /// Puts the operations into the window that are evidence: the failed operations of these groups if the expression names failures, and the flight
    /// recorder's operations that took at least the nanoseconds in `slow`.
    fn show(&self, window: &mut Window, meanwhile: &Meanwhile<'_>, slow: &BTreeMap<FigureGroup, u64>) {
        let is_shown = |event: &Event| slow.get(&self.group(event.operation, event.mount));
        if window.events().iter().any(|event| is_shown(event).is_none()) {
            let mut shown = Window::new(window.from);
            (shown.to, shown.dropped) = (window.to, window.dropped);
            window.events().iter().filter(|event| is_shown(event).is_some()).for_each(|event| shown.push(event));
            *window = shown;
        }
        let names_times = |figure: &Figure| matches!(figure, Figure::Latency(_) | Figure::InFlight);
        if self.rule.counts_errors() && !self.rule.expression.figures.iter().any(names_times) {
            return;
        }
        for event in (meanwhile.recorded)(window.from) {
            // The window already has the failures that count.
            let is_wanted = self.rule.judges(event.operation) && !(event.flags.failed && self.rule.counts_errors());
            let is_of_window = event.end() > window.from && event.end() <= window.to;
            if is_wanted && is_of_window && is_shown(&event).is_some_and(|least| event.duration >= *least) {
                window.push(&event);
            }
        }
    }
}

/// The least duration, nanoseconds, of an operation that is evidence of slowness: between the median and the 99th percentile, or slightly less than
/// both if all durations are alike.
fn slow_from(histogram: &Histogram) -> u64 {
    let [median, slowest] = [0.5, 0.99].map(|share| histogram.quantile(share).unwrap_or(0) as f64);
    ((median * slowest).sqrt() * NEAR) as u64
}

impl Detector for ExpressionWatch {
    fn counts(&self, event: &Event, _: &LongTerm) -> bool {
        event.flags.failed
            && self.rule.counts_errors()
            && self.rule.judges(event.operation)
            && self.rule.codes.count(event)
    }

    fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        Some(&self.rule.operations)
    }

    fn look(&mut self, window: &mut Window, meanwhile: &Meanwhile<'_>) {
        let mut groups = BTreeMap::<FigureGroup, Vec<&FinishedOperations>>::new();
        for finished in meanwhile.finished.iter().filter(|one| self.rule.judges(one.operation)) {
            groups.entry(self.group(finished.operation, finished.mount)).or_default().push(finished);
        }
        let length = Duration::from_nanos(window.to.saturating_sub(window.from));
        let errors = self.errors(window);
        let (mut runs, mut slow, mut texts) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let expression = &self.rule.expression;
        for (group, finished) in groups {
            let mut histogram = Histogram::default();
            finished.iter().for_each(|one| histogram.merge(&one.histogram));
            let normal = expression.has_normals().then(|| (meanwhile.usual)(&finished)).flatten();
            let errors = errors.get(&group).copied().unwrap_or(0.0);
            let figures = WindowFigures { histogram: &histogram, errors, length, normal: normal.as_ref() };
            let answer = expression.evaluate(|figure| figures.get(figure));
            let values = || expression.figures.iter().map(|figure| figure.with_value(figures.get(*figure)));
            let place = || {
                let mount = group.1.map(|mount| format!("on {}", (meanwhile.label)(mount)));
                let words = [group.0.map(|operation| operation.name().to_owned()), mount];
                let words: Vec<_> = words.into_iter().flatten().collect();
                if words.is_empty() { "all together".to_owned() } else { words.join(" ") }
            };
            let said = || format!("{}: {}", place(), values().collect::<Vec<_>>().join(", "));
            if let Some(fault) = answer.fault.filter(|_| self.fault.is_none()) {
                self.fault = Some((format!("`{}` came to {}: {}", expression.text, fault.name(), said()), false));
            }
            if !answer.holds {
                continue;
            }
            let run = self.runs.get(&group).map_or(1, |run| run + 1);
            runs.insert(group, run);
            if run >= self.rule.windows {
                slow.insert(group, slow_from(&histogram));
                texts.push(said());
            }
        }
        self.runs = runs;
        self.broken = slow.keys().copied().collect();
        if texts.len() > NAMED {
            let more = texts.len() - NAMED;
            texts.truncate(NAMED);
            texts.push(format!("and {more} more"));
        }
        self.observed = texts.join("; ");
        if !self.broken.is_empty() {
            self.show(window, meanwhile, &slow);
        }
    }

    fn detect(&self, _: &Window) -> Option<Anomaly> {
        if self.broken.is_empty() {
            return None;
        }
        let text = self.rule.expression.text();
        let rule = format!("an expression of your own{}: {text}", self.rule.lasts());
        Some(self.rule.anomaly(rule, self.observed.clone(), text.to_owned()))
    }

    fn observed(&self, _: &Window) -> String {
        self.observed.clone()
    }

    fn fault(&mut self) -> Option<String> {
        let (text, is_told) = self.fault.as_mut().filter(|(_, is_told)| !is_told)?;
        *is_told = true;
        Some(text.clone())
    }
}
