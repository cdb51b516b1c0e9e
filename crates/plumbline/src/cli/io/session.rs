//! The attached probes, and their counts so far.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use model::{Event, Mount, MountKey};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{signal::Signal, signalfd::SignalFd},
};
use probes::{Access, Accesses, Account, Filter, Followed, ProbeOptions, ProbeSet, ProbeSupport};

use super::IoArguments;
use crate::{
    cli::mount_point,
    io::{
        layers::{LAYERS, LayerDepth},
        meter::{IoMeter, IoSample},
        owner::{Owner, OwnerNames},
        rows::Dimension,
    },
    who::path::is_unified,
};

/// How often the tables of mounts and modules are updated.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);
/// The size of the ring, bytes. It holds the slow operations for a recording.
const RING_BYTES: u32 = 4 << 20;

pub struct IoSession {
    pub watch: ProbeSet,
    /// The watched layers.
    pub depths: Vec<LayerDepth>,
    /// The selected processes; `None`: all.
    pub followed: Option<Followed>,
    /// The order of accesses to files, if a recording watches system calls.
    accesses: Option<Accesses>,
    meter: IoMeter,
    owners: OwnerNames,
    mounts: HashMap<MountKey, Mount>,
    /// The selected mount point; `None`: all.
    only: Option<String>,
    maintained: Instant,
}

impl IoSession {
    pub fn start(arguments: &IoArguments) -> Result<Self> {
        let wanted = |name: &str| arguments.layers.is_empty() || arguments.layers.iter().any(|layer| layer == name);
        let layers = LAYERS.iter().filter(|(name, _)| wanted(name));
        let protocols: Vec<_> = layers.filter_map(|(name, _)| probes::protocol(name)).collect();
        let account = account(arguments);
        let options = ProbeOptions {
            protocols: protocols.clone(),
            ring_bytes: RING_BYTES,
            recorder_records: 64,
            usage_keys: if account == Account::Nobody { 0 } else { arguments.keys },
            on_demand: vec![],
            yield_idle_modules: false,
        };
        let mut watch = ProbeSet::start(&options).context("cannot create BPF maps")?;
        let slow = Duration::from_secs_f64(arguments.slow_ms / 1e3);
        let operations = protocols.iter().flat_map(|protocol| protocol.all_operations());
        let thresholds = operations.filter(|_| arguments.record.is_some()).map(|operation| (operation, slow)).collect();
        watch.set_filter(&Filter {
            account,
            thresholds,
            all_filesystems: arguments.all_filesystems,
            wake_bytes: u64::from(RING_BYTES / 4),
            ..Filter::default()
        })?;
        let followed = (arguments.pid.is_some() || !arguments.command.is_empty()).then(Followed::start);
        let followed = followed.transpose().context("cannot follow processes from parent to child")?;
        if let (Some(pid), Some(followed)) = (arguments.pid, &followed) {
            followed.follow_family(pid).context("cannot follow the process")?;
        }
        let depths = print_layers(&watch, &arguments.layers)?;
        let accesses = accesses(arguments, &depths, followed.as_ref());
        let meter = IoMeter::start(&watch, account, arguments.keys)?;
        let only = arguments.mount.as_deref().map(mount_point);
        let (owners, mounts, maintained) = (OwnerNames::default(), HashMap::new(), Instant::now());
        Ok(Self { watch, depths, followed, accesses, meter, owners, mounts, only, maintained })
    }

    /// Waits until a time or a signal, and returns the signal. Calls `each` with the slow operations of the selected processes.
    pub fn wait(&mut self, until: Instant, stop: &SignalFd, mut each: impl FnMut(&Event)) -> Result<Option<Signal>> {
        loop {
            let now = Instant::now();
            if now.duration_since(self.maintained) >= MAINTAIN_EVERY {
                for probe in self.watch.maintain() {
                    eprintln!("plumbline: {} is {:?} now {}", probe.probe, probe.state, probe.reason);
                }
                self.mounts.clear();
                self.maintained = now;
            }
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(None);
            }
            // Rounded up, so that poll(2) is not called repeatedly in the last part of a millisecond.
            let timeout = left.min(MAINTAIN_EVERY) + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
            // SAFETY: the ring's epoll descriptor lives as long as `watch`, which is not dropped here.
            let ring = unsafe { BorrowedFd::borrow_raw(self.watch.ring_fd()) };
            let mut wanted = [PollFd::new(stop.as_fd(), PollFlags::POLLIN), PollFd::new(ring, PollFlags::POLLIN)];
            match poll(&mut wanted, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.drain(&mut each);
            if let Some(signal) = stop.read_signal()? {
                return Ok(i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()));
            }
        }
    }

    /// Drains the ring, which also has news of libraries that must be watched at once.
    pub fn drain(&mut self, mut each: impl FnMut(&Event)) {
        let mut followed: Option<HashSet<u32>> = None;
        loop {
            let mut events = Vec::new();
            let taken = self.watch.drain(|event| events.push(event));
            if !events.is_empty() && followed.is_none() {
                followed = self.followed();
            }
            let counts = |pid: &u32| followed.as_ref().is_none_or(|followed| followed.contains(pid));
            for event in events.iter().filter(|event| counts(&event.requester.pid)) {
                if self.mount_that_counts(event.mount).is_some() {
                    each(event);
                }
            }
            if taken < ProbeSet::BATCH {
                return;
            }
        }
    }

    /// The operations since the last interval of the selected processes and mounts.
    pub fn read(&mut self) -> Result<Vec<IoSample>> {
        let mut samples = self.meter.read(&self.watch)?;
        self.owners.learn(&samples);
        if let Some(followed) = self.followed() {
            samples.retain(|sample| followed.contains(&sample.pid));
        }
        let watch = &self.watch;
        for sample in &samples {
            self.mounts.entry(sample.mount).or_insert_with(|| watch.mount(sample.mount));
        }
        if let Some(only) = &self.only {
            samples.retain(|sample| self.mounts.get(&sample.mount).is_some_and(|mount| mount.mountpoint == *only));
        }
        Ok(samples)
    }

    /// The accesses to files so far.
    pub fn accesses(&self) -> Result<Vec<Access>> {
        let mut all = Vec::new();
        if let Some(accesses) = &self.accesses {
            accesses.each(|access| all.push(access)).context("cannot read the recorded file accesses")?;
        }
        Ok(all)
    }

    /// The mount of this key, if it is selected.
    pub fn mount_that_counts(&mut self, key: MountKey) -> Option<&Mount> {
        let mount = self.mounts.entry(key).or_insert_with(|| self.watch.mount(key));
        self.only.as_ref().is_none_or(|only| mount.mountpoint == *only).then_some(&*mount)
    }

    /// The selected processes; `None`: all.
    pub fn followed(&self) -> Option<HashSet<u32>> {
        self.followed.as_ref().map(Followed::all)
    }

    /// The mount and the requester of a sample.
    pub fn names(&mut self, sample: &IoSample) -> (&Mount, &Owner) {
        let mount = self.mounts.entry(sample.mount).or_insert_with(|| self.watch.mount(sample.mount));
        (mount, self.owners.of(sample))
    }

    /// The operations that are missing or have no requester, by cause.
    pub fn losses(&self) -> BTreeMap<String, u64> {
        let mut losses = BTreeMap::new();
        for ((protocol, counters), (_, runs)) in self.watch.counters().into_iter().zip(self.watch.runs()) {
            let causes = [
                ("too many in flight to be timed", counters.lost_inflight),
                ("missed, since the same program was running on that processor", runs.missed),
                ("not counted, since there are too many mounts", counters.lost_histogram),
                ("counted, but how many bytes they moved is not known", counters.bytes_unknown),
                (
                    "counted without a requester, since there are more requesters than --keys allows",
                    counters.other_usage,
                ),
            ];
            let lost = causes.iter().filter(|(_, lost)| *lost > 0);
            losses.extend(lost.map(|(cause, lost)| (format!("{}: {cause}", protocol.name), *lost)));
        }
        if let Some(refused) = self.accesses.as_ref().map(Accesses::refused).filter(|refused| *refused > 0) {
            losses.insert("files: not recorded, since there are more files than --keys allows".to_owned(), refused);
        }
        losses
    }
}

/// The requesters that the kernel side must distinguish: none, cgroups or processes.
fn account(arguments: &IoArguments) -> Account {
    let owners = || arguments.by.iter().filter(|dimension| dimension.is_of_owner());
    let by_process = arguments.pid.is_some()
        || arguments.record.is_some()
        || owners().any(|dimension| *dimension == Dimension::Process);
    match owners().next() {
        _ if by_process => Account::Process,
        None => Account::Nobody,
        // With cgroup v1, jobs are in hierarchies without ids, so only processes tell the job.
        Some(_) if !is_unified() => Account::Process,
        Some(_) => Account::Cgroup,
    }
}

/// Loads the BPF program that records the order of accesses to files. If that fails, the recording continues without it.
fn accesses(arguments: &IoArguments, depths: &[LayerDepth], followed: Option<&Followed>) -> Option<Accesses> {
    if arguments.record.is_none() || !depths.contains(&LayerDepth::SystemCalls) {
        return None;
    }
    let started = Accesses::start(arguments.all_filesystems, followed, arguments.keys);
    started.inspect_err(|error| eprintln!("plumbline: files and the order of accesses are not recorded: {error}")).ok()
}

/// Prints which layers are watched, and why others are not.
fn print_layers(watch: &ProbeSet, asked: &[String]) -> Result<Vec<LayerDepth>> {
    let probes = watch.state();
    for probe in probes.iter().filter(|probe| !probe.reason.is_empty()) {
        let fix = if probe.fix.is_empty() { String::new() } else { format!("; fix: {}", probe.fix) };
        eprintln!("plumbline: {}: {}{fix}", probe.probe, probe.reason);
    }
    let works = |name: &str| {
        probes.iter().any(|probe| probe.probe == name && (probe.state != ProbeSupport::Unavailable || probe.may_come))
    };
    let seen = || LAYERS.iter().filter(|(name, _)| works(name));
    let names: Vec<_> = seen().map(|(name, _)| *name).collect();
    eprintln!("plumbline: looking at: {}", if names.is_empty() { "nothing".into() } else { names.join(", ") });
    if let Some(unseen) = asked.iter().find(|layer| !works(layer)) {
        bail!(
            "the layer {unseen} cannot be seen here; the reason is above, and `plumbline doctor {unseen}` has it, too"
        );
    }
    Ok(seen().map(|(_, depth)| *depth).collect())
}
