//! Operations of all layers as trees: a call, what ran below it, and what ran below that.

mod assemble;
mod by_kernel;

use model::{Event, Level, Nanos};

pub use assemble::TreeAssembler;

use crate::below::{covered, longest};

/// An operation, and all operations that were begun and answered while it waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationTree {
    /// The operation.
    pub event: Event,
    /// The operations directly below it, in the order of their starts.
    pub children: Vec<OperationTree>,
    /// Operations for which this one did not wait, or not for certain: those of its own thread that were answered only later, and those of kernel
    /// threads ([`model::Caller::Kernel`]) on its mount meanwhile. In the order of their starts.
    pub meanwhile: Vec<Event>,
    /// Whether operations below this one are in other trees, because too many waited for its end.
    pub incomplete: bool,
}

impl OperationTree {
    fn leaf(event: Event) -> Self {
        Self { event, children: Vec::new(), meanwhile: Vec::new(), incomplete: false }
    }

    /// Time during which at least one of its children was in progress, nanoseconds: at most its duration.
    pub fn covered(&self) -> u64 {
        let time = |event: &Event| (event.start, event.end());
        covered(self.children.iter().map(|child| time(&child.event)), time(&self.event))
    }

    /// The longest of the operations directly below it, at most `most`, in the order of their starts.
    pub fn longest_children(&self, most: usize) -> Vec<&Self> {
        longest(self.children.iter().collect(), most, |child| (child.event.start, child.event.duration))
    }

    /// The longest operations of `meanwhile`, at most `most`, in the order of their starts.
    pub fn longest_meanwhile(&self, most: usize) -> Vec<&Event> {
        longest(self.meanwhile.iter().collect(), most, |event| (event.start, event.duration))
    }

    /// Its own time: the part of its duration that no child covers, nanoseconds.
    pub fn own(&self) -> u64 {
        self.event.duration.saturating_sub(self.covered())
    }

    /// How many operations run below it, at any depth.
    pub fn below(&self) -> usize {
        self.children.iter().map(|child| 1 + child.below()).sum()
    }

    /// Whether `is` holds for this operation or for any below it.
    pub fn any(&self, is: &impl Fn(&Event) -> bool) -> bool {
        is(&self.event) || self.children.iter().any(|child| child.any(is))
    }

    /// Takes the tree apart into its operations.
    fn into_events(self, out: &mut Vec<Event>) {
        out.push(self.event);
        out.extend(self.meanwhile);
        self.children.into_iter().for_each(|child| child.into_events(out));
    }

    /// Adds an operation to `meanwhile`: of the system call that may have waited for it, else of the top.
    fn add_meanwhile(&mut self, event: Event) {
        let is_call =
            |child: &Self| child.event.operation.level() <= Level::SystemCall && overlap(&child.event, &event);
        match self.children.iter().position(is_call).and_then(|place| self.children.get_mut(place)) {
            Some(call) => call.add_meanwhile(event),
            None => {
                let place = self.meanwhile.partition_point(|other| other.start <= event.start);
                self.meanwhile.insert(place, event);
            }
        }
    }
}

/// Whether there was a moment at which both were in progress.
fn overlap(one: &Event, other: &Event) -> bool {
    one.start <= other.end() && one.end() >= other.start
}

/// The earliest start; `None` without events.
fn earliest<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Nanos> {
    events.map(|event| event.start).min()
}
