//! The snapshot: all published figures at one moment.

use std::{borrow::Cow, collections::HashMap, hash::Hash, sync::Arc, time::SystemTime};

use model::{Layer, Mount};

use super::{OpenLabels, OperationSeries};
use crate::cost::ProcessCost;

/// All published figures at one moment.
#[derive(Debug)]
pub struct Snapshot {
    /// The moment.
    pub at: SystemTime,
    /// The time at which the counters started from zero.
    pub since: SystemTime,
    /// Operations by kind and mount, sorted by both.
    pub series: Vec<OperationSeries>,
    /// The watched mounts, each with its `mount` label.
    pub mounts: Vec<(Arc<str>, Mount)>,
    /// How many watched mounts are missing in `mounts`.
    pub mounts_omitted: u64,
    /// The figures of each protocol's probe.
    pub probes: Vec<ProbeFigures>,
    /// Records in the ring buffer that no probe could decode.
    pub not_understood: u64,
    /// Items for the OpenTelemetry collector: signal, sent, dropped. Empty if no collector is configured.
    pub otlp: Vec<(&'static str, u64, u64)>,
    /// Messages that the webhook has accepted, and dropped ones. `None` if no webhook is configured.
    pub webhook: Option<(u64, u64)>,
    /// Kubernetes Events that were created, and dropped ones. `None` if Events are not configured.
    pub kubernetes_events: Option<(u64, u64)>,
    /// Successful and failed runs of the operator's program. `None` if no program is configured.
    pub on_incident: Option<(u64, u64)>,
    /// Questions to the daemons of servers: answered, and not answered. `None` if this host asks none.
    pub peers_asked: Option<(u64, u64)>,
    /// Questions from the daemons of clients: answered, and refused. `None` if this host does not answer clients.
    pub peers_told: Option<(u64, u64)>,
    /// Incidents by probe and type.
    pub incidents: Vec<(&'static str, Cow<'static, str>, u64)>,
    /// The label sets of open incidents, each with the number of incidents that have it.
    pub open: Vec<(OpenLabels, u64)>,
    /// The number of closed incidents, by rule and layer.
    pub closed: Vec<(String, Layer, u64)>,
    /// Bundles that were not made, or not updated.
    pub bundles_lost: u64,
    /// Operations counted on the mount `other` because there was no room for another series.
    pub folded: u64,
    /// Series that were removed to make room, because their mounts are gone.
    pub retired: u64,
    /// What the daemon's process has used.
    pub cost: ProcessCost,
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
            kubernetes_events: None,
            on_incident: None,
            peers_asked: None,
            peers_told: None,
            incidents: vec![],
            open: vec![],
            closed: vec![],
            bundles_lost: 0,
            folded: 0,
            retired: 0,
            cost: ProcessCost::default(),
        }
    }
}

/// The figures of one protocol's probe.
#[derive(Debug, Default)]
pub struct ProbeFigures {
    /// The probe's name.
    pub probe: &'static str,
    /// Whether the probe is attached, at least in part.
    pub attached: bool,
    /// Operations under way, including those whose end was missed.
    pub in_flight: u64,
    /// Lost events and operations, by cause.
    pub lost: Vec<(&'static str, u64)>,
    /// How long its BPF programs have run, nanoseconds; `None` while the kernel does not count it.
    pub run_nanoseconds: Option<u64>,
}

/// Counters that never fall although their source may restart at zero: a probe is attached again when its module is
/// loaded again, and by a reload.
#[derive(Debug)]
pub struct MonotonicCounter<K>(HashMap<K, CounterState>);

#[derive(Debug, Clone, Copy, Default)]
struct CounterState {
    last: u64,
    total: u64,
}

impl<K: Eq + Hash> MonotonicCounter<K> {
    /// Takes the source's current value and returns the total over all restarts.
    pub fn to(&mut self, key: K, now: u64) -> u64 {
        let seen = self.0.entry(key).or_default();
        // Less than before: the source restarted at zero.
        seen.total += now.checked_sub(seen.last).unwrap_or(now);
        seen.last = now;
        seen.total
    }

    /// Declares that all sources restart at zero now.
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
