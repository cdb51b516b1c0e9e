//! The daemon: a main thread, which accepts clients and notices when they leave, and a pool of workers, which serve
//! requests.

mod ceph;
mod coherence;
mod connection;
mod delegations;
mod exporter;
mod figures;
mod handles;
mod heap;
mod lobby;
mod mounts;
mod options;
mod peer;
mod pool;
mod run;
mod seen;
mod serve;
mod sessions;
mod share;
mod snapshots;
mod weight;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, Weak},
    time::Duration,
};

pub use run::run;

/// The daemon's options.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// The path of the socket, unless systemd hands over a socket.
    pub socket: PathBuf,
    /// The socket's permissions.
    pub mode: u32,
    /// The path of libcephfs.
    pub library: PathBuf,
    /// Users that may connect, besides root.
    pub users: Vec<u32>,
    /// The directory that keeps the names of sessions for the next daemon.
    pub state: PathBuf,
    /// How late changes of the cluster's other clients may be seen, milliseconds.
    pub stale: u32,
    /// How long an unused mount stays mounted.
    pub linger: Duration,
    /// The address of the metrics server; `None`: no server.
    pub metrics: Option<SocketAddr>,
    /// The limits.
    pub limits: Limits,
}

/// Limits on what clients can use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most connections.
    pub clients: usize,
    /// The most objects of one connection: inodes, files, directories, identities, mounts.
    pub handles: usize,
    /// The most bytes of one connection's objects, by the bounds in weight.rs.
    pub memory: usize,
    /// The most worker threads for the requests of one mount's clients.
    pub workers: usize,
    /// The most delegations of one mount.
    pub delegations: usize,
}

impl Limits {
    /// The most workers that serve one client at a time, while no others are busy.
    fn workers_per_client(&self) -> usize {
        (self.workers / 4).max(1)
    }
}

/// What workers and the main thread share.
struct DaemonState {
    ceph: &'static ceph::Ceph,
    version: ceph::Version,
    mounts: mounts::SharedMounts,
    sessions: Arc<sessions::Sessions>,
    limits: Limits,
    figures: figures::ProxyCounters,
    pool: OnceLock<Weak<pool::Pool>>,
    /// What was freed and is not given back to the kernel yet.
    freed: heap::FreedMemory,
    /// The workers of clients that have not mounted yet.
    preparing: Arc<share::WorkerShare>,
    /// The descriptor by which clients map the version table.
    versions: std::os::fd::OwnedFd,
}

/// Locks a mutex, even if a thread panicked while it held it: no code under a lock can leave its data half updated.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
