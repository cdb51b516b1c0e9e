//! The clients of a process below the front. Each gets shared memory and an eventfd, or the reason why it cannot.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
};

use rustix::net::sockopt::set_socket_send_buffer_size;

use super::{
    DaemonState, arrivals,
    connection::ClientConnection,
    figures::{ProcessFigures, RefusalReason},
    lock,
    peer::ClientCredentials,
    pool::Pool,
    seen,
    watch::Watch,
};
use crate::{
    layout::SharedMapping,
    sys,
    wire::{
        Errno, errno_in,
        hello::{MAGIC, VERSION, Welcome},
    },
};

/// Bytes of the send buffer, which the kernel doubles: there is room for the welcome.
const SEND_BUFFER: usize = 4096;

/// The clients, from their arrival from the front to their end.
pub struct Clients {
    shared: Arc<DaemonState>,
    pool: Arc<Pool>,
    watch: Arc<Watch>,
    /// The slot of this process's figures.
    slot: usize,
    by_id: HashMap<u64, Arc<ClientConnection>>,
}

impl Clients {
    /// An instance without clients.
    pub fn new(shared: Arc<DaemonState>, pool: Arc<Pool>, watch: Arc<Watch>, slot: usize) -> Clients {
        Clients { shared, pool, watch, slot, by_id: HashMap::new() }
    }

    fn figures(&self) -> &ProcessFigures {
        self.shared.figures.process(self.slot)
    }

    /// Whether there are any clients.
    pub fn any(&self) -> bool {
        !self.by_id.is_empty()
    }

    /// Admits a client that the front has handed over, or tells the client why it is refused.
    pub fn enter(&mut self, id: u64, socket: OwnedFd) {
        match self.welcome(id, &socket) {
            Ok(connection) => {
                tracing::debug!("client {id}: process {} of user {}", connection.peer.pid, connection.peer.uid);
                self.shared.figures.accept();
                self.by_id.insert(id, connection);
            }
            Err(errno) => {
                self.shared.figures.refuse(RefusalReason::Resources);
                let _ = arrivals::say(socket.as_fd(), &Welcome::refusal(errno), &[]);
                self.gone();
            }
        }
    }

    /// Counts a client that the front has handed over and that was refused, or has left.
    pub fn gone(&self) {
        self.figures().left.fetch_add(1, Ordering::Relaxed);
    }

    fn welcome(&self, id: u64, socket: &OwnedFd) -> Result<Arc<ClientConnection>, Errno> {
        let failed = |error: io::Error| errno_in(&error);
        let peer = ClientCredentials::of(socket).map_err(failed)?;
        let (memory, mapping) = SharedMapping::create()?;
        let wakeup = sys::eventfd()?;
        // This buffer holds the packets of `MapData` that a client does not receive: a few packets, and no more.
        let _ = set_socket_send_buffer_size(socket, SEND_BUFFER);
        let own = socket.try_clone().map_err(failed)?;
        let connection = Arc::new(ClientConnection::new(id, peer, own, mapping, wakeup));
        seen::publish(&connection, &self.shared);
        self.watch.add(&connection.socket, id)?;
        self.pool.add(connection.clone())?;
        let version = &self.shared.version;
        let text = version.text.to_bytes_with_nul();
        let welcome = Welcome {
            magic: MAGIC,
            version: VERSION,
            status: 0,
            ceph: version.numbers,
            text: if text.len() < 128 { text } else { b"\0" }.to_vec(),
            keeps_names: self.shared.place.keep_names(),
        };
        let descriptors = [memory.as_fd(), connection.wakeup(), self.shared.versions.as_fd()];
        if let Err(errno) = arrivals::say(socket.as_fd(), &welcome, &descriptors) {
            self.watch.remove(&connection.socket);
            self.pool.remove(connection);
            return Err(errno);
        }
        Ok(connection)
    }

    /// Handles a client whose socket is readable. A client sends nothing after its hello: so the client is gone, or violates the protocol.
    pub fn see(&mut self, id: u64) {
        if let Some(connection) = self.by_id.remove(&id) {
            self.leave(connection);
        }
    }

    fn leave(&self, connection: Arc<ClientConnection>) {
        self.watch.remove(&connection.socket);
        self.gone();
        let served = connection.served.load(Ordering::Relaxed);
        tracing::debug!("client {}, process {}, is gone after {served} requests", connection.id, connection.peer.pid);
        self.pool.remove(connection);
    }

    /// Has workers take the clients' releases, and updates the figures.
    pub fn tick(&mut self) {
        let mut handles = 0;
        for connection in self.by_id.values() {
            seen::publish(connection, &self.shared);
            handles += lock(&connection.handles).len();
        }
        if self.any() {
            self.pool.sweep();
        }
        let ((workers, idle), figures) = (self.pool.workers(), self.figures());
        let mounts = u64::from(self.shared.place.is_mounted());
        if let Some(used) = self.shared.place.tend_data() {
            figures.data.store(used as u64, Ordering::Relaxed);
        }
        for (figure, now) in [
            (&figures.handles, handles as u64),
            (&figures.workers, workers as u64),
            (&figures.idle, idle.min(workers) as u64),
            (&figures.mounts, mounts),
        ] {
            figure.store(now, Ordering::Relaxed);
        }
    }

    /// Disconnects all clients, as the process ends in order.
    pub fn close(&mut self) {
        for (_, connection) in std::mem::take(&mut self.by_id) {
            connection.settle();
            self.leave(connection);
        }
    }
}
