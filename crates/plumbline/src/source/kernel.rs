//! This host's kernel as a source of events. While a recording is made, all its answers are recorded.

use std::{
    cell::{OnceCell, RefCell},
    fs,
    os::fd::{AsFd, BorrowedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Result;
use model::{Event, Host, Level, Losses, Mount, MountKey, Nanos, Protocol, Requester, text::printable};
use nix::{
    errno::Errno,
    ifaddrs::{InterfaceAddress, getifaddrs},
    net::if_::InterfaceFlags,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{signal::Signal, signalfd::SignalFd},
};
use probes::{Capability, ProbeSet, Recorder};

use super::{EventSource, MountHistogram, SeesBelow, Tap, fuse_daemon::DaemonLooks, passed_on::PassedOn};
use crate::{
    view::clock::{Clock, nanos},
    who::{Cgroup, Cgroups},
};

/// How many operations [`EventSource::newest`] returns, roughly.
pub(super) const SAMPLED: usize = 512;

/// The most cgroups that are looked up for a batch of events; further ones are looked up on request.
const NAMED_AT_ONCE: usize = 64;

/// The most addresses of this host in an incident.
const MOST_ADDRESSES: usize = 16;

/// The probes of this host, and their answers about the current interval.
pub struct KernelSource {
    watch: ProbeSet,
    sample_shift: u32,
    now: Nanos,
    clock: Clock,
    histograms: OnceCell<Rc<Vec<MountHistogram>>>,
    recorder: OnceCell<Rc<Recorder>>,
    losses: OnceCell<Losses>,
    in_flight: RefCell<InFlight>,
    /// The position of [`EventSource::newest`] in the flight recorder, for each CPU.
    sampled: RefCell<Vec<u64>>,
    cgroups: RefCell<Cgroups>,
    tap: Option<Tap>,
    passed_on: PassedOn,
    daemon_looks: RefCell<DaemonLooks>,
    /// Events that were read from the ring and not yet passed on; empty between two calls of [`EventSource::drain`].
    taken: Vec<Event>,
}

/// The operations in flight that were asked for in this interval.
#[derive(Default)]
struct InFlight {
    /// The questions asked so far: the least age, and the protocol.
    asked: Vec<(Duration, &'static Protocol)>,
    events: Vec<Event>,
}

impl KernelSource {
    /// A source with these attached probes.
    pub fn new(watch: ProbeSet) -> Self {
        Self {
            watch,
            sample_shift: 0,
            now: nanos_now(),
            clock: Clock::now(),
            histograms: OnceCell::new(),
            recorder: OnceCell::new(),
            losses: OnceCell::new(),
            in_flight: RefCell::default(),
            sampled: RefCell::default(),
            cgroups: RefCell::default(),
            tap: None,
            passed_on: PassedOn::default(),
            daemon_looks: RefCell::default(),
            taken: Vec::new(),
        }
    }

    /// The probes themselves, for work that is no part of detection, such as pinning.
    pub fn watch(&self) -> &ProbeSet {
        &self.watch
    }

    /// The probes, for changes.
    pub fn watch_mut(&mut self) -> &mut ProbeSet {
        &mut self.watch
    }

    /// Replaces the probes and returns the previous ones. Removes the tap, which reads the previous ones.
    pub fn replace(&mut self, watch: ProbeSet) -> ProbeSet {
        (self.sample_shift, self.tap, self.sampled) = (0, None, RefCell::default());
        std::mem::replace(&mut self.watch, watch)
    }

    /// Samples one event in 2^`shift`.
    ///
    /// # Errors
    ///
    /// When the setting cannot be passed to the kernel side.
    pub fn sample(&mut self, shift: u32) -> Result<()> {
        self.sample_shift = shift;
        Ok(self.watch.sample(shift)?)
    }

    /// The exponent of the current sampling: see [`KernelSource::sample`].
    pub fn sample_shift(&self) -> u32 {
        self.sample_shift
    }

    /// Starts recording with this tap; `None` stops it. Returns the previous tap.
    pub fn set_tap(&mut self, tap: Option<Tap>) -> Option<Tap> {
        std::mem::replace(&mut self.tap, tap)
    }

    /// The tap, if a recording is made.
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref()
    }

    /// Adapts the probes to changes of mounts and modules. Returns the probes whose state has changed.
    pub fn maintain(&mut self) -> Vec<Capability> {
        let changed = self.watch.maintain();
        if let Some(tap) = &self.tap {
            tap.mounts_changed(&self.watch);
        }
        changed
    }

    /// Waits until `until` or for a signal in `stop`. Calls `drain` whenever events may have arrived. Returns the signal, if there was one.
    ///
    /// # Errors
    ///
    /// When poll(2) fails, or the signal cannot be read.
    pub fn wait(
        &mut self,
        stop: &SignalFd,
        until: Instant,
        drain: &mut dyn FnMut(&mut Self),
    ) -> Result<Option<Signal>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            // SAFETY: the ring's epoll descriptor lives as long as the watch, which is not dropped here.
            let ring = unsafe { BorrowedFd::borrow_raw(self.watch.ring_fd()) };
            let mut wanted = [PollFd::new(stop.as_fd(), PollFlags::POLLIN), PollFd::new(ring, PollFlags::POLLIN)];
            match poll(&mut wanted, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            drain(self);
            if let Some(signal) = stop.read_signal()? {
                return Ok(i32::try_from(signal.ssi_signo).ok().and_then(|number| number.try_into().ok()));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Ends the time of the interval: further questions are about it. The source must be drained before.
    pub fn begin_interval(&mut self) {
        (self.now, self.clock) = (nanos_now(), Clock::now());
        self.forget_answers();
        if let Some(tap) = &mut self.tap {
            tap.begin_interval(&self.watch, self.now, self.clock);
        }
    }

    /// Ends the questions about the interval. `ends`: open episodes are over, too.
    pub fn end_interval(&mut self, ends: bool) {
        if let Some(mut tap) = self.tap.take() {
            self.complete(&mut tap, ends);
            self.tap = Some(tap);
        }
        self.forget_answers();
    }

    /// Gives the tap the rest of the interval's data.
    fn complete(&mut self, tap: &mut Tap, ends: bool) {
        let losses = self.losses();
        if tap.wants_in_flight() {
            // Independent of the rules: another configuration may ask for more.
            let _ = self.in_flight(&|_| true, Tap::IN_FLIGHT_AGE, diagnose::KEPT);
        }
        let in_flight = std::mem::take(&mut self.in_flight.get_mut().events);
        let cgroups = &mut |pid, id| self.cgroups.borrow_mut().of(pid, id);
        tap.end_interval(&self.watch, self.histograms().ok().as_deref(), &in_flight, (losses, cgroups), ends);
    }

    /// Frees the interval's answers: the copy of the flight recorder takes 2 MiB.
    fn forget_answers(&mut self) {
        let recorder = self.recorder.take();
        (self.histograms, self.losses) = Default::default();
        *self.in_flight.get_mut() = InFlight::default();
        self.daemon_looks.get_mut().interval(self.now);
        if recorder.is_some() {
            drop(recorder);
            crate::daemon::release_free_memory();
        }
    }
}

impl SeesBelow for KernelSource {
    fn in_flight(&self, wanted: &dyn Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event> {
        let mut known = self.in_flight.borrow_mut();
        let covered = |protocol: &Protocol| known.asked.iter().any(|(from, of)| **of == *protocol && *from <= age);
        let missing: Vec<_> = probes::protocols().filter(|of| wanted(of) && !covered(of)).collect();
        if !missing.is_empty() {
            let is_missing = |protocol: &Protocol| missing.iter().any(|of| **of == *protocol);
            let mut found = self.watch.in_flight(is_missing, age, limit);
            found
                .iter_mut()
                .for_each(|event| event.flags.passed_on = self.passed_on.of_mount(event.mount, &self.watch));
            let (mut looks, now) = (self.daemon_looks.borrow_mut(), nanos_now());
            found.iter_mut().for_each(|event| looks.tell(event, now));
            // An operation that is known already keeps its age.
            let is_new = |event: &Event| !known.events.iter().any(|other| other.same_operation(event));
            let new: Vec<_> = found.into_iter().filter(is_new).collect();
            known.events.extend(new);
            known.events.sort_by_key(|event| event.start);
            known.asked.extend(missing.into_iter().map(|protocol| (age, protocol)));
        }
        oldest(&known.events, wanted, age, limit)
    }

    fn means(&self, key: MountKey, device: MountKey) -> bool {
        self.watch.means(key, device)
    }

    fn sees_below_since(&self, mount: MountKey) -> Option<Nanos> {
        self.watch.sees_below_since(mount)
    }
}

impl EventSource for KernelSource {
    fn drain(&mut self, see: &mut dyn FnMut(&Event)) -> bool {
        let Self { watch, tap, passed_on, daemon_looks, taken, cgroups, .. } = self;
        let cgroups = cgroups.get_mut();
        let count = watch.drain(|event| taken.push(event));
        // These requests are over. The state of the daemon is relevant to them only while the daemon has other requests.
        let is_asked = taken.iter().any(DaemonLooks::concerns)
            && !watch.in_flight(|protocol| protocol.level == Level::Daemon, Duration::ZERO, 1).is_empty();
        let now = nanos_now();
        // An unknown cgroup is looked up at once: the container may be gone when its name is needed.
        let mut looked_up = 0;
        for mut event in taken.drain(..) {
            event.flags.passed_on = passed_on.of_event(&event, watch);
            if is_asked {
                daemon_looks.get_mut().tell(&mut event, now);
            }
            see(&event);
            if let Some(tap) = tap {
                tap.event(&event);
            }
            let (pid, id) = (event.requester.pid, event.requester.cgroup);
            if id != 0 && looked_up < NAMED_AT_ONCE && cgroups.known(pid, id).is_none() {
                cgroups.of(pid, id);
                looked_up += 1;
            }
        }
        count == ProbeSet::BATCH
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn lost_events(&self) -> Vec<(&'static Protocol, u64)> {
        match &self.tap {
            Some(_) => lost_events(&self.losses()),
            None => self.watch.lost_events(),
        }
    }

    fn histograms(&self) -> Result<Rc<Vec<MountHistogram>>> {
        if let Some(known) = self.histograms.get() {
            return Ok(Rc::clone(known));
        }
        let read = Rc::new(self.watch.histograms()?);
        Ok(Rc::clone(self.histograms.get_or_init(|| read)))
    }

    fn recorder(&self) -> Rc<Recorder> {
        let read = || match &self.tap {
            Some(tap) => tap.recorder(),
            None => self.watch.recorder().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read the flight recorder");
                Recorder::default()
            }),
        };
        Rc::clone(self.recorder.get_or_init(|| Rc::new(read())))
    }

    fn recorded_since(&self, since: Nanos) -> Vec<Event> {
        let recorder = self.recorder();
        let events = recorder.events_since(since, usize::MAX);
        self.watch.named(events, |who: &Requester| {
            if let Some(tap) = &self.tap {
                tap.requester(who);
            }
        })
    }

    fn newest(&self) -> (Vec<Event>, u64) {
        if let Some(tap) = &self.tap {
            return tap.count().newest(&self.recorder(), self.now);
        }
        let newest = self.watch.newest(&mut self.sampled.borrow_mut(), SAMPLED);
        newest.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the flight recorder");
            Default::default()
        })
    }

    fn mount(&self, key: MountKey) -> Mount {
        let mount = self.watch.mount(key);
        if let Some(tap) = &self.tap {
            tap.mount(&self.watch, key);
        }
        mount
    }

    fn device(&self, key: MountKey) -> Option<MountKey> {
        self.watch.mount_point(key).map(|point| point.device)
    }

    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup> {
        let cgroup = self.cgroups.borrow_mut().of(pid, id);
        if let Some(tap) = &self.tap {
            tap.cgroup(pid, id, &cgroup);
        }
        cgroup
    }

    fn losses(&self) -> Losses {
        self.losses.get_or_init(|| crate::daemon::losses_of(&self.watch, self.sample_shift)).clone()
    }

    fn host(&self) -> Host {
        this_host()
    }
}

/// The number of lost events by protocol.
pub(super) fn lost_events(losses: &Losses) -> Vec<(&'static Protocol, u64)> {
    let named = |name: &str| losses.probes.iter().find(|(probe, _)| probe == name);
    probes::protocols().filter_map(|protocol| Some((protocol, named(protocol.name)?.1.ring_full))).collect()
}

/// The oldest events that are at least `age` old, at most `limit` of each `wanted` protocol. `events` must be sorted by start.
pub(super) fn oldest(events: &[Event], wanted: &dyn Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event> {
    let age = nanos(age);
    let mut seen = std::collections::HashMap::new();
    let asked = events.iter().filter(|event| wanted(event.operation.protocol()) && event.duration >= age);
    let few = asked.filter(|event| {
        let of_protocol: &mut usize = seen.entry(event.operation.protocol().name).or_default();
        *of_protocol += 1;
        *of_protocol <= limit
    });
    few.cloned().collect()
}

fn nanos_now() -> Nanos {
    nanos(probes::monotonic())
}

/// The description of this host for an incident.
pub fn this_host() -> Host {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    Host {
        name: printable(read("hostname").trim().as_bytes()),
        kernel: read("osrelease").trim().to_owned(),
        plumbline: env!("CARGO_PKG_VERSION").to_owned(),
        addresses: addresses(),
    }
}

/// The addresses of this network namespace's interfaces that are up, without loopback and IPv6 link-local ones.
fn addresses() -> Vec<String> {
    let all = getifaddrs().into_iter().flatten();
    let is_up =
        |flags: InterfaceFlags| flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK);
    let address = |one: InterfaceAddress| {
        let (address, mask) = (one.address?, one.netmask?);
        if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            return Some(format!("{}/{}", address.ip(), mask.ip().to_bits().leading_ones()));
        }
        let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
        let wide = !address.ip().is_unicast_link_local();
        wide.then(|| format!("{}/{}", address.ip(), mask.ip().to_bits().leading_ones()))
    };
    all.filter(|one| is_up(one.flags)).filter_map(address).take(MOST_ADDRESSES).collect()
}
