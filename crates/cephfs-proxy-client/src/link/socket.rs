//! Connects to the daemon, as root if possible. When smbd has to find a new daemon, smbd runs as the user whom it serves. The daemon would refuse
//! this user, or permit only this user's identity.

use std::{os::fd::OwnedFd, path::Path, process, time::Duration};

use cephfs_proxy::{sys, wire::Errno};
use nix::unistd::getresuid;
use rustix::{
    net::{
        AddressFamily, SocketFlags, SocketType,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::Uid,
    thread::set_thread_res_uid,
};

/// Connects a socket to the daemon. Later calls on the socket wait at most for `limit`, which is not zero.
pub fn open(path: &Path, limit: Duration) -> Result<OwnedFd, Errno> {
    let address = sys::unix_address(path)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(limit))?;
    }
    // The kernel records the peer's credentials permanently at connect(2): unix(7), SO_PEERCRED.
    let _root = RootPrivileges::begin();
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Makes this thread root, if permitted, until this value is dropped.
struct RootPrivileges {
    /// The effective user to restore.
    user: Option<Uid>,
}

impl RootPrivileges {
    fn begin() -> RootPrivileges {
        let user = getresuid().ok().and_then(|users| {
            let may = !users.effective.is_root() && (users.real.is_root() || users.saved.is_root());
            (may && turn_into(Uid::ROOT)).then(|| Uid::from_raw(users.effective.as_raw()))
        });
        RootPrivileges { user }
    }
}

impl Drop for RootPrivileges {
    fn drop(&mut self) {
        // A user's request must never continue as root. smbd also aborts if it cannot change its user.
        if self.user.is_some_and(|user| !turn_into(user)) {
            process::abort();
        }
    }
}

/// Sets the effective user of this thread only. The C library's function would change all threads, which may run as other users.
fn turn_into(user: Uid) -> bool {
    set_thread_res_uid(None, user, None).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{env, fs, os::unix::fs::PermissionsExt, thread};

    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

    use super::*;

    const NOBODY: u32 = 65534;

    fn users() -> [u32; 3] {
        let users = getresuid().unwrap();
        [users.real, users.effective, users.saved].map(nix::unistd::Uid::as_raw)
    }

    fn listen(path: &Path) -> OwnedFd {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
        rustix::net::bind(&socket, &sys::unix_address(path).unwrap()).unwrap();
        rustix::net::listen(&socket, 2).unwrap();
        socket
    }

    fn peer(listener: &OwnedFd) -> u32 {
        getsockopt(&rustix::net::accept(listener).unwrap(), PeerCredentials).unwrap().uid()
    }

    #[test]
    fn a_thread_that_is_a_user_for_a_while_connects_as_root_and_is_the_user_again() {
        if users() != [0; 3] {
            return eprintln!(
                "SKIP a_thread_that_is_a_user_for_a_while_connects_as_root_and_is_the_user_again: no root"
            );
        }
        let folder = env::temp_dir().join(format!("plumbline-socket-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
        let listener = listen(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        // Root is the saved user only, then the real and the saved user, then neither.
        for (become_it, connects) in [([NOBODY, NOBODY, 0], true), ([0, NOBODY, 0], true), ([NOBODY; 3], false)] {
            let (path, folder) = (path.clone(), folder.clone());
            let thread = thread::spawn(move || {
                let [real, effective, saved] = become_it.map(Uid::from_raw);
                set_thread_res_uid(real, effective, saved).unwrap();
                let result = open(&path, Duration::from_secs(1)).map(drop);
                assert_eq!(users(), become_it);
                assert!(open(&folder.join("nothing"), Duration::from_secs(1)).is_err());
                assert_eq!(users(), become_it);
                result
            });
            let result = thread.join().unwrap();
            assert_eq!(result, if connects { Ok(()) } else { Err(Errno::ACCESS) });
            assert_eq!(users(), [0; 3]);
            if connects {
                assert_eq!(peer(&listener), 0);
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
