//! What a rule must be able to say. A new detector is one new file that implements this for its rule.

use std::collections::BTreeSet;

use model::{Anomaly, Event, Operation};

use crate::Window;

/// A rule, seen from the events' side.
pub trait Detector: Send {
    /// Whether the event counts against the rule; only such events enter the rule's window.
    fn counts(&self, event: &Event) -> bool;

    /// The operations of which it must also know how many there were altogether; `None`: it need not.
    fn of_all(&self) -> Option<&BTreeSet<Operation>> {
        None
    }

    /// The anomaly, if what the window holds breaks the rule.
    fn detect(&self, window: &Window) -> Option<Anomaly>;

    /// What the window holds, in words; also used for many windows merged into one.
    fn observed(&self, window: &Window) -> String;
}
