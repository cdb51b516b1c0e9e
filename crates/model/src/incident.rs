//! An incident: all its fields, in the order in which `incident.json` has them.
//!
//! It is serialised only where it leaves the program. Fields of a file from another version or another program that
//! cannot be read get their defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Anomaly, CallLine, Losses, Mount, PodNames, Verdict,
    lenient::{lenient, lenient_list},
};

/// An anomaly, its verdict, and the operations concerned. Serialises as `incident.json`. Times are UTC as RFC 3339.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incident {
    /// The bundle's name without `.tar.zst`.
    #[serde(deserialize_with = "lenient")]
    pub id: String,
    /// When a rule last reported it.
    #[serde(deserialize_with = "lenient")]
    pub detected: String,
    /// The period that was examined.
    #[serde(deserialize_with = "lenient")]
    pub window: Span,
    /// The rule, and the observation that broke it.
    #[serde(deserialize_with = "lenient")]
    pub anomaly: Anomaly,
    /// Which layer was at fault.
    #[serde(deserialize_with = "lenient")]
    pub verdict: Verdict,
    /// The verdict from this host's evidence alone, if `verdict` uses evidence of both ends.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub own_verdict: Option<Verdict>,
    /// Whether it is still open.
    #[serde(deserialize_with = "lenient")]
    pub state: IncidentState,
    /// When the first of its operations began.
    #[serde(deserialize_with = "lenient")]
    pub first_seen: String,
    /// When the last window ended in which the rule was broken.
    #[serde(deserialize_with = "lenient")]
    pub last_seen: String,
    /// The groups of operations that account for the time beyond normal, and the figures without each group.
    #[serde(deserialize_with = "lenient_list")]
    pub changed: Vec<Changed>,
    /// Where the requesters' threads and the receiver threads waited while the incident was open.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
    /// The operations, mounts, processes and files that took the most time.
    #[serde(deserialize_with = "lenient")]
    pub top: Ranking,
    /// Events and operations that were lost; if there are any, the figures are too low.
    #[serde(deserialize_with = "lenient")]
    pub losses: Losses,
    /// Operations that counted.
    #[serde(deserialize_with = "lenient")]
    pub operations: u64,
    /// Windows that broke the rule.
    #[serde(deserialize_with = "lenient")]
    pub windows: u64,
    /// Whether the incident is over: `state` for readers that only know the first version.
    #[serde(deserialize_with = "lenient")]
    pub closed: bool,
    /// Anomalies of other rules that belong to this incident.
    #[serde(deserialize_with = "lenient_list")]
    pub also: Vec<String>,
    /// The slowest system calls for which the operations below them are known.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallLine<'static>>,
    /// Results of the operator's own actions on the incident, by key: a few dozen at most.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The host that observed it.
    #[serde(deserialize_with = "lenient")]
    pub host: Host,
}

impl Incident {
    /// The mount that lost the most time.
    pub fn mount(&self) -> Option<&Mount> {
        self.top.mounts.first().map(|ranked| &ranked.mount)
    }

    /// Derives the fields that the first version did not write from those that it wrote.
    pub fn complete(&mut self) {
        if self.first_seen.is_empty() {
            self.state = IncidentState::of(self.closed);
            self.first_seen.clone_from(&self.window.from);
            self.last_seen.clone_from(&self.window.to);
        }
    }
}

/// A group of operations that have a property in common, and account for much of the incident's time beyond normal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// The common property: `process`, `operation`, `file` or `connection`.
    #[serde(deserialize_with = "lenient")]
    pub by: String,
    /// The value of that property: `fio (4711): SMB2_READ of 64 KiB`.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
    /// Their share of the time beyond normal, or of the failures; 0 to 1.
    #[serde(deserialize_with = "lenient")]
    pub share: f64,
    /// Operations of the group that ended per second, during the incident.
    #[serde(deserialize_with = "lenient")]
    pub per_second: f64,
    /// Operations of the group that ended per second, before the incident; `None` if not known.
    #[serde(deserialize_with = "lenient")]
    pub normally_per_second: Option<f64>,
    /// The 99th percentile of the incident's operations, milliseconds; `None` if `share` is one of failures.
    #[serde(deserialize_with = "lenient")]
    pub p99_ms: Option<f64>,
    /// The 99th percentile of the operations outside the group, milliseconds; `None` if there are too few.
    #[serde(deserialize_with = "lenient")]
    pub p99_without_ms: Option<f64>,
    /// The group and its figures in one sentence.
    #[serde(deserialize_with = "lenient")]
    pub said: String,
}

/// Threads of one name that waited at one place in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waited {
    /// `requester` of an operation in flight, or `receiver`: a kernel thread that reads answers from servers.
    #[serde(deserialize_with = "lenient")]
    pub role: String,
    /// The threads' name.
    #[serde(deserialize_with = "lenient")]
    pub comm: String,
    /// `asleep`, `blocked`, `runnable` (it had no CPU), `running` or `stopped`.
    #[serde(deserialize_with = "lenient")]
    pub state: String,
    /// How long all these threads together waited, milliseconds. A sample counts as the time since the previous sample,
    /// 0.1 to 10 s.
    #[serde(deserialize_with = "lenient")]
    pub total_ms: f64,
    /// Its share of the sampled time of all threads of this role; 0 to 1.
    #[serde(deserialize_with = "lenient")]
    pub share: f64,
    /// The longest time that one thread waited without running in between, as far as samples show, milliseconds.
    #[serde(deserialize_with = "lenient")]
    pub longest_ms: f64,
    /// The kernel stack, innermost function first; empty if the thread was running or runnable.
    #[serde(deserialize_with = "lenient_list")]
    pub stack: Vec<String>,
}

/// Whether an incident is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IncidentState {
    /// Not over: its bundle may be written again.
    #[default]
    Open,
    /// Over: its bundle is final.
    Closed,
}

impl IncidentState {
    /// `Closed` if `closed`, else `Open`.
    pub fn of(closed: bool) -> Self {
        if closed { Self::Closed } else { Self::Open }
    }

    /// `open` or `closed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// A period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// The beginning.
    #[serde(deserialize_with = "lenient")]
    pub from: String,
    /// The end.
    #[serde(deserialize_with = "lenient")]
    pub to: String,
}

/// A machine, and the version that ran on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
    /// Its kernel's release.
    #[serde(deserialize_with = "lenient")]
    pub kernel: String,
    /// Plumbline's version.
    #[serde(deserialize_with = "lenient")]
    pub plumbline: String,
    /// Its addresses with the lengths of their networks' prefixes, such as `10.1.0.7/24`; empty if they are not known.
    #[serde(deserialize_with = "lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// The largest shares of the time, largest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ranking {
    /// Kinds of operation.
    #[serde(deserialize_with = "lenient_list")]
    pub operations: Vec<RankedOperation>,
    /// Mounts.
    #[serde(deserialize_with = "lenient_list")]
    pub mounts: Vec<RankedMount>,
    /// Processes.
    #[serde(deserialize_with = "lenient_list")]
    pub processes: Vec<RankedProcess>,
    /// Files.
    #[serde(deserialize_with = "lenient_list")]
    pub files: Vec<RankedFile>,
}

/// A number of operations and their total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Operations.
    pub count: u64,
    /// The sum of their durations, milliseconds.
    pub total_ms: f64,
}

/// A kind of operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankedOperation {
    /// Its name.
    pub operation: String,
    /// The number of these operations, and their total time.
    #[serde(flatten)]
    pub share: Share,
}

/// A mount.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankedMount {
    /// Its mount point, source, server and type.
    #[serde(flatten)]
    pub mount: Mount,
    /// Kubernetes: the claim of its persistent volume, where the folder on the server is named after it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pvc: String,
    /// The operations on it.
    #[serde(flatten)]
    pub share: Share,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankedProcess {
    /// Its id in the initial pid namespace.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// The path of its cgroup.
    pub cgroup: String,
    /// Its container; empty if it is in none.
    pub container: String,
    /// Its job, as `plumbline io` calls it; empty if it is in none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Kubernetes' names for its container.
    #[serde(flatten)]
    pub names: PodNames,
    /// The operations that it began.
    #[serde(flatten)]
    pub share: Share,
}

/// A file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankedFile {
    /// Its name.
    pub file: String,
    /// Its inode number.
    pub inode: u64,
    /// Where its file system is mounted.
    pub mountpoint: String,
    /// The operations on it.
    #[serde(flatten)]
    pub share: Share,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layer;

    fn read(json: &str) -> Incident {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = Incident {
            id: "i".into(),
            anomaly: Anomaly { kind: "stalled".into(), probe: "smb".into(), ..Anomaly::default() },
            verdict: Verdict { layer: Layer::Server, confidence: 0.9, ..Verdict::default() },
            state: IncidentState::Closed,
            top: Ranking {
                mounts: vec![RankedMount {
                    mount: Mount { mountpoint: "/mnt".into(), ..Mount::default() },
                    share: Share { count: 2, total_ms: 3.5 },
                    ..RankedMount::default()
                }],
                ..Ranking::default()
            },
            calls: vec![CallLine::default()],
            labels: [("ticket".to_owned(), "4711".to_owned())].into(),
            closed: true,
            ..Incident::default()
        };
        assert_eq!(read(&serde_json::to_string(&written).unwrap()), written);
    }

    #[test]
    fn what_is_missing_or_makes_no_sense_is_as_if_it_were_not_there() {
        assert_eq!(read("{}"), Incident::default());
        let incident = read(
            r#"{"id": 7, "anomaly": {"name": "a", "type": "of tomorrow"}, "verdict": {"layer": "moon", "confidence": null,
                "because": ["one", 2], "phases_ms": {"queue": [], "send": 1}}, "top": {"mounts": [3, {"source": "s", "count": 1}],
                "files": {}}, "losses": {"smb": {"ring_full": 4, "new": {}}, "nfs": 1, "consumed": 5}, "calls": [{"pid": "x"}],
                "operations": -1, "new": [[[]]]}"#,
        );
        assert_eq!((incident.id.as_str(), incident.anomaly.name.as_str()), ("", "a"));
        assert_eq!((incident.anomaly.kind.as_ref(), incident.verdict.layer), ("of tomorrow", Layer::Unknown));
        assert_eq!(incident.verdict.because, ["one"]);
        assert_eq!((incident.verdict.phases_ms.queue, incident.verdict.phases_ms.send), (None, Some(1.0)));
        assert_eq!((incident.mount().unwrap().source.as_str(), incident.top.files.len()), ("s", 0));
        assert_eq!((incident.losses.consumed, incident.losses.probes.len()), (5, 2));
        assert_eq!((incident.calls.len(), incident.operations), (0, 0));
    }

    #[test]
    fn an_incident_of_the_first_version_is_completed() {
        let mut incident = read(r#"{"window": {"from": "a", "to": "b"}, "closed": true}"#);
        incident.complete();
        assert_eq!(
            (incident.state, incident.first_seen.as_str(), incident.last_seen.as_str()),
            (IncidentState::Closed, "a", "b")
        );
    }
}
