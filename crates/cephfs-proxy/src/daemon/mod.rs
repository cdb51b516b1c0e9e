//! The daemon: one thread that sees clients come and go, and a pool of workers that answers them.

mod ceph;
mod coherence;
mod connection;
mod delegations;
mod exporter;
mod figures;
mod handles;
mod lobby;
mod mounts;
mod peer;
mod pool;
mod run;
mod seen;
mod serve;
mod sessions;
mod weight;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, Weak},
    time::Duration,
};

pub use run::run;

/// What it is asked to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen, unless systemd hands over a socket.
    pub socket: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// libcephfs.
    pub library: PathBuf,
    /// Users who may connect, besides root.
    pub users: Vec<u32>,
    /// A folder for what the next daemon has to know.
    pub state: PathBuf,
    /// Milliseconds by which what other clients of the cluster change may be seen late.
    pub stale: u32,
    /// How long a mount stays that nobody uses.
    pub linger: Duration,
    /// Where its figures are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// And the limits.
    pub limits: Limits,
}

/// What clients can use up, at most.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections.
    pub clients: usize,
    /// What one of them holds: inodes, files, directories, identities, mounts.
    pub handles: usize,
    /// Bytes that this takes, by the weights in weight.rs.
    pub memory: usize,
    /// Threads that answer them.
    pub workers: usize,
    /// Most delegations held for one mount.
    pub delegations: usize,
}

impl Limits {
    /// How many workers are at one client's disposal at once.
    fn workers_per_client(&self) -> u32 {
        (self.workers as u32 / 4).max(2)
    }
}

/// What workers and the main thread share.
struct Shared {
    ceph: &'static ceph::Ceph,
    version: ceph::Version,
    mounts: mounts::Mounts,
    sessions: Arc<sessions::Sessions>,
    limits: Limits,
    figures: figures::Figures,
    pool: OnceLock<Weak<pool::Pool>>,
    /// The version table, as clients map it.
    versions: std::os::fd::OwnedFd,
}

/// A lock whose owner panicked is as good as any: nothing is left half done under one.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
