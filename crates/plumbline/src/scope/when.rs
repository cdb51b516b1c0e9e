//! `when` of a rule: it judges only while another rule has an incident, on the same mount or server, say.

use std::{collections::BTreeSet, fmt, time::Duration};

use model::Mount;

use crate::who::Cgroup;

/// What arms a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// The rules of whose incidents one arms it, as written; at least one.
    pub incident: Vec<String>,
    /// The rules of `incident`, and the rules that arm these in turn.
    pub origins: BTreeSet<String>,
    /// How long it stays armed after the last anomaly of the incident.
    pub within: Duration,
    /// What its operations must have in common with the incident.
    pub on: On,
}

/// What an operation and an incident must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Nothing: both are of this host.
    Host,
    /// The server.
    Server,
    /// The mount point.
    Mount,
    /// The requester's job.
    Job,
}

impl On {
    /// Each, as it is written.
    pub const NAMES: [(&str, Self); 4] =
        [("host", Self::Host), ("server", Self::Server), ("mount", Self::Mount), ("job", Self::Job)];

    /// As it is written.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, on)| *on == self).map_or("", |(name, _)| name)
    }
}

/// What an incident is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncidentSubject {
    /// This host.
    Host,
    /// A server, as mounts name it.
    Server(String),
    /// A mount point.
    Mount(String),
    /// A job.
    Job(String),
}

impl IncidentSubject {
    /// What an operation's incident is about, as far as `on` asks for it; `None` if that is not known. A connection serves all mounts of its
    /// server, so it is about the server where a mount is asked for.
    pub fn of(on: On, mount: &Mount, cgroup: &Cgroup, is_connection: bool) -> Option<Self> {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        match on {
            On::Host => Some(Self::Host),
            On::Mount if !is_connection => known(&mount.mountpoint).map(Self::Mount),
            On::Server | On::Mount => known(&mount.server).map(Self::Server),
            On::Job => known(&cgroup.job).map(Self::Job),
        }
    }

    /// Whether an operation is on it. What is not known of an operation is on nothing.
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
