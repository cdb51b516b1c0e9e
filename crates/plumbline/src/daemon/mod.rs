//! The daemon: one thread that drains the ring buffer, runs detection, and hands incidents to the collector of
//! evidence.
//!
//! The thread waits on one epoll set ([`sources`]). At every interval it drains the ring and closes each rule's window.
//! An incident that begins becomes a bundle; one that changes updates its bundle.

mod captures;
mod control;
mod incidents;
mod lock;
pub mod log;
mod logging;
mod memory;
mod normals;
mod observer;
mod peers;
mod publish;
mod recorder;
mod reload;
mod snapshots;
mod sources;
mod summaries;
mod waiting;

use std::{
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use nix::sys::signal::Signal;
use probes::{Capability, Filter, ProbeSet};

pub use control::{LONGEST as LONGEST_SNAPSHOT, request_snapshot};
pub use lock::{output_dir_of_running, runtime_dir};

pub use crate::view::clock::nanos;
use crate::{
    capture::Captures,
    config::Config,
    detection::{Detection, Reporter},
    evidence::{Collector, IncidentId},
    source::{EventSource, KernelSource},
};
use captures::Afters;
use control::ControlSocket;
use incidents::Bundles;
pub use incidents::{excerpt, excerpt_after, losses_of};
use lock::Lock;
pub use memory::{release_free_memory, return_large_blocks};
use observer::Observer;
use peers::Peers;
use publish::Publish;
pub use recorder::recording_header;
use reload::settings;
pub use reload::{refuse_to_be_blind, start_watch};
use snapshots::Timed;
use sources::{Sources, Wake};
use summaries::Summaries;
use waiting::Waiting;

/// How often the daemon checks mounts and kernel modules, even without a sign of change.
const MAINTAIN_EVERY: Duration = Duration::from_secs(4);
/// From this rate of events per second on, the BPF programs sample.
const FLOOD_PER_SECOND: u64 = 50_000;
/// The coarsest sampling: one event in 2 to this power.
const MAX_SAMPLE_SHIFT: u32 = 12;
/// How long the writing of accepted bundles may take when the daemon stops; what takes longer is cut off. Detaching the probes takes
/// additional time.
const DRAIN_LIMIT: Duration = Duration::from_millis(1300);
/// How much of that time may be spent on sending the last incidents to OpenTelemetry; the rest are dropped.
const SEND_LIMIT: Duration = Duration::from_millis(500);

/// How the daemon is to run.
pub struct Setup {
    pub config: Config,
    /// The configuration's file, which SIGHUP reads again.
    pub config_file: Option<PathBuf>,
    pub all_filesystems: bool,
    pub duration: Option<Duration>,
}

/// Runs the daemon until a signal or its duration ends it. Calls `started` once the probes are attached.
///
/// # Errors
///
/// When the daemon cannot start: another one runs, permissions are missing, or the output directory is not usable.
pub fn run(setup: Setup, started: impl FnOnce(&[Capability], &ProbeSet)) -> Result<()> {
    let runtime = runtime_dir();
    let lock = Lock::take(&runtime, &setup.config.output_dir)?;
    let mut daemon = Daemon::start(setup, &runtime, lock)?;
    started(&daemon.source.watch().state(), daemon.source.watch());
    daemon.log_start();
    let result = daemon.serve();
    daemon.stop();
    result
}

struct Daemon {
    setup: Setup,
    sources: Sources,
    control: ControlSocket,
    source: KernelSource,
    collector: Option<Collector>,
    detection: Detection,
    captures: Captures,
    /// Bundles that wait for the captures' data of the seconds after an incident.
    afters: Afters,
    /// Snapshots under way, each with the peer that waits for it.
    snapshots: Vec<(IncidentId, Option<UnixStream>)>,
    /// Snapshots that cover a time which is not over.
    timed: Vec<Timed>,
    observer: Observer,
    summaries: Summaries,
    consumed_before: u64,
    maintained: Instant,
    tidied: Instant,
    /// When the learned normals were last written.
    kept: Instant,
    stop_at: Option<Instant>,
    incidents: u64,
    /// Bundles that were not made, or not renewed.
    bundles_lost: u64,
    pin_dir: PathBuf,
    publish: Publish,
    peers: Peers,
    /// The last logged error of the recorder; empty if the recorder can write.
    recorder_error: String,
    waiting: Waiting,
    lock: Lock,
}

impl Daemon {
    fn start(setup: Setup, runtime: &std::path::Path, lock: Lock) -> Result<Self> {
        memory::return_large_blocks();
        let pin_dir = lock::pin_dir(runtime);
        probes::clean_pins(&pin_dir);
        // Attaching can take seconds. A signal that arrives before `Sources::new` blocks it ends the process, and
        // leaves nothing behind.
        let mut watch = start_watch(&setup.config)?;
        refuse_to_be_blind(&watch.state())?;
        let sources = Sources::new(setup.config.watch_interval)?;
        let collector = Collector::start(settings(&setup.config))?;
        sources.add(&collector, Wake::Evidence)?;
        let control = ControlSocket::listen(runtime)?;
        sources.add(control.listener(), Wake::Control)?;
        sources.add_ring(watch.ring_fd())?;
        let publish = Publish::start(&setup.config)?;
        sources.add(publish.exchange(), Wake::Publish)?;
        let peers = Peers::start(&setup.config, &sources)?;
        watch.pin(&pin_dir);
        let now = Instant::now();
        let source = KernelSource::new(watch);
        let mut observer = Observer::default();
        observer.configure(&setup.config, &sources)?;
        let summaries = Summaries::begin(&setup.config, &source);
        let mut daemon = Self {
            detection: Detection::new(&setup.config, source.now(), normals::load(&setup.config)),
            stop_at: setup.duration.map(|duration| now + duration),
            setup,
            sources,
            control,
            source,
            collector: Some(collector),
            captures: Captures::default(),
            afters: Afters::default(),
            snapshots: Vec::new(),
            timed: Vec::new(),
            observer,
            summaries,
            consumed_before: 0,
            maintained: now,
            tidied: now,
            kept: now,
            incidents: 0,
            bundles_lost: 0,
            pin_dir,
            publish,
            peers,
            recorder_error: String::new(),
            waiting: Waiting::default(),
            lock,
        };
        daemon.apply_filter()?;
        daemon.restart_recorder();
        daemon.restart_captures();
        memory::release_program();
        Ok(daemon)
    }

    fn log_start(&self) {
        for notice in &self.setup.config.notices {
            tracing::info!("configuration: {notice}");
        }
        if self.setup.config.rules.is_empty() {
            tracing::warn!("no rule is configured, so no incident will be detected");
        }
        let leftovers = self.collector.as_ref().map_or(0, |collector| collector.counters().leftovers);
        if leftovers > 0 {
            tracing::info!("{leftovers} half-written bundles of an earlier run were deleted");
            logging::audit(self.setup.config.audit, "deletion", || format!("{leftovers} half-written bundles"));
        }
        let rules = self.setup.config.rules.len();
        logging::audit(self.setup.config.audit, "started", || format!("{rules} rules"));
        // An error does not matter: the daemon may run without systemd.
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
            // With a long watch interval, this limit wakes the daemon for its chores.
            let chores_in = Some((MAINTAIN_EVERY + Duration::from_secs(1)).saturating_sub(now - self.maintained));
            let due_in =
                [self.waiting.due_in(now), self.observer.due_in(now), self.timed_due_in(now), self.afters.due_in(now)];
            let limit = [stop_in, watchdog, chores_in].into_iter().chain(due_in).flatten().min();
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
                    Wake::Publish => {
                        self.answer_publishers();
                        self.answer_peers();
                    }
                }
            }
            self.waiting.sample(self.source.watch());
            self.take_afters(false);
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
        self.follow_chains();
        self.adapt();
        self.publish.tidy();
    }

    /// Runs a step of detection, and makes bundles from its reports.
    fn detect(&mut self, step: fn(&mut Detection, &dyn EventSource, &mut dyn Reporter)) {
        let Some(collector) = &self.collector else { return };
        let mut bundles = Bundles {
            config: &self.setup.config,
            collector,
            publish: &mut self.publish,
            peers: &mut self.peers,
            waiting: &self.waiting,
            summaries: &mut self.summaries,
            captures: &self.captures,
            afters: &mut self.afters,
            incidents: &mut self.incidents,
            bundles_lost: &mut self.bundles_lost,
        };
        step(&mut self.detection, &self.source, &mut bundles);
    }

    /// Rules were armed or disarmed: loads the probes that they need, and tells the kernel side what to report.
    fn follow_chains(&mut self) {
        if !self.detection.take_rearmed() {
            return;
        }
        let demanded = self.detection.rules().demanded();
        self.source.watch_mut().demand(&demanded).iter().for_each(logging::probe);
        if let Err(error) = self.apply_filter() {
            tracing::warn!("{error:#}");
        }
    }

    /// Does the periodic work that does not depend on the watch interval.
    fn do_chores(&mut self) {
        if self.maintained.elapsed() >= MAINTAIN_EVERY {
            self.maintain();
        }
        self.look_after_recorder();
        self.finish_timed();
        self.observe();
        self.look_after_peers();
        self.look_after_summaries();
        if self.kept.elapsed() >= normals::EVERY {
            self.keep_normals();
        }
        if self.tidied.elapsed() >= self.setup.config.cleanup.interval {
            self.tidied = Instant::now();
            if let Some(collector) = &self.collector {
                // The collector refuses while it writes bundles; that work deletes old bundles, too.
                let _ = collector.tidy();
            }
            self.observer.tidy();
        }
    }

    /// Adapts the sampling of events to their rate, and logs each change.
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
        tracing::warn!("{rate:.0} events a second: Plumbline now evaluates one event in {}", 1_u64 << shift);
    }

    fn maintain(&mut self) {
        self.maintained = Instant::now();
        self.source.maintain().iter().for_each(logging::probe);
        self.captures.follow(self.source.watch().mounts());
    }

    /// Finishes the work under way, within [`DRAIN_LIMIT`], and logs the totals.
    fn stop(mut self) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        self.publish.stop_serving();
        self.peers.stop();
        // The empty filter stops events, so that a flood does not delay the stop. If it fails, the ring is drained all
        // the same.
        let _ = self.source.watch_mut().set_filter(&Filter::default());
        self.drain();
        self.source.begin_interval();
        self.detect(Detection::finish);
        self.summaries.write(&self.source);
        self.source.end_interval(true);
        Self::stop_recorder(&mut self.source);
        self.keep_normals();
        self.publish.stop_sending(deadline.min(Instant::now() + SEND_LIMIT));
        self.take_afters(true);
        // Read again, as losses may have grown since the interval ended.
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
        self.stop_observing(deadline.saturating_duration_since(Instant::now()));
        logging::audit(self.setup.config.audit, "stopped", || format!("{} incidents", self.incidents));
    }
}
