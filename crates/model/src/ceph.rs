//! Ceph's names for a request, and the daemon that it was sent to.

use std::{fmt, net::SocketAddr};

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// Ceph's names for a request of the kernel's CephFS client, or for a wait for capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CephRequest {
    /// The client's number of the request (`tid`), one sequence for metadata servers and one for OSDs; 0: not known.
    pub tid: u64,
    /// The daemon that it was sent to last.
    pub daemon: CephDaemon,
    /// Where that daemon is; `None` if it is not known.
    pub address: Option<SocketAddr>,
    /// How many times it was sent again.
    pub resent: u32,
    /// How many times a metadata server has sent the client on to another.
    pub forwarded: u32,
    /// Inode number of its file; 0: not known.
    pub inode: u64,
    /// Last component of its file's name; of a request to an OSD, the object's name.
    pub name: Text<128>,
    /// For a request in flight: the state of the daemon and of the connection to it.
    pub state: Option<CephState>,
}

impl CephRequest {
    /// The object of a request to an OSD; `None` for other requests.
    pub fn object(&self) -> Option<Text<128>> {
        (matches!(self.daemon, CephDaemon::Osd(_)) && !self.name.is_empty()).then_some(self.name)
    }
}

/// A daemon of a Ceph cluster that clients ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CephDaemon {
    /// No daemon, or the daemon is not known.
    #[default]
    Unknown,
    /// The metadata server of this rank.
    Mds(u32),
    /// The OSD of this number.
    Osd(u32),
}

impl CephDaemon {
    /// The daemon for a number of a connection, as the `ceph` probe assigns these: twelve bits of the mount's device, one bit that says
    /// whether the daemon is a metadata server, and nineteen bits with its rank or number plus one. 0: not known.
    pub fn of_connection(connection: u64) -> Self {
        let number = u32::try_from(connection & 0x7_ffff).ok().and_then(|number| number.checked_sub(1));
        match number {
            None => Self::Unknown,
            Some(rank) if connection & 1 << 19 != 0 => Self::Mds(rank),
            Some(id) => Self::Osd(id),
        }
    }
}

impl fmt::Display for CephDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(""),
            Self::Mds(rank) => write!(f, "mds.{rank}"),
            Self::Osd(id) => write!(f, "osd.{id}"),
        }
    }
}

/// The state of the daemon that a request in flight was sent to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CephState {
    /// There is a connection to it.
    pub connected: bool,
    /// The request was sent to it.
    pub sent: bool,
    /// For how long the daemon's host has acknowledged nothing although sent data is not yet acknowledged,
    /// milliseconds.
    pub unacknowledged_ms: u32,
    /// The monitors report that they hear nothing of the daemon; for metadata servers only.
    pub laggy: bool,
    /// The cluster has shut this client out.
    pub blocklisted: bool,
    /// A metadata server's state in the client's map (`CEPH_MDS_STATE_*`): 0 or below: no daemon has the rank; 8 to 12: a daemon is
    /// taking the rank over; 13: active. 0 for OSDs.
    pub mds: i8,
}
