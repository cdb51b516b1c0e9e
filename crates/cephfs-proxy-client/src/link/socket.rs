//! Connects to the daemon, as root if possible. smbd runs as the user whom it serves when it has to find a new daemon.
//! The daemon would refuse that user, or permit no other identity.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    process,
    time::Duration,
};

use cephfs_proxy::{sys, wire::Errno};

use super::errno;

/// Connects a socket to the daemon. Its further calls wait at most for `limit`, in whole seconds.
pub fn open(path: &Path, limit: Duration) -> Result<OwnedFd, Errno> {
    let (address, size) = sys::unix_address(path).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: the call takes no pointer.
    let socket = sys::owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) });
    let socket = socket.map_err(errno)?;
    let limit = libc::timeval { tv_sec: limit.as_secs() as libc::time_t, tv_usec: 0 };
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        let (place, size) = ((&raw const limit).cast(), size_of_val(&limit) as libc::socklen_t);
        // SAFETY: the option's value is a timeval of that size.
        sys::checked(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, place, size) })
            .map_err(errno)?;
    }
    // The kernel records the peer's credentials at connect(2), for good: unix(7), SO_PEERCRED.
    let _root = Root::begin();
    // SAFETY: the address and its size are valid.
    sys::checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) }).map_err(errno)?;
    Ok(socket)
}

/// Makes this thread root, if permitted, until it is dropped.
struct Root {
    /// The effective user to restore.
    user: Option<libc::uid_t>,
}

impl Root {
    fn begin() -> Root {
        let (mut real, mut effective, mut saved) = (0, 0, 0);
        // SAFETY: the three pointers are valid.
        let known = unsafe { libc::getresuid(&mut real, &mut effective, &mut saved) } == 0;
        let may = known && effective != 0 && (real == 0 || saved == 0);
        Root { user: (may && turn_into(0)).then_some(effective) }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A user's request must never continue as root. smbd also ends if it cannot change its user.
        if self.user.is_some_and(|user| !turn_into(user)) {
            process::abort();
        }
    }
}

/// Sets the effective user of this thread only. The C library's function would change all threads, which may have other
/// users.
fn turn_into(user: libc::uid_t) -> bool {
    let same: libc::c_long = -1;
    // SAFETY: the call takes no pointer.
    unsafe { libc::syscall(libc::SYS_setresuid, same, libc::c_long::from(user), same) == 0 }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, mem, os::unix::fs::PermissionsExt, thread};

    use super::*;

    const NOBODY: libc::uid_t = 65534;

    fn users() -> [libc::uid_t; 3] {
        let mut users = [0; 3];
        let [real, effective, saved] = &mut users;
        // SAFETY: the three pointers are valid.
        unsafe { libc::getresuid(real, effective, saved) };
        users
    }

    fn listen(path: &Path) -> OwnedFd {
        let (address, size) = sys::unix_address(path).unwrap();
        // SAFETY: the address and its size are valid.
        unsafe {
            let socket = sys::owned(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)).unwrap();
            sys::checked(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size)).unwrap();
            sys::checked(libc::listen(socket.as_raw_fd(), 2)).unwrap();
            socket
        }
    }

    fn peer(listener: &OwnedFd) -> libc::uid_t {
        // SAFETY: all zero is a valid ucred, and there is room of the size that is said.
        unsafe {
            let accepted = libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut());
            let accepted = sys::owned(accepted).unwrap();
            let mut about: libc::ucred = mem::zeroed();
            let (place, mut size) = ((&raw mut about).cast(), size_of_val(&about) as libc::socklen_t);
            let option = libc::SO_PEERCRED;
            sys::checked(libc::getsockopt(accepted.as_raw_fd(), libc::SOL_SOCKET, option, place, &mut size)).unwrap();
            about.uid
        }
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
        // As Samba does it, and likewise without the real one; then for good.
        for (become_it, connects) in [([NOBODY, NOBODY, 0], true), ([0, NOBODY, 0], true), ([NOBODY; 3], false)] {
            let (path, folder) = (path.clone(), folder.clone());
            let thread = thread::spawn(move || {
                let [real, effective, saved] = become_it.map(libc::c_long::from);
                // SAFETY: no pointers; of this thread only.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) }, 0);
                let result = open(&path, Duration::from_secs(1)).map(drop);
                assert_eq!(users(), become_it);
                assert!(open(&folder.join("nothing"), Duration::from_secs(1)).is_err());
                assert_eq!(users(), become_it);
                result
            });
            let result = thread.join().unwrap();
            assert_eq!(result, if connects { Ok(()) } else { Err(Errno(libc::EACCES)) });
            assert_eq!(users(), [0; 3]);
            if connects {
                assert_eq!(peer(&listener), 0);
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
