//! How things stood at one moment.

use std::{borrow::Cow, collections::HashMap, hash::Hash, sync::Arc, time::SystemTime};

use model::Mount;

use super::Series;
use crate::cost::Cost;

/// All that is published, as it stood at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// When.
    pub at: SystemTime,
    /// Since when counters count.
    pub since: SystemTime,
    /// Operations by kind and mount, in that order.
    pub series: Vec<Series>,
    /// What is mounted and watched: the `mount` label, and what is known of it.
    pub mounts: Vec<(Arc<str>, Mount)>,
    /// How many more there are.
    pub mounts_omitted: u64,
    /// Each protocol's probe.
    pub probes: Vec<ProbeFigures>,
    /// Bytes in the ring that were no event, of whichever probe.
    pub not_understood: u64,
    /// What was sent to an OpenTelemetry collector: signal, sent, dropped. Empty if none is configured.
    pub otlp: Vec<(&'static str, u64, u64)>,
    /// Messages posted to a webhook, and given up. `None` if none is configured.
    pub webhook: Option<(u64, u64)>,
    /// Runs of the operator's program that succeeded and that failed. `None` if none is configured.
    pub on_incident: Option<(u64, u64)>,
    /// Incidents by probe and type.
    pub incidents: Vec<(&'static str, Cow<'static, str>, u64)>,
    /// Bundles that were not made, or not renewed.
    pub bundles_lost: u64,
    /// Operations that were counted under [`super::OTHER`].
    pub folded: u64,
    /// Series of mounts that are gone, given up to make room.
    pub retired: u64,
    /// What the daemon's process has used.
    pub cost: Cost,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            at: SystemTime::UNIX_EPOCH,
            since: SystemTime::UNIX_EPOCH,
            series: vec![],
            mounts: vec![],
            mounts_omitted: 0,
            probes: vec![],
            not_understood: 0,
            otlp: vec![],
            webhook: None,
            on_incident: None,
            incidents: vec![],
            bundles_lost: 0,
            folded: 0,
            retired: 0,
            cost: Cost::default(),
        }
    }
}

/// What one protocol's probe says of itself.
#[derive(Debug, Default)]
pub struct ProbeFigures {
    /// Its name.
    pub probe: &'static str,
    /// Whether it is attached, if only in part.
    pub attached: bool,
    /// Operations under way, or whose end was missed.
    pub in_flight: u64,
    /// What was lost, by cause.
    pub lost: Vec<(&'static str, u64)>,
    /// Nanoseconds that its programs have run for; `None` while the kernel does not say.
    pub run_nanoseconds: Option<u64>,
}

/// Counters that never fall, though what they are read from may begin again: probes are attached anew when their module
/// comes back, and by a reload.
#[derive(Debug)]
pub struct MonotonicCounter<K>(HashMap<K, Seen>);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    last: u64,
    total: u64,
}

impl<K: Eq + Hash> MonotonicCounter<K> {
    /// What has been counted altogether, now that the counter says `now`.
    pub fn to(&mut self, key: K, now: u64) -> u64 {
        let seen = self.0.entry(key).or_default();
        // Less than before: it began again.
        seen.total += now.checked_sub(seen.last).unwrap_or(now);
        seen.last = now;
        seen.total
    }

    /// All that is read begins at zero now.
    pub fn begin_again(&mut self) {
        self.0.values_mut().for_each(|seen| seen.last = 0);
    }
}

impl<K> Default for MonotonicCounter<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_does_not_fall() {
        let mut counter = MonotonicCounter::default();
        let totals = [5, 7, 7, 2, 3].map(|now| counter.to("nfs", now));
        assert_eq!(totals, [5, 7, 7, 9, 10]);
        assert_eq!(counter.to("smb", 1), 1);
        counter.begin_again();
        assert_eq!(counter.to("nfs", 4), 14);
    }
}
