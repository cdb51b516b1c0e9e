//! Asks the kernel for the connections of one network namespace: sock_diag(7), the way of `ss`. It needs the kernel's inet_diag,
//! tcp_diag and unix_diag, which it loads by itself where they are modules.

use std::{
    cell::{Cell, RefCell},
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    thread,
};

use model::DaemonConnection;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Sockets of one namespace that are gone through at most.
const MOST_SOCKETS: usize = 65_536;
/// What the kernel puts into one message at most.
const BUFFER: usize = 32 << 10;

// include/uapi/linux/netlink.h and sock_diag.h
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
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

/// A socket of netlink in one network namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    sequence: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
}

/// What names a TCP connection to the kernel: addresses, ports and the cookie of its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId {
    family: u8,
    id: [u8; SOCKET_ID],
}

/// What a connection has counted since it was made.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionTotals {
    /// Segments that were sent again.
    pub resent: u32,
    /// Of these, the ones that the peer called needless.
    pub needless: u32,
    /// Segments that came out of order.
    pub out_of_order: u32,
    /// Segments without data that were sent.
    pub acks: u32,
    /// Bytes that have come.
    pub received: u64,
}

/// A connection, and its totals.
#[derive(Debug, Clone, Copy)]
pub struct SeenConnection {
    /// `pid` is not filled in, nor is what is counted since another look.
    pub now: DaemonConnection,
    pub totals: ConnectionTotals,
}

impl SockDiag {
    /// In the network namespace of a process.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered, or this kernel has no sock_diag.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
        let open = move || {
            probes::enter_network_namespace(&namespace)?;
            let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag);
            Ok(socket(kind.0, kind.1, kind.2, kind.3)?)
        };
        // A thread of its own, since entering a namespace changes the thread for good.
        let thread = thread::Builder::new().name("namespace".into()).spawn(open)?;
        let socket: io::Result<OwnedFd> =
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that opens a socket died")));
        Ok(Self { socket: socket?, sequence: Cell::new(0), buffer: RefCell::new(Vec::new()) })
    }

    /// Every TCP connection, by the inode of its socket.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or there are more than can be gone through.
    pub fn tcp(&self, see: &mut dyn FnMut(u64, ConnectionId)) -> io::Result<()> {
        for family in [AF_INET, AF_INET6] {
            let mut count = 0;
            let request = tcp_request(family, 0, &[0; SOCKET_ID]);
            self.ask(&request, NLM_F_DUMP, &mut |message| {
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
        self.ask(&request, 0, &mut see).ok()?;
        found
    }

    /// The inode of the socket at the other end of a local one; `None` if there is none.
    pub fn peer_of_local(&self, inode: u64) -> Option<u64> {
        let mut request = vec![AF_UNIX, 0, 0, 0];
        // All states, the inode, what is to be told, and no cookie.
        for word in [u32::MAX, u32::try_from(inode).ok()?, UDIAG_SHOW_PEER, u32::MAX, u32::MAX] {
            request.extend(word.to_ne_bytes());
        }
        let mut found = None;
        let mut see = |message: &[u8]| {
            found = attribute(message.get(UNIX_DIAG_MSG..).unwrap_or_default(), UNIX_DIAG_PEER)
                .and_then(|peer| u32_at(peer, 0));
            false
        };
        self.ask(&request, 0, &mut see).ok()?;
        found.filter(|peer| *peer != 0).map(Into::into)
    }

    /// Asks, and shows each message of the answer, until `see` wants no more.
    fn ask(&self, request: &[u8], flags: u16, see: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<()> {
        self.sequence.set(self.sequence.get().wrapping_add(1));
        let sequence = self.sequence.get();
        let length = u32::try_from(HEADER + request.len()).map_err(io::Error::other)?;
        let mut message = Vec::with_capacity(HEADER + request.len());
        message.extend(length.to_ne_bytes());
        message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(request);
        let socket = self.socket.as_raw_fd();
        send(socket, &message, MsgFlags::empty())?;
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(BUFFER, 0);
        loop {
            // The kernel answers within the call that asks or the one that reads.
            let read = recv(socket, &mut buffer, MsgFlags::MSG_DONTWAIT)?;
            let mut rest = buffer.get(..read).unwrap_or_default();
            while let Some(length) = u32_at(rest, 0).and_then(|length| usize::try_from(length).ok()) {
                let Some(body) = rest.get(HEADER..length) else {
                    return Err(io::Error::other("sock_diag answered with a message that is cut off"));
                };
                let (kind, of) = (u16_at(rest, 4), u32_at(rest, 8));
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                match kind {
                    _ if of != Some(sequence) => {}
                    Some(NLMSG_DONE) => return Ok(()),
                    Some(NLMSG_ERROR) => {
                        let errno = u32_at(body, 0).unwrap_or(0).cast_signed();
                        return if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-errno)) };
                    }
                    _ if !see(body) => {
                        let is_one = flags & NLM_F_DUMP == 0;
                        return if is_one { Ok(()) } else { Err(io::Error::other("too many sockets")) };
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A `struct inet_diag_req_v2`.
fn tcp_request(family: u8, extensions: u8, id: &[u8; SOCKET_ID]) -> Vec<u8> {
    let mut request = vec![family, IPPROTO_TCP, extensions, 0];
    request.extend(CONNECTED.to_ne_bytes());
    request.extend(id);
    request
}

/// Of a `struct inet_diag_msg`.
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
        // It is all ones until there is a sample.
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

/// The port is after the own one, the address after the own one, both in the network's byte order.
fn peer_of(ConnectionId { family, id }: ConnectionId) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(id.get(2..4)?.try_into().ok()?);
    let address = id.get(20..36)?;
    let address = match family {
        AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(address.get(..4)?).ok()?)),
        _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(address, port))
}

/// The content of the attribute of this kind (struct rtattr).
fn attribute(mut rest: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let content = rest.get(4..length)?;
        if u16_at(rest, 2)? == kind {
            return Some(content);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
