//! System calls that both sides use: futexes, and sockets that carry file descriptors.

use std::{
    io,
    mem::{self, MaybeUninit},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::atomic::AtomicU32,
    time::Duration,
};

/// The most descriptors that one message carries.
pub const MOST_DESCRIPTORS: usize = 4;

/// Sleeps while `word` is `expected`, at most for `limit`; may return early. futex(2), shared between processes.
pub fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
    // SAFETY: the word and the time limit outlive the call, and the kernel only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &limit, 0, 0) };
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: for FUTEX_WAKE, the kernel uses the word's address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count, 0, 0, 0) };
}

/// The result of a system call; errno if it is negative.
pub fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of a descriptor that a system call has just returned.
pub fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, so it has no other owner.
    checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An eventfd(2) that never blocks its writer.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer to the result is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Adds one to an eventfd. A failure does not matter: if the counter is full, a wakeup is pending.
pub fn ring(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the buffer has the eight bytes of an eventfd's counter.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Sends one packet with descriptors on it, without ever raising SIGPIPE.
pub fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().take(MOST_DESCRIPTORS).map(AsRawFd::as_raw_fd).collect();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut room = ControlRoom::new();
    // SAFETY: all zero is a valid msghdr, and all memory that it points to outlives the call. The control message's
    // room is aligned, and large enough for MOST_DESCRIPTORS.
    let sent = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !raw.is_empty() {
            let size = mem::size_of_val(raw.as_slice());
            message.msg_control = room.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size as u32) as usize;
            let first = libc::CMSG_FIRSTHDR(&message);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size as u32) as usize;
            ptr::copy_nonoverlapping(raw.as_ptr().cast(), libc::CMSG_DATA(first), size);
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one packet. Returns its length and its descriptors; a length of zero means that the other side has closed
/// the socket.
///
/// # Errors
///
/// When the kernel refuses, or the packet is larger than `bytes`.
pub fn receive_packet(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut room = ControlRoom::new();
    let mut descriptors = Vec::new();
    // SAFETY: all zero is a valid msghdr, and all memory that it points to outlives the call. The kernel has just
    // created the descriptors in the control messages, so they have no other owner.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&room.0);
        let received = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let size = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..size / mem::size_of::<RawFd>() {
                    let fd = ptr::read_unaligned(libc::CMSG_DATA(header).cast::<RawFd>().add(index));
                    descriptors.push(OwnedFd::from_raw_fd(fd));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
        if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((received as usize, descriptors))
    }
}

/// Memory for a control message with MOST_DESCRIPTORS, with the alignment of its header.
struct ControlRoom([MaybeUninit<u64>; 8]);

impl ControlRoom {
    const fn new() -> ControlRoom {
        ControlRoom([MaybeUninit::zeroed(); 8])
    }
}

/// Makes an address of AF_UNIX from a path.
///
/// # Errors
///
/// When the path is empty, too long, or contains a NUL.
pub fn unix_address(path: &std::path::Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, mem::size_of::<libc::sockaddr_un>() as libc::socklen_t))
}
