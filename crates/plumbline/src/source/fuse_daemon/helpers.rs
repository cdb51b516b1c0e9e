//! The processes that work for a FUSE daemon. Not all are its children: ssh is no child of sshfs.

use std::{collections::HashSet, fs, path::Path};

use model::Nanos;
use probes::every_process;
use procfs::process::{FDTarget, Process};

use super::{MOST_THREADS, sock_diag::SockDiag};

/// The most helpers of one daemon that are examined.
const MOST_HELPERS: usize = 7;
/// The most processes whose standard input and output are read. Those with ids near the daemon's come first.
const MOST_PROCESSES: usize = 4096;
/// The most local sockets of a daemon whose other ends are looked up.
const MOST_LOCAL_SOCKETS: usize = 64;
/// How long the list of helpers is kept, nanoseconds, unless one of them ends.
const HOLD: Nanos = 10_000_000_000;

/// The inodes of a process's sockets, among its first `most` descriptors; `None` if the process may not be examined.
pub fn sockets_of(process: &Process, most: usize) -> Option<HashSet<u64>> {
    let open = process.fd().ok()?.flatten().take(most);
    Some(open.filter_map(|fd| if let FDTarget::Socket(inode) = fd.target { Some(inode) } else { None }).collect())
}

/// The helpers of one daemon.
#[derive(Debug, Default)]
pub struct Helpers {
    found: Vec<u32>,
    sought: Option<Nanos>,
}

impl Helpers {
    /// The helpers' process ids at `now`. `of_tcp`: whether a socket is known to be a TCP connection.
    pub fn of(
        &mut self,
        daemon: &Process,
        sockets: &HashSet<u64>,
        of_tcp: &dyn Fn(u64) -> bool,
        diag: Option<&SockDiag>,
        now: Nanos,
    ) -> &[u32] {
        let is_old = self.sought.is_none_or(|sought| sought.saturating_add(HOLD) < now);
        if is_old || !self.found.iter().all(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            self.sought = Some(now);
            self.found = seek(daemon, sockets, of_tcp, diag);
        }
        &self.found
    }
}

fn seek(daemon: &Process, sockets: &HashSet<u64>, of_tcp: &dyn Fn(u64) -> bool, diag: Option<&SockDiag>) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let threads = daemon.tasks().into_iter().flatten().flatten().take(MOST_THREADS);
    found.extend(threads.filter_map(|thread| thread.children().ok()).flatten().take(MOST_HELPERS));
    let locals = sockets.iter().filter(|inode| !of_tcp(**inode)).take(MOST_LOCAL_SOCKETS);
    let ends: HashSet<u64> = locals.filter_map(|inode| diag?.peer_of_local(*inode)).collect();
    if ends.is_empty() {
        return found;
    }
    let own = daemon.pid.unsigned_abs();
    let mut processes: Vec<u32> = every_process().collect();
    processes.sort_by_key(|pid| pid.abs_diff(own));
    for pid in processes.into_iter().filter(|pid| *pid != own).take(MOST_PROCESSES) {
        if found.len() >= MOST_HELPERS {
            break;
        }
        let leads_here = |descriptor: u32| end_of(&format!("/proc/{pid}/fd/{descriptor}"));
        if !found.contains(&pid) && [0, 1].into_iter().filter_map(leads_here).any(|inode| ends.contains(&inode)) {
            found.push(pid);
        }
    }
    found
}

/// The inode of the socket to which a descriptor's link points.
fn end_of(path: &str) -> Option<u64> {
    fs::read_link(path).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}
