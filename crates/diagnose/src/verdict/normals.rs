//! The normal times of a scene's operations: from the operations just before, else from what was learned over hours.
//!
//! Normals depend on the size: a program that begins to write 1 MiB at a time waits longer for each write, and the
//! server is not slow for that.

use std::collections::BTreeMap;

use model::{Event, MountKey};

use super::scene::rest;
use crate::{
    long_term::{KindOf, LongTerm, LongTermMedians, kind_of},
    order::median,
    sizes::{SMALL, at_most},
};

/// One kind of operation on one mount.
type OperationOnMount = (KindOf, MountKey);

/// The kind of an operation; all small sizes are one kind.
pub(super) fn roughly(event: &Event) -> KindOf {
    let (operation, size) = kind_of(event);
    (operation, size.max(SMALL))
}

/// Normals by kind and mount.
pub(super) struct Normals {
    /// From the operations just before, however few.
    recent: BTreeMap<OperationOnMount, LongTermMedians>,
    /// What was learned over hours, by size, for kinds of which `recent` has too few operations.
    learned: BTreeMap<OperationOnMount, LongTermMedians>,
}

impl Normals {
    /// `fast`: the operations just before that were not slow. `events`: the operations whose normals will be needed.
    pub fn of<'e>(fast: &[&Event], events: impl Iterator<Item = &'e Event>, long_term: &LongTerm) -> Self {
        let mut groups = BTreeMap::<OperationOnMount, Vec<&Event>>::new();
        for event in fast {
            groups.entry(kind(event)).or_default().push(event);
        }
        let recent: BTreeMap<_, _> = groups.into_iter().map(|(kind, events)| (kind, normal(&events))).collect();
        let asked: BTreeMap<_, _> = events.map(|event| ((kind_of(event), event.mount), event)).collect();
        let unknown =
            asked.into_iter().filter(|(_, event)| !recent.get(&kind(event)).is_some_and(LongTermMedians::is_known));
        let learned = unknown.filter_map(|(kind, event)| Some((kind, long_term.normal(event)?))).collect();
        Self { recent, learned }
    }

    /// The normal of an event's kind; all zero if it is not known.
    pub fn of_event(&self, event: &Event) -> LongTermMedians {
        let few = self.recent.get(&kind(event));
        let own = self.learned.get(&(kind_of(event), event.mount)).or(few.filter(|normal| normal.is_known()));
        own.copied().or_else(|| self.of_other_sizes(event)).or(few.copied()).unwrap_or_default()
    }

    /// Whether the operations just before suffice for the normal of this kind and size.
    pub fn has_recent(&self, event: &Event) -> bool {
        self.recent.get(&kind(event)).is_some_and(LongTermMedians::is_known)
    }

    /// Whether the operations just before suffice for the normal of this operation in at least one size.
    pub fn has_recent_of_any_size(&self, event: &Event) -> bool {
        self.known_sizes(event).next().is_some()
    }

    /// An upper bound from operations of other sizes: the normal of larger ones, else one computed from smaller ones.
    /// Its count is 0, as it is no operation's own normal.
    fn of_other_sizes(&self, event: &Event) -> Option<LongTermMedians> {
        let ((_, size), _) = kind(event);
        if let Some((_, larger)) = self.known_sizes(event).find(|(other, _)| *other >= size) {
            return Some(LongTermMedians { count: 0, ..*larger });
        }
        let (_, smaller) = self.known_sizes(event).last()?;
        let at_most = |time: u64| at_most(time as f64, event.bytes as f64) as u64;
        Some(LongTermMedians { count: 0, duration: at_most(smaller.duration), wire: at_most(smaller.wire), ..*smaller })
    }

    /// The recent normals of this operation with their sizes, ascending.
    fn known_sizes(&self, event: &Event) -> impl Iterator<Item = (u8, &LongTermMedians)> {
        let ((operation, _), mount) = kind(event);
        let of_operation =
            self.recent.range(((operation, 0), MountKey(0))..=((operation, u8::MAX), MountKey(u64::MAX)));
        let known = of_operation.filter(move |((_, of), normal)| *of == mount && normal.is_known());
        known.map(|(((_, size), _), normal)| (*size, normal))
    }
}

fn kind(event: &Event) -> OperationOnMount {
    (roughly(event), event.mount)
}

fn normal(events: &[&Event]) -> LongTermMedians {
    let of = |time: fn(&Event) -> u64| median(events.iter().map(|event| time(event)).collect()).unwrap_or(0);
    LongTermMedians {
        count: events.len() as u64,
        duration: of(|event| event.duration),
        queue: of(|event| event.phases.queue),
        wire: of(|event| event.phases.wire),
        deliver: of(|event| event.phases.deliver),
        rest: of(rest),
    }
}
