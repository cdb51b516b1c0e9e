//! The data of one look, independent of the source.

use std::collections::BTreeMap;

use model::{EventLine, Histogram, Level, Mount, Operation};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::view::{event::milliseconds, incident};

/// The data of a source, or a sentence that says why it has none.
pub type KnownOrReason<T> = Result<T, String>;

/// The data of a source since the previous look.
#[derive(Debug, Clone)]
pub struct TopSample {
    /// The time of the look, UTC, as RFC 3339.
    pub time: String,
    /// The time since the previous look, seconds.
    pub seconds: f64,
    /// The watched mounts.
    pub mounts: Vec<Mount>,
    /// The finished operations by kind and mount.
    pub operations: Vec<TopOperations>,
    /// The parts of the requests' time, by mount.
    pub phases: KnownOrReason<Vec<PhaseTimes>>,
    /// Operations that are in flight or finished since the previous look, slowest first.
    pub slowest: KnownOrReason<Vec<EventLine<'static>>>,
    /// The open incidents, the newest first.
    pub incidents: KnownOrReason<Vec<incident::IncidentRow>>,
    /// The connections with the servers of mounts.
    pub connections: KnownOrReason<Vec<TopConnection>>,
    /// The resources that Plumbline itself uses.
    pub cost: OwnCost,
}

/// Operations of one kind on one mount.
#[derive(Debug, Clone)]
pub struct TopOperations {
    /// The mount's name for people.
    pub mount: String,
    /// The probe's protocol: `smb`.
    pub layer: String,
    /// `SMB2_WRITE`
    pub operation: String,
    /// The operations of the interval only.
    pub amounts: Histogram,
}

/// The parts of the requests' time on one mount: means, nanoseconds; `None` if not known.
#[derive(Debug, Clone, Default)]
pub struct PhaseTimes {
    /// The mount as a person calls it.
    pub mount: String,
    /// By [`PHASES`].
    pub means: [Option<u64>; PHASES.len()],
}

/// The parts of a request's time, in their order.
pub const PHASES: [&str; 5] = ["queue", "send", "network", "server", "deliver"];

/// A connection with a server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TopConnection {
    /// This host's address and port.
    pub local: String,
    /// The server's address and port.
    pub peer: String,
    /// The mount as a person calls it; empty if there is none.
    pub mount: String,
    /// TCP's name for its state.
    pub state: String,
    /// Round-trip time, smoothed; 0: none was measured.
    pub srtt_us: u32,
    /// The least recent round-trip time; 0: none was measured.
    pub min_rtt_us: u32,
    /// Segments that were sent again in the interval.
    pub retransmits: u64,
    /// Segments that were sent again over the connection's life.
    pub retransmits_total: u64,
    /// Bytes that the server has not acknowledged yet.
    pub unacked: u64,
}

/// The resources that Plumbline itself uses. `None` if not known.
#[derive(Debug, Clone, Default)]
pub struct OwnCost {
    /// CPU time, seconds per second.
    pub cpu: Option<f64>,
    /// Resident memory, bytes.
    pub resident: Option<u64>,
    /// Time of the BPF programs, seconds per second; known only while `kernel.bpf_stats_enabled` is set.
    pub kernel: Option<f64>,
    /// All losses by probe and cause, without those that are zero.
    pub lost: BTreeMap<(String, String), u64>,
}

impl TopOperations {
    /// The operation, if this version knows it.
    fn known(&self) -> Option<Operation> {
        probes::protocol(&self.layer)?.operation(&self.operation)
    }

    /// Whether the operation waits by design for another event, so that its duration says nothing about the mount.
    pub fn waits(&self) -> bool {
        self.known().is_some_and(Operation::waits_by_design)
    }
}

/// The sum of a mount's operations. One operation is seen at several layers, so only one layer is summed up: the system calls or, without any,
/// the uppermost layer below them.
#[derive(Debug, Clone, Default)]
pub struct OnMount {
    /// The protocol; empty if nothing has finished.
    pub layer: String,
    /// Sum over its operations, without those that wait by design.
    pub amounts: Histogram,
}

/// By the mount's name.
pub fn on_mounts(operations: &[TopOperations]) -> BTreeMap<&str, OnMount> {
    let mut mounts: BTreeMap<&str, (usize, OnMount)> = BTreeMap::new();
    let counted = operations.iter().filter_map(|one| Some((one, rank(&one.layer)?)));
    for (one, rank) in counted.filter(|(one, _)| !one.waits()) {
        let (best, sum) = mounts.entry(&one.mount).or_insert_with(|| (usize::MAX, OnMount::default()));
        if rank < *best {
            (*best, *sum) = (rank, OnMount { layer: one.layer.clone(), amounts: Histogram::default() });
        }
        if rank == *best {
            sum.amounts.merge(&one.amounts);
        }
    }
    mounts.into_iter().map(|(mount, (_, sum))| (mount, sum)).collect()
}

/// The rank of a layer: that with the least rank stands for a mount. `None`: the layer has no I/O.
fn rank(layer: &str) -> Option<usize> {
    let order = [Level::SystemCall, Level::FileSystem, Level::Proxy, Level::Daemon, Level::Request, Level::Library];
    let level = probes::protocol(layer)?.level;
    order.iter().position(|one| *one == level)
}

impl TopSample {
    /// One object, by stable names.
    pub fn json(&self, source: &str) -> Value {
        let on_mounts = on_mounts(&self.operations);
        let mount = |mount: &Mount| {
            let sum = on_mounts.get(mount.label()).cloned().unwrap_or_default();
            let mut object = Map::new();
            object.insert("mount".into(), mount.label().into());
            object.insert("fstype".into(), mount.fstype.as_str().into());
            object.insert("source".into(), mount.source.as_str().into());
            object.insert("server".into(), mount.server.as_str().into());
            object.insert("layer".into(), (!sum.layer.is_empty()).then_some(sum.layer).into());
            object.extend(self.rates(&sum.amounts));
            Value::Object(object)
        };
        let operation = |one: &TopOperations| {
            let mut object = Map::new();
            object.insert("mount".into(), one.mount.as_str().into());
            object.insert("layer".into(), one.layer.as_str().into());
            object.insert("operation".into(), one.operation.as_str().into());
            object.extend(self.rates(&one.amounts));
            Value::Object(object)
        };
        let phases = |one: &PhaseTimes| {
            let means = PHASES
                .iter()
                .zip(one.means)
                .map(|(phase, mean)| (format!("{phase}_ms"), mean.map(milliseconds).into()));
            Value::Object([("mount".to_owned(), one.mount.as_str().into())].into_iter().chain(means).collect())
        };
        let lost = self
            .cost
            .lost
            .iter()
            .map(|((probe, cause), count)| json!({"probe": probe, "cause": cause, "count": count}));
        json!({
            "time": self.time,
            "interval_sec": self.seconds,
            "source": source,
            "mounts": self.mounts.iter().map(mount).collect::<Vec<_>>(),
            "operations": self.operations.iter().map(operation).collect::<Vec<_>>(),
            "phases": self.phases.as_ref().ok().map(|all| all.iter().map(phases).collect::<Vec<_>>()),
            "slowest": self.slowest.as_ref().ok(),
            "incidents": self.incidents.as_ref().ok(),
            "connections": self.connections.as_ref().ok(),
            "cost": {
                "cpu_percent": self.cost.cpu.map(percent),
                "resident_bytes": self.cost.resident,
                "kernel_percent": self.cost.kernel.map(percent),
                "events_lost": lost.collect::<Vec<_>>(),
            },
            "unavailable": self.unavailable(),
        })
    }

    /// For each field that is null, why it is not known.
    fn unavailable(&self) -> BTreeMap<&str, &str> {
        let why = [
            ("phases", self.phases.as_ref().err()),
            ("slowest", self.slowest.as_ref().err()),
            ("incidents", self.incidents.as_ref().err()),
            ("connections", self.connections.as_ref().err()),
        ];
        why.into_iter().filter_map(|(what, why)| Some((what, why?.as_str()))).collect()
    }

    fn rates(&self, amounts: &Histogram) -> Map<String, Value> {
        let rate = |amount: u64| Value::from(self.per_second(amount));
        let ms = |ns: Option<u64>| ns.map(milliseconds).into();
        Map::from_iter([
            ("operations_per_sec".to_owned(), rate(amounts.count)),
            ("bytes_per_sec".to_owned(), rate(amounts.bytes)),
            ("errors_per_sec".to_owned(), rate(amounts.errors)),
            ("mean_ms".to_owned(), ms(amounts.sum.checked_div(amounts.count))),
            ("p99_ms".to_owned(), ms(amounts.quantile(0.99))),
        ])
    }

    /// An amount of the interval as a rate per second.
    pub fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// A share, to a hundredth of a percent.
fn percent(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(layer: &str, operation: &str, count: u64) -> TopOperations {
        let mut amounts = Histogram::default();
        (0..count).for_each(|_| amounts.add(1_000_000, 10, false));
        TopOperations { mount: "/mnt/a".into(), layer: layer.into(), operation: operation.into(), amounts }
    }

    #[test]
    fn a_mount_has_the_figures_of_one_layer_the_system_calls_if_there_are_any() {
        let mut all = vec![finished("smb", "SMB2_WRITE", 3), finished("connections", "TCP_RETRANSMIT", 9)];
        let sum = on_mounts(&all)["/mnt/a"].clone();
        assert_eq!((sum.layer.as_str(), sum.amounts.count), ("smb", 3));
        all.extend([
            finished("syscalls", "write", 5),
            finished("syscalls", "read", 1),
            finished("mpiio", "File_read", 7),
        ]);
        let sum = on_mounts(&all)["/mnt/a"].clone();
        assert_eq!((sum.layer.as_str(), sum.amounts.count), ("syscalls", 6));
    }

    #[test]
    fn what_waits_by_design_is_no_latency_of_the_mount() {
        let all = [finished("smb", "SMB2_CHANGE_NOTIFY", 4), finished("smb", "SMB2_READ", 1)];
        assert_eq!(on_mounts(&all)["/mnt/a"].amounts.count, 1);
    }
}
