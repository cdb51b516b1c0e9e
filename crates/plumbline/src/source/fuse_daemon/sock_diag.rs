//! Asks the kernel for the connections of one network namespace by sock_diag(7), as `ss` does. The kernel needs inet_diag, tcp_diag and
//! unix_diag; if they are modules, it loads them itself.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use model::DaemonConnection;
use nix::sys::socket::SockProtocol;
use probes::netlink::{Asked, Netlink, attribute, u32_at, u64_at};

/// The most sockets of one namespace that are read.
const MOST_SOCKETS: usize = 65_536;

// include/uapi/linux/sock_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_UNIX: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
// include/uapi/linux/inet_diag.h and unix_diag.h
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
const SOCKET_ID: usize = 48;
const INET_DIAG_MSG: usize = 72;
const UNIX_DIAG_MSG: usize = 16;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// All states but TIME_WAIT (6), CLOSE (7), LISTEN (10) and NEW_SYN_RECV (12) of include/net/tcp_states.h.
const CONNECTED: u32 = 0b1011_0011_1110;

/// A netlink socket in one network namespace.
#[derive(Debug)]
pub struct SockDiag(Netlink);

/// The kernel's name of a TCP connection: addresses, ports and the socket's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId {
    family: u8,
    id: [u8; SOCKET_ID],
}

/// The counters of a connection since it was established.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionTotals {
    /// Retransmitted segments.
    pub resent: u32,
    /// Retransmitted segments that the peer reported as unnecessary.
    pub needless: u32,
    /// Segments that arrived out of order.
    pub out_of_order: u32,
    /// Segments without data that were sent.
    pub acks: u32,
    /// Bytes received.
    pub received: u64,
}

/// A connection and its counters.
#[derive(Debug, Clone, Copy)]
pub struct SeenConnection {
    /// Without `pid`, and without the changes since an earlier look.
    pub now: DaemonConnection,
    pub totals: ConnectionTotals,
}

impl SockDiag {
    /// Opens a socket in the network namespace of a process.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered, or this kernel has no sock_diag.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Netlink::of_process(pid, SockProtocol::NetlinkSockDiag).map(Self)
    }

    /// Calls `see` for every TCP connection, with the inode of its socket.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or there are more than [`MOST_SOCKETS`].
    pub fn tcp(&self, see: &mut dyn FnMut(u64, ConnectionId)) -> io::Result<()> {
        for family in [AF_INET, AF_INET6] {
            let mut count = 0;
            let request = tcp_request(family, 0, &[0; SOCKET_ID]);
            self.0.ask(SOCK_DIAG_BY_FAMILY, Asked::All, &request, &mut |message| {
                count += 1;
                if let (Some(inode), Some(id)) = (u32_at(message, INET_DIAG_MSG - 4), id_of(message)) {
                    see(inode.into(), id);
                }
                count < MOST_SOCKETS
            })?;
        }
        Ok(())
    }

    /// One connection as it is now; `None` if it is gone.
    pub fn connection(&self, id: ConnectionId) -> Option<SeenConnection> {
        let mut found = None;
        let request = tcp_request(id.family, 1 << (INET_DIAG_INFO - 1), &id.id);
        let mut see = |message: &[u8]| {
            found = connection_of(message);
            false
        };
        self.0.ask(SOCK_DIAG_BY_FAMILY, Asked::One, &request, &mut see).ok()?;
        found
    }

    /// The inode of the socket at the other end of a Unix socket; `None` if there is none.
    pub fn peer_of_local(&self, inode: u64) -> Option<u64> {
        let mut request = vec![AF_UNIX, 0, 0, 0];
        // All states, the inode, the wanted attributes, and no cookie.
        for word in [u32::MAX, u32::try_from(inode).ok()?, UDIAG_SHOW_PEER, u32::MAX, u32::MAX] {
            request.extend(word.to_ne_bytes());
        }
        let mut found = None;
        let mut see = |message: &[u8]| {
            found = attribute(message.get(UNIX_DIAG_MSG..).unwrap_or_default(), UNIX_DIAG_PEER)
                .and_then(|peer| u32_at(peer, 0));
            false
        };
        self.0.ask(SOCK_DIAG_BY_FAMILY, Asked::One, &request, &mut see).ok()?;
        found.filter(|peer| *peer != 0).map(Into::into)
    }
}

/// A `struct inet_diag_req_v2`.
fn tcp_request(family: u8, extensions: u8, id: &[u8; SOCKET_ID]) -> Vec<u8> {
    let mut request = vec![family, IPPROTO_TCP, extensions, 0];
    request.extend(CONNECTED.to_ne_bytes());
    request.extend(id);
    request
}

/// The id in a `struct inet_diag_msg`.
fn id_of(message: &[u8]) -> Option<ConnectionId> {
    let family = *message.first()?;
    let id = message.get(4..4 + SOCKET_ID)?.try_into().ok()?;
    Some(ConnectionId { family, id })
}

fn connection_of(message: &[u8]) -> Option<SeenConnection> {
    let id = id_of(message)?;
    let info = attribute(message.get(INET_DIAG_MSG..)?, INET_DIAG_INFO)?;
    // Offsets in struct tcp_info (include/uapi/linux/tcp.h), which grows at its end only: what an older kernel lacks is 0.
    let word = |at: usize| u32_at(info, at).unwrap_or(0);
    let timeouts = info.get(2).copied().unwrap_or(0);
    let now = DaemonConnection {
        peer: peer_of(id),
        rtt_us: word(68),
        // The field is all ones until there is a sample.
        min_rtt_us: Some(word(148)).filter(|least| *least != u32::MAX).unwrap_or(0),
        unacknowledged: word(24),
        resending: word(36).max(timeouts.into()),
        unsent: word(144),
        unread: u32_at(message, 56)?,
        sent_ms: word(44),
        received_ms: word(52),
        acknowledged_ms: word(56),
        ..DaemonConnection::default()
    };
    let totals = ConnectionTotals {
        resent: word(100),
        needless: word(216),
        out_of_order: word(224),
        acks: word(136).wrapping_sub(word(156)),
        received: u64_at(info, 128).unwrap_or(0),
    };
    Some(SeenConnection { now, totals })
}

/// The peer's port and address, each after the local one and in network byte order.
fn peer_of(ConnectionId { family, id }: ConnectionId) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(id.get(2..4)?.try_into().ok()?);
    let address = id.get(20..36)?;
    let address = match family {
        AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(address.get(..4)?).ok()?)),
        _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(address, port))
}
