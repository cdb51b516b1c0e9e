//! Whose connections they are.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use probes::tasks::{FileIterator, Sockets};

use super::rows::NetRow;

/// All open files are listed at most this often.
const EVERY: Duration = Duration::from_secs(5);
/// What the kernel's own clients send on.
const KERNEL: &str = "kernel";

/// Processes by the ends of their connections, of this network namespace.
#[derive(Default)]
pub struct SocketOwners {
    known: HashMap<(SocketAddr, SocketAddr), String>,
    listed: Option<Instant>,
}

impl SocketOwners {
    /// `4711 nginx`, `kernel`, or `-` if that is not known. Of several with the same socket, one.
    pub fn of(&mut self, row: &NetRow) -> String {
        // A process may have a connection to the server of a mount, too.
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
