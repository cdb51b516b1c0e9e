//! The front: the process that is started first. It owns the socket, the figures and the signal handling, and manages the processes that serve
//! clients. It never calls libcephfs.

use std::{
    env,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use anyhow::Context;
use exposition::HttpServer;
use nix::sys::signalfd::SignalFd;
use rustix::process::{Resource, Rlimit};

use super::{
    DaemonOptions, TICK,
    arrivals::Arrivals,
    exporter::ProxyExporter,
    figures::ProxyCounters,
    listener,
    places::{FIRST_CONTROL, MountProcesses},
    sessions::SessionNumber,
    signals,
    takeover::{Door, Inheritance, Predecessor, Successor},
    watch::Watch,
};

const SIGNALS: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const DOOR: u64 = u64::MAX - 2;
const SUCCESSOR: u64 = u64::MAX - 3;
const PREDECESSOR: u64 = u64::MAX - 4;

/// The state of the main thread.
struct Front<'o> {
    options: &'o DaemonOptions,
    watch: Arc<Watch>,
    figures: Arc<ProxyCounters>,
    /// libcephfs's version.
    version: String,
    /// The path of the program that is to take over.
    program: Option<PathBuf>,
    places: MountProcesses,
    arrivals: Arrivals,
    listener: OwnedFd,
    /// The door, to which a daemon that takes over connects.
    door: Option<Door>,
    /// The daemon that has connected to take over.
    successor: Option<Successor>,
    /// This daemon has taken over from one that has not ended yet.
    predecessor: Option<Predecessor>,
    metrics: Option<HttpServer>,
}

/// Runs until a signal ends it, or another daemon has taken over.
pub fn run(options: &DaemonOptions) -> anyhow::Result<()> {
    let awaited = [signals::ENDING, &[signals::UPGRADE]].concat();
    let signals = signals::block(&awaited).context("cannot set up signals")?;
    // The name is read before another file can take the name.
    let program = env::current_exe().ok();
    // If an earlier daemon started this process, the kernel has named it after /proc/self/exe.
    let _ = rustix::thread::set_name(c"libcephfsd");
    raise_descriptor_limit();
    let watch = Arc::new(Watch::new().context("cannot use epoll(7)")?);
    let front = Front::begin(options, watch, program)?;
    front.watch.add(&signals, SIGNALS)?;
    front.watch.add(&front.listener, LISTENER)?;
    front.serve(&signals)
}

impl Front<'_> {
    /// Prepares everything, and takes over from the running daemon if requested.
    fn begin(options: &DaemonOptions, watch: Arc<Watch>, program: Option<PathBuf>) -> anyhow::Result<Front<'_>> {
        let (for_others, figures) = ProxyCounters::create(options.metrics.is_some()).context("cannot share memory")?;
        let figures = Arc::new(figures);
        let mut predecessor = if options.take_over { Predecessor::find(&options.state)? } else { None };
        let sessions = match &predecessor {
            Some(predecessor) => SessionNumber::share(&options.state, predecessor.turn ^ 1)?,
            None => SessionNumber::open(&options.state),
        };
        let (mut places, version) =
            MountProcesses::open(figures.clone(), for_others, sessions, watch.clone(), options.limits.mounts)?;
        let (listener, door) = match &mut predecessor {
            Some(predecessor) => {
                places.prepare(predecessor.mounts()).context("nothing is taken over")?;
                let Inheritance { listener, lock, door } = predecessor.inherit()?;
                places.keep_lock(lock);
                watch.add(&*predecessor, PREDECESSOR)?;
                (listener, Some(door))
            }
            None => {
                let door = places.lock().and_then(|_| Door::open(&options.state));
                door.iter().try_for_each(|door| watch.add(door, DOOR))?;
                (listener::listen(options)?, door)
            }
        };
        let arrivals = Arrivals::new(figures.clone(), watch.clone(), options.limits.clone(), options.users.clone());
        let mut front = Front {
            options,
            watch,
            figures,
            version,
            program,
            places,
            arrivals,
            listener,
            door,
            successor: None,
            predecessor,
            metrics: None,
        };
        match front.serve_metrics() {
            // After a takeover, clients already rely on this daemon, so this error is not fatal.
            Err(error) if front.predecessor.is_some() => tracing::warn!("{error:#}"),
            result => result?,
        }
        Ok(front)
    }

    fn serve(mut self, signals: &SignalFd) -> anyhow::Result<()> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        tracing::info!("{} with {}", self.options.socket.display(), self.version);
        let mut listening = true;
        let mut due = Instant::now() + TICK;
        loop {
            for event in self.watch.wait(TICK)? {
                match event {
                    SIGNALS => match signals.read_signal() {
                        Ok(Some(signal)) if signal.ssi_signo == signals::UPGRADE as u32 => self.start_successor(),
                        _ => return self.end(),
                    },
                    LISTENER => {
                        if let Err(error) = self.arrivals.accept(&self.listener) {
                            tracing::warn!("cannot accept clients now: {error}; retrying");
                            self.watch.remove(&self.listener);
                            listening = false;
                        }
                    }
                    DOOR => {
                        if self.successor.is_none()
                            && let Some(successor) = self.door.as_ref().and_then(|door| door.accept(&self.places))
                        {
                            self.watch.add(&successor, SUCCESSOR)?;
                            self.successor = Some(successor);
                        }
                    }
                    SUCCESSOR => {
                        if let Some(successor) = self.successor.take().filter(Successor::is_prepared) {
                            listening = false;
                            if self.give_to(&successor) {
                                return self.end_for(successor);
                            }
                        }
                        tracing::warn!("the daemon that was to take over is gone; this one goes on");
                    }
                    PREDECESSOR => self.predecessor_says()?,
                    FIRST_CONTROL.. => {
                        self.places.see(event - FIRST_CONTROL);
                    }
                    client => self.arrivals.see(client, &mut self.places),
                }
            }
            if Instant::now() >= due {
                due = Instant::now() + TICK;
                self.arrivals.tick();
                if !listening {
                    self.watch.add(&self.listener, LISTENER)?;
                    listening = true;
                }
                if self.metrics.is_none() {
                    let _ = self.serve_metrics();
                }
            }
        }
    }

    /// Ends in order, after the end of the daemon from which this one has taken over.
    fn end(self) -> anyhow::Result<()> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        drop((self.listener, self.arrivals, self.door, self.successor));
        let ended = self.places.close();
        if let Some(predecessor) = self.predecessor {
            predecessor.wait();
        }
        ended
    }

    /// Starts the program that is installed now, so that it takes over. The new process is not a child of this process: systemd waits for the end
    /// of its own children only.
    fn start_successor(&self) {
        let Some(program) = &self.program else { return tracing::error!("the name of the program is not known") };
        let arguments = env::args_os().skip(1).filter(|argument| argument != "--take-over");
        let started =
            Command::new(program).args(arguments).args(["--take-over", "--detach"]).stdin(Stdio::null()).status();
        match started {
            Ok(status) if status.success() => tracing::info!("{} is to take over", program.display()),
            Ok(status) => tracing::error!("{} cannot take over: {status}", program.display()),
            Err(error) => tracing::error!("cannot start {}: {error}", program.display()),
        }
    }

    /// Hands the socket over to the successor, which accepts clients from then on. Returns whether that succeeded.
    fn give_to(&mut self, successor: &Successor) -> bool {
        // The successor will use the address.
        self.metrics = None;
        self.watch.remove(&self.listener);
        let (Some(lock), Some(door)) = (self.places.lock(), &self.door) else { return false };
        successor.give(&Inheritance { listener: self.listener.as_fd(), lock, door: door.as_fd() })
    }

    /// Ends in order. Clients connect to the successor as soon as their writes are flushed.
    fn end_for(self, successor: Successor) -> anyhow::Result<()> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::MainPid(successor.pid)]);
        tracing::info!("process {} takes over", successor.pid);
        drop(self.arrivals);
        self.places.close()?;
        successor.done();
        Ok(())
    }

    /// Handles the end of the daemon before this one.
    fn predecessor_says(&mut self) -> anyhow::Result<()> {
        let Some(predecessor) = self.predecessor.take() else { return Ok(()) };
        let well = predecessor.has_ended_well();
        match well {
            true => tracing::info!("took over from process {}", predecessor.pid),
            false => tracing::warn!("process {} ended with an error: its clients mount again", predecessor.pid),
        }
        self.places.is_alone(well);
        self.door.iter().try_for_each(|door| self.watch.add(door, DOOR))?;
        Ok(())
    }

    /// Starts the metrics server, if configured.
    fn serve_metrics(&mut self) -> anyhow::Result<()> {
        let Some(address) = self.options.metrics else { return Ok(()) };
        let exporter = ProxyExporter {
            figures: self.figures.clone(),
            limits: self.options.limits.clone(),
            libcephfs: self.version.clone(),
        };
        let server = HttpServer::start(address, Arc::new(exporter))
            .with_context(|| format!("cannot serve figures at {address}"))?;
        tracing::info!("figures are at http://{}/metrics", server.address());
        self.metrics = Some(server);
        Ok(())
    }
}

/// Raises the limit of descriptors as far as the kernel permits. The processes below inherit the limit: they need two descriptors for each client,
/// and libcephfs's own.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
