//! Incidents in the form that alerts need: which are open, and how many were closed with which verdict.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use model::{Cause, Incident, Layer};

use super::tally::{OTHER, label};

/// The most open incidents with series of their own, and the most rules whose closed incidents are counted separately. Further ones are
/// counted under [`OTHER`].
const MOST: usize = 200;

/// The labels of an open incident.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenLabels {
    /// The rule's name.
    pub rule: String,
    /// The rule's type.
    pub kind: Cow<'static, str>,
    /// The layer that the verdict names now.
    pub layer: Layer,
    /// The cause that the verdict names; `None` if it names none.
    pub cause: Option<Cause>,
    /// The mount that lost the most time, in the form of the `mount` label.
    pub mount: String,
    /// The server of this mount.
    pub server: String,
    /// The Kubernetes namespace, pod and workload of the process that lost the most time; empty if they are not known.
    pub namespace: String,
    pub pod: String,
    pub workload: String,
}

/// Counts of incidents over the daemon's life. Open incidents are listed by the number of their episode.
#[derive(Debug, Default)]
pub struct IncidentCounts {
    open: HashMap<u64, OpenLabels>,
    closed: BTreeMap<(String, Layer), u64>,
}

impl OpenLabels {
    fn of(incident: &Incident) -> Self {
        let mount = incident.mount().cloned().unwrap_or_default();
        let names = incident.top.processes.first().map(|process| process.names.clone()).unwrap_or_default();
        Self {
            rule: label(&incident.anomaly.name),
            kind: incident.anomaly.kind.clone(),
            layer: incident.verdict.layer,
            cause: incident.verdict.cause,
            mount: label(mount.label()),
            server: label(&mount.server),
            namespace: label(&names.namespace),
            pod: label(&names.pod),
            workload: label(&names.workload),
        }
    }

    /// The labels that all incidents beyond the limit share.
    fn others() -> Self {
        let other = || OTHER.to_owned();
        Self {
            rule: other(),
            kind: OTHER.into(),
            layer: Layer::Unknown,
            cause: None,
            mount: other(),
            server: String::new(),
            namespace: String::new(),
            pod: String::new(),
            workload: String::new(),
        }
    }
}

impl IncidentCounts {
    /// Takes over the present state of an incident. `is_closed`: the incident is over.
    pub fn see(&mut self, episode: u64, incident: &Incident, is_closed: bool) {
        if !is_closed {
            self.open.insert(episode, OpenLabels::of(incident));
            return;
        }
        self.open.remove(&episode);
        let key = (label(&incident.anomaly.name), incident.verdict.layer);
        let is_full = self.closed.len() >= MOST * Layer::ALL.len() && !self.closed.contains_key(&key);
        *self.closed.entry(if is_full { (OTHER.to_owned(), key.1) } else { key }).or_default() += 1;
    }

    /// Creates a zero counter for each layer of a rule: a counter that appears with its first incident would show no increase.
    pub fn know_rule(&mut self, rule: &str) {
        if self.closed.len() < MOST * Layer::ALL.len() {
            for layer in Layer::ALL {
                self.closed.entry((label(rule), layer)).or_default();
            }
        }
    }

    /// The label sets of open incidents, each with the number of incidents that have it.
    pub fn open(&self) -> Vec<(OpenLabels, u64)> {
        let mut all: BTreeMap<&OpenLabels, u64> = BTreeMap::new();
        self.open.values().for_each(|labels| *all.entry(labels).or_default() += 1);
        let beyond: u64 = all.values().skip(MOST).sum();
        let others = (beyond > 0).then(|| (OpenLabels::others(), beyond));
        all.into_iter().take(MOST).map(|(labels, count)| (labels.clone(), count)).chain(others).collect()
    }

    /// The number of closed incidents, by rule and by the layer of the last verdict.
    pub fn closed(&self) -> Vec<(String, Layer, u64)> {
        self.closed.iter().map(|((rule, layer), count)| (rule.clone(), *layer, *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::{Anomaly, Mount, RankedMount, Ranking, Verdict};

    use super::*;

    fn incident(mountpoint: &str, layer: Layer) -> Incident {
        let mount = Mount { mountpoint: mountpoint.into(), server: "srv".into(), ..Mount::default() };
        Incident {
            anomaly: Anomaly { name: "slow".into(), kind: "latency".into(), ..Anomaly::default() },
            verdict: Verdict { layer, ..Verdict::default() },
            top: Ranking { mounts: vec![RankedMount { mount, ..RankedMount::default() }], ..Ranking::default() },
            ..Incident::default()
        }
    }

    #[test]
    fn an_incident_is_open_with_its_last_verdict_until_it_is_over() {
        let mut incidents = IncidentCounts::default();
        incidents.know_rule("slow");
        incidents.see(7, &incident("/a", Layer::Unknown), false);
        incidents.see(8, &incident("/a", Layer::Server), false);
        incidents.see(7, &incident("/a", Layer::Server), false);
        let open = incidents.open();
        assert_eq!(open.len(), 1);
        let (labels, count) = &open[0];
        assert_eq!(
            (labels.mount.as_str(), labels.server.as_str(), labels.layer, *count),
            ("/a", "srv", Layer::Server, 2)
        );
        incidents.see(7, &incident("/a", Layer::Server), true);
        incidents.see(8, &incident("/a", Layer::Client), true);
        assert!(incidents.open().is_empty());
        let closed: Vec<_> = incidents.closed().into_iter().map(|(_, layer, count)| (layer.name(), count)).collect();
        assert_eq!(closed, [("client", 1), ("network", 0), ("server", 1), ("unknown", 0)]);
    }

    #[test]
    fn what_is_beyond_the_most_is_counted_together() {
        let mut incidents = IncidentCounts::default();
        for number in 0..MOST as u64 + 5 {
            incidents.see(number, &incident(&format!("/{number:04}"), Layer::Server), false);
        }
        let open = incidents.open();
        assert_eq!((open.len(), open[MOST].0.mount.as_str(), open[MOST].1), (MOST + 1, OTHER, 5));
        for number in 0..MOST * Layer::ALL.len() {
            incidents.know_rule(&number.to_string());
        }
        incidents.see(1, &incident("/a", Layer::Server), true);
        let closed = incidents.closed();
        assert_eq!(closed.iter().map(|(.., count)| count).sum::<u64>(), 1);
        assert!(closed.contains(&(OTHER.to_owned(), Layer::Server, 1)), "{closed:?}");
    }
}
