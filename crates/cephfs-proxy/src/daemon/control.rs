//! The socket between the front and a process below the front. The front sends what the process needs to start, and then clients, each as a number
//! and a socket. The process reports once that it is ready. After it has mounted, it also reports the configuration of the mount. The end of the
//! socket shows that the other side is gone.

use std::{
    fs::File,
    io::{self, Stdin},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use anyhow::Context;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use super::sessions::SessionNames;
use crate::{sys, wire::Errno};

/// The most bytes of a packet. Packets contain libcephfs's version, or the random number of the sessions' names.
const PACKET_SIZE: usize = 256;

/// Reads a mount's configuration from memory that another process has sent. This changes no file position, since other processes read the same
/// file.
pub fn read_configuration(memory: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; memory.metadata()?.len() as usize];
    memory.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The front's end.
pub struct ProcessControl(OwnedFd);

/// A report of a process.
pub enum ProcessNews {
    /// The process serves clients, with this version of libcephfs.
    Ready(String),
    /// The process has mounted, with the configuration in this memory.
    Mounted(OwnedFd),
    /// The process has ended.
    Gone,
}

/// What a process needs to start.
pub struct ProcessStart {
    /// The process's end of the socket: its standard input.
    pub control: FrontControl,
    /// The names of sessions.
    pub names: SessionNames,
    /// The figures, which all processes share.
    pub figures: OwnedFd,
    /// The configuration with which to mount at once.
    pub configuration: Option<OwnedFd>,
}

impl ProcessControl {
    /// Creates a control, and the other end of its socket for the process's standard input. From there, the process will read what it needs to
    /// start.
    pub fn new(
        names: &SessionNames,
        figures: BorrowedFd<'_>,
        configuration: Option<BorrowedFd<'_>>,
    ) -> Result<(ProcessControl, OwnedFd), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let start =
            [&[names.turn, names.alone.into()], names.number.as_deref().unwrap_or_default().as_bytes()].concat();
        let descriptors: Vec<BorrowedFd<'_>> = [figures].into_iter().chain(configuration).collect();
        sys::send_packet(ours.as_fd(), &start, &descriptors)?;
        Ok((ProcessControl(ours), theirs))
    }

    /// Hands over a client. EPIPE: the process is ending, and takes no more clients.
    pub fn hand_over(&self, id: u64, client: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::send_packet(self.0.as_fd(), &id.to_le_bytes(), &[client])
    }

    /// The process's next report; `None`: there is none.
    pub fn news(&self) -> Option<ProcessNews> {
        let mut packet = [0; PACKET_SIZE];
        match sys::receive_packet(self.0.as_fd(), &mut packet) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok((length, descriptors)) if length > 0 => Some(match descriptors.into_iter().next() {
                Some(configuration) => ProcessNews::Mounted(configuration),
                None => ProcessNews::Ready(String::from_utf8_lossy(&packet[..length]).into_owned()),
            }),
            _ => Some(ProcessNews::Gone),
        }
    }
}

impl AsFd for ProcessControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process's end: its standard input.
pub struct FrontControl(Stdin);

impl FrontControl {
    /// Receives what this process needs to start.
    pub fn begin() -> anyhow::Result<ProcessStart> {
        let control = FrontControl(io::stdin());
        let mut packet = [0; PACKET_SIZE];
        let (length, descriptors) =
            sys::receive_packet(control.as_fd(), &mut packet).context("the standard input is not the daemon's")?;
        let mut descriptors = descriptors.into_iter();
        let figures = descriptors.next().context("there are no figures")?;
        let number = str::from_utf8(packet.get(2..length).unwrap_or_default())?;
        let number = (!number.is_empty()).then(|| number.to_owned());
        let names = SessionNames { number, turn: packet[0], alone: packet[1] != 0 };
        Ok(ProcessStart { control, names, figures, configuration: descriptors.next() })
    }

    /// Whether the front is gone.
    pub fn is_alone(&self) -> bool {
        sys::hung_up(self.as_fd())
    }

    /// Reports that this process serves clients.
    pub fn ready(&self, version: &str) -> Result<(), Errno> {
        let version = version.get(..PACKET_SIZE).unwrap_or(version);
        sys::send_packet(self.as_fd(), if version.is_empty() { b"?" } else { version.as_bytes() }, &[])
    }

    /// Reports the configuration with which this process has mounted.
    pub fn mounted(&self, configuration: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::send_packet(self.as_fd(), b"m", &[configuration])
    }

    /// Receives the next client's number and socket; `None`: no client is waiting.
    pub fn client(&self) -> Result<Option<(u64, OwnedFd)>, Errno> {
        let mut packet = [0; 8];
        match sys::receive_packet(self.as_fd(), &mut packet) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Ok((8, descriptors)) => {
                let socket = descriptors.into_iter().next().ok_or(Errno::MFILE)?;
                Ok(Some((u64::from_le_bytes(packet), socket)))
            }
            Ok(_) => Err(Errno::PIPE),
            Err(errno) => Err(errno),
        }
    }

    /// After this, the front cannot hand over clients. Clients that the front has already handed over can still be received.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(self.as_fd(), Shutdown::Read);
    }
}

impl AsFd for FrontControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
