//! Examines the daemon of a FUSE file system that has requests to answer: its threads and helpers (from /proc), its TCP connections (sock_diag(7)),
//! and the packets that wait at the interfaces of these connections. No path of a mount is followed.

mod connections;
mod helpers;
mod own_queue;
mod sock_diag;

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::Arc,
};

use model::{DaemonLook, Detail, Event, Level, Nanos};
use procfs::process::Process;

use connections::Connections;
use helpers::{Helpers, sockets_of};
use own_queue::OwnQueues;
use sock_diag::SockDiag;

/// How long a look is used again, nanoseconds.
const HOLDS: Nanos = 100_000_000;
/// The changes since a look older than this say nothing about current requests, nanoseconds.
const FRESH: Nanos = 10_000_000_000;
/// What is known of a daemon is dropped after this time without a slow request, nanoseconds.
const KEPT: Nanos = 60_000_000_000;
/// The most daemons; the most threads and descriptors of one process.
const MOST_DAEMONS: usize = 8;
const MOST_THREADS: usize = 256;
const MOST_DESCRIPTORS: usize = 4096;

/// Kernel functions in which a thread waits only for time, another thread or a peer, not for a file.
const PLAIN_WAITS: [&str; 12] = [
    "futex",
    "nanosleep",
    "poll",
    "select",
    "epoll",
    "sigtimedwait",
    "do_wait",
    "pipe",
    "wait_woken",
    "sk_wait_data",
    "stream",
    "io_cqring_wait",
];

/// The daemons that were examined recently.
#[derive(Debug, Default)]
pub struct DaemonLooks(HashMap<u32, WatchedDaemon>);

/// What is known of one daemon.
#[derive(Debug, Default)]
struct WatchedDaemon {
    /// When the daemon was last examined, CLOCK_MONOTONIC.
    at: Nanos,
    /// `None` if the daemon was gone, or could not be examined.
    look: Option<Arc<DaemonLook>>,
    /// A socket in the daemon's network namespace; `None` if the namespace cannot be entered, or the kernel refuses.
    diag: Option<SockDiag>,
    queues: Option<OwnQueues>,
    helpers: Helpers,
    connections: Connections,
    /// How long each thread has been ready to run and had no CPU, nanoseconds.
    no_cpu: HashMap<i32, u64>,
}

impl DaemonLooks {
    /// Whether the event is a request to a daemon that is slow enough for a look at the daemon.
    pub fn concerns(event: &Event) -> bool {
        event.operation.level() == Level::Daemon && event.duration >= DaemonLook::SLOW
    }

    /// Adds what the daemon does at `now` to the event of a slow request or of one in flight.
    pub fn tell(&mut self, event: &mut Event, now: Nanos) {
        if !Self::concerns(event) {
            return;
        }
        let Detail::Fuse(fuse) = &mut event.detail else { return };
        if fuse.daemon == 0 {
            return;
        }
        if self.0.len() >= MOST_DAEMONS && !self.0.contains_key(&fuse.daemon) {
            self.0.clear();
        }
        let daemon = self.0.entry(fuse.daemon).or_insert_with(|| WatchedDaemon::new(fuse.daemon));
        if daemon.at == 0 || daemon.at.saturating_add(HOLDS) < now {
            daemon.look = daemon.look(fuse.daemon, now).map(Arc::new);
            daemon.at = now;
        }
        fuse.look = daemon.look.clone();
    }

    /// Ends an interval at `now`. Drops the daemons without recent slow requests, and those that could not be examined, which are tried again.
    pub fn interval(&mut self, now: Nanos) {
        self.0.retain(|_, daemon| daemon.look.is_some() && daemon.at.saturating_add(KEPT) > now);
    }
}

impl WatchedDaemon {
    fn new(pid: u32) -> Self {
        let diag = SockDiag::of_process(pid).inspect_err(|error| {
            tracing::debug!(pid, %error, "cannot ask for the connections of a FUSE daemon");
        });
        let queues = OwnQueues::of_process(pid).inspect_err(|error| {
            tracing::debug!(pid, %error, "cannot ask what waits at the interfaces of a FUSE daemon");
        });
        Self { diag: diag.ok(), queues: queues.ok(), ..Self::default() }
    }

    /// Examines the daemon; `None` if it is gone, or may not be examined.
    fn look(&mut self, pid: u32, now: Nanos) -> Option<DaemonLook> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let is_fresh = self.look.is_some() && self.at.saturating_add(FRESH) > now;
        let mut look = DaemonLook { at: now, ..DaemonLook::default() };
        if is_fresh {
            look.since = now.saturating_sub(self.at);
        }
        let mut no_cpu = HashMap::new();
        count_threads(&process, &mut look, &mut no_cpu)?;
        let own = sockets_of(&process, MOST_DESCRIPTORS)?;
        let is_tcp = |inode| self.connections.is_tcp(inode);
        let helpers = self.helpers.of(&process, &own, &is_tcp, self.diag.as_ref(), now);
        let mut owners = vec![(pid, own)];
        for helper in helpers {
            let Some(process) = i32::try_from(*helper).ok().and_then(|pid| Process::new(pid).ok()) else { continue };
            let mut threads = DaemonLook::default();
            if count_threads(&process, &mut threads, &mut no_cpu).is_none() {
                continue;
            }
            look.helpers += 1;
            look.stopped_helpers += u32::from(threads.threads > 0 && threads.stopped == threads.threads);
            owners.extend(sockets_of(&process, MOST_DESCRIPTORS).map(|sockets| (*helper, sockets)));
        }
        let waited = |(tid, now): (&i32, &u64)| Some(now.saturating_sub(*self.no_cpu.get(tid)?));
        look.no_cpu = no_cpu.iter().filter_map(waited).max().filter(|_| is_fresh).unwrap_or(0);
        self.no_cpu = no_cpu;
        self.count_connections(&owners, &mut look, is_fresh);
        Some(look)
    }

    fn count_connections(&mut self, owners: &[(u32, HashSet<u64>)], look: &mut DaemonLook, is_fresh: bool) {
        let all: HashSet<u64> = owners.iter().flat_map(|(_, sockets)| sockets).copied().collect();
        let learned = self.diag.as_ref().filter(|_| !all.is_empty()).map(|diag| self.connections.learn(&all, diag));
        if let Some(Err(error)) = learned {
            // The rest of the failed answer must not be taken for the next answer.
            tracing::debug!(%error, "the connections of a FUSE daemon are not told");
            self.diag = None;
        }
        let is_tcp = |inode: &&u64| self.connections.is_tcp(**inode);
        let own = owners.first().map(|(_, sockets)| sockets);
        look.connections = number(all.iter().filter(is_tcp));
        look.other_sockets = number(own.into_iter().flatten().filter(|inode| !is_tcp(inode)));
        if let Some(diag) = &self.diag {
            look.tcp = self.connections.look(owners, diag, is_fresh);
        }
        if let Some(Err(error)) = self.queues.as_ref().map(|queues| queues.tell(&mut look.tcp)) {
            tracing::debug!(%error, "what waits at the interfaces of a FUSE daemon is not told");
            self.queues = None;
        }
        look.resending = number(look.tcp.iter().filter(|one| one.resending > 0));
    }
}

fn number<T>(counted: impl Iterator<Item = T>) -> u32 {
    u32::try_from(counted.count()).unwrap_or(u32::MAX)
}

/// Counts the threads of a process, and adds how long each waited for a CPU. `None` if the process is gone.
fn count_threads(process: &Process, look: &mut DaemonLook, no_cpu: &mut HashMap<i32, u64>) -> Option<()> {
    for task in process.tasks().ok()?.flatten().take(MOST_THREADS) {
        let Ok(stat) = task.stat() else { continue };
        let path = format!("/proc/{}/task/{}/wchan", process.pid, task.tid);
        count(look, stat.state, &fs::read_to_string(path).unwrap_or_default());
        if let Ok(waited) = task.schedstat() {
            no_cpu.insert(task.tid, waited.run_delay);
        }
    }
    Some(())
}

/// Counts one thread by its state and the kernel function in which it waits.
fn count(look: &mut DaemonLook, state: char, wait: &str) {
    look.threads += 1;
    match state {
        'R' => look.running += 1,
        'T' | 't' => look.stopped += 1,
        _ if wait.starts_with("fuse_dev_do_read") => look.free += 1,
        'S' if wait.is_empty() || wait == "0" || PLAIN_WAITS.iter().any(|plain| wait.contains(plain)) => {}
        _ => look.on_files += 1,
    }
}

#[cfg(test)]
mod tests;
