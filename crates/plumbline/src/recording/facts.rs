//! The content of a recording: its header, and the kernel's answers in every interval.

use std::collections::BTreeMap;

use model::{
    Caller, Detail, Event, Flags, Histogram, Losses, Mount, MountKey, Nanos, Network, Operation, Phases, PodNames,
    Progress, Requester, SendTiming, sparse, text::printable,
};
use probes::Slice;
use serde::{Deserialize, Serialize};

use crate::who::Cgroup;

/// The header of a recording.
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
    /// Identifies the run of a recorder: all segments of one run have the same value, and no others do.
    pub run: String,
    /// The command that was started for the recording; empty if there was none.
    pub command: Vec<String>,
    /// The interval, milliseconds.
    pub interval_ms: f64,
    /// The number of CPUs; the flight recorder has a part for each.
    pub cpus: u32,
    /// The number of records in each part.
    pub records_per_cpu: u32,
    /// The probes that were wanted.
    pub probes: Vec<String>,
    /// The meaning of the numbers in records: by the number of a probe, its protocol and the names of its operations, in the order of their codes.
    pub numbers: BTreeMap<u8, (String, Vec<String>)>,
}

/// One interval of a recording.
#[derive(Debug, Clone, Default)]
pub struct RecordedInterval {
    /// All answers except the operations that ended.
    pub facts: IntervalFacts,
    /// The operations that ended: `struct record` of bpf/event.h, 64 bytes each, in this machine's byte order.
    pub slices: Vec<Slice>,
    /// Whether a segment of the daemon's directory begins with this interval; if so, the interval repeats everything that is known.
    pub begins_segment: bool,
}

/// The kernel's answers in an interval, except the operations that ended. An empty field was not asked for, or has not changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntervalFacts {
    /// The beginning of the interval, CLOCK_MONOTONIC.
    pub began: Nanos,
    /// The end of the interval.
    pub at: Nanos,
    /// Whether the recorder's own detection ended with this interval: its daemon was stopped, or got another configuration.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// The wall clock at the end of the interval less `at`, nanoseconds: the time since 1970 at which CLOCK_MONOTONIC was zero.
    pub boot: i64,
    /// Events of operations that exceeded their threshold, and of failures that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<RecordedEvent>,
    /// The number of events that were left out because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub events_left_out: u64,
    /// Operations in flight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<RecordedEvent>,
    /// Counts of all operations that finished.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishedFacts>,
    /// Mounts that are new in the recording or have changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountFacts>,
    /// Processes that records name only by process id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<Requester>,
    /// Cgroups that events name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupFacts>,
    /// All losses since the probes were loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// Which operations became events, if that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportSettings>,
    /// The number of operations that the flight recorder overwrote before they were read.
    #[serde(skip_serializing_if = "is_zero")]
    pub records_lost: u64,
    /// The number of intervals that were not written because the disk was too slow.
    #[serde(skip_serializing_if = "is_zero")]
    pub intervals_lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The longest duration of an event that is read, nanoseconds, and the most bytes: verdicts add up many of them. 2^50 ns are 13 days.
const MOST: u64 = 1 << 50;

/// The form of an [`Event`] in a recording, with its operation and caller by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedEvent {
    /// Such as `smb:SMB2_WRITE`.
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
    /// The details that only operations of this protocol have: `{"smb": {"session": ...}}`.
    pub detail: Detail,
    /// The system call's name, or `page fault` or `kernel`; empty if unknown.
    pub caller: String,
    pub flags: Flags,
    pub weight: u32,
}

const PAGE_FAULT: &str = "page fault";
const KERNEL: &str = "kernel";

impl RecordedEvent {
    /// Converts an event for a recording.
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

    /// Converts it back to an event; `None` if this program has no such operation.
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

/// The name of an operation in a recording, such as `smb:SMB2_WRITE`.
pub fn name_of(operation: Operation) -> String {
    format!("{}:{}", operation.protocol().name, operation.name())
}

/// The operation of this name; `None` if this program does not have it.
pub fn operation_named(name: &str) -> Option<Operation> {
    let (protocol, operation) = name.split_once(':')?;
    probes::protocol(protocol)?.operation(operation)
}

/// The operations of one kind that finished on one mount in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FinishedFacts {
    /// Such as `smb:SMB2_WRITE`.
    pub operation: String,
    pub mount: MountKey,
    pub count: u64,
    /// The sum of their durations, nanoseconds.
    pub sum: u64,
    pub bytes: u64,
    pub errors: u64,
    /// Index and count of the non-empty buckets of durations: [`Histogram::buckets`].
    pub latencies: Vec<(usize, u64)>,
    /// Index and count of the non-empty buckets of sizes: [`Histogram::sizes`].
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

    /// Adds these operations to the histogram of earlier ones.
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

/// The mount that a key means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountFacts {
    pub key: MountKey,
    #[serde(flatten)]
    pub mount: Mount,
    /// The superblock's key, if the mount is known.
    pub device: Option<MountKey>,
    /// The keys by which events of the probes name the mount, if it is known.
    pub aliases: Vec<MountKey>,
    /// Since when probes below the system calls have seen operations of the mount; absent if no probe does.
    pub below_since: Option<Nanos>,
}

/// A cgroup, by process id and cgroup id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupFacts {
    pub pid: u32,
    pub id: u64,
    pub path: String,
    /// Kubernetes' names of the container.
    #[serde(flatten)]
    pub names: PodNames,
}

impl CgroupFacts {
    /// Converts a cgroup for a recording.
    pub fn new(pid: u32, id: u64, cgroup: &Cgroup) -> Self {
        Self { pid, id, path: cgroup.path.clone(), names: cgroup.names.clone() }
    }

    /// Converts it back to a cgroup. Makes the names safe to print: a recording may come from anywhere.
    pub fn cgroup(self) -> Cgroup {
        let safe = |name: String| printable(name.as_bytes());
        Cgroup { names: self.names.map(safe), ..Cgroup::at(safe(self.path)) }
    }
}

/// The kernel side's settings: which operations become events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportSettings {
    /// The least duration of events, nanoseconds, by operation, such as `smb:SMB2_WRITE`.
    pub thresholds: BTreeMap<String, u64>,
    /// Operations whose failures are events, except with ordinary error codes.
    pub failures: Vec<String>,
}

/// The meaning of the numbers in records of this program: see [`RecordingHeader::numbers`].
pub fn numbering() -> BTreeMap<u8, (String, Vec<String>)> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    probes::numbers().map(|(id, protocol)| (id, (protocol.name.to_owned(), names(protocol.operations)))).collect()
}
