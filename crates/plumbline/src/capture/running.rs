//! Starts captures, each on a thread of its own, and stops them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use nix::sys::eventfd::{EfdFlags, EventFd};
use probes::mounts::Mounts;

use super::command::CommandCapture;
use super::packets::Packets;
use super::tracepoints::Tracepoints;
use super::{Capture, CaptureSpan, Sink};
use crate::config::{CaptureConfig, CaptureKind, Config};

/// The stack of a capture's thread, bytes.
const STACK: usize = 256 << 10;

/// The work of a capture's thread.
pub(super) trait Background: Send + Sync + 'static {
    /// Captures until `stop` is readable.
    ///
    /// # Errors
    /// Why the capture cannot continue.
    fn run(self: Arc<Self>, stop: &EventFd) -> Result<()>;
}

/// All captures that run.
#[derive(Default)]
pub struct Captures {
    running: Vec<RunningCapture>,
}

struct RunningCapture {
    config: CaptureConfig,
    output_dir: PathBuf,
    capture: Arc<dyn Capture>,
    /// The same capture, if it captures packets and so has to follow mounts.
    packets: Option<Arc<Packets>>,
    worker: Option<CaptureThread>,
}

impl Captures {
    /// Starts the captures that the configuration adds, and stops those that it no longer has. A capture that cannot start is logged; the others
    /// continue.
    pub fn reconfigure(&mut self, config: &Config, mounts: &Mounts) {
        let is_same = |running: &RunningCapture| running.output_dir == config.output_dir;
        self.running.retain(|running| is_same(running) && config.captures.contains(&running.config));
        for wanted in &config.captures {
            if self.running.iter().all(|running| running.config != *wanted) {
                self.running.push(RunningCapture::start(wanted, config));
            }
        }
        self.follow(mounts);
    }

    /// Tells captures of packets which mounts there are.
    pub fn follow(&self, mounts: &Mounts) {
        self.running.iter().filter_map(|running| running.packets.as_ref()).for_each(|packets| packets.follow(mounts));
    }

    /// The capture of this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Capture>> {
        self.running.iter().find(|running| running.config.name == name).map(|running| running.capture.clone())
    }

    /// Whether there are no captures.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

impl RunningCapture {
    fn start(wanted: &CaptureConfig, config: &Config) -> Self {
        Self::try_start(wanted, config).unwrap_or_else(|error| {
            tracing::error!("the capture {} does not start: {error:#}", wanted.name);
            let (name, why) = (wanted.name.clone(), format!("{error:#}"));
            Self::of(wanted, config, Arc::new(Absent { name, why }), None, None)
        })
    }

    fn try_start(wanted: &CaptureConfig, config: &Config) -> Result<Self> {
        let (capture, packets, worker): (Arc<dyn Capture>, _, _) = match &wanted.kind {
            CaptureKind::Packets(own) => {
                let packets = Arc::new(Packets::new(wanted, own)?);
                (packets.clone(), Some(packets.clone()), CaptureThread::start(&wanted.name, packets)?)
            }
            CaptureKind::Tracepoints(own) => {
                let tracepoints = Arc::new(Tracepoints::new(&wanted.name, own)?);
                (tracepoints.clone(), None, CaptureThread::start(&wanted.name, tracepoints)?)
            }
            CaptureKind::Command(own) => {
                let command = Arc::new(CommandCapture::new(&wanted.name, own, &config.output_dir)?);
                (command.clone(), None, CaptureThread::start(&wanted.name, command)?)
            }
        };
        tracing::info!("the capture {} runs: {}", wanted.name, capture.describe());
        Ok(Self::of(wanted, config, capture, packets, Some(worker)))
    }

    fn of(
        wanted: &CaptureConfig,
        config: &Config,
        capture: Arc<dyn Capture>,
        packets: Option<Arc<Packets>>,
        worker: Option<CaptureThread>,
    ) -> Self {
        Self { config: wanted.clone(), output_dir: config.output_dir.clone(), capture, packets, worker }
    }
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        if self.worker.take().is_some() {
            tracing::info!("the capture {} has ended", self.config.name);
        }
    }
}

/// A capture that could not start.
struct Absent {
    name: String,
    why: String,
}

impl Capture for Absent {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        String::new()
    }

    fn cut(&self, _: CaptureSpan, _: &mut dyn Sink) -> Result<()> {
        Err(anyhow!("it did not start: {}", self.why))
    }
}

/// A capture's thread, which ends when this is dropped.
struct CaptureThread {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl CaptureThread {
    fn start(name: &str, work: Arc<impl Background>) -> Result<Self> {
        let stop =
            EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).context("cannot create an eventfd")?;
        let stop = Arc::new(stop);
        let (asked, capture) = (stop.clone(), name.to_owned());
        let run = move || {
            if let Err(error) = work.run(&asked) {
                tracing::error!("the capture {capture} has ended: {error:#}");
            }
        };
        let builder = thread::Builder::new().name("capture".to_owned()).stack_size(STACK);
        let thread = builder.spawn(run).context("cannot start a thread")?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for CaptureThread {
    fn drop(&mut self) {
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
