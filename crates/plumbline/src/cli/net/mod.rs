//! `plumbline net`: where the time of what TCP sends goes, connection by connection, without touching the applications.

mod every;
mod owners;
mod print;
mod rows;

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signalfd::SignalFd,
};
use probes::{
    ProbeOptions, ProbeSet, ProbeSupport,
    tcp::{self, ConnectionSelection, Others},
};

use super::{permitted, trace, usage_error};
use crate::view::{clock::Clock, screen::Screen, table::Wide};
use every::EverySend;
use owners::SocketOwners;
use rows::{NetMeter, NetRow};

/// How often the table of mounts is updated.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);
/// The size of the ring for --every-send, bytes: 87 000 stages.
const RING_BYTES: u32 = 4 << 20;

/// Show where TCP's sends lose time, connection by connection
///
/// A send is a call to sendmsg() and its like. Its time is split: call (until all of it is in the socket's queue), queue (until
/// TCP gives it to the queueing discipline: the peer's window, the congestion window, pacing), scheduler (until the driver has
/// it), network (until the peer has acknowledged it). Only the last byte of a call is stamped: a call of many segments has the
/// times of its last one, and the delays of those before it are part of the wait of the last.
///
/// Without a choice, the connections with the servers of SMB, NFS and Ceph mounts are shown; --port, --address, --sample and
/// --cgroup choose others, existing ones included, in every network namespace. Plumbline runs no code for other connections.
#[derive(clap::Args)]
pub struct NetArguments {
    /// Connections with this port at either end
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Connections with this peer
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// A sample of all connections, of this size in percent
    #[arg(long, value_name = "PERCENT")]
    sample: Option<f64>,
    /// Connections of this cgroup and those below it: its folder in cgroup2
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// What each row stands for
    #[arg(long, value_enum, default_value_t = NetRowsBy::Flow)]
    by: NetRowsBy,
    /// The order of rows
    #[arg(long, value_enum, default_value_t = NetSort::Load)]
    sort: NetSort,
    /// Length of an interval, seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
    /// Stop after this many intervals
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// One JSON object a line, for each row
    #[arg(long)]
    json: bool,
    /// Time also when calls begin and when data is read, or each round trip where the kernel has no timestamping; costs every send
    /// and read of the host 0.1 to 0.2 us while it runs
    #[arg(long)]
    full: bool,
    /// A line for every send, and at the end how the times of each stage are distributed
    #[arg(long, conflicts_with = "by")]
    every_send: bool,
    #[command(flatten)]
    wide: Wide,
    /// Clear the timestamping flags that a killed process has left on sockets, and end
    #[arg(long, exclusive = true)]
    clear: bool,
}

/// What has a row.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NetRowsBy {
    /// Each connection
    Flow,
    /// Each peer: its address and port
    Server,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NetSort {
    /// What sent and received most
    Load,
    /// By peer
    Peer,
}

impl NetSort {
    /// Rows come by peer.
    fn sort(self, rows: &mut [NetRow]) {
        if self == Self::Load {
            rows.sort_by_key(|row| std::cmp::Reverse(row.bytes.max(row.bytes_acked) + row.bytes_received));
        }
    }
}

pub fn run(arguments: &NetArguments) -> Result<ExitCode> {
    if !(0.01..=86_400.0).contains(&arguments.interval) {
        return Ok(usage_error("--interval takes seconds from 0.01 to 86400"));
    }
    if arguments.sample.is_some_and(|percent| !(0.0..=100.0).contains(&percent)) {
        return Ok(usage_error("--sample takes a percentage from 0 to 100"));
    }
    permitted()?;
    let stop = trace::stop_signals()?;
    let mut watch = start(arguments)?;
    if arguments.clear {
        let cleared = watch.clear_stamps().context("cannot walk the sockets")?;
        println!("{cleared} {} stamped; none is now", if cleared == 1 { "socket was" } else { "sockets were" });
        return Ok(ExitCode::SUCCESS);
    }
    let cgroup = arguments.cgroup.as_ref().map(|path| absolute(path)).transpose()?;
    let chosen =
        arguments.port.is_some() || arguments.address.is_some() || arguments.sample.is_some() || cgroup.is_some();
    let share = arguments.sample.map(|percent| (percent / 100.0 * 65_536.0).round() as u32);
    let others = Others { port: arguments.port.unwrap_or(0), address: arguments.address, share };
    watch
        .select(&ConnectionSelection {
            mounts: !chosen,
            others: chosen.then_some(others),
            cgroup,
            every_send: arguments.every_send,
            full: arguments.full,
        })
        .context("cannot choose connections")?;
    if arguments.every_send {
        every_send(arguments, &mut watch, &stop)?;
    } else {
        follow(arguments, &mut watch, &stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The absolute path of a cgroup's folder. Refuses a path that leads to a mount that may hang.
fn absolute(path: &std::path::Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).context("--cgroup")?;
    crate::watched::check(&path, &crate::watched::never_touched())
        .map_err(|watched| anyhow::anyhow!("--cgroup: {watched}"))?;
    Ok(path)
}

fn start(arguments: &NetArguments) -> Result<ProbeSet> {
    let options = ProbeOptions {
        protocols: vec![&tcp::PROTOCOL],
        ring_bytes: if arguments.every_send { RING_BYTES } else { 1 << 16 },
        recorder_records: 64,
        usage_keys: 0,
        on_demand: vec![],
        yield_idle_modules: false,
    };
    let watch = ProbeSet::start(&options).context("cannot create BPF maps")?;
    for probe in watch.state() {
        let fix = if probe.fix.is_empty() { String::new() } else { format!("; fix: {}", probe.fix) };
        if probe.state == ProbeSupport::Unavailable {
            bail!("connections cannot be looked at here: {}{fix}", probe.reason);
        }
        if !probe.reason.is_empty() && !arguments.clear {
            eprintln!("plumbline: {}{fix}", probe.reason);
        }
        if arguments.every_send && !probe.via.contains(&tcp::TIMESTAMPS) {
            bail!(
                "--every-send takes BPF timestamping, which came with Linux 6.14; without it, the table shows what there is"
            );
        }
    }
    Ok(watch)
}

fn follow(arguments: &NetArguments, watch: &mut ProbeSet, stop: &SignalFd) -> Result<()> {
    let (mut out, mut screen, mut owners) = (BufWriter::new(io::stdout()), Screen::new(), SocketOwners::default());
    let mut meter = NetMeter::new(arguments.by);
    meter.read(watch)?;
    let explanation = if arguments.json { "" } else { print::explain(arguments.full) };
    if !screen.is_in_place() {
        eprint!("{explanation}");
    }
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut began = Instant::now();
    while left > 0 {
        let stopped = wait(watch, stop, began + Duration::from_secs_f64(arguments.interval), |_| Ok(()))?;
        let now = Instant::now();
        let mut rows = meter.read(watch)?;
        arguments.sort.sort(&mut rows);
        let (clock, at) = (Clock::now(), crate::daemon::nanos(probes::monotonic()));
        if arguments.json {
            print::print_json(&mut out, &rows, &clock.iso(at), now.duration_since(began).as_secs_f64())?;
        } else {
            let mut text = Vec::new();
            writeln!(text, "{}", clock.time_of_day(at))?;
            print::print(&mut text, &rows, now.duration_since(began).as_secs_f64(), arguments, &mut owners)?;
            if screen.is_in_place() {
                text.extend_from_slice(explanation.as_bytes());
            }
            screen.draw(&text)?;
        }
        out.flush()?;
        (began, left) = (now, left - 1);
        if stopped {
            break;
        }
    }
    Ok(())
}

fn every_send(arguments: &NetArguments, watch: &mut ProbeSet, stop: &SignalFd) -> Result<()> {
    let mut out = BufWriter::new(io::stdout());
    let mut sends = EverySend::new(arguments.json, arguments.wide.room());
    sends.match_sockets(watch)?;
    sends.heading(&mut out)?;
    let until = arguments.count.map(|count| Duration::from_secs_f64(arguments.interval * count as f64));
    let until = Instant::now() + until.unwrap_or(Duration::from_secs(1_000_000_000));
    wait(watch, stop, until, |watch| sends.drain(watch, &mut out))?;
    // Prints the stages that are still in the ring, then the sends that were not acknowledged.
    sends.drain(watch, &mut out)?;
    sends.finish(watch, &mut out)
}

/// Waits until a time or a signal; returns true for a signal. `each` drains the ring.
fn wait(
    watch: &mut ProbeSet,
    stop: &SignalFd,
    until: Instant,
    mut each: impl FnMut(&mut ProbeSet) -> Result<()>,
) -> Result<bool> {
    let mountinfo = File::open(probes::mounts::mountinfo())?;
    let mut maintain_at = Instant::now() + MAINTAIN_EVERY;
    loop {
        let now = Instant::now();
        let left = until.saturating_duration_since(now);
        if left.is_zero() {
            return Ok(false);
        }
        if now >= maintain_at {
            watch.maintain();
            maintain_at = now + MAINTAIN_EVERY;
        }
        // Rounded up, so that poll(2) is not called repeatedly in the last part of a millisecond.
        let timeout = left.min(maintain_at.saturating_duration_since(now)) + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        // SAFETY: the ring's epoll descriptor lives as long as `watch`, which is not dropped here.
        let ring = unsafe { BorrowedFd::borrow_raw(watch.ring_fd()) };
        let mut wanted = [
            PollFd::new(ring, PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(mountinfo.as_fd(), PollFlags::POLLPRI),
        ];
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if wanted.last().is_some_and(|poll| poll.revents().is_some_and(|seen| !seen.is_empty())) {
            maintain_at = now;
        }
        each(watch)?;
        if stop.read_signal()?.is_some() {
            return Ok(true);
        }
    }
}
