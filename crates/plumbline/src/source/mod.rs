//! The sources of events: this host's kernel, or a recording. Detection does not know which one it uses.
//!
//! A source works in intervals. Events are drained as they arrive. At the end of an interval, [`EventSource::now`] stands still, and every
//! question about the interval gets the same answer each time. So detection gets the same result from a recording of the answers.

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

/// The questions that find the operations below a system call.
pub trait SeesBelow {
    /// Operations of the `wanted` protocols that have not returned and are at least `age` old, at most `limit` of each.
    fn in_flight(&self, wanted: &dyn Fn(&Protocol) -> bool, age: Duration, limit: usize) -> Vec<Event>;

    /// Whether `key` is one of the keys by which probes name the mount with this device.
    fn means(&self, key: MountKey, device: MountKey) -> bool;

    /// Since when probes have seen the operations below system calls on this mount; `None` if no probe does.
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

/// Everything that detection, verdicts and incidents ask the kernel.
pub trait EventSource: SeesBelow {
    /// Passes on a batch of waiting events. Returns false once none waits; else the caller calls again, after more urgent work.
    fn drain(&mut self, see: &mut dyn FnMut(&Event)) -> bool;

    /// The end of the current interval, CLOCK_MONOTONIC.
    fn now(&self) -> Nanos;

    /// The wall clock at the end of the interval.
    fn clock(&self) -> Clock;

    /// The number of lost events by protocol, since the probes were loaded.
    fn lost_events(&self) -> Vec<(&'static Protocol, u64)>;

    /// Histograms of all operations that finished since the probes were loaded.
    ///
    /// # Errors
    ///
    /// When the kernel's maps cannot be read.
    fn histograms(&self) -> anyhow::Result<Rc<Vec<MountHistogram>>>;

    /// A copy of the flight recorder. If it cannot be read, the copy is empty and the error is logged.
    fn recorder(&self) -> Rc<Recorder>;

    /// The flight recorder's records of operations that ended since `since`, with the names of the requesters.
    fn recorded_since(&self, since: Nanos) -> Vec<Event>;

    /// A sample of the operations that ended since the last call: some hundreds of the newest, and the number of all.
    fn newest(&self) -> (Vec<Event>, u64);

    /// The mount that a key means.
    fn mount(&self, key: MountKey) -> Mount;

    /// The key of the mount's superblock, if it is known.
    fn device(&self, key: MountKey) -> Option<MountKey>;

    /// The cgroup with this id, or of this process if the id is not known; empty if neither is known.
    fn cgroup(&self, pid: u32, id: u64) -> Rc<Cgroup>;

    /// All losses since the probes were loaded, by probe and cause.
    fn losses(&self) -> Losses;

    /// The host of the kernel.
    fn host(&self) -> Host;
}

/// The histogram of one operation on one mount.
pub type MountHistogram = (Operation, MountKey, Histogram);
