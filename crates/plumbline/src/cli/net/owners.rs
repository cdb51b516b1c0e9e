//! The processes to which connections belong.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use probes::tasks::{FileIterator, Sockets};

use super::rows::NetRow;

/// The shortest time between two listings of all open files.
const EVERY: Duration = Duration::from_secs(5);
/// The owner of connections of the kernel's own clients.
const KERNEL: &str = "kernel";

/// Processes by the addresses of their connections, in this network namespace.
#[derive(Default)]
pub struct SocketOwners {
    known: HashMap<(SocketAddr, SocketAddr), String>,
    listed: Option<Instant>,
}

impl SocketOwners {
    /// `4711 nginx`, `kernel`, or `-` if the owner is not known. If several processes share the socket, one of them.
    pub fn of(&mut self, row: &NetRow) -> String {
        // Processes may have connections to the server of a mount, too.
        let nobody = if row.mount.is_empty() { "-" } else { KERNEL };
        let (Some(local), Some(peer)) = (row.local, row.peer) else { return nobody.to_owned() };
        let ends = (SocketAddr::from(local), SocketAddr::from(peer));
        if !self.known.contains_key(&ends) && self.listed.is_none_or(|at| at.elapsed() >= EVERY) {
            // Without the iterator, no connection has an owner.
            self.known = list().unwrap_or_default();
            self.listed = Some(Instant::now());
        }
        self.known.get(&ends).cloned().unwrap_or_else(|| nobody.to_owned())
    }
}

fn list() -> anyhow::Result<HashMap<(SocketAddr, SocketAddr), String>> {
    let sockets = Sockets::load()?.all()?;
    let sockets: HashMap<_, _> =
        sockets.iter().map(|socket| (socket.inode(), (socket.local(), socket.remote()))).collect();
    let mut known = HashMap::new();
    FileIterator::load()?.each(|file| {
        if let Some(ends) = sockets.get(&file.inode()).filter(|_| file.is_socket()) {
            known.entry(*ends).or_insert_with(|| format!("{} {}", file.tgid(), file.comm()));
        }
    })?;
    Ok(known)
}
