//! Attaches the probes for the followed processes, and shows their operations.

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    process::{Child, ExitStatus},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use diagnose::{OperationTree, TreeAssembler};
use model::{Event, Level, Mount, MountKey, Nanos, Protocol};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{signal::Signal, signalfd::SignalFd},
};
use probes::{Filter, ProbeOptions, ProbeSet, ProbeSupport};

use super::{FollowArguments, is_followed, sinks::Sinks};
use crate::{
    cli::{child, trace},
    config::Otlp,
    detection::SETTLED,
    follow::{FollowedProcesses, NameSource},
    view::clock::{Clock, nanos},
    who::{Cgroup, Cgroups},
};

/// How often mounts, modules and the processes of a job are looked up again.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);
/// The most batches that are read from the ring before other work gets its turn.
const BATCHES_A_TURN: usize = 32;
/// The size of the ring, bytes: some 35 000 operations. The operations of a tenth of a second must fit.
const RING_BYTES: u32 = 16 << 20;
/// The most operations that wait for the end of the operation above them; each takes some 500 bytes.
pub const MOST_HELD: usize = 65_536;
/// The most operations in flight of one probe that are read.
const MOST_OPEN: usize = 16_384;

/// The attached probes, and the operations that are joined to trees.
pub struct FollowSession<'a> {
    arguments: &'a FollowArguments,
    watch: ProbeSet,
    processes: FollowedProcesses,
    filter: Filter,
    trees: TreeAssembler,
    /// When operations in flight were last read, and the result.
    asked: (Instant, Nanos, Vec<Event>),
    sinks: Sinks,
    cgroups: RefCell<Cgroups>,
    maintained: Instant,
}

/// The source of names on this host.
struct LiveNames<'a> {
    watch: &'a ProbeSet,
    cgroups: &'a RefCell<Cgroups>,
}

impl NameSource for LiveNames<'_> {
    fn mount(&self, key: MountKey) -> Mount {
        self.watch.mount(key)
    }

    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup> {
        self.cgroups.borrow_mut().of(pid, id)
    }
}

impl<'a> FollowSession<'a> {
    /// Attaches all probes that see operations of processes.
    ///
    /// # Errors
    ///
    /// When no probe can run here, or an output cannot be created.
    pub fn start(arguments: &'a FollowArguments, processes: FollowedProcesses, otlp: Option<&Otlp>) -> Result<Self> {
        // Requests contain TCP's time stamps, so its probe is needed, too.
        let sees = |protocol: &&'static Protocol| is_followed(protocol.level) || protocol.level == Level::Transport;
        let options = ProbeOptions {
            protocols: probes::protocols().filter(sees).collect(),
            ring_bytes: RING_BYTES,
            recorder_records: 64,
            usage_keys: 0,
            on_demand: vec![],
            yield_idle_modules: false,
        };
        let mut watch = ProbeSet::of_followed(&options, processes.kernel_side()).context("cannot create BPF maps")?;
        if let Err(error) = watch.select_mounts() {
            eprintln!("plumbline: TCP sends are not shown: {error:#}");
        }
        say_what_is_seen(&watch)?;
        let operations = probes::protocols().flat_map(|protocol| protocol.all_operations());
        let followed = operations.filter(|operation| is_followed(operation.level()));
        let filter = Filter {
            thresholds: followed.map(|operation| (operation, Duration::ZERO)).collect(),
            all_filesystems: arguments.all_filesystems,
            wake_bytes: u64::from(RING_BYTES / 4),
            ..Filter::default()
        };
        let now = Instant::now();
        let mut session = Self {
            arguments,
            watch,
            processes,
            filter,
            trees: TreeAssembler::new(MOST_HELD),
            asked: (now, 0, Vec::new()),
            sinks: Sinks::new(arguments, otlp)?,
            cgroups: RefCell::default(),
            maintained: now,
        };
        session.watch.set_filter(&session.filter)?;
        Ok(session)
    }

    /// The error message if the mount that was asked for does not exist.
    pub fn no_such_mount(&self) -> Option<String> {
        let path: &OsStr = self.arguments.mount.as_deref()?;
        self.watch.mounts().at(path.as_bytes()).is_none().then(|| trace::no_such_mount(&self.watch, path))
    }

    /// Shows trees until the time is over, all processes have ended, or a signal arrives. Returns the status of the command, if it has ended.
    ///
    /// # Errors
    ///
    /// When the command cannot be started, or an output cannot be written.
    pub fn follow(&mut self, stop: &SignalFd) -> Result<Option<ExitStatus>> {
        let began = Instant::now();
        let mut command = self.processes.start_command(&self.arguments.command)?;
        // Readable (POLLPRI) whenever something is mounted or unmounted (proc_pid_mounts(5)).
        let mountinfo = File::open(probes::mounts::mountinfo())?;
        let end = self.arguments.duration.map(|seconds| began + Duration::from_secs_f64(seconds));
        loop {
            let (signal, mounts_changed) = self.wait(stop, &mountinfo)?;
            self.drain();
            let status = command.as_mut().map(Child::try_wait).transpose()?.flatten();
            let stopped = signal.is_some_and(|signal| child::passed_on(signal, command.as_ref()));
            let is_late = end.is_some_and(|end| Instant::now() >= end);
            if self.asked.0.elapsed() >= SETTLED {
                self.show_whole()?;
            }
            let mut are_gone = false;
            if mounts_changed || self.maintained.elapsed() >= MAINTAIN_EVERY {
                self.maintain()?;
                are_gone = command.is_none() && self.processes.are_gone();
            }
            if status.is_some() || stopped || is_late || are_gone {
                return Ok(status);
            }
        }
    }

    /// Waits until the next trees are due or an event occurs. Returns the signal, if there was one, and whether mounts have changed.
    fn wait(&self, stop: &SignalFd, mountinfo: &File) -> Result<(Option<Signal>, bool)> {
        // SAFETY: the ring's epoll descriptor lives as long as `watch`, which outlives this borrow.
        let ring = unsafe { BorrowedFd::borrow_raw(self.watch.ring_fd()) };
        let mut wanted = [
            PollFd::new(ring, PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(mountinfo.as_fd(), PollFlags::POLLPRI),
        ];
        let left = SETTLED.saturating_sub(self.asked.0.elapsed()) + Duration::from_millis(1);
        match poll(&mut wanted, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mounts_changed = wanted.last().is_some_and(|poll| poll.revents().is_some_and(|seen| !seen.is_empty()));
        let signal = stop.read_signal()?.and_then(|signal| i32::try_from(signal.ssi_signo).ok()?.try_into().ok());
        Ok((signal, mounts_changed))
    }

    fn drain(&mut self) {
        let Self { watch, trees, .. } = self;
        for _ in 0..BATCHES_A_TURN {
            if watch.drain(|event| trees.add(event)) < ProbeSet::BATCH {
                break;
            }
        }
    }

    /// Shows the trees that were complete when operations in flight were last read: all operations that had ended by then have arrived since.
    fn show_whole(&mut self) -> Result<()> {
        let Self { watch, trees, asked, .. } = self;
        let whole = trees.whole(asked.1, &asked.2, &|key, device| watch.means(key, device));
        self.show(&whole)?;
        let now = nanos(probes::monotonic());
        let open = if self.trees.is_waiting() { self.in_flight(|level| level < Level::Proxy) } else { Vec::new() };
        self.asked = (Instant::now(), now, open);
        Ok(())
    }

    /// The operations in flight of the followed processes.
    fn in_flight(&self, wanted: impl Fn(Level) -> bool) -> Vec<Event> {
        let followed = self.processes.all();
        let mut open = self.watch.in_flight(|protocol| wanted(protocol.level), Duration::ZERO, MOST_OPEN);
        open.retain(|event| followed.contains(&event.requester.pid));
        open
    }

    fn show(&mut self, trees: &[OperationTree]) -> Result<()> {
        self.sinks.show(trees, &LiveNames { watch: &self.watch, cgroups: &self.cgroups })
    }

    fn maintain(&mut self) -> Result<()> {
        self.maintained = Instant::now();
        for probe in self.watch.maintain() {
            eprintln!("plumbline: {} is {:?} now {}", probe.probe, probe.state, probe.reason);
        }
        self.sinks.forget_names(Clock::now());
        self.processes.look_for_job()
    }

    /// Shows the remaining trees and the operations in flight, and reports losses.
    ///
    /// # Errors
    ///
    /// When an output cannot be written.
    pub fn finish(mut self) -> Result<()> {
        let open = self.in_flight(|_| true);
        self.watch.set_filter(&Filter { thresholds: Vec::new(), ..self.filter.clone() })?;
        std::thread::sleep(SETTLED);
        loop {
            let before = self.watch.consumed().0;
            self.drain();
            if self.watch.consumed().0 == before {
                break;
            }
        }
        let given_up = self.trees.given_up();
        let trees = std::mem::replace(&mut self.trees, TreeAssembler::new(0));
        let watch = &self.watch;
        let last = trees.all(open, &|key, device| watch.means(key, device));
        self.show(&last)?;
        self.sinks.finish(&losses(&self.watch), given_up)
    }
}

/// The losses of the trees.
fn losses(watch: &ProbeSet) -> Vec<String> {
    let mut lost = Vec::new();
    for ((protocol, counters), (_, runs)) in watch.counters().into_iter().zip(watch.runs()) {
        let causes = [
            (counters.lost_ring, "while the ring buffer was full"),
            (counters.lost_inflight, "while the table of operations in flight was full"),
            (runs.missed, "because the kernel did not run the probe's program"),
        ];
        let of_probe = causes.into_iter().filter(|(count, _)| *count > 0);
        lost.extend(of_probe.map(|(count, why)| format!("{count} of {} {why}", protocol.name)));
    }
    lost
}

/// Prints which layers are seen here, and why others are not.
fn say_what_is_seen(watch: &ProbeSet) -> Result<()> {
    let state = watch.state();
    // A probe whose module is not loaded yet is attached when the module is used.
    for probe in state.iter().filter(|probe| !probe.reason.is_empty() && !probe.may_come) {
        eprintln!("plumbline: {}: {}", probe.probe, probe.reason);
    }
    if state.iter().all(|probe| probe.state == ProbeSupport::Unavailable && !probe.may_come) {
        bail!("no probe can run here; `plumbline doctor` says what would help");
    }
    let seen = state.iter().filter(|probe| probe.state != ProbeSupport::Unavailable).map(|probe| probe.probe);
    let mut seen: Vec<_> = seen.collect();
    seen.dedup();
    eprintln!("plumbline: following through: {}", if seen.is_empty() { "nothing yet".into() } else { seen.join(", ") });
    Ok(())
}
