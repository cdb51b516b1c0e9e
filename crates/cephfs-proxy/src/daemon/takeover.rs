//! How a daemon takes over from a running one. The new daemon connects to the door of the old one, a socket in the folder of --state. Both use this
//! connection until the old daemon has ended:
//!
//! 1. The new daemon states its versions. The old one answers with its mounts, and continues to serve.
//! 2. The new daemon mounts the same, and reports that. If it fails, or ends, nothing has changed.
//! 3. The old daemon passes the listening socket, the lock of the folder and the door. It flushes what clients wrote, and disconnects the clients,
//!    which connect to the new daemon.
//! 4. After the old daemon has unmounted everything, it reports that it has ended well.

use std::{
    fs,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::Path,
    process,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::Mode,
    net::sockopt::{Timeout, set_socket_timeout},
    process::geteuid,
};

use super::{
    FAREWELL, listener,
    peer::ClientCredentials,
    places::{MountProcesses, PATIENCE},
};
use crate::{
    sys,
    wire::{self, Errno, Malformed, Wire, WireReader, WireWriter, hello},
};

/// The beginning of the first packets.
const MAGIC: u64 = u64::from_le_bytes(*b"libcephT");
/// The version of these messages, and of the configurations of mounts (`MountIdentity`).
const VERSION: u32 = 1;
/// The socket, in the folder of --state.
const DOOR: &str = "take-over";
/// How long one side waits for a packet that the other is about to send.
const PROMPT: Duration = Duration::from_secs(5);
const PREPARED: &[u8] = b"prepared";
const ENDED_WELL: &[u8] = b"ended";

/// The first packet of each side.
#[derive(Debug, PartialEq)]
struct Greeting {
    /// MAGIC.
    magic: u64,
    /// VERSION.
    version: u32,
    /// The version of the protocol that clients speak.
    clients: u32,
    /// The sender's process.
    pid: u32,
    /// Which kind of names the old daemon's sessions have.
    turn: u8,
    /// The number of the packets that follow. Each contains a user and the configuration of a mount.
    mounts: u32,
}

impl<'a> Wire<'a> for Greeting {
    fn put(&self, to: &mut WireWriter<'_>) -> Result<(), Malformed> {
        self.magic.put(to)?;
        self.version.put(to)?;
        self.clients.put(to)?;
        self.pid.put(to)?;
        self.turn.put(to)?;
        self.mounts.put(to)
    }
    fn take(from: &mut WireReader<'a>) -> Result<Self, Malformed> {
        let (magic, version, clients, pid) =
            (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        Ok(Greeting { magic, version, clients, pid, turn: Wire::take(from)?, mounts: Wire::take(from)? })
    }
}

impl Greeting {
    fn new(turn: u8, mounts: usize) -> Greeting {
        Greeting {
            magic: MAGIC,
            version: VERSION,
            clients: hello::VERSION,
            pid: process::id(),
            turn,
            mounts: mounts as u32,
        }
    }

    fn send(&self, to: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut room = [0; 64];
        let mut writer = WireWriter::new(&mut room);
        self.put(&mut writer).map_err(|_| Errno::PROTO)?;
        sys::send_packet(to, writer.written(), &[])
    }

    /// Receives the other side's greeting. Fails with the reason if the two daemons are incompatible.
    fn receive(from: BorrowedFd<'_>) -> anyhow::Result<Greeting> {
        let mut room = [0; 64];
        let (length, _) = sys::receive_packet(from, &mut room)?;
        let packet = &room[..length];
        // The rest of the packet differs between versions.
        match hello::spoken(packet) {
            Ok((MAGIC, VERSION)) => {}
            Ok((MAGIC, version)) => bail!(
                "the running daemon speaks version {version} of the take-over protocol, this daemon speaks {VERSION}; restart the daemon instead"
            ),
            _ => bail!("the running daemon's answer is not one of libcephfsd"),
        }
        let greeting: Greeting = wire::decode(packet)?;
        if greeting.clients != hello::VERSION {
            bail!(
                "the running daemon's clients speak version {} of the protocol, this daemon speaks {}: restart the daemon, and then \
                 smbd, instead",
                greeting.clients,
                hello::VERSION
            );
        }
        Ok(greeting)
    }
}

/// What the new daemon gets from the old one.
pub struct Inheritance<D, E = D> {
    /// The listening socket.
    pub listener: D,
    /// The locked file of the folder.
    pub lock: D,
    /// The door.
    pub door: E,
}

/// The socket to which a daemon that takes over connects.
pub struct Door(OwnedFd);

impl Door {
    /// Opens the door in a folder that this daemon has locked. Without a door, the daemon can only be restarted.
    pub fn open(folder: &Path) -> Option<Door> {
        let opened = Door::try_open(&folder.join(DOOR));
        opened.inspect_err(|error| tracing::warn!("nobody can take over from this daemon: {error:#}")).ok()
    }

    fn try_open(path: &Path) -> anyhow::Result<Door> {
        let socket = listener::unix_socket()?;
        let address = sys::unix_address(path).with_context(|| path.display().to_string())?;
        let _ = fs::remove_file(path);
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = rustix::net::bind(&socket, &address);
        rustix::process::umask(before);
        bound.with_context(|| path.display().to_string())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        rustix::net::listen(&socket, 8)?;
        Ok(Door(socket))
    }

    /// Accepts a daemon that wants to take over, and tells it what is mounted.
    pub fn accept(&self, places: &MountProcesses) -> Option<Successor> {
        let socket = listener::accept(&self.0).ok()??;
        let greeted = Door::greet(socket, places);
        greeted.inspect_err(|error| tracing::warn!("a daemon cannot take over: {error:#}")).ok()
    }

    fn greet(socket: OwnedFd, places: &MountProcesses) -> anyhow::Result<Successor> {
        let peer = ClientCredentials::of(&socket)?;
        if peer.uid != geteuid().as_raw() {
            bail!("process {} is of user {}", peer.pid, peer.uid);
        }
        be_prompt(&socket)?;
        let mounts: Vec<_> = places.mounts().collect();
        // The answer is sent before this side checks the compatibility: the other side then finds the error, too, and reports it where it was
        // started.
        Greeting::new(places.names().turn, mounts.len()).send(socket.as_fd())?;
        let greeting = Greeting::receive(socket.as_fd())?;
        for (uid, configuration) in mounts {
            sys::send_packet(socket.as_fd(), &uid.to_le_bytes(), &[configuration])?;
        }
        Ok(Successor { socket, pid: greeting.pid })
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The daemon that takes over, as the old one sees it.
pub struct Successor {
    socket: OwnedFd,
    /// The successor's process.
    pub pid: u32,
}

impl Successor {
    /// Reads the successor's report that it has mounted everything. False: the successor is gone.
    pub fn is_prepared(&self) -> bool {
        let mut room = [0; 64];
        sys::receive_packet(self.socket.as_fd(), &mut room).is_ok_and(|(length, _)| &room[..length] == PREPARED)
    }

    /// Passes the successor what it needs to serve. Returns whether that succeeded.
    pub fn give(&self, all: &Inheritance<BorrowedFd<'_>>) -> bool {
        sys::send_packet(self.socket.as_fd(), PREPARED, &[all.listener, all.lock, all.door]).is_ok()
    }

    /// Tells the successor that this daemon has ended well.
    pub fn done(self) {
        let _ = sys::send_packet(self.socket.as_fd(), ENDED_WELL, &[]);
    }
}

impl AsFd for Successor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The daemon that ends, as the new one sees it.
#[derive(Debug)]
pub struct Predecessor {
    socket: OwnedFd,
    /// The predecessor's process.
    pub pid: u32,
    /// Which of the two kinds of names the predecessor's sessions have.
    pub turn: u8,
    mounts: Vec<(u32, OwnedFd)>,
}

impl Predecessor {
    /// Finds the running daemon that uses this folder; `None`: there is none.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Predecessor>> {
        let path = folder.join(DOOR);
        let socket = listener::unix_socket()?;
        match rustix::net::connect(&socket, &sys::unix_address(&path)?) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED) => {
                tracing::info!("there is no daemon to take over from");
                return Ok(None);
            }
            Err(errno) => return Err(errno).with_context(|| format!("cannot connect to {}", path.display())),
        }
        Predecessor::greet(socket).map(Some).context("nothing is taken over")
    }

    fn greet(socket: OwnedFd) -> anyhow::Result<Predecessor> {
        let peer = ClientCredentials::of(&socket)?;
        if peer.uid != geteuid().as_raw() {
            bail!("the running daemon is of user {}", peer.uid);
        }
        be_prompt(&socket)?;
        Greeting::new(0, 0).send(socket.as_fd())?;
        let greeting = Greeting::receive(socket.as_fd())?;
        let mut mounts = Vec::new();
        for _ in 0..greeting.mounts {
            let mut uid = [0; 4];
            let (_, descriptors) = sys::receive_packet(socket.as_fd(), &mut uid)?;
            let configuration = descriptors.into_iter().next().context("a mount without a configuration")?;
            mounts.push((u32::from_le_bytes(uid), configuration));
        }
        Ok(Predecessor { socket, pid: greeting.pid, turn: greeting.turn, mounts })
    }

    /// The predecessor's mounts: for each, the user for whom it was mounted, and its configuration.
    pub fn mounts(&mut self) -> Vec<(u32, OwnedFd)> {
        std::mem::take(&mut self.mounts)
    }

    /// Reports that everything is mounted. From then on, this daemon serves the clients.
    pub fn inherit(&self) -> anyhow::Result<Inheritance<OwnedFd, Door>> {
        let inherited = || -> Result<(usize, Vec<OwnedFd>), Errno> {
            sys::send_packet(self.socket.as_fd(), PREPARED, &[])?;
            sys::receive_packet(self.socket.as_fd(), &mut [0; 64])
        };
        let (_, descriptors) = inherited().context("the running daemon has ended meanwhile")?;
        match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok([listener, lock, door]) => Ok(Inheritance { listener, lock, door: Door(door) }),
            Err(_) => bail!("the running daemon has ended meanwhile"),
        }
    }

    /// Reads the predecessor's report at its end: whether it has unmounted everything.
    pub fn has_ended_well(&self) -> bool {
        let mut room = [0; 64];
        sys::receive_packet(self.socket.as_fd(), &mut room).is_ok_and(|(length, _)| &room[..length] == ENDED_WELL)
    }

    /// Waits until the predecessor has ended.
    pub fn wait(&self) {
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&sys::timespec(FAREWELL + PATIENCE)));
    }
}

impl AsFd for Predecessor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets a short time limit for the calls on a connection.
fn be_prompt(socket: &OwnedFd) -> anyhow::Result<()> {
    rustix::io::ioctl_fionbio(socket, false)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(socket, direction, Some(PROMPT))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn only_versions_that_go_together_take_over_from_one_another() {
        let said = |change: fn(&mut Greeting)| {
            let (ours, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            let mut greeting = Greeting::new(1, 7);
            change(&mut greeting);
            greeting.send(ours.as_fd()).unwrap();
            Greeting::receive(theirs.as_fd()).map_err(|error| error.to_string())
        };
        assert_eq!(said(|_| ()).unwrap(), Greeting::new(1, 7));
        assert!(said(|greeting| greeting.version += 1).unwrap_err().contains("restart the daemon instead"));
        assert!(said(|greeting| greeting.clients += 1).unwrap_err().contains("and then smbd"));
        assert!(said(|greeting| greeting.magic += 1).unwrap_err().contains("is not one of libcephfsd"));
    }

    #[test]
    fn who_finds_no_daemon_starts_as_usual() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Predecessor::find(folder.path()).unwrap().is_none());
        drop(Door::open(folder.path()).unwrap());
        assert!(Predecessor::find(folder.path()).unwrap().is_none(), "it has ended");
    }
}
