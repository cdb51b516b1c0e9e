//! System calls that both sides use: futexes, and sockets that carry file descriptors.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    sync::atomic::AtomicU32,
    time::Duration,
};

use rustix::{
    cmsg_space,
    event::{EventfdFlags, PollFd, PollFlags, Timespec},
    io::{Errno, Result},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketAddrUnix,
    },
    thread::futex,
    time::ClockId,
};

/// The most descriptors that one message carries.
pub const MOST_DESCRIPTORS: usize = 4;

/// Converts a duration for the kernel's waiting calls.
pub fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: span.subsec_nanos().into() }
}

/// Sleeps while `word` is `expected`, at most for `limit`; may return early. Uses futex(2), shared between processes.
pub fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&timespec(limit)));
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), count);
}

/// An eventfd(2) that never blocks its writer.
///
/// # Errors
///
/// When there are too many descriptors, or too little memory.
pub fn eventfd() -> Result<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Adds one to an eventfd. A failure does not matter: if the counter is full, a wakeup is pending.
pub fn wake(fd: BorrowedFd<'_>) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Whether the other end of a connected socket is gone.
pub fn hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::IN | PollFlags::RDHUP)];
    let _ = rustix::event::poll(&mut asked, Some(&Timespec::default()));
    asked[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
}

/// Sends one packet with at most MOST_DESCRIPTORS descriptors on it, without ever raising SIGPIPE.
///
/// # Errors
///
/// When the kernel refuses; EINVAL if there are more than MOST_DESCRIPTORS descriptors.
pub fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    send(socket, bytes, descriptors, SendFlags::NOSIGNAL)
}

/// The same as [`send_packet`], without waiting for room.
///
/// # Errors
///
/// The errors of [`send_packet`], and EAGAIN when there is no room.
pub fn try_send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    send(socket, bytes, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> Result<()> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    // The buffer has some bytes to spare, for its alignment.
    let fits = descriptors.len() <= MOST_DESCRIPTORS;
    if !fits || (!descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors))) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

/// Receives one packet. Returns its length and its descriptors; a length of zero means that the other side has closed
/// the socket.
///
/// # Errors
///
/// When the kernel refuses; EPROTO if the packet is larger than `bytes` or carries more than MOST_DESCRIPTORS.
pub fn receive_packet(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    let cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    if cut || descriptors.len() > MOST_DESCRIPTORS {
        return Err(Errno::PROTO);
    }
    Ok((received.bytes, descriptors))
}

/// Makes an address of AF_UNIX from a path.
///
/// # Errors
///
/// EINVAL when the path is empty, too long, or contains a NUL.
pub fn unix_address(path: &Path) -> Result<SocketAddrUnix> {
    // With an empty path, the kernel would choose an address.
    if path.as_os_str().is_empty() {
        return Err(Errno::INVAL);
    }
    SocketAddrUnix::new(path).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_packet_carries_its_descriptors_and_no_more_than_there_is_room_for() {
        let (ours, theirs) = pair();
        let wakeup = eventfd().unwrap();
        let many = [wakeup.as_fd(); MOST_DESCRIPTORS + 1];
        send_packet(ours.as_fd(), b"hello", &many[1..]).unwrap();
        let mut room = [0; 8];
        let (length, descriptors) = receive_packet(theirs.as_fd(), &mut room).unwrap();
        assert_eq!((&room[..length], descriptors.len()), (&b"hello"[..], MOST_DESCRIPTORS));
        wake(descriptors[1].as_fd());
        let mut count = [0; 8];
        rustix::io::read(&wakeup, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1, "it is the same eventfd");
        assert_eq!(send_packet(ours.as_fd(), b"hello", &many), Err(Errno::INVAL));
        send_packet(ours.as_fd(), b"123456789", &[]).unwrap();
        assert_eq!(receive_packet(theirs.as_fd(), &mut room).err(), Some(Errno::PROTO), "it is too large");
    }

    #[test]
    fn an_end_is_seen_and_writing_to_it_raises_no_signal() {
        let (ours, theirs) = pair();
        assert!(!hung_up(ours.as_fd()));
        drop(theirs);
        assert!(hung_up(ours.as_fd()));
        assert_eq!(receive_packet(ours.as_fd(), &mut [0; 8]).unwrap().0, 0);
        assert_eq!(send_packet(ours.as_fd(), b"hello", &[]), Err(Errno::PIPE));
    }

    #[test]
    fn an_address_is_a_path_that_a_socket_can_have() {
        assert!(unix_address(Path::new("/run/libcephfsd.sock")).is_ok());
        assert!(unix_address(Path::new(&"a".repeat(108))).is_ok());
        for path in ["", "a\0b", &"a".repeat(109)] {
            assert_eq!(unix_address(Path::new(path)).err(), Some(Errno::INVAL), "{path:?}");
        }
    }
}
