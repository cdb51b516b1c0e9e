//! Probes of our own as a source, if no daemon runs.

mod phases;

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use model::{Event, EventLine, MountKey, text::printable};
use probes::{Account, Filter, ProbeOptions, ProbeSet, tcp};

use super::SampleSource;
use crate::{
    config::Config,
    cost::ProcessCost as Used,
    daemon::{nanos, refuse_to_be_blind},
    io::meter::IoMeter,
    top::model::{KnownOrReason, OwnCost, TopConnection, TopOperations, TopSample},
    view::{clock::Clock, event::owned_line},
    who::Cgroup,
};

/// The least duration of operations among the slowest.
const SLOW: Duration = Duration::from_millis(10);
/// The number of slowest operations that are shown, and the most operations in flight of each protocol.
const SLOWEST: usize = 50;
/// Bytes of the ring: some 8 000 slow operations between two turns.
const RING_BYTES: u32 = 4 << 20;
/// Operations that the flight recorder holds: 512 KiB.
const RECORDER_RECORDS: u32 = 8_192;
/// The number of newest operations of an interval from which the parts of the time are computed.
const SAMPLED: usize = 2_048;
/// The most connections that are shown.
const MOST_CONNECTIONS: usize = 1_000;
/// How often the tables of mounts and modules are updated.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);
/// Batches taken from the ring in one turn.
const BATCHES_A_TURN: usize = 16;

/// The attached probes, and their counts at the last look.
pub struct Probed {
    watch: ProbeSet,
    meter: IoMeter,
    slowest: Vec<Event>,
    /// The position in the flight recorder, for each CPU.
    recorded: Vec<u64>,
    /// Segments that each connection had sent again, by the socket's cookie.
    retransmits: HashMap<u64, u32>,
    used: Used,
    /// The run time of all BPF programs, nanoseconds.
    run: u64,
    at: Instant,
    maintained: Instant,
    /// Why connections are not known, if they are not.
    no_connections: Option<String>,
}

impl Probed {
    /// Attaches the probes that the default configuration has.
    ///
    /// # Errors
    ///
    /// When none can run here.
    pub fn start(all_filesystems: bool) -> Result<Self> {
        let told = |errors: Vec<crate::config::ConfigError>| {
            let first = errors.first().map(ToString::to_string).unwrap_or_default();
            anyhow::anyhow!("the compiled-in configuration is damaged: {first}")
        };
        let protocols = Config::compiled_in().map_err(told)?.probes;
        let options = ProbeOptions {
            protocols: protocols.clone(),
            ring_bytes: RING_BYTES,
            recorder_records: RECORDER_RECORDS,
            usage_keys: 0,
            on_demand: vec![],
            yield_idle_modules: false,
        };
        let mut watch = ProbeSet::start(&options).context("cannot create BPF maps")?;
        refuse_to_be_blind(&watch.state())?;
        let selected = watch.select_mounts();
        let operations = protocols.iter().flat_map(|protocol| protocol.all_operations());
        let thresholds = operations.filter(|operation| !operation.only_by_name()).map(|operation| (operation, SLOW));
        watch.set_filter(&Filter {
            thresholds: thresholds.collect(),
            all_filesystems,
            // The ring wakes no thread, since it is drained twice a second.
            wake_bytes: RING_BYTES.into(),
            ..Filter::default()
        })?;
        let meter = IoMeter::start(&watch, Account::Nobody, 0)?;
        let mut recorded = Vec::new();
        watch.newest(&mut recorded, 1).context("cannot read the flight recorder")?;
        let now = Instant::now();
        let mut probed = Self {
            meter,
            recorded,
            slowest: Vec::new(),
            retransmits: HashMap::new(),
            used: Used::of_this_process(),
            run: run_time(&watch),
            at: now,
            maintained: now,
            no_connections: selected.err().map(|error| format!("connections cannot be looked at: {error:#}")),
            watch,
        };
        // Earlier retransmissions do not belong to the first interval.
        let _ = probed.connections();
        Ok(probed)
    }

    fn drain(&mut self) {
        for _ in 0..BATCHES_A_TURN {
            let slowest = &mut self.slowest;
            let taken = self.watch.drain(|event| slowest.push(event));
            keep_slowest(slowest);
            if taken < ProbeSet::BATCH {
                return;
            }
        }
    }

    /// The operations in flight, then those that finished since the last look.
    fn slowest(&mut self) -> Vec<EventLine<'static>> {
        let mut events = self.watch.in_flight(|_| true, SLOW, SLOWEST);
        events.retain(|event| !event.operation.only_by_name());
        events.append(&mut self.slowest);
        keep_slowest(&mut events);
        let clock = Clock::now();
        events
            .iter()
            .map(|event| owned_line(event, &self.watch.mount(event.mount), &Cgroup::default(), &clock))
            .collect()
    }

    fn connections(&mut self) -> KnownOrReason<Vec<TopConnection>> {
        if let Some(why) = &self.no_connections {
            return Err(why.clone());
        }
        let (now, _) = self.watch.flows().map_err(|error| format!("connections cannot be read: {error:#}"))?;
        let before = std::mem::take(&mut self.retransmits);
        self.retransmits = now.iter().map(|one| (one.cookie, one.retransmits)).collect();
        let known = |us: u32| if us == u32::MAX { 0 } else { us };
        let connection = |one: &tcp::TcpInfo| TopConnection {
            local: end(one.ends.local),
            peer: end(one.ends.peer),
            mount: match one.mount {
                MountKey::NONE => String::new(),
                mount => self.watch.mount(mount).label().to_owned(),
            },
            state: tcp::state_name(one.state.into()).unwrap_or("-").to_owned(),
            srtt_us: known(one.srtt_us),
            min_rtt_us: known(one.min_rtt_us),
            // For a new connection, earlier retransmissions do not belong to this interval.
            retransmits: before.get(&one.cookie).map_or(0, |before| one.retransmits.saturating_sub(*before).into()),
            retransmits_total: one.retransmits.into(),
            unacked: one.unacked.into(),
        };
        Ok(now.iter().take(MOST_CONNECTIONS).map(connection).collect())
    }

    fn cost(&mut self, seconds: f64) -> OwnCost {
        let (used, run) = (Used::of_this_process(), run_time(&self.watch));
        let cpu = used.cpu.saturating_sub(self.used.cpu).as_secs_f64() / seconds;
        // The kernel counts the run time only while `kernel.bpf_stats_enabled` is set.
        let kernel = (run > self.run).then(|| (run - self.run) as f64 / 1e9 / seconds);
        (self.used, self.run) = (used, run);
        let mut lost = BTreeMap::new();
        for ((protocol, counters), (_, runs)) in self.watch.counters().into_iter().zip(self.watch.runs()) {
            let causes = counters.losses().into_iter().chain([("runs_missed", runs.missed)]);
            let causes = causes.filter(|(_, count)| *count > 0);
            lost.extend(causes.map(|(cause, count)| ((protocol.name.to_owned(), cause.to_owned()), count)));
        }
        OwnCost { cpu: Some(cpu), resident: Some(used.resident), kernel, lost }
    }

    fn mounts(&self) -> Vec<model::Mount> {
        let remote = self.watch.mounts().iter().filter(|point| point.remote);
        // A mount point may be mounted over.
        let by_label: BTreeMap<_, _> =
            remote.map(|point| (point.mount.label().to_owned(), point.mount.clone())).collect();
        by_label.into_values().collect()
    }
}

impl SampleSource for Probed {
    const KIND: &str = "probes";
    const HAS_TO_END: bool = true;

    fn name(&self) -> String {
        "own probes".to_owned()
    }

    fn look(&mut self) -> Result<TopSample> {
        self.turn();
        let now = Instant::now();
        let seconds = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        let samples = self.meter.read(&self.watch)?;
        let label = |key: MountKey| self.watch.mount(key).label().to_owned();
        let finished = |one: &crate::io::meter::IoSample| TopOperations {
            mount: label(one.mount),
            layer: one.operation.protocol().name.to_owned(),
            operation: one.operation.name().to_owned(),
            amounts: one.amounts.clone(),
        };
        let operations = merged(samples.iter().map(finished));
        let newest = self.watch.newest(&mut self.recorded, SAMPLED);
        let phases = newest.map(|(events, _)| phases::of(&events, &operations, label));
        Ok(TopSample {
            time: Clock::now().iso(nanos(probes::monotonic())),
            seconds,
            mounts: self.mounts(),
            phases: phases.map_err(|error| format!("the flight recorder cannot be read: {error:#}")),
            operations,
            slowest: Ok(self.slowest()),
            incidents: Ok(Vec::new()),
            connections: self.connections(),
            cost: self.cost(seconds),
        })
    }

    fn turn(&mut self) {
        self.drain();
        if self.maintained.elapsed() >= MAINTAIN_EVERY {
            self.watch.maintain();
            self.maintained = Instant::now();
        }
    }
}

/// Merges the operations of one mount, which may have several keys: each probe names it in its own way.
fn merged(all: impl Iterator<Item = TopOperations>) -> Vec<TopOperations> {
    let mut sums: BTreeMap<(String, String, String), TopOperations> = BTreeMap::new();
    for one in all {
        let key = (one.mount.clone(), one.layer.clone(), one.operation.clone());
        match sums.get_mut(&key) {
            Some(sum) => sum.amounts.merge(&one.amounts),
            None => drop(sums.insert(key, one)),
        }
    }
    sums.into_values().collect()
}

fn keep_slowest(events: &mut Vec<Event>) {
    events.sort_by_key(|event| std::cmp::Reverse(event.duration));
    events.truncate(SLOWEST);
}

fn run_time(watch: &ProbeSet) -> u64 {
    watch.runs().iter().map(|(_, runs)| runs.nanoseconds).sum()
}

fn end((address, port): (std::net::IpAddr, u16)) -> String {
    printable(std::net::SocketAddr::new(address, port).to_string().as_bytes())
}
