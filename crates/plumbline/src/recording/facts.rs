//! What a recording says: the header, and of every interval what the kernel's answers were.

use std::collections::BTreeMap;

use model::{
    Caller, Detail, Event, Flags, Histogram, Losses, Mount, MountKey, Nanos, Network, Operation, Phases, PodNames,
    Progress, Requester, SendTiming, sparse, text::printable,
};
use probes::Slice;
use serde::{Deserialize, Serialize};

use crate::who::Cgroup;

/// What a recording is of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingHeader {
    /// The program that made it.
    pub plumbline: String,
    /// The host's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The host's addresses, as in `incident.json`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// When it began, RFC 3339.
    pub started: String,
    /// Identifies the run of a recorder: equal in all segments of one run, and in no others.
    pub run: String,
    /// The command that was started for it; empty if none was.
    pub command: Vec<String>,
    /// How often the recorder looked, milliseconds.
    pub interval_ms: f64,
    /// CPUs that have a part of the flight recorder.
    pub cpus: u32,
    /// Records in the part of each.
    pub records_per_cpu: u32,
    /// The probes that were wanted.
    pub probes: Vec<String>,
    /// What the numbers in records mean: by a probe's number, its protocol and the names of its operations, in the order of their
    /// codes.
    pub numbers: BTreeMap<u8, (String, Vec<String>)>,
}

/// What was in an interval.
#[derive(Debug, Clone, Default)]
pub struct RecordedInterval {
    /// All but the operations.
    pub facts: IntervalFacts,
    /// The operations that ended: `struct record` of bpf/event.h, 64 bytes each, in this machine's byte order.
    pub slices: Vec<Slice>,
    /// Whether a segment of the daemon's directory begins with it: then it says everything that is known.
    pub begins_segment: bool,
}

/// Everything that the kernel's side said in an interval, but for the operations that ended. What is empty was not asked for, or is as
/// it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntervalFacts {
    /// When it began, CLOCK_MONOTONIC.
    pub began: Nanos,
    /// When it ended.
    pub at: Nanos,
    /// Whether the recorder's own detection ended then: its daemon was stopped, or got another configuration.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// What the wall clock said then, less `at`: nanoseconds since 1970 when CLOCK_MONOTONIC was zero.
    pub boot: i64,
    /// Operations over their threshold, and those whose failure was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<RecordedEvent>,
    /// Events that were left out, since there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub events_left_out: u64,
    /// What had not returned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<RecordedEvent>,
    /// Every operation that finished, counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishedFacts>,
    /// Mounts that are new here, or not what they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountFacts>,
    /// Who asked, of processes that records name by number only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<Requester>,
    /// Cgroups that events name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupFacts>,
    /// What was lost, since the probes were loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// What became an event, if that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportSettings>,
    /// Operations that the flight recorder overwrote before they were read.
    #[serde(skip_serializing_if = "is_zero")]
    pub records_lost: u64,
    /// Intervals that were not written, since the disk was too slow for them.
    #[serde(skip_serializing_if = "is_zero")]
    pub intervals_lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The longest time of an event, nanoseconds, and the most bytes: what is judged adds many of them up. 2^50 ns are 13 days.
const MOST: u64 = 1 << 50;

/// An event as a recording has it: [`Event`], its operation and caller by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedEvent {
    /// `smb:SMB2_WRITE`
    pub operation: String,
    pub start: Nanos,
    pub duration: u64,
    pub phases: Phases,
    pub status: u32,
    pub errno: u32,
    pub bytes: u64,
    pub mount: MountKey,
    pub requester: Requester,
    pub connection: u64,
    pub network: Network,
    #[serde(rename = "transit")]
    pub send_timing: Option<SendTiming>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<Progress>>,
    /// What only operations of its protocol have: `{"smb": {"session": ...}}`.
    pub detail: Detail,
    /// The system call's name, `page fault`, `kernel`; empty if unknown.
    pub caller: String,
    pub flags: Flags,
    pub weight: u32,
}

const PAGE_FAULT: &str = "page fault";
const KERNEL: &str = "kernel";

impl RecordedEvent {
    /// The event as a recording has it.
    pub fn new(event: &Event) -> Self {
        Self {
            operation: name_of(event.operation),
            start: event.start,
            duration: event.duration,
            phases: event.phases,
            status: event.status,
            errno: event.errno,
            bytes: event.bytes,
            mount: event.mount,
            requester: event.requester,
            connection: event.connection,
            network: event.network,
            send_timing: event.send_timing,
            progress: event.progress.clone(),
            detail: event.detail.clone(),
            caller: match event.caller {
                Caller::Unknown => String::new(),
                Caller::Call(name) => name.to_owned(),
                Caller::PageFault => PAGE_FAULT.to_owned(),
                Caller::Kernel => KERNEL.to_owned(),
            },
            flags: event.flags,
            weight: event.weight,
        }
    }

    /// The event again; `None` if this program has no such operation.
    pub fn event(&self) -> Option<Event> {
        let Phases { queue, wire, deliver } = self.phases;
        let [duration, queue, wire, deliver] = [self.duration, queue, wire, deliver].map(|time| time.min(MOST));
        Some(Event {
            operation: operation_named(&self.operation)?,
            start: self.start.min(u64::MAX - MOST),
            duration,
            phases: Phases { queue, wire, deliver },
            status: self.status,
            errno: self.errno,
            bytes: self.bytes.min(MOST),
            mount: self.mount,
            requester: self.requester,
            connection: self.connection,
            network: self.network,
            send_timing: self.send_timing,
            progress: self.progress.clone(),
            detail: self.detail.clone(),
            caller: match self.caller.as_str() {
                "" => Caller::Unknown,
                PAGE_FAULT => Caller::PageFault,
                KERNEL => Caller::Kernel,
                name => probes::system_call(name).map_or(Caller::Unknown, Caller::Call),
            },
            flags: self.flags,
            weight: self.weight.max(1),
        })
    }
}

/// `smb:SMB2_WRITE`
pub fn name_of(operation: Operation) -> String {
    format!("{}:{}", operation.protocol().name, operation.name())
}

/// The operation of that name, if this program has it.
pub fn operation_named(name: &str) -> Option<Operation> {
    let (protocol, operation) = name.split_once(':')?;
    probes::protocol(protocol)?.operation(operation)
}

/// What finished of one operation on one mount in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FinishedFacts {
    /// `smb:SMB2_WRITE`
    pub operation: String,
    pub mount: MountKey,
    pub count: u64,
    /// Nanoseconds.
    pub sum: u64,
    pub bytes: u64,
    pub errors: u64,
    /// Index and count of the latencies' buckets that are not empty: [`Histogram::buckets`].
    pub latencies: Vec<(usize, u64)>,
    /// Index and count of the sizes' buckets that are not empty: [`Histogram::sizes`].
    pub sizes: Vec<(usize, u64)>,
}

impl FinishedFacts {
    pub fn new(operation: Operation, mount: MountKey, histogram: &Histogram) -> Self {
        Self {
            operation: name_of(operation),
            mount,
            count: histogram.count,
            sum: histogram.sum,
            bytes: histogram.bytes,
            errors: histogram.errors,
            latencies: sparse(&histogram.buckets),
            sizes: sparse(&histogram.sizes),
        }
    }

    /// Adds what finished to what had finished before.
    pub fn add_to(&self, histogram: &mut Histogram) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut histogram.count, self.count);
        add(&mut histogram.sum, self.sum);
        add(&mut histogram.bytes, self.bytes);
        add(&mut histogram.errors, self.errors);
        for (to, from) in [(&mut histogram.buckets[..], &self.latencies), (&mut histogram.sizes[..], &self.sizes)] {
            for (index, count) in from {
                if let Some(bucket) = to.get_mut(*index) {
                    add(bucket, *count);
                }
            }
        }
    }
}

/// What a key means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountFacts {
    pub key: MountKey,
    #[serde(flatten)]
    pub mount: Mount,
    /// The superblock's key, where the mount is known.
    pub device: Option<MountKey>,
    /// The keys by which the probes' events name it, where the mount is known.
    pub aliases: Vec<MountKey>,
    /// Since when probes below the system calls have seen its operations; absent if none does.
    pub below_since: Option<Nanos>,
}

/// A cgroup by a process's number and the cgroup's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupFacts {
    pub pid: u32,
    pub id: u64,
    pub path: String,
    /// What Kubernetes calls its container.
    #[serde(flatten)]
    pub names: PodNames,
}

impl CgroupFacts {
    /// The cgroup as a recording has it.
    pub fn new(pid: u32, id: u64, cgroup: &Cgroup) -> Self {
        Self { pid, id, path: cgroup.path.clone(), names: cgroup.names.clone() }
    }

    /// The cgroup again. A recording may be anybody's: its names are no safer to print than the kernel's.
    pub fn cgroup(self) -> Cgroup {
        let safe = |name: String| printable(name.as_bytes());
        Cgroup { names: self.names.map(safe), ..Cgroup::at(safe(self.path)) }
    }
}

/// What the kernel side was told to report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportSettings {
    /// `smb:SMB2_WRITE`, and from how many nanoseconds on it is an event.
    pub thresholds: BTreeMap<String, u64>,
    /// Operations whose failures are events, but for ordinary ones.
    pub failures: Vec<String>,
}

/// What the numbers in records mean in this program: see [`RecordingHeader::numbers`].
pub fn numbering() -> BTreeMap<u8, (String, Vec<String>)> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    probes::numbers().map(|(id, protocol)| (id, (protocol.name.to_owned(), names(protocol.operations)))).collect()
}
