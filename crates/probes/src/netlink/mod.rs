//! Asks the kernel of one network namespace by netlink(7).

mod route;

use std::{
    cell::{Cell, RefCell},
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    thread,
};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::tcp::enter_network_namespace;

/// The largest message that the kernel sends.
const BUFFER: usize = 32 << 10;

// include/uapi/linux/netlink.h
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// The bits of an attribute's kind that are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const NLA_FLAGS: u16 = 0xc000;

/// A socket of netlink in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
}

/// The number of objects that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// One object.
    One,
    /// All objects.
    All,
}

impl Netlink {
    /// In the network namespace of a process.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered, or this kernel has no such protocol.
    pub fn of_process(pid: u32, protocol: SockProtocol) -> io::Result<Self> {
        let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
        let open = move || {
            enter_network_namespace(&namespace)?;
            Ok(socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?)
        };
        // A thread of its own, since entering a namespace changes the thread for good.
        let thread = thread::Builder::new().name("namespace".into()).spawn(open)?;
        let socket: io::Result<OwnedFd> =
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that opens a socket died")));
        Ok(Self { socket: socket?, sequence: Cell::new(0), buffer: RefCell::new(Vec::new()) })
    }

    /// Sends a request, and passes each message of the answer to `see`, until `see` wants no more.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or there are more objects than `see` wants.
    pub fn ask(&self, kind: u16, asked: Asked, request: &[u8], see: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<()> {
        self.sequence.set(self.sequence.get().wrapping_add(1));
        let sequence = self.sequence.get();
        let length = u32::try_from(HEADER + request.len()).map_err(io::Error::other)?;
        let mut message = Vec::with_capacity(HEADER + request.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        let flags = if asked == Asked::All { NLM_F_REQUEST | NLM_F_DUMP } else { NLM_F_REQUEST };
        message.extend(flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(request);
        let socket = self.socket.as_raw_fd();
        send(socket, &message, MsgFlags::empty())?;
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(BUFFER, 0);
        loop {
            // The kernel answers within the call that sends the request, or within the call that reads.
            let read = recv(socket, &mut buffer, MsgFlags::MSG_DONTWAIT)?;
            let mut rest = buffer.get(..read).unwrap_or_default();
            while let Some(length) = u32_at(rest, 0).and_then(|length| usize::try_from(length).ok()) {
                let Some(body) = rest.get(HEADER..length) else {
                    return Err(io::Error::other("netlink answered with a message that is cut off"));
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
                        return if asked == Asked::One {
                            Ok(())
                        } else {
                            Err(io::Error::other("too many to go through"))
                        };
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The content of the attribute of this kind (struct rtattr).
pub fn attribute(mut rest: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let content = rest.get(4..length)?;
        if u16_at(rest, 2)? & !NLA_FLAGS == kind {
            return Some(content);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// The number at this place.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The number at this place.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The number at this place.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
