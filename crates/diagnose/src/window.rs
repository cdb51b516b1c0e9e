//! The events that counted against one rule between two watch ticks: exact totals, and the slowest events.

use std::{cmp::Ordering, collections::BTreeMap, mem};

use model::{Event, Nanos, Operation};

/// At least this many of the slowest events are kept, never more than twice as many (about a quarter of a megabyte).
pub const KEPT: usize = 512;

/// Exact totals over operations, whether their events were kept or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Operations.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub time: u64,
}

impl Total {
    /// Adds the operations that the event stands for.
    pub(crate) fn add(&mut self, event: &Event) {
        let count = event.operations();
        self.merge(Self { count, time: event.duration.saturating_mul(count) });
    }

    fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.time = self.time.saturating_add(other.time);
    }
}

/// The events of one rule in one stretch of time. An event belongs to the window in which it was drained, even if the
/// operation began before it.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// When it began.
    pub from: Nanos,
    /// When it was closed; 0 while it is open.
    pub to: Nanos,
    /// Events that the kernel side dropped meanwhile: the totals are too small by at most this number.
    pub dropped: u64,
    /// Number of operations that finished, anomalous or not; 0 unless the rule sets it.
    pub finished: u64,
    operations: BTreeMap<Operation, Total>,
    kept: Vec<Event>,
    /// Once events have been discarded, only events slower than this are kept, nanoseconds.
    floor: Option<u64>,
}

impl Window {
    /// An empty window that begins at `from`. Allocates nothing.
    pub fn new(from: Nanos) -> Self {
        Self { from, ..Self::default() }
    }

    /// Counts one event, and keeps it if it is among the slowest. An event in flight replaces the earlier event of the
    /// same operation. Otherwise it takes constant time on average.
    pub fn push(&mut self, event: &Event) {
        if event.flags.in_flight
            && let Some(earlier) = self.kept.iter_mut().find(|kept| kept.same_operation(event))
        {
            let grown = event.duration.saturating_sub(earlier.duration);
            if let Some(total) = self.operations.get_mut(&event.operation) {
                total.time = total.time.saturating_add(grown);
            }
            *earlier = event.clone();
            return;
        }
        self.operations.entry(event.operation).or_default().add(event);
        self.keep(event);
    }

    /// Takes in a later window, so that this one spans both.
    pub fn absorb(&mut self, later: &Self) {
        self.to = self.to.max(later.to);
        self.dropped = self.dropped.saturating_add(later.dropped);
        self.finished = self.finished.saturating_add(later.finished);
        if later.kept.iter().any(|event| event.flags.in_flight) {
            return later.kept.iter().for_each(|event| self.push(event));
        }
        for (operation, total) in &later.operations {
            self.operations.entry(*operation).or_default().merge(*total);
        }
        later.kept.iter().for_each(|event| self.keep(event));
    }

    /// Forgets everything before the last pause of at least this length, nanoseconds, in which nothing counted was under
    /// way. Nothing changes without such a pause, or if not all events were kept.
    pub(crate) fn forget_before_pause(&mut self, pause: Nanos) {
        let mut flights: Vec<_> = self.kept.iter().map(|event| (event.start, event.end())).collect();
        flights.sort_unstable();
        let (mut until, mut from) = (None::<Nanos>, None);
        for (start, end) in flights {
            if until.is_some_and(|until| start.saturating_sub(until) >= pause) {
                from = Some(start);
            }
            until = until.max(Some(end));
        }
        let Some(from) = from.filter(|_| self.floor.is_none()) else { return };
        let kept = mem::take(&mut self.kept);
        // It is not known when events were lost, so their number is kept.
        *self = Self { to: self.to, dropped: self.dropped, ..Self::new(from) };
        kept.iter().filter(|event| event.start >= from).for_each(|event| self.push(event));
    }

    /// How many operations were counted, exactly.
    pub fn count(&self) -> u64 {
        self.operations.values().map(|total| total.count).fold(0, u64::saturating_add)
    }

    /// Exact totals by operation.
    pub fn operations(&self) -> &BTreeMap<Operation, Total> {
        &self.operations
    }

    /// The events kept, in no particular order: all of them, or at least the [`KEPT`] slowest.
    pub fn events(&self) -> &[Event] {
        &self.kept
    }

    /// The slowest event; the earliest of equals.
    pub fn slowest(&self) -> Option<&Event> {
        self.kept.iter().min_by(|a, b| slower_first(a, b))
    }

    fn keep(&mut self, event: &Event) {
        if self.floor.is_some_and(|floor| event.duration <= floor) {
            return;
        }
        self.kept.push(event.clone());
        if self.kept.len() >= 2 * KEPT {
            let (_, last, _) = self.kept.select_nth_unstable_by(KEPT - 1, slower_first);
            self.floor = Some(last.duration);
            self.kept.truncate(KEPT);
        }
    }
}

/// Slowest first, the earlier of equals first.
pub(crate) fn slower_first(a: &Event, b: &Event) -> Ordering {
    b.duration.cmp(&a.duration).then(a.start.cmp(&b.start))
}
