//! What wakes the daemon: signals, the watch interval, a full ring, a change of mounts, a finished bundle, a request, a publisher.

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use anyhow::{Context, Result};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Wake {
    Signal,
    Interval,
    Ring,
    Mounts,
    Evidence,
    Control,
    Publish,
}

impl Wake {
    const ALL: [Self; 7] =
        [Self::Signal, Self::Interval, Self::Ring, Self::Mounts, Self::Evidence, Self::Control, Self::Publish];
}

/// The daemon's epoll set.
pub struct Sources {
    epoll: Epoll,
    signals: SignalFd,
    interval: TimerFd,
    /// Kept open: it is readable (POLLPRI) whenever something is mounted or unmounted (proc_pid_mounts(5)).
    _mountinfo: File,
}

impl Sources {
    /// Blocks the daemon's signals for this thread and those that it starts, and begins to listen.
    ///
    /// # Errors
    ///
    /// When the kernel is out of descriptors.
    pub fn new(interval: Duration) -> Result<Self> {
        let mut wanted = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
            wanted.add(signal);
        }
        wanted.thread_block().context("cannot block signals")?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let mountinfo = File::open("/proc/self/mountinfo").context("cannot open /proc/self/mountinfo")?;
        let sources = Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            signals,
            interval: timer,
            _mountinfo: mountinfo,
        };
        sources.add(sources.signals.as_fd(), Wake::Signal)?;
        sources.add(sources.interval.as_fd(), Wake::Interval)?;
        let change = EpollEvent::new(EpollFlags::EPOLLPRI, Wake::Mounts as u64);
        sources.epoll.add(&sources._mountinfo, change)?;
        sources.set_interval(interval)?;
        Ok(sources)
    }

    /// Listens to another descriptor.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add(&self, descriptor: impl AsFd, wake: Wake) -> Result<()> {
        Ok(self.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, wake as u64))?)
    }

    /// Listens to the ring of a watch; call it for every new watch. The old one leaves the set by being closed.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_ring(&self, descriptor: i32) -> Result<()> {
        // SAFETY: the watch that owns the descriptor is alive in the caller.
        self.add(unsafe { BorrowedFd::borrow_raw(descriptor) }, Wake::Ring)
    }

    /// Changes the watch interval from now on.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_interval(&self, interval: Duration) -> Result<()> {
        let every = Expiration::Interval(TimeSpec::from_duration(interval));
        Ok(self.interval.set(every, TimerSetTimeFlags::empty())?)
    }

    /// Waits until something happens, at most for `limit`. Returns what did in the order of [`Wake`], so that whoever asks for
    /// metrics finds a mount that was there before.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Vec<Wake>> {
        let timeout = match limit {
            None => EpollTimeout::NONE,
            Some(limit) => EpollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(EpollTimeout::MAX),
        };
        let mut events = [EpollEvent::empty(); 8];
        let ready = match self.epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            result => result.context("cannot wait for events")?,
        };
        let happened = |wake: &Wake| events.iter().take(ready).any(|event| event.data() == *wake as u64);
        Ok(Wake::ALL.into_iter().filter(happened).collect())
    }

    /// The next signal that came, if any.
    pub fn signal(&self) -> Option<Signal> {
        let info = self.signals.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }

    /// Whether the interval is over; takes note of it.
    pub fn interval_over(&self) -> bool {
        self.interval.wait().is_ok()
    }
}
