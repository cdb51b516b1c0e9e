//! The daemon: the front, which is the process that is started first, and the processes below it. The front accepts clients, and hands each client
//! over to the process of the requested place: the lobby, in which clients prepare mounts, or the process of a mount.
//!
//! Each process below has a main thread, which receives clients and notices when they leave, and a pool of workers, which serve requests. If
//! libcephfs crashes or blocks such a process, only the clients of its mount are affected.

mod arrivals;
mod ceph;
mod clients;
mod coherence;
mod connection;
mod control;
mod data;
mod delegations;
mod exporter;
mod figures;
mod front;
mod handles;
mod heap;
mod listener;
mod mounts;
mod options;
mod peer;
mod places;
mod pool;
mod process;
mod seen;
mod serve;
mod sessions;
mod share;
mod signals;
mod snapshots;
mod takeover;
mod unflushed;
mod watch;
mod weight;
mod written;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Mutex, MutexGuard, OnceLock, Weak},
    time::Duration,
};

pub use figures::MOST_MOUNTS;
pub use front::run;
pub use process::run as run_below;

/// The interval of periodic work.
const TICK: Duration = Duration::from_millis(250);
/// How long the flush of clients' files may take at the end.
const FAREWELL: Duration = Duration::from_secs(20);

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
    /// Whether to take over from a running daemon.
    pub take_over: bool,
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
    /// The most mounts.
    pub mounts: usize,
    /// The most objects of one connection: inodes, files, directories, identities, mounts.
    pub handles: usize,
    /// The most bytes of one connection's objects, by the bounds in weight.rs.
    pub memory: usize,
    /// The most worker threads for the requests of one mount's clients.
    pub workers: usize,
    /// The most delegations of one mount.
    pub delegations: usize,
    /// The most bytes of file data that one mount's process caches.
    pub data: usize,
}

impl DaemonOptions {
    /// The bytes of file data that may be cached. Without delegations there is no cache, since other hosts may change each file at any time. With
    /// `stale`, there is no cache either: chunks could be late by different times, and a read of several chunks could return a state that
    /// the file never had.
    fn data_cache(&self) -> usize {
        if self.stale > 0 || self.limits.delegations == 0 { 0 } else { self.limits.data }
    }
}

impl Limits {
    /// The most workers that serve one client at a time, while no others are busy.
    fn workers_per_client(&self) -> usize {
        (self.workers / 4).max(1)
    }
}

/// The state that the workers and the main thread of a process below the front share.
struct DaemonState {
    ceph: &'static ceph::Ceph,
    version: ceph::Version,
    /// The mount of this process.
    place: mounts::MountPlace,
    /// The places where the mount's snapshots were seen.
    snapshots: snapshots::SnapshotPlaces,
    limits: Limits,
    figures: figures::ProxyCounters,
    pool: OnceLock<Weak<pool::Pool>>,
    /// The freed memory that is not given back to the kernel yet.
    freed: heap::FreedMemory,
    /// The workers.
    share: share::WorkerShare,
    /// The writes that are being repeated.
    rewrites: written::Rewrites,
    /// The descriptor by which clients map the version table.
    versions: std::os::fd::OwnedFd,
}

/// Locks a mutex, even if a thread panicked while it held the mutex: no code under a lock can leave its data half updated.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
