//! Who lost the most time: operations, mounts, processes and files.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{Event, MountKey, Operation, text::Text};

use crate::{Total, Window};

/// How many of each are listed.
pub const RANKS: usize = 10;

/// One place in a ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked<K> {
    /// What is ranked.
    pub key: K,
    /// Its operations and the time they took.
    pub total: Total,
}

/// A thread's name in its process and cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopThread {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// The thread's name.
    pub comm: Text<16>,
    /// Id of the cgroup (v2).
    pub cgroup: u64,
}

/// A file, as far as the probe saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopFile {
    /// The mount it is on.
    pub mount: MountKey,
    /// Inode number; 0 when unknown.
    pub inode: u64,
    /// Last component of its name; may be empty.
    pub name: Text<128>,
}

/// The most affected, most total time first, equals in the order of their keys; at most [`RANKS`] each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Top {
    /// Over all operations: the totals are exact.
    pub operations: Vec<Ranked<Operation>>,
    /// Over the events kept only, as the next two.
    pub mounts: Vec<Ranked<MountKey>>,
    /// Without operations whose requester is unknown.
    pub processes: Vec<Ranked<TopThread>>,
    /// Without operations whose file is unknown.
    pub files: Vec<Ranked<TopFile>>,
}

impl Top {
    /// Ranks the operations of a window.
    pub fn of(window: &Window) -> Self {
        Self::with(window, &[])
    }

    /// Ranks the operations of a window together with `others`.
    pub fn with(window: &Window, others: &[Event]) -> Self {
        let mut totals = window.operations().clone();
        others.iter().for_each(|event| totals.entry(event.operation).or_default().add(event));
        let events = || window.events().iter().chain(others);
        Self {
            operations: first(totals),
            mounts: rank(events(), |event| Some(event.mount).filter(|mount| *mount != MountKey::NONE)),
            processes: rank(events(), process),
            files: rank(events(), file),
        }
    }
}

fn process(event: &Event) -> Option<TopThread> {
    let who = event.requester;
    (who.pid != 0).then_some(TopThread { pid: who.pid, comm: who.comm, cgroup: who.cgroup })
}

fn file(event: &Event) -> Option<TopFile> {
    event.detail.file().map(|file| TopFile { mount: event.mount, inode: file.inode, name: file.name })
}

fn rank<'a, K: Ord + Copy>(
    events: impl Iterator<Item = &'a Event>,
    key: impl Fn(&Event) -> Option<K>,
) -> Vec<Ranked<K>> {
    let mut totals = BTreeMap::<K, Total>::new();
    for event in events {
        if let Some(key) = key(event) {
            totals.entry(key).or_default().add(event);
        }
    }
    first(totals)
}

/// The first [`RANKS`] by total time. The sort is stable: equals stay in the order of their keys.
fn first<K>(totals: BTreeMap<K, Total>) -> Vec<Ranked<K>> {
    let mut ranked: Vec<_> = totals.into_iter().map(|(key, total)| Ranked { key, total }).collect();
    ranked.sort_by_key(|place| Reverse(place.total.time));
    ranked.truncate(RANKS);
    ranked
}
