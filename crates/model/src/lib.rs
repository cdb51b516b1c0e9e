//! The types that all other crates share: an operation with its duration and phases, its mount, the anomaly that it was
//! part of, and the verdict.
//!
//! No I/O, no BPF, no clock: everything here can be built in a unit test.

mod anomaly;
mod ceph;
mod daemon_look;
mod detail;
mod errno;
mod event;
mod histogram;
mod incident;
mod lenient;
mod line;
mod losses;
mod mount;
mod pod;
mod progress;
mod protocol;
pub mod text;
mod verdict;

pub use anomaly::{Anomaly, SNAPSHOT};
pub use ceph::{CephDaemon, CephRequest, CephState};
pub use daemon_look::{DaemonConnection, DaemonLook};
pub use detail::{
    CephProxy, Connection, Detail, Fuse, MpiIo, Nfs, OwnFile, RESET_REFUSED, RESET_WITH_ACK, SeenFile, Served, Smb,
    Syscall, Vfs,
};
pub use errno::errno_name;
pub use event::{Caller, Event, Flags, Nanos, Network, Phases, Requester, SendTiming};
pub use histogram::{BUCKETS, Histogram, SIZES, quantile_index, sparse};
pub use incident::{
    Changed, Host, Incident, IncidentState, RankedFile, RankedMount, RankedOperation, RankedProcess, Ranking, Share,
    Span, Waited,
};
pub use line::{BelowLine, CallLine, ChildLine, EventLine, TreeLine};
pub use losses::{Losses, ProbeLosses};
pub use mount::{Mount, MountKey};
pub use pod::PodNames;
pub use progress::{CpuWait, Progress, RequesterWaits, SocketTotals};
pub use protocol::{Code, Direction, FileNames, Level, Operation, Protocol};
pub use verdict::{Alternative, Cause, Layer, PhasesMs, Verdict};
