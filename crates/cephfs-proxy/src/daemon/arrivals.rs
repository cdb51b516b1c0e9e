//! The arrival of clients: the front reads each client's hello, and hands the client over to the process of the place that the hello names. A
//! client that may not connect gets the reason of the refusal.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Limits,
    figures::{ProxyCounters, RefusalReason},
    listener,
    peer::ClientCredentials,
    places::{MountProcesses, Visitor},
    watch::Watch,
};
use crate::{
    sys,
    wire::{
        self, Errno, Malformed, Wire, WireWriter, errno_in,
        hello::{self, Hello, MAGIC, PACKET_SIZE, VERSION, Welcome},
    },
};

/// How long a client may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The clients that have not sent their hello yet.
pub struct Arrivals {
    figures: Arc<ProxyCounters>,
    watch: Arc<Watch>,
    limits: Limits,
    users: Vec<u32>,
    arrived: HashMap<u64, (OwnedFd, Instant)>,
    next: u64,
}

impl Arrivals {
    /// An instance without clients. `users`: the users that may connect, besides root.
    pub fn new(figures: Arc<ProxyCounters>, watch: Arc<Watch>, limits: Limits, users: Vec<u32>) -> Arrivals {
        Arrivals { figures, watch, limits, users, arrived: HashMap::new(), next: 1 }
    }

    /// Accepts all waiting clients.
    pub fn accept(&mut self, listener: &OwnedFd) -> io::Result<()> {
        while let Some(socket) = listener::accept(listener)? {
            let id = self.next;
            self.next += 1;
            self.watch.add(&socket, id)?;
            self.arrived.insert(id, (socket, Instant::now()));
        }
        Ok(())
    }

    /// Handles a client whose socket is readable: the client has sent its hello, or is gone.
    pub fn see(&mut self, id: u64, places: &mut MountProcesses) {
        let Some((socket, _)) = self.arrived.remove(&id) else { return };
        self.watch.remove(&socket);
        let mut packet = [0; PACKET_SIZE];
        let length = match sys::receive_packet(socket.as_fd(), &mut packet) {
            Ok((length, _)) if length > 0 => length,
            _ => return,
        };
        let entered = self.place(&packet[..length]).and_then(|place| {
            let uid = self.admit(&socket, places)?;
            Ok(Visitor { id, uid, place, socket: socket.try_clone().map_err(|error| self.lacking(&error))? })
        });
        if let Err((errno, why)) = entered.and_then(|visitor| places.hand_over(visitor)) {
            self.figures.refuse(why);
            let _ = say(socket.as_fd(), &Welcome::refusal(errno), &[]);
        }
    }

    /// The place that a client's hello names.
    fn place(&self, packet: &[u8]) -> Result<u64, Refusal> {
        match hello::spoken(packet) {
            Ok((MAGIC, VERSION)) => wire::decode::<Hello>(packet)
                .map(|hello| hello.place)
                .map_err(|_| (Errno::PROTO, RefusalReason::Protocol)),
            Ok((MAGIC, version)) => {
                tracing::warn!("a client speaks version {version} of the protocol; this daemon speaks {VERSION}");
                Err((Errno::PROTONOSUPPORT, RefusalReason::Protocol))
            }
            _ => Err((Errno::PROTO, RefusalReason::Protocol)),
        }
    }

    /// Checks that the client may connect. Returns its user.
    fn admit(&self, socket: &OwnedFd, places: &MountProcesses) -> Result<u32, Refusal> {
        let peer = ClientCredentials::of(socket).map_err(|error| self.lacking(&error))?;
        if peer.uid != 0 && !self.users.contains(&peer.uid) {
            tracing::warn!("process {} of user {} may not connect: see --allow-user", peer.pid, peer.uid);
            return Err((Errno::ACCESS, RefusalReason::User));
        }
        let clients = self.arrived.len() + places.clients();
        if clients >= self.limits.clients {
            tracing::warn!("there are {clients} clients already: see --max-clients");
            return Err((Errno::USERS, RefusalReason::Connections));
        }
        Ok(peer.uid)
    }

    fn lacking(&self, error: &io::Error) -> Refusal {
        (errno_in(error), RefusalReason::Resources)
    }

    /// Drops clients that sent no hello in time.
    pub fn tick(&mut self) {
        let before = self.arrived.len();
        self.arrived.retain(|_, (_, since)| since.elapsed() <= HELLO_TIMEOUT);
        if self.arrived.len() < before {
            tracing::debug!("{} never said hello", before - self.arrived.len());
        }
    }
}

/// Why a client is refused: the errno for the client, and the reason for the figures.
pub type Refusal = (Errno, RefusalReason);

/// Answers a client's hello.
pub fn say(socket: BorrowedFd<'_>, welcome: &Welcome, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut room = [0; PACKET_SIZE];
    let mut writer = WireWriter::new(&mut room);
    welcome.put(&mut writer).map_err(|_: Malformed| Errno::PROTO)?;
    sys::send_packet(socket, writer.written(), descriptors)
}
