//! Accepts clients. A client that may connect gets shared memory and an eventfd; any other gets the reason of the
//! refusal.

use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{
    DaemonState, connection::ClientConnection, figures::RefusalReason, peer::ClientCredentials, pool::Pool, run, seen,
};
use crate::{
    layout::SharedMapping,
    sys,
    wire::{
        self, Errno, Malformed, Wire, WireWriter, errno_in,
        hello::{Hello, MAGIC, PACKET_SIZE, VERSION, Welcome},
    },
};

/// How long a client may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

enum ClientStage {
    Arrived { socket: OwnedFd, since: Instant },
    Welcomed(Arc<ClientConnection>),
}

/// All clients, from `accept` to their end.
pub struct Lobby {
    shared: Arc<DaemonState>,
    pool: Arc<Pool>,
    users: Vec<u32>,
    epoll: OwnedFd,
    clients: HashMap<u64, ClientStage>,
    next: u64,
}

impl Lobby {
    /// A lobby without clients. `users`: those that may connect, besides root.
    pub fn new(shared: Arc<DaemonState>, pool: Arc<Pool>, users: Vec<u32>) -> io::Result<Lobby> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Lobby { shared, pool, users, epoll, clients: HashMap::new(), next: 1 })
    }

    /// Adds a descriptor to wait for; [`Lobby::wait`] reports it by `id`.
    pub fn watch(&self, fd: &impl AsFd, id: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(id), EventFlags::IN | EventFlags::RDHUP)
    }

    /// Removes a descriptor.
    pub fn forget(&self, fd: &impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits at most for `limit`. Returns the ids of readable descriptors.
    pub fn wait(&self, limit: Duration) -> io::Result<Vec<u64>> {
        let mut room = [MaybeUninit::uninit(); 64];
        match epoll::wait(&self.epoll, &mut room, Some(&sys::timespec(limit))) {
            Ok((events, _)) => Ok(events.iter().map(|event| event.data.u64()).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts all waiting clients.
    pub fn accept(&mut self, listener: &OwnedFd) -> io::Result<()> {
        while let Some(socket) = run::accept(listener)? {
            let id = self.next;
            self.next += 1;
            self.watch(&socket, id)?;
            self.clients.insert(id, ClientStage::Arrived { socket, since: Instant::now() });
        }
        Ok(())
    }

    /// Handles a client whose socket is readable: it has sent its hello, or is gone.
    pub fn see(&mut self, id: u64) {
        match self.clients.remove(&id) {
            Some(ClientStage::Arrived { socket, .. }) => self.arrived(id, socket),
            // A client sends nothing after its hello: it is gone, or it violates the protocol.
            Some(ClientStage::Welcomed(connection)) => self.leave(connection),
            None => {}
        }
    }

    fn leave(&self, connection: Arc<ClientConnection>) {
        self.forget(&connection.socket);
        let served = connection.served.load(std::sync::atomic::Ordering::Relaxed);
        tracing::debug!("client {}, process {}, is gone after {served} requests", connection.id, connection.peer.pid);
        self.pool.remove(connection);
    }

    fn arrived(&mut self, id: u64, socket: OwnedFd) {
        let mut packet = [0; PACKET_SIZE];
        let hello = match sys::receive_packet(socket.as_fd(), &mut packet) {
            Ok((length, _)) if length > 0 => wire::decode::<Hello>(&packet[..length]),
            _ => return,
        };
        let result = match hello {
            Ok(hello) if hello.magic == MAGIC && hello.version == VERSION => self.welcome(id, &socket),
            Ok(hello) if hello.magic == MAGIC => {
                tracing::warn!(
                    "a client speaks version {} of the protocol; this daemon speaks {VERSION}",
                    hello.version
                );
                self.shared.figures.refuse(RefusalReason::Protocol);
                Err(Errno::PROTONOSUPPORT)
            }
            _ => {
                self.shared.figures.refuse(RefusalReason::Protocol);
                Err(Errno::PROTO)
            }
        };
        match result {
            Ok(connection) => {
                self.clients.insert(id, ClientStage::Welcomed(connection));
            }
            Err(errno) => {
                let _ = self.say(socket.as_fd(), errno.raw_os_error(), &[]);
                self.forget(&socket);
            }
        }
    }

    fn welcome(&mut self, id: u64, socket: &OwnedFd) -> Result<Arc<ClientConnection>, Errno> {
        let figures = &self.shared.figures;
        let failed = |error: Errno| {
            figures.refuse(RefusalReason::Resources);
            error
        };
        let peer = ClientCredentials::of(socket).map_err(|error| failed(errno_in(&error)))?;
        if peer.uid != 0 && !self.users.contains(&peer.uid) {
            tracing::warn!("process {} of user {} may not connect: see --allow-user", peer.pid, peer.uid);
            self.shared.figures.refuse(RefusalReason::User);
            return Err(Errno::ACCESS);
        }
        if self.clients.len() >= self.shared.limits.clients {
            tracing::warn!("there are {} clients already: see --max-clients", self.clients.len());
            self.shared.figures.refuse(RefusalReason::Connections);
            return Err(Errno::USERS);
        }
        let (memory, mapping) = SharedMapping::create().map_err(failed)?;
        let wakeup = sys::eventfd().map_err(failed)?;
        let own = socket.try_clone().map_err(|error| failed(errno_in(&error)))?;
        let connection = Arc::new(ClientConnection::new(id, peer, own, mapping, wakeup, self.shared.preparing.clone()));
        seen::publish(&connection, &self.shared);
        self.forget(socket);
        self.watch(&connection.socket, id).map_err(failed)?;
        self.pool.add(connection.clone()).map_err(failed)?;
        if let Err(error) =
            self.say(socket.as_fd(), 0, &[memory.as_fd(), connection.wakeup(), self.shared.versions.as_fd()])
        {
            self.leave(connection);
            return Err(failed(error));
        }
        self.shared.figures.connections.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("client {id}: process {} of user {}", connection.peer.pid, connection.peer.uid);
        Ok(connection)
    }

    fn say(&self, socket: BorrowedFd<'_>, status: i32, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        let version = &self.shared.version;
        let text = version.text.to_bytes_with_nul();
        let text = if text.len() < 128 { text } else { b"\0" };
        let welcome = Welcome {
            magic: MAGIC,
            version: VERSION,
            status,
            ceph: version.numbers,
            text: text.to_vec(),
            keeps_names: self.shared.mounts.keep_names(),
        };
        let mut room = [0; PACKET_SIZE];
        let mut writer = WireWriter::new(&mut room);
        welcome.put(&mut writer).map_err(|_: Malformed| Errno::PROTO)?;
        sys::send_packet(socket, writer.written(), descriptors)
    }

    /// Drops clients that sent no hello in time, and has a worker take releases.
    pub fn tick(&mut self) {
        let before = self.clients.len();
        self.clients.retain(
            |_, client| !matches!(client, ClientStage::Arrived { since, .. } if since.elapsed() > HELLO_TIMEOUT),
        );
        if self.clients.len() < before {
            tracing::debug!("{} never said hello", before - self.clients.len());
        }
        for client in self.clients.values() {
            if let ClientStage::Welcomed(connection) = client {
                seen::publish(connection, &self.shared);
            }
        }
        if !self.clients.is_empty() {
            self.pool.sweep();
        }
    }

    /// Accepts no more clients, and disconnects all.
    pub fn close(&mut self) {
        for (_, client) in std::mem::take(&mut self.clients) {
            if let ClientStage::Welcomed(connection) = client {
                connection.settle();
                self.leave(connection);
            }
        }
    }
}
