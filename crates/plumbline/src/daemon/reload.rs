//! SIGHUP: the daemon takes over the new configuration, or keeps the old one and logs why.

use anyhow::{Context, Result};
use probes::{Capability, Filter, ProbeOptions, ProbeSet, ProbeSupport};

use super::{Daemon, Summaries, logging, observer};
use crate::{
    config::{self, Config},
    detection::Detection,
    evidence::{INCIDENTS, Settings},
    watched,
};

/// Size of the event ring, bytes.
const RING_BYTES: u32 = 1 << 20;
/// Operations that the flight recorder holds: 2 MiB.
const RECORDER_RECORDS: u32 = 32_768;
/// The most bundles that may be waiting or under way.
const QUEUE: usize = 16;

impl Daemon {
    /// Reads the configuration again. If it has errors, these are logged, and the old configuration stays in force.
    pub(super) fn reload(&mut self) {
        if let Ok(now) = sd_notify::NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading, now]);
        }
        let audited = self.setup.config.audit;
        match self.try_reload() {
            Ok(()) => {
                let rules: Vec<_> = self.setup.config.rules.iter().map(|rule| rule.rule.name()).collect();
                let rules = if rules.is_empty() { "none".to_owned() } else { rules.join(", ") };
                tracing::info!("configuration reloaded; rules: {rules}");
                let audited = audited || self.setup.config.audit;
                logging::audit(audited, "configuration", || format!("reloaded; rules: {rules}"));
            }
            Err(errors) => {
                errors.iter().for_each(|error| tracing::error!("{error}"));
                tracing::error!("configuration not reloaded: the old one stays in force");
                logging::audit(audited, "configuration", || "refused: the old one stays in force".into());
            }
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }

    fn try_reload(&mut self) -> Result<(), Vec<String>> {
        let config = config::check(self.setup.config_file.as_deref(), &watched::never_touched())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let say = |error: anyhow::Error| vec![format!("{error:#}")];
        let loaded = |config: &Config| {
            let names = |probes: &[&model::Protocol]| probes.iter().map(|probe| probe.name).collect::<Vec<_>>();
            (names(&config.probes), names(&config.on_demand), config.operations.clone())
        };
        let watch = if loaded(&config) == loaded(&self.setup.config) {
            None
        } else {
            let watch = start_watch(&config).and_then(|watch| {
                refuse_to_be_blind(&watch.state())?;
                Ok(watch)
            });
            // Restores the operator's own operations of the old configuration.
            let stay =
                |error| probes::own::enter(&self.setup.config.operations).err().map_or(error, anyhow::Error::msg);
            Some(watch.map_err(|error| say(stay(error)))?)
        };
        // The new configuration is valid. The old rules' incidents end under the old configuration.
        self.drain();
        self.source.begin_interval();
        self.detect(Detection::finish);
        self.summaries.write(&self.source);
        self.source.end_interval(true);
        if let Some(collector) = &self.collector {
            collector.reconfigure(settings(&config)).map_err(say)?;
        }
        if let Some(mut watch) = watch {
            self.publish.begin_again(self.source.watch());
            self.sources.add_ring(watch.ring_fd()).map_err(say)?;
            watch.state().iter().for_each(logging::probe);
            self.source.watch_mut().give_up_pins();
            watch.pin(&self.pin_dir);
            drop(self.source.replace(watch));
            self.consumed_before = 0;
            self.detection.begin_again();
        }
        self.sources.set_interval(config.watch_interval).map_err(say)?;
        self.lock.rewrite(&config.output_dir).map_err(say)?;
        for notice in &config.notices {
            tracing::info!("configuration: {notice}");
        }
        self.source.begin_interval();
        self.detection.replace(&config, &self.source);
        self.publish.reconfigure(&config);
        self.peers.configure(&config);
        self.observer.configure(&config, &self.sources).map_err(say)?;
        self.summaries = Summaries::begin(&config, &self.source);
        self.setup.config = config;
        // No rule is armed yet.
        self.source.watch_mut().demand(&[]).iter().for_each(logging::probe);
        self.apply_filter().map_err(say)?;
        self.restart_recorder();
        self.restart_captures();
        Ok(())
    }

    pub(super) fn apply_filter(&mut self) -> Result<()> {
        let filter = Filter {
            all_filesystems: self.setup.all_filesystems || self.setup.config.all_filesystems,
            wake_bytes: u64::from(RING_BYTES / 2),
            ..self.detection.rules().filter()
        };
        self.source.watch_mut().set_filter(&filter).context("cannot set the filter of the BPF programs")
    }
}

/// Attaches the probes of a configuration. Pins no maps: another probe set's maps may still be pinned.
pub fn start_watch(config: &Config) -> Result<ProbeSet> {
    probes::own::enter(&config.operations).map_err(anyhow::Error::msg)?;
    let options = ProbeOptions {
        protocols: config.probes.clone(),
        on_demand: config.on_demand.clone(),
        ring_bytes: RING_BYTES,
        recorder_records: RECORDER_RECORDS,
        usage_keys: 0,
        yield_idle_modules: true,
    };
    let mut watch = ProbeSet::start(&options).context("cannot start watching")?;
    if let Err(error) = watch.select_mounts() {
        tracing::warn!("sends cannot be stamped, so their times are not known: {error:#}");
    }
    Ok(watch)
}

/// Fails if no probe is attached and none can be attached later: such a daemon would seem to watch, and see nothing.
pub fn refuse_to_be_blind(probes: &[Capability]) -> Result<()> {
    if probes.iter().any(|probe| probe.state != ProbeSupport::Unavailable || probe.may_come) {
        return Ok(());
    }
    let reasons: Vec<String> = probes.iter().map(|probe| format!("{}: {}", probe.probe, probe.reason)).collect();
    anyhow::bail!("no probe can run here, so there is nothing to watch; {}; see `plumbline doctor`", reasons.join("; "))
}

/// The collector's settings. Bundles, the recorder's segments, observations and captures' files share the limit on disk, so the space of
/// the latter three is subtracted.
pub fn settings(config: &Config) -> Settings {
    let captures = Config::reserved_by_captures(&config.captures);
    let reserved = config.recorder.reserved() + observer::reserved(config) + captures;
    Settings {
        output_dir: config.output_dir.clone(),
        folder: INCIDENTS,
        time_limit: config.evidence.timeout,
        output_cap: config.evidence.max_bytes,
        concurrency: config.evidence.concurrency,
        queue: QUEUE,
        max_bytes: config.cleanup.max_bytes.saturating_sub(reserved),
        max_age: config.cleanup.max_age,
        max_age_of_kind: Vec::new(),
    }
}
