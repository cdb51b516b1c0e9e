//! The listening socket: systemd's (sd_listen_fds(3)), or a new one at the path.

use std::{
    fs, io,
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::fs::{FileTypeExt, PermissionsExt},
    },
};

use anyhow::{Context, bail};
use rustix::{
    fs::{Mode, OFlags},
    io::{Errno, FdFlags},
    net::{AddressFamily, SocketFlags, SocketType},
};

use super::DaemonOptions;
use crate::sys;

/// Begins to listen.
pub fn listen(options: &DaemonOptions) -> anyhow::Result<OwnedFd> {
    let inherited = sd_notify::listen_fds().context("LISTEN_FDS makes no sense")?.next();
    if let Some(fd) = inherited {
        // SAFETY: systemd passed the descriptor to this process, and no other code in it owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // systemd's socket is blocking: the main thread would wait for the next client and ignore the others.
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK).context("systemd's socket")?;
        rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC).context("systemd's socket")?;
        return Ok(socket);
    }
    let path = &options.socket;
    let what = || format!("cannot listen on {}", path.display());
    let socket = unix_socket().with_context(what)?;
    let address = sys::unix_address(path).with_context(what)?;
    if fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        let probe = unix_socket().with_context(what)?;
        if rustix::net::connect(&probe, &address).is_ok() {
            bail!("cannot listen on {}: another daemon does", path.display());
        }
        fs::remove_file(path).with_context(what)?;
    }
    // The umask keeps other users out until the socket has its permissions.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound.with_context(what)?;
    fs::set_permissions(path, fs::Permissions::from_mode(options.mode)).with_context(what)?;
    rustix::net::listen(&socket, 4096).with_context(what)?;
    Ok(socket)
}

/// A socket that does not block.
pub fn unix_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Accepts one client; `None` if none waits.
pub fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
