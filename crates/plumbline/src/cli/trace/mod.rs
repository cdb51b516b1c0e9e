//! `plumbline trace`: operations as they happen, filtered in the kernel.

mod columns;
mod idle;
mod names;
mod printer;
mod totals;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use model::{Level, MountKey, Protocol, text::printable};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use probes::{Capability, Filter, ProbeOptions, ProbeSet, ProbeSupport};

use self::{
    idle::Heartbeat,
    names::{magic, only_for, operations_named, probe_named},
    printer::TracePrinter,
    totals::totals,
};
use super::{EXIT_USAGE, permitted, usage_error};
use crate::{config, daemon::nanos, detection::SETTLED, view::table::Wide, watched};

#[derive(clap::Args)]
pub struct TraceArguments {
    /// smb, nfs, vfs, syscalls, connections, mpiio, cephproxy, fuse, ceph, server, tcp or one of your own operations; smbslower and smbiosnoop mean smb, nfsslower and nfsiosnoop nfs, smbvfsslower and
    /// smbvfsiosnoop vfs on cifs
    probe: String,
    /// The configuration that defines your own operations [default: /etc/plumbline/plumbline.yaml where it exists]
    #[arg(long, value_name = "F")]
    config: Option<PathBuf>,
    /// Only operations at least this slow, in milliseconds [default: 10; 0 for connections, the snoop forms and with --errors]
    #[arg(value_name = "MIN_MS")]
    slower_than: Option<f64>,
    /// MIN_MS as an option
    #[arg(long, value_name = "N", conflicts_with = "slower_than")]
    min_ms: Option<f64>,
    /// Only this operation; may be given more than once
    #[arg(long, value_name = "NAME")]
    op: Vec<String>,
    /// Only operations that failed
    #[arg(long)]
    errors: bool,
    /// Only this process
    #[arg(long, value_name = "P")]
    pid: Option<u32>,
    /// Only the mount at this mount point
    #[arg(long, value_name = "M")]
    mount: Option<OsString>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Only file systems of this type, local ones too (vfs)
    #[arg(long, value_name = "T")]
    fstype: Option<String>,
    /// Watch local file systems too (syscalls, vfs)
    #[arg(long, conflicts_with = "fstype")]
    all_filesystems: bool,
    /// Below each call, the SMB, NFS, CephFS and FUSE requests that it waited for (syscalls)
    #[arg(long, conflicts_with = "csv")]
    children: bool,
    /// One JSON object a line
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values with a header
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    wide: Wide,
}

/// How often the tables of mounts and modules are updated.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);
/// The most batches that are read before other work gets its turn: a full ring, but not forever during a flood.
const BATCHES_A_TURN: usize = 16;
/// The most operations that the recorder holds to find the operations below calls: 2 MiB.
const RECORDER_RECORDS: u32 = 32_768;
/// The most calls that are held back.
const MOST_HELD: usize = 16_384;
/// The longest time from the kernel's decision to report an event until the event is in the ring.
const SETTLE: Duration = Duration::from_millis(200);

pub fn run(arguments: &TraceArguments) -> Result<ExitCode> {
    if let Err(errors) = know_own(arguments) {
        errors.iter().for_each(|error| eprintln!("{error}"));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let (protocol, alias) = match probe_named(&arguments.probe) {
        Ok(found) => found,
        Err(message) => return Ok(usage_error(message)),
    };
    let magic = match magic(protocol, arguments.fstype.as_deref().or(alias.fstype)) {
        Ok(magic) => magic,
        Err(message) => return Ok(usage_error(message)),
    };
    let min_ms =
        arguments.min_ms.or(arguments.slower_than).unwrap_or(if arguments.errors { 0.0 } else { alias.min_ms });
    let limits = [Some(min_ms), arguments.duration];
    if limits.into_iter().flatten().any(|value| !(0.0..=1e9).contains(&value)) {
        return Ok(usage_error("MIN_MS, --min-ms and --duration take numbers from 0 to 1000000000"));
    }
    let operations = match operations_named(protocol, &arguments.op) {
        Ok(operations) => operations,
        Err(message) => return Ok(usage_error(message)),
    };
    if arguments.children
        && let Err(message) = only_for("--children", protocol, Level::SystemCall)
    {
        return Ok(usage_error(message));
    }
    permitted()?;
    let mut watch = start(protocol, arguments.children)?;
    let mount = match &arguments.mount {
        None => MountKey::NONE,
        Some(path) => match watch.key_at(protocol, path.as_bytes()) {
            Some(key) => key,
            None => return Ok(usage_error(no_such_mount(&watch, path))),
        },
    };
    let stop = stop_signals()?;
    let filter = Filter {
        thresholds: operations.into_iter().map(|op| (op, Duration::from_secs_f64(min_ms / 1e3))).collect(),
        mount,
        pid: arguments.pid.unwrap_or(0),
        errors_only: arguments.errors,
        all_filesystems: arguments.all_filesystems,
        magic,
        watch_self: false,
        wake_bytes: 0,
        ..Filter::default()
    };
    watch.set_filter(&filter)?;
    let deadline = arguments.duration.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let heartbeat = Heartbeat::begin(&watch, protocol, arguments, min_ms);
    let mut printer = TracePrinter::new(arguments, protocol, heartbeat)?;
    follow(&mut watch, &mut printer, &stop, deadline)?;
    settle(&mut watch, &mut printer, filter)?;
    printer.heartbeat.event();
    totals(&watch, protocol, mount, &left_out(arguments, min_ms))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the configuration, if it is needed to resolve the name.
fn know_own(arguments: &TraceArguments) -> Result<(), Vec<String>> {
    if probe_named(&arguments.probe).is_ok() {
        return Ok(());
    }
    let Some(file) = arguments.config.clone().or_else(config::installed) else { return Ok(()) };
    let never_touch = watched::never_touched();
    let config = config::read(Some(&file), &never_touch);
    let config = config.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    probes::own::enter(&config.operations).map_err(|full| vec![full])
}

/// Why operations are not shown, for the totals.
fn left_out(arguments: &TraceArguments, min_ms: f64) -> String {
    let chosen = !arguments.op.is_empty() || arguments.pid.is_some();
    match (chosen, arguments.errors, min_ms > 0.0) {
        (false, true, false) => "that did not fail".to_owned(),
        (false, false, true) => format!("faster than {min_ms} ms"),
        _ => "that were not asked for".to_owned(),
    }
}

fn start(protocol: &'static Protocol, children: bool) -> Result<ProbeSet> {
    let below = [Level::Daemon, Level::Request].into_iter().flat_map(probes::at).filter(|_| children);
    // A slow request includes the times of its own sends.
    let stamped = probes::at(Level::Transport).find(|_| protocol.level == Level::Request);
    let options = ProbeOptions {
        protocols: below.chain([protocol]).chain(stamped).collect(),
        ring_bytes: 4 << 20,
        recorder_records: if children { RECORDER_RECORDS } else { 64 },
        usage_keys: 0,
        on_demand: vec![],
        yield_idle_modules: false,
    };
    let mut watch = ProbeSet::start(&options).context("cannot create BPF maps")?;
    match watch.select_mounts().context("cannot time what TCP sends") {
        Err(error) if stamped.is_some() => eprintln!("plumbline: TCP sends are not shown: {error:#}"),
        selected => selected?,
    }
    let mut probes = watch.state();
    probes.retain(|probe| stamped.is_none_or(|stamped| probe.probe != stamped.name));
    let is_below = |probe: &Capability| children && probe.probe != protocol.name;
    let asked: Vec<_> = probes.iter().filter(|probe| !is_below(probe)).collect();
    if let Some(probe) = asked.first()
        && asked.iter().all(|probe| probe.state == ProbeSupport::Unavailable && !probe.may_come)
    {
        let fix = if probe.fix.is_empty() { String::new() } else { format!("; fix: {}", probe.fix) };
        bail!("the {} probe cannot run here: {}{fix}", probe.probe, probe.reason)
    }
    for probe in probes.iter().filter(|probe| !probe.reason.is_empty()) {
        let without = if is_below(probe) { "nothing of it is shown below calls: " } else { "" };
        eprintln!("plumbline: {}: {without}{}", probe.probe, probe.reason);
    }
    Ok(watch)
}

pub fn no_such_mount(watch: &ProbeSet, path: &OsStr) -> String {
    let remote: Vec<_> = watch.mounts().iter().filter(|m| m.remote).map(|m| m.mount.mountpoint.as_str()).collect();
    let known = if remote.is_empty() { "none".to_owned() } else { remote.join(", ") };
    format!("nothing is mounted at {}; network file systems are mounted at: {known}", printable(path.as_bytes()))
}

/// SIGINT and SIGTERM as a descriptor, so that they do not interrupt work.
pub fn stop_signals() -> Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn follow(watch: &mut ProbeSet, printer: &mut TracePrinter, stop: &SignalFd, deadline: Option<Instant>) -> Result<()> {
    use std::os::fd::AsFd;
    let (mut maintained, mut mounts_changed) = (Instant::now(), false);
    // Readable (POLLPRI) whenever something is mounted or unmounted (proc_pid_mounts(5)).
    let mountinfo = File::open(probes::mounts::mountinfo())?;
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
        if mounts_changed || now.duration_since(maintained) >= MAINTAIN_EVERY {
            for probe in watch.maintain() {
                eprintln!("plumbline: {} is {:?} now {}", probe.probe, probe.state, probe.reason);
            }
            printer.forget_mounts();
            maintained = now;
        }
        let wait = if printer.held.is_empty() { MAINTAIN_EVERY } else { SETTLED };
        let wait = deadline.map_or(wait, |deadline| deadline.duration_since(now).min(wait));
        // SAFETY: the ring's epoll descriptor lives as long as `watch`, which outlives this borrow.
        let ring = unsafe { BorrowedFd::borrow_raw(watch.ring_fd()) };
        let mut wanted = [
            PollFd::new(ring, PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(mountinfo.as_fd(), PollFlags::POLLPRI),
        ];
        let timeout = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let stopped = stop.read_signal()?.is_some();
        mounts_changed = wanted.last().is_some_and(|poll| poll.revents().is_some_and(|seen| !seen.is_empty()));
        drain(watch, printer)?;
        if stopped {
            break;
        }
        printer.heartbeat.beat(watch);
    }
    Ok(())
}

/// Stops new events and shows those that are under way, so that the numbers of shown and lost events are complete.
fn settle(watch: &mut ProbeSet, printer: &mut TracePrinter, filter: Filter) -> Result<()> {
    watch.set_filter(&Filter { thresholds: Vec::new(), ..filter })?;
    let give_up = Instant::now() + SETTLE;
    loop {
        drain(watch, printer)?;
        let sent: u64 =
            watch.counters().iter().map(|(_, counters)| counters.produced.saturating_sub(counters.lost_ring)).sum();
        if watch.consumed().0 >= sent || Instant::now() >= give_up {
            std::thread::sleep(if printer.held.is_empty() { Duration::ZERO } else { SETTLED });
            printer.print_held(watch, u64::MAX)?;
            return printer.flush().map_err(Into::into);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn drain(watch: &mut ProbeSet, printer: &mut TracePrinter) -> io::Result<()> {
    let mut events = Vec::new();
    for _ in 0..BATCHES_A_TURN {
        let taken = watch.drain(|event| events.push(event));
        for event in events.drain(..) {
            if printer.children {
                printer.held.push_back(event);
            } else {
                printer.print(watch, &event, None)?;
            }
        }
        if taken < ProbeSet::BATCH {
            break;
        }
    }
    if printer.held.len() > MOST_HELD {
        printer.print_held(watch, u64::MAX)?;
    } else if printer.looked.elapsed() >= SETTLED {
        // Each such look copies the recorder.
        printer.print_held(watch, nanos(probes::monotonic().saturating_sub(SETTLED)))?;
    }
    printer.flush()
}
