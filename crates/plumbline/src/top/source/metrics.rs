//! A running daemon's metrics as a source of samples.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use exposition::{ReadFamily, ReadPoint, ReadValue};
use model::{Histogram, Mount, text::printable};

use super::{SampleSource, page};
use crate::{
    top::model::{OwnCost, TopOperations, TopSample},
    view::clock::Clock,
};

/// Mount, protocol, operation.
type SeriesKey = (String, String, String);

/// A daemon that serves its metrics.
pub struct Metrics {
    address: SocketAddr,
    before: MetricsPage,
    at: Instant,
}

/// The values of the metrics page that `top` shows.
#[derive(Debug, Default)]
struct MetricsPage {
    is_plumbline: bool,
    mounts: Vec<Mount>,
    operations: HashMap<SeriesKey, Histogram>,
    lost: BTreeMap<(String, String), u64>,
    /// Seconds.
    cpu: Option<f64>,
    kernel: Option<f64>,
    resident: Option<u64>,
}

impl Metrics {
    /// Asks the daemon for the first time.
    ///
    /// # Errors
    ///
    /// When no daemon answers at that address.
    pub fn of(address: SocketAddr) -> Result<Self> {
        let before = read(address)?;
        Ok(Self { address, before, at: Instant::now() })
    }
}

fn read(address: SocketAddr) -> Result<MetricsPage> {
    let page = MetricsPage::of(exposition::read(&page::get(address)?)?);
    ensure!(page.is_plumbline, "this is not a Plumbline daemon");
    Ok(page)
}

impl SampleSource for Metrics {
    const KIND: &str = "metrics";

    fn name(&self) -> String {
        format!("metrics of {}", self.address)
    }

    fn look(&mut self) -> Result<TopSample> {
        let now = read(self.address).with_context(|| format!("no metrics from {}", self.address))?;
        let at = Instant::now();
        let passed = at.duration_since(self.at);
        let sample = now.since(&self.before, passed);
        (self.before, self.at) = (now, at);
        Ok(sample)
    }
}

impl MetricsPage {
    fn of(families: Vec<ReadFamily>) -> Self {
        let mut page = Self::default();
        for family in families {
            for point in family.points {
                page.add(&family.name, point);
            }
        }
        page.mounts.sort_by(|one, other| one.label().cmp(other.label()));
        page
    }

    fn add(&mut self, family: &str, point: ReadPoint) {
        // The page may come from another program.
        let label = |name: &str| {
            let found = point.labels.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| printable(value.as_bytes())).unwrap_or_default()
        };
        let key = || (label("mount"), label("protocol"), label("operation"));
        match (family, point.value) {
            ("plumbline_build_info", _) => self.is_plumbline = true,
            ("plumbline_mount_info", _) => self.mounts.push(Mount {
                mountpoint: label("mount"),
                source: label("source"),
                server: label("server"),
                fstype: label("fstype"),
                pv: label("pv"),
            }),
            ("plumbline_operation_duration_seconds", ReadValue::Histogram(read)) => {
                let one = self.operations.entry(key()).or_default();
                let (bytes, errors) = (one.bytes, one.errors);
                *one = Histogram { bytes, errors, ..*read };
            }
            ("plumbline_operation_bytes", ReadValue::Sum { sum, .. }) => {
                self.operations.entry(key()).or_default().bytes = sum;
            }
            ("plumbline_operation_errors_total", ReadValue::Number(errors)) => {
                // Never more than there are operations: sums do not overflow.
                self.operations.entry(key()).or_default().errors = (errors as u64).min(1 << 48);
            }
            ("plumbline_events_lost_total", ReadValue::Number(lost)) if lost > 0.0 => {
                self.lost.insert((label("probe"), label("cause")), lost as u64);
            }
            ("plumbline_process_cpu_seconds_total", ReadValue::Number(seconds)) => self.cpu = Some(seconds),
            ("plumbline_process_resident_memory_bytes", ReadValue::Number(bytes)) => self.resident = Some(bytes as u64),
            ("plumbline_bpf_run_seconds_total", ReadValue::Number(seconds)) => {
                *self.kernel.get_or_insert(0.0) += seconds;
            }
            _ => {}
        }
    }

    fn since(&self, before: &Self, passed: Duration) -> TopSample {
        let seconds = passed.as_secs_f64();
        let finished = self.operations.iter().filter_map(|(key, now)| {
            // A smaller count: the daemon has restarted.
            let earlier = before.operations.get(key).filter(|earlier| earlier.count <= now.count);
            let amounts = earlier.map_or_else(|| now.clone(), |earlier| now.since(earlier));
            let (mount, layer, operation) = key.clone();
            (amounts.count > 0).then_some(TopOperations { mount, layer, operation, amounts })
        });
        let mut operations: Vec<_> = finished.collect();
        operations.sort_by(|one, other| {
            (&one.mount, &one.layer, &one.operation).cmp(&(&other.mount, &other.layer, &other.operation))
        });
        let share = |now: Option<f64>, before: Option<f64>| Some((now? - before?).max(0.0) / seconds);
        TopSample {
            time: Clock::now().iso(crate::daemon::nanos(probes::monotonic())),
            seconds,
            mounts: self.mounts.clone(),
            operations,
            phases: Err("the daemon's metrics tell no phases; `sudo plumbline top --probes` does".into()),
            slowest: Err("the daemon's metrics have no single operations; `sudo plumbline trace PROBE` shows them, \
                          and `sudo plumbline top --probes`, which loads probes of its own"
                .into()),
            incidents: Ok(Vec::new()),
            connections: Err("the daemon's metrics have no addresses, states and round trips; `sudo plumbline net` \
                              shows them. What happened to connections is among the operations"
                .into()),
            cost: OwnCost {
                cpu: share(self.cpu, before.cpu),
                resident: self.resident,
                kernel: share(self.kernel, before.kernel),
                lost: self.lost.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(labels: &[(&str, &str)], value: ReadValue) -> ReadPoint {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        ReadPoint { labels: labels.iter().map(own).collect(), value }
    }

    fn page(operations: u64, mount: &str) -> MetricsPage {
        let labels = [("mount", mount), ("protocol", "syscalls"), ("operation", "write")];
        let mut histogram = Histogram::default();
        (0..operations).for_each(|_| histogram.add(1_000_000, 0, false));
        let families = [
            ("plumbline_build_info", point(&[], ReadValue::Number(1.0))),
            ("plumbline_mount_info", point(&[("mount", mount), ("fstype", "cifs")], ReadValue::Number(1.0))),
            ("plumbline_operation_duration_seconds", point(&labels, ReadValue::Histogram(Box::new(histogram)))),
            ("plumbline_operation_bytes", point(&labels, ReadValue::Sum { sum: operations * 4096, count: operations })),
            ("plumbline_operation_errors_total", point(&labels, ReadValue::Number(1.0))),
            ("plumbline_process_cpu_seconds_total", point(&[], ReadValue::Number(operations as f64 / 100.0))),
            ("plumbline_events_lost_total", point(&[("probe", "smb"), ("cause", "ring_full")], ReadValue::Number(0.0))),
        ];
        MetricsPage::of(families.map(|(name, point)| ReadFamily { name: name.into(), points: vec![point] }).into())
    }

    #[test]
    fn a_look_has_what_was_added_since_the_one_before() {
        let sample = page(30, "/mnt/a").since(&page(10, "/mnt/a"), Duration::from_secs(2));
        let [one] = &sample.operations[..] else { panic!("{:?}", sample.operations) };
        assert_eq!((one.amounts.count, one.amounts.bytes, one.amounts.errors), (20, 20 * 4096, 0));
        assert_eq!((one.layer.as_str(), one.operation.as_str()), ("syscalls", "write"));
        assert!((sample.cost.cpu.unwrap() - 0.1).abs() < 1e-9);
        assert!(sample.cost.lost.is_empty() && sample.slowest.is_err());
        let again = page(5, "/mnt/a").since(&page(10, "/mnt/a"), Duration::from_secs(2));
        assert_eq!(again.operations[0].amounts.count, 5, "of a daemon that was started again");
    }

    #[test]
    fn names_of_strangers_move_no_cursor() {
        let sample = page(1, "/mnt/\x1b[2J").since(&MetricsPage::default(), Duration::from_secs(1));
        assert_eq!(sample.mounts[0].mountpoint, "/mnt/\\x1b[2J");
        assert_eq!(sample.operations[0].mount, "/mnt/\\x1b[2J");
    }
}
