//! This host's kernel as a source of events; and, while a recording is made, everything that it answers.

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

/// How many operations [`EventSource::newest`] tells, about.
pub(super) const SAMPLED: usize = 512;

/// Cgroups that are looked up for a batch of events; others are when somebody asks for them.
const NAMED_AT_ONCE: usize = 64;

/// Addresses of this host that an incident names.
const MOST_ADDRESSES: usize = 16;

/// The probes of this host, and what they said in the interval that is looked at.
pub struct KernelSource {
    watch: ProbeSet,
    sample_shift: u32,
    now: Nanos,
    clock: Clock,
    histograms: OnceCell<Rc<Vec<MountHistogram>>>,
    recorder: OnceCell<Rc<Recorder>>,
    losses: OnceCell<Losses>,
    in_flight: RefCell<InFlight>,
    /// How far [`EventSource::newest`] has come, CPU by CPU.
    sampled: RefCell<Vec<u64>>,
    cgroups: RefCell<Cgroups>,
    tap: Option<Tap>,
    passed_on: PassedOn,
    daemon_looks: RefCell<DaemonLooks>,
    /// Events that were taken off the ring and not handed out yet; empty between two calls of [`EventSource::drain`].
    taken: Vec<Event>,
}

/// What has not returned, as far as somebody has asked.
#[derive(Default)]
struct InFlight {
    /// From which age on, and of which protocols.
    asked: Vec<(Duration, &'static Protocol)>,
    events: Vec<Event>,
}

impl KernelSource {
    /// Probes at work.
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

    /// The probes themselves: what is attached, pinned and counted is no matter of detection.
    pub fn watch(&self) -> &ProbeSet {
        &self.watch
    }

    /// The probes, to be changed.
    pub fn watch_mut(&mut self) -> &mut ProbeSet {
        &mut self.watch
    }

    /// Other probes take over. A recording goes on with what these say.
    pub fn replace(&mut self, watch: ProbeSet) -> ProbeSet {
        (self.sample_shift, self.tap, self.sampled) = (0, None, RefCell::default());
        std::mem::replace(&mut self.watch, watch)
    }

    /// One event in 2^`shift` is looked at.
    ///
    /// # Errors
    ///
    /// When the kernel side cannot be told.
    pub fn sample(&mut self, shift: u32) -> Result<()> {
        self.sample_shift = shift;
        Ok(self.watch.sample(shift)?)
    }

    /// The current sampling: one event in 2^this.
    pub fn sample_shift(&self) -> u32 {
        self.sample_shift
    }

    /// Has everything recorded from now on, or nothing any more. Returns the tap that was there.
    pub fn set_tap(&mut self, tap: Option<Tap>) -> Option<Tap> {
        std::mem::replace(&mut self.tap, tap)
    }

    /// What records, if something does.
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref()
    }

    /// Brings the probes up to date with mounts and modules. Returns those that work better or worse than before.
    pub fn maintain(&mut self) -> Vec<Capability> {
        let changed = self.watch.maintain();
        if let Some(tap) = &self.tap {
            tap.mounts_changed(&self.watch);
        }
        changed
    }

    /// Waits until then, or until one of the signals that `stop` takes; `drain` is called whenever something may have come. The signal, if one came.
    ///
    /// # Errors
    ///
    /// When it cannot wait.
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

    /// The interval ends now: what is asked from here on is about it. To be drained before.
    pub fn begin_interval(&mut self) {
        (self.now, self.clock) = (nanos_now(), Clock::now());
        self.forget_answers();
        if let Some(tap) = &mut self.tap {
            tap.begin_interval(&self.watch, self.now, self.clock);
        }
    }

    /// Nothing more is asked about the interval. `ends`: nor about what is open, which is over.
    pub fn end_interval(&mut self, ends: bool) {
        if let Some(mut tap) = self.tap.take() {
            self.complete(&mut tap, ends);
            self.tap = Some(tap);
        }
        self.forget_answers();
    }

    /// Tells the tap what it does not know of the interval yet.
    fn complete(&mut self, tap: &mut Tap, ends: bool) {
        let losses = self.losses();
        if tap.wants_in_flight() {
            // Whatever the rules ask: another configuration may ask for more.
            let _ = self.in_flight(&|_| true, Tap::IN_FLIGHT_AGE, diagnose::KEPT);
        }
        let in_flight = std::mem::take(&mut self.in_flight.get_mut().events);
        let cgroups = &mut |pid, id| self.cgroups.borrow_mut().of(pid, id);
        tap.end_interval(&self.watch, self.histograms().ok().as_deref(), &in_flight, (losses, cgroups), ends);
    }

    /// The flight recorder's copy alone takes 2 MiB.
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
            // What is known already keeps the age that it had.
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
        // Its requests are over: what the daemon does says something of them only while it has others.
        let is_asked = taken.iter().any(DaemonLooks::concerns)
            && !watch.in_flight(|protocol| protocol.level == Level::Daemon, Duration::ZERO, 1).is_empty();
        let now = nanos_now();
        // Whose cgroup is not known yet is looked up at once: a container may be gone when its name is wanted.
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

/// Events that were lost, by protocol.
pub(super) fn lost_events(losses: &Losses) -> Vec<(&'static Protocol, u64)> {
    let named = |name: &str| losses.probes.iter().find(|(probe, _)| probe == name);
    probes::protocols().filter_map(|protocol| Some((protocol, named(protocol.name)?.1.ring_full))).collect()
}

/// Of events, oldest first, those of the `wanted` protocols that are at least `age` old, at most `limit` of each.
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

/// This host, as an incident names it.
pub fn this_host() -> Host {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    Host {
        name: printable(read("hostname").trim().as_bytes()),
        kernel: read("osrelease").trim().to_owned(),
        plumbline: env!("CARGO_PKG_VERSION").to_owned(),
        addresses: addresses(),
    }
}

/// Of this network namespace's interfaces that are up; none of loopback, and none that hold within one link only.
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
