//! The TCP connections of a FUSE daemon and its helpers.

use std::collections::{HashMap, HashSet};

use model::DaemonConnection;

use super::sock_diag::{ConnectionId, ConnectionTotals, SockDiag};

/// Connections that are asked for at one look, and those that a look has.
const MOST_ASKED: usize = 64;
const MOST_TOLD: usize = 8;

/// What a connection had counted at the last look.
#[derive(Debug, Clone, Copy)]
struct SeenBefore {
    totals: ConnectionTotals,
    /// How many segments without data it had sent at the look before data last came; `None` if none has come since it was first seen.
    acks: Option<u32>,
}

/// What is known of the sockets of one daemon.
#[derive(Debug, Default)]
pub struct Connections {
    /// Its sockets and those of its helpers, by inode; `None`: no TCP connection.
    sockets: HashMap<u64, Option<ConnectionId>>,
    before: HashMap<u64, SeenBefore>,
}

impl Connections {
    /// Whether a socket is known to be a TCP connection.
    pub fn is_tcp(&self, inode: u64) -> bool {
        self.sockets.get(&inode).is_some_and(Option::is_some)
    }

    /// Finds out which of these sockets are TCP connections. The kernel is only asked for all if some are not known yet.
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

    /// The connections among the sockets of these processes, those first that wait for an acknowledgement or were used last.
    /// `is_fresh`: the look before was lately, so that what changed since is told.
    pub fn look(&mut self, owners: &[(u32, HashSet<u64>)], diag: &SockDiag, is_fresh: bool) -> Vec<DaemonConnection> {
        let mut now = HashMap::new();
        let mut seen = Vec::new();
        let sockets = owners.iter().flat_map(|(pid, sockets)| sockets.iter().map(move |inode| (*pid, *inode)));
        for (pid, inode) in sockets.filter(|(_, inode)| self.is_tcp(*inode)).take(MOST_ASKED) {
            let id = self.sockets.get(&inode).copied().flatten();
            // Processes may share it.
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
