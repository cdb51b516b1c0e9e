//! The interface of a rule that judges events and windows.

use std::collections::BTreeSet;

use model::{Anomaly, Event, Operation};

use crate::{Meanwhile, Window, long_term::LongTerm};

/// A rule, seen from the events' side.
pub trait Detector: Send {
    /// Whether the event counts against the rule; only such events enter the rule's window. `long_term`: what is normal here.
    fn counts(&self, event: &Event, long_term: &LongTerm) -> bool;

    /// The operations of which it needs histograms of all that finished, see [`Detector::look`]; `None`: it needs none.
    fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        None
    }

    /// Examines a window that is over, and everything else that happened in it. Called before [`Detector::detect`].
    fn look(&mut self, _window: &mut Window, _meanwhile: &Meanwhile<'_>) {}

    /// The anomaly, if the window breaks the rule.
    fn detect(&self, window: &Window) -> Option<Anomaly>;

    /// What the rule could not do, in words, to be logged. Returned once, by the first call after it happened.
    fn fault(&mut self) -> Option<String> {
        None
    }

    /// The window's observation in words; also used for many windows merged into one.
    fn observed(&self, window: &Window) -> String;
}
