//! The process at the other end of a socket, and the identities that its requests may have.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd},
};

use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt::PeerCredentials},
};

/// A peer's credentials when it connected (unix(7), SO_PEERCRED and SO_PEERGROUPS).
#[derive(Debug, Clone)]
pub struct ClientCredentials {
    /// The process id.
    pub pid: i32,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

impl ClientCredentials {
    /// Reads the credentials of a socket's peer.
    pub fn of(socket: impl AsFd) -> io::Result<ClientCredentials> {
        // rustix has no value for the process id 0. The kernel reports 0 if the peer is in a PID namespace that is not ours.
        let about = getsockopt(&socket, PeerCredentials)?;
        Ok(ClientCredentials { pid: about.pid(), uid: about.uid(), gid: about.gid(), groups: groups(socket)? })
    }

    /// Whether the peer is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the peer's requests may have this identity: root may use any, other users only their own.
    pub fn may_be(&self, uid: u32, gid: u32, groups: &[u32]) -> bool {
        let ours = |group: &u32| *group == self.gid || self.groups.contains(group);
        self.is_root() || (self.uid == uid && ours(&gid) && groups.iter().all(ours))
    }
}

/// The supplementary groups of a socket's peer.
fn groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 65536];
    let mut size = mem::size_of_val(groups.as_slice()) as libc::socklen_t;
    let (fd, option, room) = (socket.as_fd().as_raw_fd(), libc::SO_PEERGROUPS, groups.as_mut_ptr().cast());
    // SAFETY: the buffer has the size that `size` states.
    Errno::result(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, room, &mut size) })?;
    groups.truncate(size as usize / mem::size_of::<u32>());
    groups.shrink_to_fit();
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_who_connected_with_all_groups() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = ClientCredentials::of(&ours).unwrap();
        let us = (std::process::id() as i32, rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!((peer.pid, peer.uid, peer.gid), us);
        let groups: Vec<u32> = rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        assert_eq!(peer.groups, groups);
    }

    #[test]
    fn only_root_speaks_for_others() {
        let peer = |uid| ClientCredentials { pid: 1, uid, gid: 100, groups: vec![200] };
        assert!(peer(0).may_be(1000, 1, &[2, 3]));
        assert!(peer(1000).may_be(1000, 100, &[200]));
        assert!(peer(1000).may_be(1000, 200, &[]));
        assert!(!peer(1000).may_be(0, 100, &[]));
        assert!(!peer(1000).may_be(1000, 0, &[]));
        assert!(!peer(1000).may_be(1000, 100, &[200, 0]));
    }
}
