//! What the daemon of a FUSE file system does while it has requests to answer, by /proc: its threads, and whether it has
//! connections that it could wait for. No path of a mount is followed.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use model::{DaemonLook, Detail, Event, Level, Nanos};
use procfs::{
    net::{TcpNetEntry, TcpState},
    process::{FDTarget, Process},
};

/// A look is not repeated for so long, nanoseconds.
const HOLDS: Nanos = 100_000_000;
/// Daemons, threads and descriptors of one that are looked at.
const MOST_DAEMONS: usize = 8;
const MOST_THREADS: usize = 256;
const MOST_DESCRIPTORS: usize = 4096;
/// Requests that were faster need no explanation, nanoseconds.
const SLOW: Nanos = 50_000_000;

/// Kernel functions in which a thread waits for nothing but time, another thread, or a peer.
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

/// The looks of late.
#[derive(Debug, Default)]
pub struct DaemonLooks(HashMap<u32, Option<DaemonLook>>);

impl DaemonLooks {
    /// Tells an event of a slow request, or of one in flight, what its daemon does at `now`.
    pub fn tell(&mut self, event: &mut Event, now: Nanos) {
        if event.operation.level() != Level::Daemon || event.duration < SLOW {
            return;
        }
        let Detail::Fuse(fuse) = &mut event.detail else { return };
        if fuse.daemon == 0 {
            return;
        }
        let is_old = |look: &Option<DaemonLook>| look.is_some_and(|look| look.at.saturating_add(HOLDS) < now);
        if self.0.get(&fuse.daemon).is_none_or(is_old) {
            if self.0.len() >= MOST_DAEMONS {
                self.0.clear();
            }
            self.0.insert(fuse.daemon, look(fuse.daemon, now));
        }
        fuse.look = self.0.get(&fuse.daemon).copied().flatten();
    }

    /// An interval is over: who could not be looked at may be there now.
    pub fn interval(&mut self) {
        self.0.retain(|_, look| look.is_some());
    }
}

/// `None` if it is gone, or may not be looked at.
fn look(daemon: u32, now: Nanos) -> Option<DaemonLook> {
    let process = Process::new(i32::try_from(daemon).ok()?).ok()?;
    let mut look = DaemonLook { at: now, ..DaemonLook::default() };
    for task in process.tasks().ok()?.flatten().take(MOST_THREADS) {
        let Ok(stat) = task.stat() else { continue };
        let path = format!("/proc/{daemon}/task/{}/wchan", task.tid);
        count(&mut look, stat.state, &fs::read_to_string(path).unwrap_or_default());
    }
    let open = process.fd().ok()?.flatten().take(MOST_DESCRIPTORS);
    let sockets: HashSet<_> =
        open.filter_map(|fd| if let FDTarget::Socket(inode) = fd.target { Some(inode) } else { None }).collect();
    if !sockets.is_empty() {
        let is_its_own = |entry: &TcpNetEntry| entry.state != TcpState::Listen && sockets.contains(&entry.inode);
        // Those of the daemon's own network namespace.
        let all = [process.tcp(), process.tcp6()].into_iter().flatten().flatten();
        all.filter(is_its_own).for_each(|_| look.connections += 1);
        look.resending = resending(daemon, &sockets);
        look.other_sockets = u32::try_from(sockets.len()).unwrap_or(u32::MAX).saturating_sub(look.connections);
    }
    Some(look)
}

/// Counts one thread, by its state and the kernel's function that it waits in.
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

/// How many of these TCP sockets send again what is not acknowledged: /proc/PID/net/tcp has that in its seventh field, and the inode in its
/// tenth.
fn resending(daemon: u32, sockets: &HashSet<u64>) -> u32 {
    let tables =
        ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{daemon}/net/{name}")).unwrap_or_default());
    let is_resending = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let inode = fields.get(9).and_then(|inode| inode.parse().ok());
        let times = fields.get(6).and_then(|times| u32::from_str_radix(times, 16).ok());
        inode.is_some_and(|inode| sockets.contains(&inode)) && times.is_some_and(|times| times > 0)
    };
    let lines = tables.iter().flat_map(|table| table.lines().skip(1)).filter(is_resending);
    u32::try_from(lines.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn threads_are_counted_by_what_they_wait_for() {
        let mut look = DaemonLook::default();
        for (state, wait) in [
            ('S', "fuse_dev_do_read"),
            ('S', "hrtimer_nanosleep"),
            ('S', "rpc_wait_bit_killable"),
            ('D', "poll"),
            ('R', ""),
            ('T', "do_signal_stop"),
        ] {
            count(&mut look, state, wait);
        }
        assert_eq!((look.threads, look.free, look.on_files, look.running, look.stopped), (6, 1, 2, 1, 1));
    }

    #[test]
    fn connections_are_those_of_the_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = look(std::process::id(), 1).unwrap();
        let _connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let after = look(std::process::id(), 2).unwrap();
        assert!(after.connections > before.connections && after.threads > 0, "{before:?} {after:?}");
    }
}
