//! Learns what is normal on this host, from a sample of operations every few seconds.

use std::collections::BTreeSet;

use diagnose::long_term::{LongTerm, PERIOD, PeriodSample};
use model::{Mount, MountKey};

use super::Detection;
use crate::{source::EventSource, view::clock::nanos};

impl Detection {
    /// The learned normals.
    pub fn long_term(&self) -> &LongTerm {
        &self.long_term
    }

    /// The learned normals, to be passed to the next detection.
    pub fn into_long_term(self) -> LongTerm {
        self.long_term
    }

    /// Learns from a sample of finished operations when a period is over. A mount counts as in trouble if it, or another mount of its server,
    /// has an open episode.
    pub(super) fn learn(&mut self, source: &dyn EventSource) {
        let now = source.now();
        let length = now.saturating_sub(self.learned);
        if length >= nanos(PERIOD) {
            self.learn_period(source, length);
        }
    }

    /// Learns from the period that ends now, even if it is shorter than usual.
    pub(super) fn learn_period(&mut self, source: &dyn EventSource, length: u64) {
        let now = source.now();
        self.learned = now;
        let (events, ended) = source.newest();
        if events.is_empty() {
            return;
        }
        let keys: BTreeSet<MountKey> = events.iter().map(|event| event.mount).collect();
        let mounts: Vec<_> = keys.into_iter().map(|key| (key, source.mount(key))).collect();
        let incidents = self.rules.episodes().flat_map(|episode| episode.window.events());
        let keys: BTreeSet<MountKey> = incidents.map(|event| event.mount).collect();
        let troubled: Vec<_> = keys.into_iter().map(|key| source.mount(key)).collect();
        let is_troubled = |mount: &Mount| {
            troubled
                .iter()
                .any(|other| other.name() == mount.name() || !mount.server.is_empty() && other.server == mount.server)
        };
        let in_trouble: BTreeSet<_> =
            mounts.iter().filter(|(_, mount)| is_troubled(mount)).map(|(_, mount)| mount.name()).collect();
        mounts.iter().for_each(|(key, mount)| self.long_term.name(*key, mount.name()));
        self.long_term.learn(&PeriodSample {
            now,
            length,
            each: ended as f32 / events.len() as f32,
            events: &events,
            in_trouble: &|name| in_trouble.contains(name),
        });
    }
}

/// Tells the normals which mount a key means, if they do not know it yet.
pub(super) fn name(long_term: &mut LongTerm, source: &dyn EventSource, key: MountKey) {
    if !long_term.is_named(key) {
        long_term.name(key, source.mount(key).name());
    }
}
