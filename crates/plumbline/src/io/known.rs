//! The shortest and longest durations of slow operations. These are exact, while histograms have only buckets.

use std::collections::HashMap;

use model::{Event, Mount, MountKey, Operation};
use serde::{Deserialize, Serialize};

/// The most combinations of operation and mount that are kept.
const MOST: usize = 4096;

/// By operation and mount, nanoseconds.
#[derive(Debug, Default)]
pub struct Durations {
    known: HashMap<(Operation, MountKey), (u64, u64)>,
}

/// The durations of one operation on one mount.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Duration {
    pub layer: String,
    pub op: String,
    pub mount: String,
    /// The shortest duration of slow operations, nanoseconds; faster operations may be shorter.
    pub shortest_ns: u64,
    /// The longest duration of all operations, nanoseconds, except for slow ones that were lost because the ring was full.
    pub longest_ns: u64,
}

impl Durations {
    pub fn add(&mut self, event: &Event) {
        let key = (event.operation, event.mount);
        if self.known.len() >= MOST && !self.known.contains_key(&key) {
            return;
        }
        let (shortest, longest) = self.known.entry(key).or_insert((u64::MAX, 0));
        *shortest = event.duration.min(*shortest);
        *longest = event.duration.max(*longest);
    }

    pub fn list(&self, mount: impl Fn(MountKey) -> Mount) -> Vec<Duration> {
        let one = |((operation, key), (shortest, longest)): (&(Operation, MountKey), &(u64, u64))| Duration {
            layer: operation.protocol().name.into(),
            op: operation.name().into(),
            mount: mount(*key).label().to_owned(),
            shortest_ns: *shortest,
            longest_ns: *longest,
        };
        let mut list: Vec<_> = self.known.iter().map(one).collect();
        list.sort_by(|one, other| (&one.mount, &one.layer, &one.op).cmp(&(&other.mount, &other.layer, &other.op)));
        list
    }
}
