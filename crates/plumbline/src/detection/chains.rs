//! Rules with `when`: which incidents have armed them, and until when.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use diagnose::Episode;
use model::{Level, Mount, Nanos};

use crate::{
    scope::{IncidentSubject, On, When},
    source::EventSource,
    view::clock::nanos,
    who::Cgroup,
};

/// The most mounts, servers or jobs on which a rule is armed. Beyond them, those on which it would be disarmed first are dropped.
const MOST: usize = 1024;

/// What has armed a rule.
pub struct Chain {
    when: When,
    /// The mounts, servers or jobs on which the rule is armed, each with the time at which it is disarmed (CLOCK_MONOTONIC).
    armed: BTreeMap<IncidentSubject, Nanos>,
}

impl Chain {
    pub fn new(when: When) -> Self {
        Self { when, armed: BTreeMap::new() }
    }

    /// Whether the rule is armed on any mount, server or job.
    pub fn is_armed(&self) -> bool {
        !self.armed.is_empty()
    }

    /// Whether the rule is armed for operations of this cgroup on this mount.
    pub fn is_armed_for(&self, mount: &Mount, cgroup: &Cgroup) -> bool {
        self.armed.keys().any(|subject| subject.has(mount, cgroup))
    }

    /// Takes note of the open episodes at the end of an interval. Returns whether this armed a rule that was not armed, or disarmed one that was.
    pub fn update(&mut self, rule: &str, episodes: &[Episode], source: &dyn EventSource) -> bool {
        let (was_armed, within) = (self.is_armed(), nanos(self.when.within));
        for episode in episodes.iter().filter(|episode| self.when.incident.contains(&episode.anomaly.name)) {
            let until = episode.window.to.saturating_add(within);
            if until <= source.now() {
                continue;
            }
            for subject in subjects(source, episode, self.when.on) {
                let name = &episode.anomaly.name;
                let known = self.armed.entry(subject.clone()).or_insert_with(|| {
                    tracing::info!("{rule}: armed by {name}, on {subject}");
                    until
                });
                *known = until.max(*known);
            }
        }
        self.armed.retain(|subject, until| {
            let stays = *until > source.now();
            if !stays {
                tracing::info!("{rule}: no longer armed on {subject}");
            }
            stays
        });
        while self.armed.len() > MOST {
            let first = self.armed.iter().min_by_key(|(_, until)| **until).map(|(subject, _)| subject.clone());
            first.map(|first| self.armed.remove(&first));
        }
        self.is_armed() != was_armed
    }
}

/// The mounts, servers, jobs or hosts that an episode concerns.
fn subjects(source: &dyn EventSource, episode: &Episode, on: On) -> BTreeSet<IncidentSubject> {
    let of = |event: &model::Event| {
        let is_connection = event.operation.protocol().level == Level::Connection;
        IncidentSubject::of(on, &source.mount(event.mount), &cgroup_of(source, event, on), is_connection)
    };
    episode.window.events().iter().filter_map(of).collect()
}

/// Whether `other` concerns a mount, server, job or host that `one` concerns.
pub fn share(source: &dyn EventSource, one: &Episode, other: &Episode, on: On) -> bool {
    let subjects = subjects(source, one, on);
    let is_on = |event: &model::Event| {
        let (mount, cgroup) = (source.mount(event.mount), cgroup_of(source, event, on));
        subjects.iter().any(|subject| subject.has(&mount, &cgroup))
    };
    other.window.events().iter().any(is_on)
}

/// The requester's cgroup, if `on` needs it.
fn cgroup_of(source: &dyn EventSource, event: &model::Event, on: On) -> Rc<Cgroup> {
    match on {
        On::Job => source.cgroup(event.requester.pid, event.requester.cgroup),
        On::Host | On::Server | On::Mount => Rc::default(),
    }
}
