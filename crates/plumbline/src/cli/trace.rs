//! `plumbline trace`: operations as they happen, filtered in the kernel.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use diagnose::Below;
use model::{Event, Histogram, Mount, MountKey, Nanos, Operation, Protocol, text::printable};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use probes::{Capability, Filter, Options, State, Watch};

use super::{permitted, usage_error};
use crate::daemon::{self, SETTLED, nanos};
use crate::view::{
    below::{self, CallLine},
    clock::Clock,
    event::{EventLine, errno_name, milliseconds, status_of},
    table::{Column, Table},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// smb, nfs, vfs, syscalls or connections; smbslower and smbiosnoop mean smb, nfsslower and nfsiosnoop nfs, smbvfsslower and
    /// smbvfsiosnoop vfs on cifs
    probe: String,
    /// Only operations at least this slow [default: 10; 0 for connections, the snoop forms and with --errors]
    #[arg(long, value_name = "N")]
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
    /// Below each call, the SMB and NFS operations that it waited for (syscalls)
    #[arg(long, conflicts_with = "csv")]
    children: bool,
    /// One JSON object a line
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values with a header
    #[arg(long)]
    csv: bool,
}

/// Rows between repeated headings on a terminal.
const ROWS_PER_HEADING: u64 = 200;
/// How often mounts and modules are looked after.
const TEND_EVERY: Duration = Duration::from_secs(2);
/// Batches taken from the ring before anything else gets its turn: a full ring, and not for ever while one is flooded.
const BATCHES_A_TURN: usize = 16;
/// Operations that the recorder holds for what ran below calls: 2 MiB.
const RECORDER_RECORDS: u32 = 32_768;
/// More calls are not held back.
const MOST_HELD: usize = 16_384;
/// How long events may take from the decision to report them until they are in the ring.
const SETTLE: Duration = Duration::from_millis(200);

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (protocol, alias) = match probe_named(&arguments.probe) {
        Ok(found) => found,
        Err(message) => return Ok(usage_error(message)),
    };
    let magic = match magic(protocol, arguments.fstype.as_deref().or(alias.fstype)) {
        Ok(magic) => magic,
        Err(message) => return Ok(usage_error(message)),
    };
    let min_ms = arguments.min_ms.unwrap_or(if arguments.errors { 0.0 } else { alias.min_ms });
    let limits = [Some(min_ms), arguments.duration];
    if limits.into_iter().flatten().any(|value| !(0.0..=1e9).contains(&value)) {
        return Ok(usage_error("--min-ms and --duration take numbers from 0 to 1000000000"));
    }
    let operations = match operations_named(protocol, &arguments.op) {
        Ok(operations) => operations,
        Err(message) => return Ok(usage_error(message)),
    };
    if arguments.children && protocol.name != probes::syscalls::PROTOCOL.name {
        return Ok(usage_error(format!("--children is for the syscalls probe, and {} is another", protocol.name)));
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
    let mut printer = Printer::new(arguments, protocol)?;
    follow(&mut watch, &mut printer, &stop, deadline)?;
    settle(&mut watch, &mut printer, filter)?;
    totals(&watch, protocol, mount)?;
    Ok(ExitCode::SUCCESS)
}

/// What a name on the command line means.
#[derive(Clone, Copy)]
struct Alias<'a> {
    probe: &'a str,
    /// The default threshold.
    min_ms: f64,
    /// The type of file system that it is limited to.
    fstype: Option<&'static str>,
}

impl<'a> Alias<'a> {
    const fn of(probe: &'a str, min_ms: f64, fstype: Option<&'static str>) -> Self {
        Self { probe, min_ms, fstype }
    }
}

/// Other names of probes, and the defaults that go with them.
const ALIASES: &[(&str, Alias<'static>)] = &[
    ("smbslower", Alias::of("smb", 10.0, None)),
    ("smbiosnoop", Alias::of("smb", 0.0, None)),
    ("smbvfsslower", Alias::of("vfs", 10.0, Some("cifs"))),
    ("smbvfsiosnoop", Alias::of("vfs", 0.0, Some("cifs"))),
    ("nfsslower", Alias::of("nfs", 10.0, None)),
    ("nfsiosnoop", Alias::of("nfs", 0.0, None)),
    // What happens to a connection is over in a moment.
    ("connections", Alias::of("connections", 0.0, None)),
];
/// Probes of later versions.
const LATER: &[&str] = &["mpiio"];

/// The superblock magic number of a type of file system; 0 for none.
fn magic(protocol: &Protocol, fstype: Option<&str>) -> Result<u32, String> {
    let Some(fstype) = fstype else { return Ok(0) };
    if protocol.name != probes::vfs::PROTOCOL.name {
        return Err(format!("--fstype is for the vfs probe, and {} is another", protocol.name));
    }
    probes::vfs::magic_of(fstype).ok_or_else(|| {
        let known: Vec<_> = probes::vfs::filesystems().collect();
        format!(
            "the type of file system {} is not known; these are: {}",
            printable(fstype.as_bytes()),
            known.join(", ")
        )
    })
}

/// The protocol that a probe's name means, and what else goes with the name.
fn probe_named(name: &str) -> Result<(&'static Protocol, Alias<'_>), String> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let alias = alias.map_or(Alias::of(name, 10.0, None), |(_, alias)| *alias);
    let plain = alias.probe;
    probes::protocol(plain).map(|protocol| (protocol, alias)).ok_or_else(|| {
        let known: Vec<_> = probes::protocols().map(|protocol| protocol.name).collect();
        let known = known.join(", ");
        if LATER.contains(&plain) {
            format!("this version has no {plain} probe yet; it has: {known}")
        } else {
            format!("there is no probe {} in this version; it has: {known}", printable(name.as_bytes()))
        }
    })
}

/// The operations to show: those named, or all.
fn operations_named(protocol: &'static Protocol, names: &[String]) -> Result<Vec<Operation>, String> {
    if names.is_empty() {
        return Ok(protocol.all_operations().collect());
    }
    let find = |name: &String| {
        protocol.operation(name).ok_or_else(|| {
            let known: Vec<_> = protocol.all_operations().map(Operation::name).collect();
            let name = printable(name.as_bytes());
            format!("{} has no operation {name}; it has: {}", protocol.name, known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

fn start(protocol: &'static Protocol, children: bool) -> Result<Watch> {
    let below = [&probes::smb::PROTOCOL, &probes::nfs::PROTOCOL].into_iter().filter(|_| children);
    let options = Options {
        protocols: below.chain([protocol]).collect(),
        ring_bytes: 4 << 20,
        recorder_records: if children { RECORDER_RECORDS } else { 64 },
        pin: None,
        yield_idle_modules: false,
    };
    let watch = Watch::start(&options).context("cannot create BPF maps")?;
    let probes = watch.state();
    let is_below = |probe: &Capability| children && probe.probe != protocol.name;
    let asked: Vec<_> = probes.iter().filter(|probe| !is_below(probe)).collect();
    if let Some(probe) = asked.first()
        && asked.iter().all(|probe| probe.state == State::Unavailable && !probe.may_come)
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

fn no_such_mount(watch: &Watch, path: &OsStr) -> String {
    let remote: Vec<_> = watch.mounts().iter().filter(|m| m.remote).map(|m| m.mount.mountpoint.as_str()).collect();
    let known = if remote.is_empty() { "none".to_owned() } else { remote.join(", ") };
    format!("nothing is mounted at {}; network file systems are mounted at: {known}", printable(path.as_bytes()))
}

/// SIGINT and SIGTERM as a descriptor, so that they interrupt nothing half-done.
fn stop_signals() -> Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn follow(watch: &mut Watch, printer: &mut Printer, stop: &SignalFd, deadline: Option<Instant>) -> Result<()> {
    use std::os::fd::AsFd;
    let (mut tended, mut mounts_changed) = (Instant::now(), false);
    // Readable (POLLPRI) whenever something is mounted or unmounted (proc_pid_mounts(5)).
    let mountinfo = File::open("/proc/self/mountinfo")?;
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
        if mounts_changed || now.duration_since(tended) >= TEND_EVERY {
            for probe in watch.tend() {
                eprintln!("plumbline: {} is {:?} now {}", probe.probe, probe.state, probe.reason);
            }
            printer.forget_mounts();
            tended = now;
        }
        let wait = if printer.held.is_empty() { TEND_EVERY } else { SETTLED };
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
    }
    Ok(())
}

/// Lets no new event through and shows those on their way, so that shown and lost are all that there were.
fn settle(watch: &mut Watch, printer: &mut Printer, filter: Filter) -> Result<()> {
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

fn drain(watch: &mut Watch, printer: &mut Printer) -> io::Result<()> {
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
        if taken < Watch::BATCH {
            break;
        }
    }
    if printer.held.len() > MOST_HELD {
        printer.print_held(watch, u64::MAX)?;
    } else if printer.looked.elapsed() >= SETTLED {
        // Each look copies the recorder.
        printer.print_held(watch, nanos(probes::monotonic().saturating_sub(SETTLED)))?;
    }
    printer.flush()
}

enum Form {
    Table,
    Json,
    Csv,
}

struct Printer {
    form: Form,
    protocol: &'static Protocol,
    out: BufWriter<io::Stdout>,
    clock: Clock,
    mounts: HashMap<MountKey, Mount>,
    rows: u64,
    terminal: bool,
    /// Whether what ran below each call is shown.
    children: bool,
    /// Calls that have just ended: what ran below them may not be in the recorder yet.
    held: VecDeque<Event>,
    /// When it was last looked what ran below them.
    looked: Instant,
}

const REMOTE_COLUMNS: &[Column] = &[
    ("TIME (UTC)", 15),
    ("OPERATION", 20),
    ("MS", -10),
    ("QUEUE", -9),
    ("WIRE", -9),
    ("DELIVER", -9),
    ("BYTES", -9),
    ("STATUS", 24),
    ("PID", -8),
    ("COMM", 16),
    ("MOUNT", 0),
];

const LOCAL_COLUMNS: &[Column] = &[
    ("TIME (UTC)", 15),
    ("OPERATION", 9),
    ("MS", -10),
    ("BYTES", -9),
    ("ERROR", 12),
    ("PID", -8),
    ("COMM", 16),
    ("MOUNT", 24),
    ("FILE", 0),
];

const VFS_COLUMNS: &[Column] = &[
    ("TIME (UTC)", 15),
    ("OPERATION", 15),
    ("MS", -10),
    ("OFFSET", -12),
    ("ASKED", -9),
    ("BYTES", -9),
    ("ERROR", 12),
    ("PID", -8),
    ("COMM", 16),
    ("MOUNT", 24),
    ("FILE", 0),
];

const CONNECTION_COLUMNS: &[Column] =
    &[("TIME (UTC)", 15), ("OPERATION", 20), ("MS", -10), ("STATE", 12), ("PID", -8), ("MOUNT", 24), ("PEER", 0)];

impl Printer {
    fn new(arguments: &Arguments, protocol: &'static Protocol) -> Result<Self> {
        let form = match (arguments.json, arguments.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Table,
        };
        let terminal = io::stdout().is_terminal();
        let mut printer = Self {
            form,
            protocol,
            out: BufWriter::new(io::stdout()),
            clock: Clock::now(),
            mounts: HashMap::new(),
            rows: 0,
            terminal,
            children: arguments.children,
            held: VecDeque::new(),
            looked: Instant::now(),
        };
        printer.heading()?;
        Ok(printer)
    }

    fn columns(&self) -> &'static [Column] {
        if self.of_connections() {
            return CONNECTION_COLUMNS;
        }
        match (self.protocol.remote, self.of_vfs()) {
            (true, _) => REMOTE_COLUMNS,
            (_, true) => VFS_COLUMNS,
            _ => LOCAL_COLUMNS,
        }
    }

    fn of_vfs(&self) -> bool {
        self.protocol.name == probes::vfs::PROTOCOL.name
    }

    fn of_connections(&self) -> bool {
        self.protocol.name == probes::connections::PROTOCOL.name
    }

    fn heading(&mut self) -> io::Result<()> {
        match self.form {
            Form::Table => {
                Table::new(self.columns()).header(&mut self.out)?;
                if self.children {
                    below::heading(&mut self.out)?;
                }
            }
            Form::Csv => csv_header(&mut self.out)?,
            Form::Json => {}
        }
        self.out.flush()
    }

    /// Prints the calls that ended by `settled`, with what ran below them.
    fn print_held(&mut self, watch: &Watch, settled: Nanos) -> io::Result<()> {
        let count = self.held.iter().take_while(|call| call.end() <= settled).count();
        if count == 0 {
            return Ok(());
        }
        self.looked = Instant::now();
        let calls: Vec<_> = self.held.drain(..count).collect();
        let recorder = || watch.recorder().unwrap_or_default();
        let found: HashMap<_, _> = daemon::below(watch, &calls.iter().collect::<Vec<_>>(), recorder)
            .into_iter()
            .map(|(call, below)| ((call.requester.tid, call.start), below))
            .collect();
        calls.iter().try_for_each(|call| self.print(watch, call, found.get(&(call.requester.tid, call.start))))
    }

    fn print(&mut self, watch: &Watch, event: &Event, below: Option<&Below>) -> io::Result<()> {
        // Names of mounts are looked up once between two looks at what is mounted.
        let mount = self.mounts.entry(event.mount).or_insert_with(|| watch.mount(event.mount)).clone();
        match self.form {
            Form::Json => {
                let line = CallLine::new(EventLine::new(event, &mount, &self.clock), event.start, below);
                serde_json::to_writer(&mut self.out, &line)?;
                writeln!(self.out)
            }
            Form::Csv => csv_line(&mut self.out, &EventLine::new(event, &mount, &self.clock)),
            Form::Table => {
                self.row(event, &mount)?;
                below.map_or(Ok(()), |below| below::branches(&mut self.out, event.start, below))
            }
        }
    }

    fn row(&mut self, event: &Event, mount: &Mount) -> io::Result<()> {
        if self.terminal && self.rows > 0 && self.rows.is_multiple_of(ROWS_PER_HEADING) {
            self.heading()?;
        }
        self.rows += 1;
        let ms = |ns: u64| format!("{:.3}", milliseconds(ns));
        let phase = |ns: u64| if event.phases.known() { ms(ns) } else { "-".into() };
        let time = self.clock.time_of_day(event.start);
        let (bytes, pid) = (event.bytes.to_string(), event.requester.pid.to_string());
        let comm = event.requester.comm.to_string();
        let (table, cells) = (Table::new(self.columns()), [time.as_str(), event.operation.name(), &ms(event.duration)]);
        if self.of_connections() {
            let (state, peer) = (
                status_of(event.operation, event.status, event.flags).unwrap_or_else(|| "-".into()),
                event.file.to_string(),
            );
            let rest = [state.as_str(), &pid, mount.label(), &peer];
            table.row(&mut self.out, &[&cells[..], &rest[..]].concat())
        } else if self.protocol.remote {
            let status = status_of(event.operation, event.status, event.flags).unwrap_or_default();
            let (queue, wire, deliver) =
                (phase(event.phases.queue), phase(event.phases.wire), phase(event.phases.deliver));
            let rest =
                [&queue, &wire, &deliver, &bytes, status.trim_start_matches("STATUS_"), &pid, &comm, mount.label()];
            table.row(&mut self.out, &[&cells[..], &rest[..]].concat())
        } else {
            let error = errno_name(event.errno).unwrap_or_else(|| "-".into());
            let file = event.file.to_string();
            let rest = [bytes.as_str(), &error, &pid, &comm, mount.label(), &file];
            let place = [event.offset.to_string(), event.asked.to_string()];
            let place: Vec<_> = place.iter().map(String::as_str).filter(|_| self.of_vfs()).collect();
            table.row(&mut self.out, &[&cells[..], &place[..], &rest[..]].concat())
        }
    }

    fn forget_mounts(&mut self) {
        self.mounts.clear();
        self.clock = Clock::now();
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The names of the columns, also if no line follows.
fn csv_header(out: &mut impl Write) -> io::Result<()> {
    let mut sample = csv::Writer::from_writer(Vec::new());
    sample.serialize(EventLine::default()).map_err(io::Error::other)?;
    let sample = sample.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    out.write_all(sample.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default())
}

fn csv_line(out: &mut impl Write, line: &EventLine<'_>) -> io::Result<()> {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    csv.serialize(line).map_err(io::Error::other)?;
    csv.flush()
}

/// What was seen altogether (on the mount, if it is one), slow or not, and what was lost: to standard error, so that
/// programs are not disturbed.
fn totals(watch: &Watch, protocol: &Protocol, mount: MountKey) -> Result<()> {
    let mut err = io::stderr().lock();
    let mut all: HashMap<Operation, Histogram> = HashMap::new();
    let wanted = |key: &MountKey| mount == MountKey::NONE || mount == *key;
    for (operation, _, histogram) in watch.histograms()?.into_iter().filter(|(_, key, _)| wanted(key)) {
        all.entry(operation).or_default().merge(&histogram);
    }
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_by_key(|(operation, _)| *operation);
    if !rows.is_empty() {
        let table = Table::new(&[
            ("OPERATION", 20),
            ("COUNT", -9),
            ("ERRORS", -7),
            ("MEAN MS", -10),
            ("P50 MS", -10),
            ("P99 MS", -10),
            ("BYTES", -12),
        ]);
        writeln!(err)?;
        table.header(&mut err)?;
        for (operation, histogram) in rows {
            let ms = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| format!("{:.3}", milliseconds(ns)));
            let cells = [
                histogram.count.to_string(),
                histogram.errors.to_string(),
                ms(histogram.sum.checked_div(histogram.count)),
                ms(histogram.quantile(0.5)),
                ms(histogram.quantile(0.99)),
                histogram.bytes.to_string(),
            ];
            let cells: Vec<&str> = std::iter::once(operation.name()).chain(cells.iter().map(String::as_str)).collect();
            table.row(&mut err, &cells)?;
        }
    }
    let (taken, not_understood) = watch.consumed();
    let mut probes: Vec<_> = watch.counters().into_iter().zip(watch.runs()).collect();
    probes.sort_by_key(|((of, _), _)| of.name != protocol.name);
    for ((of, counters), (_, runs)) in probes {
        if of.name == protocol.name {
            let lost: Vec<_> = counters.losses().iter().map(|(cause, lost)| format!("{cause} {lost}")).collect();
            let (shown, lost, missed) = (taken - not_understood, lost.join(", "), runs.missed);
            // No loss, but what somebody waits for: an operation that hangs is in no histogram.
            let unfinished = counters.unfinished();
            writeln!(err, "\n{shown} events shown, lost: {lost}, runs_missed {missed}; unfinished {unfinished}")?;
        } else {
            let untimed = counters.lost_inflight + runs.missed;
            writeln!(err, "{}: {} operations seen, {untimed} missed", of.name, counters.finished)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_same_columns_with_and_without_lines() {
        let (mut header, mut line) = (Vec::new(), Vec::new());
        csv_header(&mut header).unwrap();
        csv_line(&mut line, &EventLine::default()).unwrap();
        let text = String::from_utf8(header.clone()).unwrap();
        assert!(text.starts_with("time,probe,operation,duration_ms,") && text.ends_with(",weight\n"), "{text}");
        let commas = |text: &[u8]| text.iter().filter(|byte| **byte == b',').count();
        assert_eq!(commas(&header), commas(&line));
    }

    #[test]
    fn probes_of_later_versions_are_told_from_slips() {
        let said = |name| probe_named(name).map(|(protocol, _)| protocol.name).unwrap_err();
        assert_eq!(said("mpiio"), "this version has no mpiio probe yet; it has: smb, syscalls, nfs, vfs, connections");
        assert_eq!(said("sbm"), "there is no probe sbm in this version; it has: smb, syscalls, nfs, vfs, connections");
    }

    #[test]
    fn a_name_stands_for_a_probe_its_threshold_and_a_type_of_file_system() {
        let meant =
            |name| probe_named(name).map(|(protocol, alias)| (protocol.name, alias.min_ms, alias.fstype)).unwrap();
        assert_eq!(meant("smbiosnoop"), ("smb", 0.0, None));
        assert_eq!(meant("smbvfsslower"), ("vfs", 10.0, Some("cifs")));
        assert_eq!(meant("nfsslower"), ("nfs", 10.0, None));
        assert_eq!(meant("nfsiosnoop"), ("nfs", 0.0, None));
        assert_eq!(meant("vfs"), ("vfs", 10.0, None));
        assert_eq!(magic(&probes::vfs::PROTOCOL, Some("nfs4")), Ok(0x6969));
        assert!(magic(&probes::vfs::PROTOCOL, Some("nfs5")).unwrap_err().contains("cifs"));
        assert!(magic(&probes::smb::PROTOCOL, Some("cifs")).is_err());
    }
}
