//! Queries how long operations took before and during an episode. These queries come after the episodes are known.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use diagnose::fleet::{Fleet, JudgedEpisode, OperationKind};

use super::{Api, ServersByMount, host};
use crate::fleet::material::kind;

/// The most episodes that are queried; the others keep the durations of their incidents.
const EPISODES: usize = 5;
/// The time before an episode that shows what is normal, seconds.
const BEFORE: i64 = 1800;
/// The least time over which counters are compared, seconds: several scrapes.
const LEAST: i64 = 120;

/// Operations by protocol and name: how many there were, and their time, seconds.
type OperationTotals = BTreeMap<(String, String), (f64, f64)>;
/// The operations of each mount, by host and `mount` label.
type MountLatencies = HashMap<(String, String), OperationTotals>;

/// Sets the durations in the incidents of the first episodes, which [`diagnose::fleet::judge`] then uses. A duration is the mean of all operations
/// that became slower.
///
/// # Errors
/// When Prometheus does not answer.
pub fn add(api: &Api, mounts: &ServersByMount, fleet: &mut Fleet, judged: &[JudgedEpisode]) -> Result<()> {
    for one in judged.iter().take(EPISODES) {
        let (from, to) = (one.scene.from.div_euclid(1000), one.scene.to.div_euclid(1000));
        let during = figures(api, to, (to - from).max(LEAST))?;
        let before = figures(api, from, BEFORE)?;
        for sighting in &mut fleet.sightings {
            let is_of_it = sighting.from <= one.scene.to && sighting.to >= one.scene.from;
            if !is_of_it || !one.servers.contains(&sighting.server) {
                continue;
            }
            let of_server =
                mounts.iter().filter(|((host, _), server)| *host == sighting.host && **server == sighting.server);
            let mut slower = Slower::default();
            for (place, _) in of_server {
                slower.add(during.get(place), before.get(place));
            }
            (sighting.slow_ms, sighting.normal_ms) = slower.means_ms();
            sighting.kinds = slower.kinds;
        }
    }
    Ok(())
}

fn figures(api: &Api, at: i64, seconds: i64) -> Result<MountLatencies> {
    let mut figures = MountLatencies::new();
    for (part, is_count) in [("count", true), ("sum", false)] {
        let query = format!(
            "sum by (instance, mount, protocol, operation) (increase(plumbline_operation_duration_seconds_{part}[{seconds}s]))"
        );
        for series in api.at(&query, at, &mut Vec::new())? {
            let Some(number) = series.number().filter(|number| *number > 0.0) else { continue };
            let operation = (series.label("protocol").to_owned(), series.label("operation").to_owned());
            let place = figures.entry((host(&series), series.label("mount").to_owned())).or_default();
            let (count, time) = place.entry(operation).or_default();
            *(if is_count { count } else { time }) += number;
        }
    }
    Ok(figures)
}

/// Operations that became slower.
#[derive(Default)]
struct Slower {
    count: f64,
    /// The seconds that they took, and the seconds that they would have taken before the episode.
    time: f64,
    normal: f64,
    /// The time beyond normal by kind; later the share of each kind.
    kinds: BTreeMap<OperationKind, f64>,
}

impl Slower {
    fn add(&mut self, during: Option<&OperationTotals>, before: Option<&OperationTotals>) {
        let (Some(during), Some(before)) = (during, before) else { return };
        // The time of the system calls above a file system client contains the time of its requests, so it is not added.
        let is_remote = |probe: &str| probes::protocol(probe).is_some_and(|protocol| protocol.level.is_remote());
        let has_remote = during.keys().any(|(probe, operation)| is_remote(probe) && kind(probe, operation).is_some());
        for ((probe, operation), (count, time)) in during {
            let wanted = if has_remote { is_remote(probe) } else { probe == "syscalls" };
            let Some(kind) = kind(probe, operation).filter(|_| wanted && *count > 0.0) else { continue };
            let Some((before_count, before_time)) = before.get(&(probe.clone(), operation.clone())) else { continue };
            let normal = before_time / before_count.max(f64::MIN_POSITIVE) * count;
            if *before_count > 0.0 && *time > normal {
                self.count += count;
                self.time += time;
                self.normal += normal;
                *self.kinds.entry(kind).or_default() += time - normal;
            }
        }
    }

    fn means_ms(&mut self) -> (Option<f64>, Option<f64>) {
        let all: f64 = self.kinds.values().sum();
        self.kinds.values_mut().for_each(|time| *time /= all.max(f64::MIN_POSITIVE));
        let mean = |time: f64| (self.count > 0.0).then(|| time * 1e3 / self.count);
        (mean(self.time), mean(self.normal))
    }
}
