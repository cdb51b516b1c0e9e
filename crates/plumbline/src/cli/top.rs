//! `plumbline top`: shows the present state of mounts, operations and connections.

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    process::ExitCode,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use super::{folder, usage_error};
use crate::{
    daemon,
    top::{
        draw,
        model::{KnownOrReason, TopSample},
        source::{IncidentListing, Looking, Metrics, Probed},
        state::{KeyOutcome, TopState},
        terminal::{DrawMessage, Taken, mailbox, watch_signals},
    },
};

/// The default address of a daemon's metrics.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9437);

/// Show mounts, operations and connections in a live view
///
/// Figures come from a running daemon's metrics, for which no privilege is needed. As root, and without a daemon, top loads probes of its own; only these tell the slowest
/// operations, the phases of their time, and connections. Where standard output is no terminal, frames are printed one below the other.
#[derive(clap::Args)]
pub struct TopArguments {
    /// Length of an interval, seconds
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    interval: f64,
    /// Stop after this many intervals
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// One JSON object a line, for each interval
    #[arg(long)]
    json: bool,
    /// The address at which a daemon serves its metrics [default: 127.0.0.1:9437, if a daemon is there]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "probes")]
    metrics: Option<SocketAddr>,
    /// Load probes of its own (root), even if a daemon runs
    #[arg(long)]
    probes: bool,
    /// Watch local file systems too, with probes of its own
    #[arg(long)]
    all_filesystems: bool,
    #[command(flatten)]
    folder: folder::FolderArguments,
}

pub fn run(arguments: &TopArguments) -> Result<ExitCode> {
    if !(0.1..=86_400.0).contains(&arguments.interval) {
        return Ok(usage_error("--interval takes seconds from 0.1 to 86400"));
    }
    let folder = match arguments.folder.find() {
        Ok(Err(code)) => return Ok(code),
        Ok(Ok(folder)) => Ok(folder.path),
        Err(error) => Err(format!("{error:#}")),
    };
    let is_screen = !arguments.json && io::stdout().is_terminal();
    let (sender, mail) = mailbox();
    watch_signals(signals(is_screen), sender.clone())?;
    let looking = arguments.look(IncidentListing::of(folder), sender.clone())?;
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut view = TopView {
        output: if is_screen {
            TopOutput::Screen(Taken::take(sender)?)
        } else {
            TopOutput::Stream { json: arguments.json }
        },
        kind: looking.kind,
        state: TopState::new(looking.name.clone(), interval),
        left: arguments.count.unwrap_or(u64::MAX),
    };
    let followed = view.follow(&looking, &mail);
    // The terminal is given back first, since the source may take a moment to end.
    drop(view);
    looking.end();
    followed.map(|()| ExitCode::SUCCESS)
}

/// Blocks the signals that end `top`, and on a screen those that suspend and resume it.
fn signals(is_screen: bool) -> &'static [Signal] {
    const ALL: [Signal; 5] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP, Signal::SIGCONT];
    if is_screen { &ALL } else { ALL.first_chunk::<3>().map_or(&[], |ends| ends) }
}

impl TopArguments {
    /// Starts the source of figures: a daemon's metrics, or top's own probes.
    fn look(&self, incidents: IncidentListing, to: SyncSender<DrawMessage>) -> Result<Looking> {
        let tell = move |look: KnownOrReason<TopSample>| drop(to.send(DrawMessage::Look(Box::new(look))));
        let all_filesystems = self.all_filesystems;
        let may_load = probes::may_load();
        if self.probes {
            super::permitted()?;
        }
        // If this process may load probes, the lock shows whether a daemon runs. Otherwise, any program may answer at the address.
        let is_there = !may_load || daemon::output_dir_of_running(&daemon::runtime_dir()).is_some();
        if let Some(address) = self.metrics.or(Some(DEFAULT_ADDRESS).filter(|_| is_there && !self.probes)) {
            match Metrics::of(address) {
                Ok(metrics) => return Looking::start(|| Ok(metrics), incidents, tell),
                Err(error) if self.metrics.is_some() => {
                    bail!("no metrics from {address}: {error:#}; give the address that `listen` of `prometheus` names")
                }
                Err(error) if !may_load => bail!(
                    "no daemon answers at {address} ({error:#}), and to load probes is not permitted; start the daemon \
                     (`systemctl start plumbline`), give its address (--metrics), or {}",
                    probes::PERMISSION
                ),
                Err(_) => {}
            }
        }
        Looking::start(move || Probed::start(all_filesystems), incidents, tell)
    }
}

enum TopOutput {
    Screen(Taken),
    Stream { json: bool },
}

struct TopView {
    output: TopOutput,
    /// The source's name in JSON.
    kind: &'static str,
    state: TopState,
    /// The number of intervals that remain.
    left: u64,
}

impl TopView {
    /// Runs until the user, a signal or the number of intervals ends it.
    fn follow(&mut self, looking: &Looking, mail: &Receiver<DrawMessage>) -> Result<()> {
        if let TopOutput::Screen(screen) = &self.output {
            self.state.size = screen.size();
        }
        let mut asked = Instant::now();
        self.show()?;
        while self.left > 0 {
            let wait = (asked + self.state.interval).saturating_duration_since(Instant::now());
            match mail.recv_timeout(wait) {
                Ok(message) => {
                    if !self.take(message)? {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    looking.ask();
                    asked = Instant::now();
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that collects the figures has ended"),
            }
        }
        Ok(())
    }

    /// Handles a message. Returns whether to continue.
    fn take(&mut self, message: DrawMessage) -> Result<bool> {
        let outcome = match message {
            DrawMessage::Signal(Signal::SIGTSTP) => KeyOutcome::Suspend,
            DrawMessage::Signal(Signal::SIGCONT) => {
                if let TopOutput::Screen(screen) = &mut self.output {
                    screen.resume()?;
                }
                KeyOutcome::Nothing
            }
            DrawMessage::Signal(_) => return Ok(false),
            DrawMessage::Key(key) => self.state.key(key),
            DrawMessage::Resized(columns, lines) => {
                self.state.size = (columns, lines);
                KeyOutcome::Nothing
            }
            DrawMessage::Look(look) => return self.looked(*look).map(|()| true),
        };
        match (outcome, &mut self.output) {
            (KeyOutcome::Quit, _) => return Ok(false),
            (KeyOutcome::Suspend, TopOutput::Screen(screen)) => screen.suspend()?,
            (KeyOutcome::Redraw, TopOutput::Screen(screen)) => screen.forget()?,
            _ => {}
        }
        if matches!(self.output, TopOutput::Screen(_)) {
            self.show()?;
        }
        Ok(true)
    }

    fn looked(&mut self, look: KnownOrReason<TopSample>) -> Result<()> {
        match (&self.output, look) {
            // In a stream, an error ends the program. On a screen, the user sees the error and may wait.
            (TopOutput::Stream { .. }, Err(problem)) => bail!("{problem}"),
            (_, look) => self.state.update(look),
        }
        self.left -= 1;
        self.show()
    }

    fn show(&mut self) -> Result<()> {
        match (&mut self.output, &self.state.sample) {
            (TopOutput::Screen(screen), _) => screen.draw(&self.state)?,
            (TopOutput::Stream { .. }, None) => {}
            (TopOutput::Stream { json: true }, Some(sample)) => {
                let mut out = io::stdout().lock();
                serde_json::to_writer(&mut out, &sample.json(self.kind))?;
                writeln!(out)?;
            }
            (TopOutput::Stream { json: false }, Some(_)) => {
                let mut frame = Vec::new();
                draw::print(&mut frame, &self.state)?;
                io::stdout().lock().write_all(&frame)?;
            }
        }
        Ok(())
    }
}
