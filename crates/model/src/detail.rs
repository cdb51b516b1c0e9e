//! The fields that only one protocol's operations have.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    ceph::{CephDaemon, CephRequest},
    daemon_look::DaemonLook,
    text::Text,
};

/// The fields that only operations of one protocol have. In an operation in flight, or from the flight recorder,
/// unknown fields are zero or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// No fields.
    #[default]
    None,
    /// A command of SMB2 or SMB3.
    Smb(Smb),
    /// A call of NFS.
    Nfs(Nfs),
    /// A system call.
    Syscall(Syscall),
    /// An operation of the VFS.
    Vfs(Vfs),
    /// A call of MPI-IO.
    MpiIo(MpiIo),
    /// An event of a connection.
    Connection(Connection),
    /// A request to the libcephfs proxy.
    CephProxy(CephProxy),
    /// A request to a FUSE daemon.
    Fuse(Fuse),
    /// A request to a daemon of a Ceph cluster.
    Ceph(CephRequest),
    /// An operation of the site's own.
    Own(OwnFile),
    /// A request that this host's NFS server served.
    Served(Served),
}

/// SMB's names for a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Smb {
    /// SessionId (MS-SMB2 2.2.1.2).
    pub session: u64,
    /// MessageId.
    pub message: u64,
    /// TreeId.
    pub tree: u32,
}

/// NFS's names for a call, and the file that it was about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nfs {
    /// The RPC call's number.
    pub xid: u64,
    /// 4.1 and later: the XOR of the two halves of the session id, each read in this machine's byte order; 0: no
    /// session.
    pub session: u64,
    /// 4.1 and later: the slot of the session.
    pub slot: u32,
    /// 4.1 and later: the slot's sequence number.
    pub sequence: u32,
    /// How many times the call was retransmitted.
    pub resent: u32,
    /// Inode number.
    pub inode: u64,
    /// Last component of the file's name.
    pub name: Text<128>,
}

/// The file of a system call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Syscall {
    /// Inode number.
    pub inode: u64,
    /// Last component of the file's name.
    pub name: Text<128>,
}

/// The arguments of an operation of the VFS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vfs {
    /// Inode number.
    pub inode: u64,
    /// The file's path below the root of the file system. If it is too long, its end is kept.
    pub path: Text<128>,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Bytes requested.
    pub asked: u64,
    /// Flags, mode or command of the request, whichever the operation has.
    pub request: u32,
}

/// The arguments of a call of MPI-IO, and the caller's rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MpiIo {
    /// Inode number.
    pub inode: u64,
    /// The file name that was passed to open. If it is too long, its end is kept.
    pub opened_as: Text<128>,
    /// Bytes requested; 0 where the probe cannot tell.
    pub asked: u64,
    /// The process' rank in MPI_COMM_WORLD; `None` unless the launcher set it in the environment.
    pub rank: Option<u32>,
}

/// The ends of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connection {
    /// The server's address and port, and the local port if that is known: `10.0.0.1:445 from port 50000`.
    pub peer: Text<128>,
    /// How many times in a row it has happened, this event included; 0: not known.
    pub times: u32,
    /// `TCP_RESET`, `TCP_CONNECTED`: time to live (IPv6: hop limit) with which the segment arrived; 0: not known.
    pub ttl: u8,
    /// `TCP_RESET`: time to live of the segment with which the server accepted the connection; 0: not known.
    pub server_ttl: u8,
}

impl Connection {
    /// The server's address and port, as bytes of its text.
    pub fn server(&self) -> &[u8] {
        self.peer.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default()
    }
}

/// The status of a `TCP_RESET` of an established connection whose segment has an acknowledgement: the sender of the reset
/// knew the connection. A host that does not know the connection answers a segment with an acknowledgement by a reset
/// without one (RFC 9293 3.10.7.1).
pub const RESET_WITH_ACK: &str = "RST_ACK";
/// The status of a `TCP_RESET` that refused a new connection.
pub const RESET_REFUSED: &str = "REFUSED";

/// The arguments of a request to the libcephfs proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CephProxy {
    /// The handle of the inode, file or directory; valid on this connection only.
    pub handle: u64,
    /// Bytes requested.
    pub asked: u64,
}

/// FUSE's names for a request, and the daemon that serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fuse {
    /// The request's number on its mount.
    pub unique: u64,
    /// The daemon's number of the inode (`nodeid`), not `st_ino`.
    pub inode: u64,
    /// The daemon's process; 0: not known, or a virtiofs device.
    pub daemon: u32,
    /// The daemon has taken the request. False may also mean that it is not known.
    pub taken: bool,
    /// What the daemon did while it had requests to answer; `None` if there was no look at it. Several events may share
    /// a look.
    pub look: Option<Arc<DaemonLook>>,
}

/// The file of an operation that a site has defined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnFile {
    /// The name or path of the file, whichever the definition leads to.
    pub name: Text<128>,
}

/// A request to this host's NFS server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Served {
    /// The RPC call's number, which the client chose.
    pub xid: u32,
    /// The client's address; `None` if only [`Served::client_number`] is known. The event has this number as its connection. The address is
    /// missing for clients of version 6 in the flight recorder.
    pub client: Option<IpAddr>,
}

impl Served {
    /// Numbers from here on are hashes of addresses of version 6: no address of version 4 that a client has is as high
    /// (class E).
    const HASHED: u32 = 0xf000_0000;

    /// The number by which flight records name a client: its address of version 4, most significant byte first, else a hash. Twin of `read_client` of
    /// server.bpf.c.
    pub fn client_number(address: IpAddr) -> u32 {
        let octets = match address.to_canonical() {
            IpAddr::V4(address) => return address.to_bits(),
            IpAddr::V6(address) => address.octets(),
        };
        let (high, low) = octets.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let hash = (word(high) ^ word(low).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self::HASHED | (hash >> 36) as u32
    }

    /// The address of version 4 that this number is; `None` if the number is a hash.
    pub fn address(number: u32) -> Option<IpAddr> {
        (number < Self::HASHED).then(|| IpAddr::V4(Ipv4Addr::from_bits(number)))
    }
}

/// A file as the probe saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenFile {
    /// Inode number; 0: not known. For the libcephfs proxy, the handle instead.
    pub inode: u64,
    /// The part of the file's name or path that the probe has; may be empty.
    pub name: Text<128>,
}

impl Detail {
    /// The file of the operation; `None` if it has none, or the probe did not see it.
    pub fn file(&self) -> Option<SeenFile> {
        let (inode, name) = match self {
            Self::Nfs(nfs) => (nfs.inode, nfs.name),
            Self::Syscall(call) => (call.inode, call.name),
            Self::Vfs(vfs) => (vfs.inode, vfs.path),
            Self::MpiIo(mpiio) => (mpiio.inode, mpiio.opened_as),
            Self::CephProxy(request) => (request.handle, Text::default()),
            Self::Fuse(fuse) => (fuse.inode, Text::default()),
            // The name of an object is not the name of a file.
            Self::Ceph(ceph) if matches!(ceph.daemon, CephDaemon::Osd(_)) => (ceph.inode, Text::default()),
            Self::Ceph(ceph) => (ceph.inode, ceph.name),
            Self::Own(own) => (0, own.name),
            Self::None | Self::Smb(_) | Self::Connection(_) | Self::Served(_) => return None,
        };
        (inode != 0 || !name.is_empty()).then_some(SeenFile { inode, name })
    }

    /// The inode's number as `st_ino` has it; `None` if it is not known.
    pub fn inode(&self) -> Option<u64> {
        let inode = match self {
            Self::Nfs(nfs) => nfs.inode,
            Self::Syscall(call) => call.inode,
            Self::Vfs(vfs) => vfs.inode,
            Self::MpiIo(mpiio) => mpiio.inode,
            Self::Ceph(ceph) => ceph.inode,
            // FUSE daemons and the proxy number inodes themselves.
            _ => 0,
        };
        (inode != 0).then_some(inode)
    }

    /// The protocol's message number, which tells apart requests that one thread made at the same time; 0 if the
    /// protocol has none.
    pub fn message(&self) -> u64 {
        match self {
            Self::Smb(smb) => smb.message,
            Self::Nfs(nfs) => nfs.xid,
            Self::Fuse(fuse) => fuse.unique,
            Self::Served(served) => served.xid.into(),
            Self::Ceph(ceph) => ceph.tid,
            Self::None
            | Self::Syscall(_)
            | Self::Vfs(_)
            | Self::MpiIo(_)
            | Self::Connection(_)
            | Self::CephProxy(_)
            | Self::Own(_) => 0,
        }
    }
}
