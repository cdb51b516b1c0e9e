//! `when` of a rule: the rule judges only while another rule has an incident, for instance on the same mount or server.

use std::{collections::BTreeSet, fmt, time::Duration};

use model::Mount;

use crate::who::Cgroup;

/// What arms a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// The rules whose incidents arm this rule, as written; at least one.
    pub incident: Vec<String>,
    /// The rules of `incident`, and the rules that arm these in turn.
    pub origins: BTreeSet<String>,
    /// How long the rule stays armed after the last anomaly of the incident.
    pub within: Duration,
    /// What an operation must have in common with the incident.
    pub on: On,
}

/// What an operation and an incident must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Nothing: every operation of this host matches.
    Host,
    /// The server.
    Server,
    /// The mount point.
    Mount,
    /// The requester's job.
    Job,
}

impl On {
    /// All values with their names in the configuration.
    pub const NAMES: [(&str, Self); 4] =
        [("host", Self::Host), ("server", Self::Server), ("mount", Self::Mount), ("job", Self::Job)];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, on)| *on == self).map_or("", |(name, _)| name)
    }
}

/// The host, server, mount or job on which an incident arms rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncidentSubject {
    /// This host.
    Host,
    /// A server, by its name in the mount.
    Server(String),
    /// A mount point.
    Mount(String),
    /// A job.
    Job(String),
}

impl IncidentSubject {
    /// The subject of an operation, as selected by `on`; `None` if it is not known. An event of a connection with `on: mount` has its server as the
    /// subject, since a connection serves all mounts of a server.
    pub fn of(on: On, mount: &Mount, cgroup: &Cgroup, is_connection: bool) -> Option<Self> {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        match on {
            On::Host => Some(Self::Host),
            On::Mount if !is_connection => known(&mount.mountpoint).map(Self::Mount),
            On::Server | On::Mount => known(&mount.server).map(Self::Server),
            On::Job => known(&cgroup.job).map(Self::Job),
        }
    }

    /// Whether an operation is on this subject. An unknown property is on no subject.
    pub fn has(&self, mount: &Mount, cgroup: &Cgroup) -> bool {
        match self {
            Self::Host => true,
            Self::Server(server) => *server == mount.server,
            Self::Mount(mountpoint) => *mountpoint == mount.mountpoint,
            Self::Job(job) => *job == cgroup.job,
        }
    }
}

/// `server nfs1`.
impl fmt::Display for IncidentSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("this host"),
            Self::Server(name) => write!(f, "server {name}"),
            Self::Mount(path) => write!(f, "mount {path}"),
            Self::Job(job) => write!(f, "job {job}"),
        }
    }
}

/// `while nfs_latency has an incident on the same server, and 60s longer`.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "while {} has an incident", self.incident.join(" or "))?;
        if self.on != On::Host {
            write!(f, " on the same {}", self.on.name())?;
        }
        write!(f, ", until {:?} after its last anomaly", self.within)
    }
}
