//! The process at the other end of a socket, and the identities that its requests may have.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::sys;

/// A peer's credentials when it connected (unix(7), SO_PEERCRED and SO_PEERGROUPS).
#[derive(Debug, Clone)]
pub struct Peer {
    /// The process id.
    pub pid: i32,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

impl Peer {
    /// Reads the credentials of a socket's peer.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let mut about = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut size = mem::size_of_val(&about) as libc::socklen_t;
        let fd = socket.as_raw_fd();
        // SAFETY: the buffer has the size that `size` states.
        sys::checked(unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut about).cast(), &mut size)
        })?;
        let mut groups = vec![0u32; 65536];
        let mut size = mem::size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the buffer has the size that `size` states.
        sys::checked(unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), &mut size)
        })?;
        groups.truncate(size as usize / mem::size_of::<u32>());
        groups.shrink_to_fit();
        Ok(Peer { pid: about.pid, uid: about.uid, gid: about.gid, groups })
    }

    /// Whether the peer's requests may have this identity: root may use any, other users only their own.
    pub fn may_be(&self, uid: u32, gid: u32, groups: &[u32]) -> bool {
        let ours = |group: &u32| *group == self.gid || self.groups.contains(group);
        self.uid == 0 || (self.uid == uid && ours(&gid) && groups.iter().all(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_speaks_for_others() {
        let peer = |uid| Peer { pid: 1, uid, gid: 100, groups: vec![200] };
        assert!(peer(0).may_be(1000, 1, &[2, 3]));
        assert!(peer(1000).may_be(1000, 100, &[200]));
        assert!(peer(1000).may_be(1000, 200, &[]));
        assert!(!peer(1000).may_be(0, 100, &[]));
        assert!(!peer(1000).may_be(1000, 0, &[]));
        assert!(!peer(1000).may_be(1000, 100, &[200, 0]));
    }
}
