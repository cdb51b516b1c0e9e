//! What the operations of a scene take normally: by what was just before, else by what was learned in hours.
//!
//! Operations of another size have another normal: whoever begins to write 1 MiB at a time waits longer for each, and no server is slow for that.

use std::collections::BTreeMap;

use model::{Event, MountKey};

use super::scene::rest;
use crate::{
    long_term::{KindOf, LongTerm, Normal, kind_of},
    order::median,
    sizes::{SMALL, at_most},
};

/// One kind of operation on one mount.
type Kind = (KindOf, MountKey);

/// Of which kind an operation is, where small ones are alike.
pub(super) fn roughly(event: &Event) -> KindOf {
    let (operation, size) = kind_of(event);
    (operation, size.max(SMALL))
}

/// Normals by kind and mount.
pub(super) struct Normals {
    /// By what was just before, however little that is.
    recent: BTreeMap<Kind, Normal>,
    /// By what was learned in hours, of each size, where `recent` says too little.
    learned: BTreeMap<Kind, Normal>,
}

impl Normals {
    /// `fast`: what was just before, and not slow. `events`: of what the normals are asked for.
    pub fn of<'e>(fast: &[&Event], events: impl Iterator<Item = &'e Event>, long_term: &LongTerm) -> Self {
        let mut groups = BTreeMap::<Kind, Vec<&Event>>::new();
        for event in fast {
            groups.entry(kind(event)).or_default().push(event);
        }
        let recent: BTreeMap<_, _> = groups.into_iter().map(|(kind, events)| (kind, normal(&events))).collect();
        let asked: BTreeMap<_, _> = events.map(|event| ((kind_of(event), event.mount), event)).collect();
        let unknown = asked.into_iter().filter(|(_, event)| !recent.get(&kind(event)).is_some_and(Normal::is_known));
        let learned = unknown.filter_map(|(kind, event)| Some((kind, long_term.normal(event)?))).collect();
        Self { recent, learned }
    }

    /// The normal of an event's kind; all zero if nothing says what that is.
    pub fn of_event(&self, event: &Event) -> Normal {
        let few = self.recent.get(&kind(event));
        let own = self.learned.get(&(kind_of(event), event.mount)).or(few.filter(|normal| normal.is_known()));
        own.copied().or_else(|| self.of_other_sizes(event)).or(few.copied()).unwrap_or_default()
    }

    /// Whether what was just before says it.
    pub fn has_recent(&self, event: &Event) -> bool {
        self.recent.get(&kind(event)).is_some_and(Normal::is_known)
    }

    /// Likewise, for operations of some size.
    pub fn has_recent_of_any_size(&self, event: &Event) -> bool {
        self.known_sizes(event).next().is_some()
    }

    /// By operations of other sizes: what larger ones take, or at most what smaller ones let expect. It is a bound, and a normal of no operation.
    fn of_other_sizes(&self, event: &Event) -> Option<Normal> {
        let ((_, size), _) = kind(event);
        if let Some((_, larger)) = self.known_sizes(event).find(|(other, _)| *other >= size) {
            return Some(Normal { count: 0, ..*larger });
        }
        let (_, smaller) = self.known_sizes(event).last()?;
        let at_most = |time: u64| at_most(time as f64, event.bytes as f64) as u64;
        Some(Normal { count: 0, duration: at_most(smaller.duration), wire: at_most(smaller.wire), ..*smaller })
    }

    /// What is known by what was just before, from small to large.
    fn known_sizes(&self, event: &Event) -> impl Iterator<Item = (u8, &Normal)> {
        let ((operation, _), mount) = kind(event);
        let of_operation =
            self.recent.range(((operation, 0), MountKey(0))..=((operation, u8::MAX), MountKey(u64::MAX)));
        let known = of_operation.filter(move |((_, of), normal)| *of == mount && normal.is_known());
        known.map(|(((_, size), _), normal)| (*size, normal))
    }
}

fn kind(event: &Event) -> Kind {
    (roughly(event), event.mount)
}

fn normal(events: &[&Event]) -> Normal {
    let of = |time: fn(&Event) -> u64| median(events.iter().map(|event| time(event)).collect()).unwrap_or(0);
    Normal {
        count: events.len() as u64,
        duration: of(|event| event.duration),
        queue: of(|event| event.phases.queue),
        wire: of(|event| event.phases.wire),
        deliver: of(|event| event.phases.deliver),
        rest: of(rest),
    }
}
