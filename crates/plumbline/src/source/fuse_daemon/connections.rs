//! The TCP connections of a FUSE daemon and its helpers.

use std::collections::{HashMap, HashSet};

use model::DaemonConnection;

use super::sock_diag::{ConnectionId, ConnectionTotals, SockDiag};

/// The most connections that the kernel is asked for at one look, and the most that a look returns.
const MOST_ASKED: usize = 64;
const MOST_TOLD: usize = 8;

/// The counters of a connection at the last look.
#[derive(Debug, Clone, Copy)]
struct SeenBefore {
    totals: ConnectionTotals,
    /// The number of segments without data that the connection had sent at the look before data last arrived; `None` if none has arrived since the
    /// first look.
    acks: Option<u32>,
}

/// What is known of the sockets of one daemon.
#[derive(Debug, Default)]
pub struct Connections {
    /// The sockets of the daemon and its helpers, by inode; `None`: not a TCP connection.
    sockets: HashMap<u64, Option<ConnectionId>>,
    before: HashMap<u64, SeenBefore>,
}

impl Connections {
    /// Whether a socket is known to be a TCP connection.
    pub fn is_tcp(&self, inode: u64) -> bool {
        self.sockets.get(&inode).is_some_and(Option::is_some)
    }

    /// Finds out which of these sockets are TCP connections. Asks the kernel only if a socket is not known yet.
    ///
    /// # Errors
    ///
    /// Those of [`SockDiag::tcp`].
    pub fn learn(&mut self, sockets: &HashSet<u64>, diag: &SockDiag) -> std::io::Result<()> {
        self.sockets.retain(|inode, _| sockets.contains(inode));
        if sockets.iter().all(|inode| self.sockets.contains_key(inode)) {
            return Ok(());
        }
        let mut found: HashMap<u64, Option<ConnectionId>> = sockets.iter().map(|inode| (*inode, None)).collect();
        diag.tcp(&mut |inode, id| {
            found.entry(inode).and_modify(|known| *known = Some(id));
        })?;
        self.sockets = found;
        Ok(())
    }

    /// The TCP connections among the sockets of these processes. Those that wait for an acknowledgement come first, then those used last.
    /// `is_fresh`: the previous look is recent, so that the changes since then are returned.
    pub fn look(&mut self, owners: &[(u32, HashSet<u64>)], diag: &SockDiag, is_fresh: bool) -> Vec<DaemonConnection> {
        let mut now = HashMap::new();
        let mut seen = Vec::new();
        let sockets = owners.iter().flat_map(|(pid, sockets)| sockets.iter().map(move |inode| (*pid, *inode)));
        for (pid, inode) in sockets.filter(|(_, inode)| self.is_tcp(*inode)).take(MOST_ASKED) {
            let id = self.sockets.get(&inode).copied().flatten();
            // Processes may share a socket.
            if now.contains_key(&inode) {
                continue;
            }
            let Some(found) = id.and_then(|id| diag.connection(id)) else { continue };
            let fresh = SeenBefore { totals: found.totals, acks: None };
            let before = self.before.get(&inode).filter(|_| is_fresh).copied().unwrap_or(fresh);
            let (totals, past) = (found.totals, before.totals);
            let acks = if totals.received == past.received { before.acks } else { Some(past.acks) };
            now.insert(inode, SeenBefore { totals, acks });
            seen.push(DaemonConnection {
                pid,
                resent: totals.resent.saturating_sub(past.resent),
                needless: totals.needless.saturating_sub(past.needless),
                out_of_order: totals.out_of_order.saturating_sub(past.out_of_order),
                acks: acks.map(|acks| totals.acks.wrapping_sub(acks)),
                received: totals.received.saturating_sub(past.received),
                ..found.now
            });
        }
        self.before = now;
        seen.sort_by_key(|one| (one.unacknowledged == 0, one.sent_ms.min(one.received_ms)));
        seen.truncate(MOST_TOLD);
        seen
    }
}
