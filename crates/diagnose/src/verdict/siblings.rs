//! Other connections of the same mount, to the same server, while one connection is slow.
//!
//! A client with several connections to one server (`nconnect` of NFS, channels of SMB) spreads its requests over them,
//! regardless of the files. So a slow server is slow on all connections. A router with several paths to one server
//! chooses a path by the ports (RFC 2992): a bad path always delays the same connections, and spares the others.

use std::collections::{BTreeMap, BTreeSet};

use model::Event;

use super::{history::answered, normals::roughly, scene::Scene};
use crate::{order::median, units::span};

/// Fewer operations say nothing about a connection.
const LEAST: usize = 5;
/// A connection is slow throughout if at least the share `THROUGHOUT` of its operations is late. The other connections
/// are spared if at most the share `SPARED` of theirs is late.
const THROUGHOUT: f64 = 0.8;
const SPARED: f64 = 0.1;

/// Connections that served the same kinds of operations as fast as ever, while the judged one was slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct SparedSiblings {
    connections: usize,
    operations: usize,
    /// The median of their time on the wire, nanoseconds.
    wire: u64,
}

impl SparedSiblings {
    /// `around`: operations of all connections. `None` if there are no other connections, or if they were late, too.
    pub fn of(scene: &Scene, around: &[Event]) -> Option<Self> {
        let kinds: BTreeSet<_> = scene.judged.iter().map(|event| roughly(event)).collect();
        let here = scene.slowest;
        let to = scene.during.last()?.end();
        let meanwhile = |event: &&Event| event.start >= scene.from && event.end() <= to && answered(event);
        let is_alike = |event: &&Event| meanwhile(event) && kinds.contains(&roughly(event));
        let late = |events: &[&Event]| {
            let late = events.iter().filter(|event| scene.is_late(event)).count();
            late as f64 / events.len().max(1) as f64
        };
        let mine: Vec<_> = scene.during.iter().copied().filter(is_alike).collect();
        if here.connection == 0 || mine.len() < LEAST || late(&mine) < THROUGHOUT {
            return None;
        }
        let is_elsewhere =
            |event: &&Event| event.mount == here.mount && ![0, here.connection].contains(&event.connection);
        let mut others = BTreeMap::<u64, Vec<&Event>>::new();
        for event in around.iter().filter(is_elsewhere).filter(is_alike) {
            others.entry(event.connection).or_default().push(event);
        }
        others.retain(|_, events| events.len() >= LEAST && late(events) <= SPARED);
        let wire = median(others.values().flatten().map(|event| event.phases.wire).collect())?;
        Some(Self { connections: others.len(), operations: others.values().map(Vec::len).sum(), wire })
    }

    pub fn sentence(self) -> String {
        let (operations, wire) = (self.operations, span(self.wire));
        let which = match self.connections {
            1 => "Another connection of the same mount".to_owned(),
            count => format!("{count} other connections of the same mount"),
        };
        format!(
            "{which} had {operations} such operations meanwhile. These took {wire} on the wire, as before: the server is not slow, but this connection's path is."
        )
    }
}
