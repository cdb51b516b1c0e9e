//! Where events come from: the kernel of this host, or a recording of another one. Detection knows nothing else of either.
//!
//! An interval is the unit. Events are drained as they come; at its end [`EventSource::now`] stands still, and every question
//! about it gets the same answer however often it is asked. So a recording of the answers judges alike.

mod fuse_daemon;
mod kernel;
mod passed_on;
mod recorded;
mod tap;

use std::{rc::Rc, time::Duration};

use model::{Event, Histogram, Host, Losses, Mount, MountKey, Nanos, Operation, Protocol};
use probes::{ProbeSet, Recorder};

use crate::{view::clock::Clock, who::Cgroup};
pub use kernel::{KernelSource, this_host};
pub use recorded::{RecordedSource, ReplayStep, WantedOperations};
pub use tap::Tap;

/// What it takes to find what ran below a system call.
pub trait SeesBelow {
    /// Operations of the `wanted` protocols that have not returned and are at least `age` old, at most `limit` of each.
    fn in_flight(&self, wanted: &dyn Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event>;

    /// Whether `key` means the mount of this device, by whichever probe's way to name it.
    fn means(&self, key: MountKey, device: MountKey) -> bool;

    /// Since when probes have seen the operations below the system calls on this mount; `None` if none does.
    fn sees_below_since(&self, mount: MountKey) -> Option<Nanos>;
}

impl SeesBelow for ProbeSet {
    fn in_flight(&self, wanted: &dyn Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event> {
        Self::in_flight(self, wanted, age, limit)
    }

    fn means(&self, key: MountKey, device: MountKey) -> bool {
        Self::means(self, key, device)
    }

    fn sees_below_since(&self, mount: MountKey) -> Option<Nanos> {
        Self::sees_below_since(self, mount)
    }
}

/// All that detection, verdicts and incidents know of the kernel.
pub trait EventSource: SeesBelow {
    /// Shows what has come since it was last asked. False once nothing waits; else ask again, after what else is urgent.
    fn drain(&mut self, see: &mut dyn FnMut(&Event)) -> bool;

    /// When the interval ended that is looked at, CLOCK_MONOTONIC.
    fn now(&self) -> Nanos;

    /// The wall clock then.
    fn clock(&self) -> Clock;

    /// Events that were lost, by protocol, since the probes were loaded.
    fn lost_events(&self) -> Vec<(&'static Protocol, u64)>;

    /// Every operation that finished, since the probes were loaded.
    ///
    /// # Errors
    ///
    /// When they cannot be read now.
    fn histograms(&self) -> anyhow::Result<Rc<Vec<MountHistogram>>>;

    /// The flight recorder. One that cannot be read is empty; the log says why.
    fn recorder(&self) -> Rc<Recorder>;

    /// What the flight recorder has of operations that ended since then, with the names of those who asked.
    fn recorded_since(&self, since: Nanos) -> Vec<Event>;

    /// A sample of the operations that ended since this was last asked: some hundreds of the newest, and how many ended in all.
    fn newest(&self) -> (Vec<Event>, u64);

    /// What a key means.
    fn mount(&self, key: MountKey) -> Mount;

    /// The superblock's key of the mount that a key means, where that is known.
    fn device(&self, key: MountKey) -> Option<MountKey>;

    /// A process's cgroup: by the cgroup's id, else by the process; empty if neither is known.
    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup>;

    /// What was lost since the probes were loaded, by probe and cause.
    fn losses(&self) -> Losses;

    /// Whose kernel it is.
    fn host(&self) -> Host;
}

/// The operations of one kind on one mount.
pub type MountHistogram = (Operation, MountKey, Histogram);
