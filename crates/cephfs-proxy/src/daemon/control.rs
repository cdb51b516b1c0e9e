//! The socket between the front and a process below it. The front sends what the process starts with, and then clients:
//! each one's number and socket. The process says once that it is ready, and, when it has mounted, with which
//! configuration. The socket's end shows that the other is gone.

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

/// The most bytes of a packet: libcephfs's version, or the random number of the sessions' names.
const PACKET_SIZE: usize = 256;

/// The configuration of a mount in memory that another process has sent. Others read it, too: nobody's position is moved.
pub fn read_configuration(memory: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; memory.metadata()?.len() as usize];
    memory.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The front's end.
pub struct ProcessControl(OwnedFd);

/// What the front hears from a process.
pub enum ProcessNews {
    /// It serves, with this version of libcephfs.
    Ready(String),
    /// It has mounted, with the configuration in this memory.
    Mounted(OwnedFd),
    /// It has ended.
    Gone,
}

/// What a process starts with.
pub struct ProcessStart {
    /// The end of the socket: its standard input.
    pub control: FrontControl,
    /// The names of sessions.
    pub names: SessionNames,
    /// The figures, which all processes share.
    pub figures: OwnedFd,
    /// The configuration with which to mount at once.
    pub configuration: Option<OwnedFd>,
}

impl ProcessControl {
    /// A control, and the other end for the process's standard input. The process will find there what it starts with.
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

    /// Hands over a client. EPIPE: the process takes no more clients, as it ends.
    pub fn hand_over(&self, id: u64, client: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::send_packet(self.0.as_fd(), &id.to_le_bytes(), &[client])
    }

    /// What the process has said; `None`: nothing.
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
    /// What the process starts with.
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

    /// Says that this process serves.
    pub fn ready(&self, version: &str) -> Result<(), Errno> {
        let version = version.get(..PACKET_SIZE).unwrap_or(version);
        sys::send_packet(self.as_fd(), if version.is_empty() { b"?" } else { version.as_bytes() }, &[])
    }

    /// Says with which configuration this process has mounted.
    pub fn mounted(&self, configuration: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::send_packet(self.as_fd(), b"m", &[configuration])
    }

    /// The next client, its number and its socket; `None`: none now.
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

    /// From now on, the front cannot hand over clients. Those that it has handed over can still be received.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(self.as_fd(), Shutdown::Read);
    }
}

impl AsFd for FrontControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
