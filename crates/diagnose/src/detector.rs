//! What a rule at work must be able to say.

use std::collections::BTreeSet;

use model::{Anomaly, Event, Operation};

use crate::{Meanwhile, Window, long_term::LongTerm};

/// A rule, seen from the events' side.
pub trait Detector: Send {
    /// Whether the event counts against the rule; only such events enter the rule's window. `long_term`: what is normal here.
    fn counts(&self, event: &Event, long_term: &LongTerm) -> bool;

    /// The operations of which it must also know what finished however fast, see [`Detector::look`]; `None`: it need not.
    fn histograms_needed(&self) -> Option<&BTreeSet<Operation>> {
        None
    }

    /// Looks at a window that is over, before [`Detector::detect`], and at what else happened in it.
    fn look(&mut self, _window: &mut Window, _meanwhile: &Meanwhile<'_>) {}

    /// The anomaly, if what the window holds breaks the rule.
    fn detect(&self, window: &Window) -> Option<Anomaly>;

    /// What the window holds, in words; also used for many windows merged into one.
    fn observed(&self, window: &Window) -> String;
}
