//! Detection and verdicts on the bed, as in the daemon; and the reports with their times.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use diagnose::long_term::LongTerm;
use jiff::Timestamp;
use model::Incident;
use nix::sys::signalfd::SignalFd;

use crate::{
    config::{Config, KnownNames},
    daemon::{refuse_to_be_blind, start_watch},
    detection::{ActiveRules, Detection, IncidentReport, Reporter},
    evidence::IncidentId,
    source::{EventSource, KernelSource},
};

const RULES: &str = include_str!("rules.yaml");
/// How often the table of mounts and modules is updated.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// All reports of each incident, in order.
#[derive(Default)]
struct ReportedIncidents {
    sequence: u64,
    incidents: BTreeMap<IncidentId, Vec<(Instant, Incident)>>,
}

impl Reporter for ReportedIncidents {
    fn next_id(&mut self, detected: Timestamp, protocol: &str, kind: &str) -> IncidentId {
        self.sequence += 1;
        IncidentId::new(detected, protocol, kind, self.sequence)
    }

    fn report(&mut self, _: &dyn EventSource, _: &ActiveRules, report: IncidentReport<'_>) -> bool {
        self.incidents.entry(report.id.clone()).or_default().push((Instant::now(), report.described));
        true
    }
}

/// The attached probes, and the rules.
pub struct Watching {
    config: Config,
    source: KernelSource,
    detection: Detection,
    reported: ReportedIncidents,
    stop: SignalFd,
    maintained: Instant,
}

impl Watching {
    /// Attaches the probes. `stop`: the signals that end watching.
    ///
    /// # Errors
    ///
    /// When no probe can run.
    pub fn start(stop: SignalFd) -> Result<Self> {
        let config = Config::parse(RULES, "the rules of prove", &KnownNames::to_this_program()).map_err(|errors| {
            anyhow::anyhow!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let watch = start_watch(&config)?;
        refuse_to_be_blind(&watch.state())?;
        let mut source = KernelSource::new(watch);
        let detection = Detection::new(&config, source.now(), LongTerm::default());
        source
            .watch_mut()
            .set_filter(&detection.rules().filter())
            .context("cannot set the filter of the BPF programs")?;
        Ok(Self { config, source, detection, reported: ReportedIncidents::default(), stop, maintained: Instant::now() })
    }

    /// Forgets the reports, and the normals that the rules have learned.
    pub fn begin(&mut self) {
        self.detection.finish(&self.source, &mut self.reported);
        self.reported.incidents.clear();
        self.source.begin_interval();
        self.detection = Detection::new(&self.config, self.source.now(), LongTerm::default());
    }

    /// Watches for `time`, or until `is_enough`, which is called at the end of each interval. Returns false if a signal ended it.
    ///
    /// # Errors
    ///
    /// When waiting fails.
    pub fn watch_for(&mut self, time: Duration, is_enough: &mut dyn FnMut(&Self) -> bool) -> Result<bool> {
        let end = Instant::now() + time;
        let mut next = Instant::now() + self.config.watch_interval;
        loop {
            let detection = &mut self.detection;
            let drain = &mut |source: &mut KernelSource| {
                detection.drain(source);
            };
            if self.source.wait(&self.stop, next, drain)?.is_some() {
                return Ok(false);
            }
            self.detection.drain_turn(&mut self.source);
            self.source.begin_interval();
            self.detection.interval(&self.source, &mut self.reported);
            self.source.end_interval(false);
            if self.maintained.elapsed() >= MAINTAIN_EVERY {
                self.maintained = Instant::now();
                self.source.maintain();
            }
            if Instant::now() >= end || is_enough(self) {
                return Ok(true);
            }
            next = (next + self.config.watch_interval).max(Instant::now());
        }
    }

    /// All reports of each incident since [`Watching::begin`], the earliest first.
    pub fn incidents(&self) -> impl Iterator<Item = &[(Instant, Incident)]> {
        self.reported.incidents.values().map(Vec::as_slice)
    }
}
