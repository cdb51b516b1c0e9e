//! The daemon: one thread that drains, detects and hands incidents to the evidence room.
//!
//! Everything it waits for is in one epoll set ([`sources`]). On every interval the ring is drained, each rule's window
//! is closed, and what that changed becomes a bundle or an update of one.

mod control;
mod incidents;
mod lock;
pub mod log;
mod logging;
mod memory;
mod normals;
mod publish;
mod recorder;
mod reload;
mod sources;
mod waiting;

use std::{
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use nix::sys::signal::Signal;
use probes::{Capability, Filter, ProbeSet};

pub use control::request_snapshot;
pub use lock::{output_dir_of_running, runtime_dir};

pub use crate::view::clock::nanos;
use crate::{
    config::Config,
    detection::{Detection, Reporter},
    evidence::{Collector, Id},
    source::{EventSource, KernelSource},
};
use control::Control;
use incidents::Bundles;
pub use incidents::{excerpt, excerpt_after, losses_of};
use lock::Lock;
pub use memory::release_free_memory;
use publish::Publish;
pub use recorder::recording_header;
use reload::settings;
pub use reload::{refuse_to_be_blind, start_watch};
use sources::{Sources, Wake};
use waiting::Waiting;

/// Mounts and modules are looked after this often even if nothing seems to have changed.
const MAINTAIN_EVERY: Duration = Duration::from_secs(4);
/// More events than this in a second and the kernel side begins to sample.
const FLOOD_PER_SECOND: u64 = 50_000;
/// One event in 2^this at the least.
const MAX_SAMPLE_SHIFT: u32 = 12;
/// How long a stop may take until what is accepted is written; what takes longer is cut. Detaching comes on top of it.
const DRAIN_LIMIT: Duration = Duration::from_millis(1300);
/// How much of it may go into sending the last incidents; what is not sent by then is not.
const SEND_LIMIT: Duration = Duration::from_millis(500);

/// How the daemon was asked to run.
pub struct Setup {
    pub config: Config,
    /// Where the configuration came from, to read it again on SIGHUP.
    pub config_file: Option<PathBuf>,
    pub all_filesystems: bool,
    pub duration: Option<Duration>,
}

/// Runs until it is told to stop.
///
/// # Errors
///
/// When it cannot start: another one runs, no permission, an output directory that is not ours.
pub fn run(setup: Setup, started: impl FnOnce(&[Capability], &ProbeSet)) -> Result<()> {
    let runtime = runtime_dir();
    let lock = Lock::take(&runtime, &setup.config.output_dir)?;
    let mut daemon = Daemon::start(setup, &runtime, lock)?;
    started(&daemon.source.watch().state(), daemon.source.watch());
    daemon.tell_started();
    let result = daemon.serve();
    daemon.stop();
    result
}

struct Daemon {
    setup: Setup,
    sources: Sources,
    control: Control,
    source: KernelSource,
    collector: Option<Collector>,
    detection: Detection,
    /// Snapshots under way, and who waits for them.
    snapshots: Vec<(Id, Option<UnixStream>)>,
    consumed_before: u64,
    maintained: Instant,
    tidied: Instant,
    /// When what is normal was last written.
    kept: Instant,
    stop_at: Option<Instant>,
    incidents: u64,
    /// Bundles that were not made, or not renewed.
    bundles_lost: u64,
    pin_dir: PathBuf,
    publish: Publish,
    /// Why the recorder cannot write, as the log has it; empty if it can.
    recorder_error: String,
    waiting: Waiting,
    lock: Lock,
}

impl Daemon {
    fn start(setup: Setup, runtime: &std::path::Path, lock: Lock) -> Result<Self> {
        let pin_dir = lock::pin_dir(runtime);
        probes::clean_pins(&pin_dir);
        // Attaching can take seconds. Until signals are blocked, they simply end the process, and nothing outlives it.
        let mut watch = start_watch(&setup.config)?;
        refuse_to_be_blind(&watch.state())?;
        let sources = Sources::new(setup.config.watch_interval)?;
        let collector = Collector::start(settings(&setup.config))?;
        sources.add(&collector, Wake::Evidence)?;
        let control = Control::listen(runtime)?;
        sources.add(control.listener(), Wake::Control)?;
        sources.add_ring(watch.ring_fd())?;
        let publish = Publish::start(&setup.config)?;
        sources.add(publish.exchange(), Wake::Publish)?;
        watch.pin(&pin_dir);
        let now = Instant::now();
        let source = KernelSource::new(watch);
        let mut daemon = Self {
            detection: Detection::new(&setup.config, source.now(), normals::load(&setup.config)),
            stop_at: setup.duration.map(|duration| now + duration),
            setup,
            sources,
            control,
            source,
            collector: Some(collector),
            snapshots: Vec::new(),
            consumed_before: 0,
            maintained: now,
            tidied: now,
            kept: now,
            incidents: 0,
            bundles_lost: 0,
            pin_dir,
            publish,
            recorder_error: String::new(),
            waiting: Waiting::default(),
            lock,
        };
        daemon.apply_filter()?;
        daemon.restart_recorder();
        memory::release_program();
        Ok(daemon)
    }

    fn tell_started(&self) {
        for notice in &self.setup.config.notices {
            tracing::info!("configuration: {notice}");
        }
        if self.setup.config.rules.is_empty() {
            tracing::warn!("no rule is configured: nothing will be noticed");
        }
        let leftovers = self.collector.as_ref().map_or(0, |collector| collector.counters().leftovers);
        if leftovers > 0 {
            tracing::info!("{leftovers} half-written bundles of an earlier run were deleted");
            logging::audit(self.setup.config.audit, "deletion", || format!("{leftovers} half-written bundles"));
        }
        let rules = self.setup.config.rules.len();
        logging::audit(self.setup.config.audit, "started", || format!("{rules} rules"));
        // Not under systemd is no error.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }

    fn serve(&mut self) -> Result<()> {
        let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        loop {
            let now = Instant::now();
            if self.stop_at.is_some_and(|stop| now >= stop) {
                return Ok(());
            }
            let stop_in = self.stop_at.map(|stop| stop - now);
            // The interval's own wake-ups come first; with a long interval, these do.
            let chores_in = Some((MAINTAIN_EVERY + Duration::from_secs(1)).saturating_sub(now - self.maintained));
            let limit = [stop_in, watchdog, chores_in, self.waiting.due_in(now)].into_iter().flatten().min();
            for wake in self.sources.wait(limit)? {
                match wake {
                    Wake::Signal => {
                        if self.take_signals() {
                            return Ok(());
                        }
                    }
                    Wake::Interval => self.interval_over(),
                    Wake::Ring => self.drain(),
                    Wake::Mounts => self.mounts_changed(),
                    Wake::Evidence => self.take_completions(),
                    Wake::Control => self.take_requests(),
                    Wake::Publish => self.answer_publishers(),
                }
            }
            self.waiting.sample(self.source.watch());
            self.do_chores();
            if watchdog.is_some() {
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
            }
        }
    }

    /// Returns whether to stop.
    fn take_signals(&mut self) -> bool {
        while let Some(signal) = self.sources.signal() {
            match signal {
                Signal::SIGHUP => self.reload(),
                Signal::SIGUSR1 => {
                    self.snapshot("SIGUSR1", None);
                }
                _ => return true,
            }
        }
        false
    }

    fn drain(&mut self) {
        self.detection.drain_turn(&mut self.source);
    }

    fn interval_over(&mut self) {
        if !self.sources.interval_over() {
            return;
        }
        self.drain();
        self.source.begin_interval();
        self.detect(Detection::interval);
        self.follow_incidents();
        self.source.end_interval(false);
        self.adapt();
        self.publish.tidy();
    }

    /// Has detection do something, and makes bundles of what it reports.
    fn detect(&mut self, step: fn(&mut Detection, &dyn EventSource, &mut dyn Reporter)) {
        let Some(collector) = &self.collector else { return };
        let mut bundles = Bundles {
            config: &self.setup.config,
            collector,
            publish: &mut self.publish,
            waiting: &self.waiting,
            incidents: &mut self.incidents,
            bundles_lost: &mut self.bundles_lost,
        };
        step(&mut self.detection, &self.source, &mut bundles);
    }

    /// What has to be done now and then, however long the watch interval is.
    fn do_chores(&mut self) {
        if self.maintained.elapsed() >= MAINTAIN_EVERY {
            self.maintain();
        }
        self.look_after_recorder();
        if self.kept.elapsed() >= normals::EVERY {
            self.keep_normals();
        }
        if self.tidied.elapsed() >= self.setup.config.cleanup.interval {
            self.tidied = Instant::now();
            if let Some(collector) = &self.collector {
                // Refused means that it is busy writing, which tidies as well.
                let _ = collector.tidy();
            }
        }
    }

    /// Samples while flooded, and says so.
    fn adapt(&mut self) {
        let (consumed, _) = self.source.watch().consumed();
        let rate =
            (consumed - self.consumed_before.min(consumed)) as f64 / self.setup.config.watch_interval.as_secs_f64();
        self.consumed_before = consumed;
        let before = self.source.sample_shift();
        let shift = match rate as u64 {
            FLOOD_PER_SECOND.. => (before + 1).min(MAX_SAMPLE_SHIFT),
            rate if rate < FLOOD_PER_SECOND / 4 => before.saturating_sub(1),
            _ => before,
        };
        if shift == before {
            return;
        }
        if let Err(error) = self.source.sample(shift) {
            tracing::warn!("cannot change the sampling of events: {error:#}");
        }
        tracing::warn!("{rate:.0} events a second: one in {} is looked at now", 1_u64 << shift);
    }

    fn maintain(&mut self) {
        self.maintained = Instant::now();
        self.source.maintain().iter().for_each(logging::probe);
    }

    /// Finishes what is under way, within [`DRAIN_LIMIT`], and says what there was.
    fn stop(mut self) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        self.publish.stop_serving();
        // Nothing more comes in, so that a flood does not hold us up. If that fails, it is drained all the same.
        let _ = self.source.watch_mut().set_filter(&Filter::default());
        self.drain();
        self.source.begin_interval();
        self.detect(Detection::finish);
        self.source.end_interval(true);
        Self::stop_recorder(&mut self.source);
        self.keep_normals();
        self.publish.stop_sending(deadline.min(Instant::now() + SEND_LIMIT));
        // As things are now, not as they were when the interval ended.
        let losses = losses_of(self.source.watch(), self.source.sample_shift());
        if let Some(collector) = self.collector.take() {
            let counters = collector.counters();
            let end = collector.shutdown(deadline.saturating_duration_since(Instant::now()));
            for done in &end.done {
                self.completed(done);
            }
            self.bundles_lost += end.unfinished as u64;
            logging::stopped(self.incidents, self.bundles_lost, &losses, &counters);
        }
        logging::audit(self.setup.config.audit, "stopped", || format!("{} incidents", self.incidents));
    }
}
