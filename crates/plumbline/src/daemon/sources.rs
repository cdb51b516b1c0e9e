//! The daemon's epoll set. It wakes for signals, the watch interval, a full ring, a change of mounts, a finished
//! bundle, a request on the control socket, or a publisher.

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

/// Why the daemon woke.
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
    /// Kept open: the file polls as POLLPRI when a file system is mounted or unmounted (proc_pid_mounts(5)).
    _mountinfo: File,
}

impl Sources {
    /// Blocks the daemon's signals for this thread and those that it starts, and listens to signals, interval and
    /// mounts.
    ///
    /// # Errors
    ///
    /// When no file descriptor is left, or mountinfo cannot be opened.
    pub fn new(interval: Duration) -> Result<Self> {
        let mut wanted = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
            wanted.add(signal);
        }
        wanted.thread_block().context("cannot block signals")?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let mountinfo = File::open(probes::mounts::mountinfo()).context("cannot open mountinfo")?;
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

    /// Adds a descriptor; its readability is reported as `wake`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add(&self, descriptor: impl AsFd, wake: Wake) -> Result<()> {
        Ok(self.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, wake as u64))?)
    }

    /// Adds the ring buffer of a probe set; call it for every new probe set. Closing the old ring removes it from the
    /// set.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_ring(&self, descriptor: i32) -> Result<()> {
        // SAFETY: the caller holds the probe set that owns the descriptor.
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

    /// Waits for events, at most for `limit`. Returns them in the order of [`Wake`]: a change of mounts precedes a
    /// request for metrics, so the metrics contain the new mount.
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

    /// The next pending signal, if any.
    pub fn signal(&self) -> Option<Signal> {
        let info = self.signals.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }

    /// Whether the interval is over. Resets the timer's count.
    pub fn interval_over(&self) -> bool {
        self.interval.wait().is_ok()
    }
}
