//! What only one protocol's operations have.

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// What an operation has beside what all of them share, by its protocol. Where it is seen in flight or comes from the flight
/// recorder, what is not known there is zero or empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// Nothing.
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
    /// Something that happened to a connection.
    Connection(Connection),
    /// A request to the libcephfs proxy.
    CephProxy(CephProxy),
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
    /// 4.1 and later: the two halves of the session id, each read as a number of this machine's byte order, exclusive-or'd; 0:
    /// there is no session.
    pub session: u64,
    /// 4.1 and later: the slot of the session.
    pub slot: u32,
    /// 4.1 and later: the slot's sequence number.
    pub sequence: u32,
    /// How often the call was sent again.
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

/// What was asked of the VFS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vfs {
    /// Inode number.
    pub inode: u64,
    /// The file's path below the root of the file system, cut in front.
    pub path: Text<128>,
    /// Where in the file it began.
    pub offset: u64,
    /// Bytes asked for.
    pub asked: u64,
    /// Flags, mode or command of the request, as the operation has them.
    pub request: u32,
}

/// What was asked of MPI-IO, and who did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MpiIo {
    /// Inode number.
    pub inode: u64,
    /// The file as it was opened, cut in front.
    pub opened_as: Text<128>,
    /// Bytes asked for; 0 where the probe cannot tell.
    pub asked: u64,
    /// The process' rank in its job (MPI_COMM_WORLD), where the launcher's environment says it.
    pub rank: Option<u32>,
}

/// Where a connection goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connection {
    /// The server's address and port, and the local port if that is known: `10.0.0.1:445 from port 50000`.
    pub peer: Text<128>,
    /// For the how-manieth time in a row it happens; 0: not known.
    pub times: u32,
}

/// What was asked of the libcephfs proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CephProxy {
    /// The connection's own number of the inode, file or directory.
    pub handle: u64,
    /// Bytes asked for.
    pub asked: u64,
}

/// A file as the probe saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenFile {
    /// Inode number; 0: not known. Of the libcephfs proxy: its handle.
    pub inode: u64,
    /// What the probe has of its name; may be empty.
    pub name: Text<128>,
}

impl Detail {
    /// The file that it was about; `None` if it was about none, or that is not known.
    pub fn file(&self) -> Option<SeenFile> {
        let (inode, name) = match self {
            Self::Nfs(nfs) => (nfs.inode, nfs.name),
            Self::Syscall(call) => (call.inode, call.name),
            Self::Vfs(vfs) => (vfs.inode, vfs.path),
            Self::MpiIo(mpiio) => (mpiio.inode, mpiio.opened_as),
            Self::CephProxy(request) => (request.handle, Text::default()),
            Self::None | Self::Smb(_) | Self::Connection(_) => return None,
        };
        (inode != 0 || !name.is_empty()).then_some(SeenFile { inode, name })
    }

    /// The protocol's number of the message, which tells apart what one thread asks for at one time; 0 where there is none.
    pub fn message(&self) -> u64 {
        match self {
            Self::Smb(smb) => smb.message,
            Self::Nfs(nfs) => nfs.xid,
            Self::None
            | Self::Syscall(_)
            | Self::Vfs(_)
            | Self::MpiIo(_)
            | Self::Connection(_)
            | Self::CephProxy(_) => 0,
        }
    }
}
