//! TCP and UDP sockets of our network namespace.

use std::net::{Ipv6Addr, SocketAddr};

use crate::{generated::socket_record, iterator::KernelIterator, tcp};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sockets.bpf.o"));

/// The iterators over sockets, loaded.
pub struct Sockets(KernelIterator);

impl Sockets {
    /// Loads them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses them: it takes BTF and permission.
    pub fn load() -> libbpf_rs::Result<Self> {
        KernelIterator::load(OBJECT, &[]).map(Self)
    }

    /// All that are there now.
    ///
    /// # Errors
    ///
    /// When reading fails.
    pub fn all(&self) -> libbpf_rs::Result<Vec<ProcessSocket>> {
        Ok(self.0.records()?.into_iter().map(ProcessSocket).collect())
    }
}

/// A socket.
#[derive(Clone, Copy)]
pub struct ProcessSocket(socket_record);

impl ProcessSocket {
    /// The inode number of its file; 0 if the socket has no file any more.
    pub fn inode(&self) -> u64 {
        self.0.inode
    }

    /// `tcp` or `udp`.
    pub fn protocol(&self) -> &'static str {
        if self.0.protocol == 6 { "tcp" } else { "udp" }
    }

    /// TCP's name for its state; of UDP, `ESTABLISHED` if it has a peer, else `CLOSE`.
    pub fn state(&self) -> &'static str {
        tcp::state_name(self.0.state.into()).unwrap_or("?")
    }

    /// Where it is here.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.0.local).to_canonical(), self.0.local_port)
    }

    /// Where it leads; a port of 0 if nowhere.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.0.remote).to_canonical(), self.0.remote_port)
    }

    /// For TCP: bytes written that the peer has not acknowledged, and bytes received that no reader has taken.
    pub fn queues(&self) -> (u32, u32) {
        (self.0.send_queue, self.0.receive_queue)
    }
}
