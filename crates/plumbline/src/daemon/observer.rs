//! Observations: evidence that is collected at intervals without an incident, into bundles of its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;

use super::{
    Daemon,
    captures::until_now,
    logging, nanos,
    reload::settings,
    sources::{Sources, Wake},
};
use crate::{
    config::Config,
    detection::Excerpts,
    evidence::{BundleOutcome, Collector, Done, OBSERVATIONS, Settings},
};

/// Observations may take one part in this many of the disk limit, if any are configured.
const SHARE: u64 = 4;

/// The observations of a configuration.
#[derive(Default)]
pub struct Observer {
    /// Started if the configuration has observations, or bundles of earlier ones exist.
    collector: Option<Collector>,
    /// When each observation is due, in the order of the configuration.
    due: Vec<Instant>,
}

/// Bytes that observations take from the space for incidents.
pub fn reserved(config: &Config) -> u64 {
    if config.observe.is_empty() { 0 } else { config.cleanup.max_bytes / SHARE }
}

/// The collector's settings.
fn settings_of(config: &Config) -> Settings {
    let ages = config.observe.iter().map(|one| (one.name.clone(), one.keep)).collect();
    let max_bytes = config.cleanup.max_bytes / SHARE;
    // Bundles of an observation that is no longer configured are deleted at the age of incidents.
    Settings { folder: OBSERVATIONS, max_bytes, max_age_of_kind: ages, ..settings(config) }
}

impl Observer {
    /// Starts the observations of a configuration, and stops those of the previous one.
    ///
    /// # Errors
    /// When the output directory cannot be used.
    pub fn configure(&mut self, config: &Config, sources: &Sources) -> Result<()> {
        let now = Instant::now();
        self.due = config.observe.iter().map(|one| now + one.every).collect();
        match &self.collector {
            Some(collector) => collector.reconfigure(settings_of(config)),
            // Bundles of an earlier configuration must be deleted at their age, too.
            None if self.due.is_empty() && !config.output_dir.join(OBSERVATIONS).exists() => Ok(()),
            None => {
                let collector = Collector::start(settings_of(config))?;
                sources.add(&collector, Wake::Evidence)?;
                self.collector = Some(collector);
                Ok(())
            }
        }
    }

    /// Deletes bundles that are too old.
    pub fn tidy(&self) {
        // The collector refuses while it writes bundles; that work deletes old bundles, too.
        let _ = self.collector.as_ref().map(Collector::tidy);
    }

    /// The time until the next observation is due.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        self.due.iter().min().map(|due| due.saturating_duration_since(now))
    }
}

impl Daemon {
    /// Makes the observations that are due.
    pub(super) fn observe(&mut self) {
        let now = Instant::now();
        if self.observer.due.iter().all(|due| *due > now) {
            return;
        }
        self.source.begin_interval();
        let all = self.setup.config.observe.iter().zip(&mut self.observer.due);
        let due = all.filter(|(_, due)| **due <= now);
        let mut wanted = Vec::new();
        for (observation, due) in due {
            *due = now + observation.every;
            wanted.push(observation.clone());
        }
        for observation in wanted {
            let Some(collector) = &self.observer.collector else { return };
            let id = collector.next_id(Timestamp::now(), "observation", &observation.name);
            let by = format!("`observe`, every {}", observation.name);
            let mut request = self.request(id.clone(), &by, &observation.actions, Excerpts::default());
            // An observation is not about an incident, so captures do not go on for it.
            let cuts = until_now(&self.setup.config, &self.captures, &observation.actions, nanos(probes::monotonic()));
            request.cuts = cuts.into_iter().map(|(cut, _)| cut).collect();
            if let Err(refused) = collector.submit(request) {
                tracing::warn!("no observation {id}: {refused}");
            }
        }
    }

    pub(super) fn take_observations(&mut self) {
        let done = self.observer.collector.as_ref().map(Collector::completions).unwrap_or_default();
        done.iter().for_each(|done| observed(done, self.setup.config.audit));
    }

    /// Finishes the observations under way, within this time.
    pub(super) fn stop_observing(&mut self, within: Duration) {
        if let Some(collector) = self.observer.collector.take() {
            collector.shutdown(within).done.iter().for_each(|done| observed(done, self.setup.config.audit));
        }
    }
}

fn observed(done: &Done, audited: bool) {
    logging::deletions(&done.sweep, audited);
    match &done.outcome {
        BundleOutcome::Written { path, .. } => {
            logging::audit(audited, "observation", || path.display().to_string());
        }
        BundleOutcome::Lost { id, message, .. } => tracing::warn!("the observation {id} was lost: {message}"),
        BundleOutcome::NotTidied { message } => tracing::error!("cannot look for old observations: {message}"),
        BundleOutcome::Tidied => {}
    }
}
