//! The names of a tree's operations: mounts, and the cgroups of processes.

use std::{collections::HashMap, rc::Rc};

use diagnose::OperationTree;
use model::{Event, EventLine, Mount, MountKey};

use crate::{
    source::{EventSource, RecordedSource},
    view::{clock::Clock, event},
    who::Cgroup,
};

/// A source of names.
pub trait NameSource {
    /// The mount that a key means.
    fn mount(&self, key: MountKey) -> Mount;

    /// A process's cgroup, by the cgroup's id where that is known.
    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup>;
}

impl NameSource for RecordedSource {
    fn mount(&self, key: MountKey) -> Mount {
        EventSource::mount(self, key)
    }

    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup> {
        EventSource::cgroup(self, pid, id)
    }
}

/// The most processes whose cgroups are kept.
const MOST_REQUESTERS: usize = 16_384;

/// Names, which are looked up once until mounts change.
pub struct TreeNames {
    mounts: HashMap<MountKey, Mount>,
    /// By process id and cgroup id.
    cgroups: HashMap<(u32, u64), Rc<Cgroup>>,
    /// Converts the kernel's clock to the wall clock.
    pub clock: Clock,
}

impl TreeNames {
    /// No names yet.
    pub fn new() -> Self {
        Self { mounts: HashMap::new(), cgroups: HashMap::new(), clock: Clock::now() }
    }

    /// Looks up the names of a tree that are not known yet.
    pub fn learn(&mut self, tree: &OperationTree, source: &dyn NameSource) {
        if self.cgroups.len() > MOST_REQUESTERS {
            self.cgroups.clear();
        }
        for event in std::iter::once(&tree.event).chain(&tree.meanwhile) {
            if self.mounts.get(&event.mount).is_none_or(|mount| mount.fstype.is_empty()) {
                self.mounts.insert(event.mount, source.mount(event.mount));
            }
            let (pid, id) = (event.requester.pid, event.requester.cgroup);
            self.cgroups.entry((pid, id)).or_insert_with(|| source.cgroup(pid, id));
        }
        tree.children.iter().for_each(|child| self.learn(child, source));
    }

    /// Forgets the names, since mounts may have changed, and takes a new clock.
    pub fn forget(&mut self, clock: Clock) {
        self.mounts.clear();
        self.cgroups.clear();
        self.clock = clock;
    }

    /// The mount of an operation.
    pub fn mount(&self, event: &Event) -> Mount {
        self.mounts.get(&event.mount).cloned().unwrap_or_default()
    }

    /// The mount point of an operation's mount; empty if it is not known.
    pub fn mount_point(&self, event: &Event) -> &str {
        self.mounts.get(&event.mount).map_or("", |mount| mount.mountpoint.as_str())
    }

    /// The label of an operation's mount; empty if it is not known.
    pub fn mount_label(&self, event: &Event) -> &str {
        self.mounts.get(&event.mount).map_or("", Mount::label)
    }

    /// Its line in JSON.
    pub fn line(&self, event: &Event) -> EventLine<'static> {
        let who = self.cgroups.get(&(event.requester.pid, event.requester.cgroup)).cloned().unwrap_or_default();
        event::owned_line(event, &self.mount(event), &who, &self.clock)
    }
}
