//! The memory that a client shares with the daemon: where what is, and who writes it.
//!
//! The daemon makes one for each connection and seals its size, so that no client can shorten it below the daemon's feet. Both
//! sides write everywhere in it: whoever reads takes a copy, checks that, and uses only that.
//!
//! ```text
//! Control       8 KiB    who has submitted what; a line for each slot; what is given back
//! messages      8 KiB    for each slot: the request, then in its place the answer
//! data          1 MiB    for each slot: what is read or written, names in a directory. A page costs once it is touched
//! ```

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

use crate::sys;

/// Requests that a client can have under way at once.
pub const SLOTS: usize = 16;
/// Bytes of a request or an answer, at most: a rename's two names, or a name and a symbolic link's target, and then some.
pub const MESSAGE_SIZE: usize = 8 << 10;
/// Bytes of data that go with one request, at most.
pub const DATA_SIZE: usize = 1 << 20;
/// How many inodes can wait to be given back.
pub const RELEASES: usize = 256;

const CONTROL_SIZE: usize = 8 << 10;
const MESSAGES: usize = CONTROL_SIZE;
const DATA: usize = MESSAGES + SLOTS * MESSAGE_SIZE;
/// Bytes in all.
pub const TOTAL: usize = DATA + SLOTS * DATA_SIZE;

/// Nothing is under way.
pub const IDLE: u32 = 0;
/// The daemon's turn.
pub const SUBMITTED: u32 = 1;
/// The daemon's turn, and the client sleeps on the word until it is its own.
pub const AWAITED: u32 = 2;
/// The client's turn: the answer is there.
pub const ANSWERED: u32 = 3;

/// No worker polls `submitted`: the client has to send a wakeup.
pub const NOT_POLLING: u32 = 0;
/// A worker polls `submitted` as soon as it has finished its present request, which it expects to be quick.
pub const POLLING: u32 = 1;
/// A client has sent a wakeup, and no worker has arrived yet.
pub const WAKEUP_SENT: u32 = 2;

/// The first pages. Each group of words that is written together has a cache line for itself.
#[repr(C)]
pub struct Control {
    /// A bit for each slot that the client has filled; the daemon takes them out.
    pub submitted: Line<AtomicU64>,
    /// NOT_POLLING, POLLING or WAKEUP_SENT.
    pub polling: Line<AtomicU32>,
    /// Goes up with each answer that nobody waits for (`Slot::asynchronous`); a futex.
    pub completed: Line<AtomicU32>,
    /// Not zero: the client sleeps on `completed`. Whoever wakes it takes that back first.
    pub completion_awaited: Line<AtomicU32>,
    /// Where the client will put the next inode to give back.
    pub release_tail: Line<AtomicU32>,
    /// Where the daemon will take the next one.
    pub release_head: Line<AtomicU32>,
    /// The slots' lines.
    pub slots: [Line<Slot>; SLOTS],
    /// What is given back, in a circle.
    pub releases: [Release; RELEASES],
    /// Not zero: the daemon ended in order, and all that was written by this connection is on disk.
    pub settled: Line<AtomicU32>,
    /// What is told of requests to those who look on.
    pub seen: Line<Seen>,
}

/// Written by the daemon.
#[repr(C)]
pub struct Seen {
    /// Its number of this connection.
    pub connection: AtomicU64,
    /// Not zero: it wants to know when requests are submitted.
    pub timed: AtomicU32,
}

/// Something with a cache line of its own.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// One request under way.
#[repr(C)]
pub struct Slot {
    /// IDLE, SUBMITTED, AWAITED or ANSWERED; a futex.
    pub state: AtomicU32,
    /// Bytes of the message.
    pub length: AtomicU32,
    /// Bytes of data that go with it.
    pub data: AtomicU32,
    /// Not zero: nobody waits for this answer; it is told by `Control::completed`.
    pub asynchronous: AtomicU32,
    /// The answer: not negative, or an errno's negative.
    pub result: AtomicI64,
    /// When the client submitted it, if anybody wants to know; this and what follows: nanoseconds of CLOCK_MONOTONIC, 0 unknown. It is
    /// odd if the client wants to be told what follows: a word written here is a cache line that the client waits for.
    pub submitted_at: AtomicU64,
    /// When a worker took it.
    pub taken_at: AtomicU64,
    /// When it had been served.
    pub served_at: AtomicU64,
}

/// In a release's count: the inode may stay for a while after it was given back for the last time.
pub const KEEP: u64 = 1 << 63;
/// Instead of a count: one that stayed so is taken back, once.
pub const RETAKE: u64 = 1 << 62;

/// An inode that is given back so many times.
#[repr(C)]
pub struct Release {
    /// Its handle.
    pub handle: AtomicU64,
    /// How often, perhaps with KEEP; or RETAKE.
    pub count: AtomicU64,
}

const _: () = assert!(mem::size_of::<Control>() <= CONTROL_SIZE && SLOTS <= 64);

/// The memory, mapped.
pub struct Mapping(NonNull<u8>);

// SAFETY: what is in it is reached by atomics, or by raw pointers into memory that stays mapped as long as this lives.
unsafe impl Send for Mapping {}
// SAFETY: likewise.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New memory, and the descriptor by which a client gets at it. Nobody can change its size.
    pub fn create() -> io::Result<(OwnedFd, Mapping)> {
        // SAFETY: the name is a C string.
        let fd = sys::owned(unsafe {
            libc::memfd_create(c"libcephfsd".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        })?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no pointers.
        sys::checked(unsafe { libc::ftruncate(fd.as_raw_fd(), TOTAL as libc::off_t) })?;
        // SAFETY: no pointers.
        sys::checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        let mapping = Mapping::map(&fd)?;
        Ok((fd, mapping))
    }

    /// Maps what `create` made. A child that is forked does not have it: it must connect for itself.
    pub fn map(fd: &OwnedFd) -> io::Result<Mapping> {
        // SAFETY: all zero is a valid stat, which the call fills; then a new mapping, of a size that was checked.
        unsafe {
            let mut about: libc::stat = mem::zeroed();
            sys::checked(libc::fstat(fd.as_raw_fd(), &mut about))?;
            if about.st_size != TOTAL as libc::off_t {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(ptr::null_mut(), TOTAL, access, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(base, TOTAL, libc::MADV_DONTFORK);
            NonNull::new(base.cast()).map(Mapping).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
        }
    }

    /// The first pages.
    pub fn control(&self) -> &Control {
        // SAFETY: it is mapped, aligned to a page, and made of atomics, for which any bytes will do.
        unsafe { self.0.cast::<Control>().as_ref() }
    }

    /// A slot's line; `slot` is below SLOTS.
    pub fn slot(&self, slot: usize) -> &Slot {
        &self.control().slots[slot % SLOTS].0
    }

    /// Where a slot's message is: MESSAGE_SIZE bytes.
    pub fn message(&self, slot: usize) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.0.as_ptr().add(MESSAGES + (slot % SLOTS) * MESSAGE_SIZE) }
    }

    /// Where a slot's data is: DATA_SIZE bytes.
    pub fn data(&self, slot: usize) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.0.as_ptr().add(DATA + (slot % SLOTS) * DATA_SIZE) }
    }

    /// One more answer that nobody waits for.
    pub fn complete(&self) {
        let control = self.control();
        control.completed.0.fetch_add(1, Ordering::SeqCst);
        let awaited = &control.completion_awaited.0;
        if awaited.load(Ordering::SeqCst) != 0 && awaited.swap(0, Ordering::SeqCst) != 0 {
            sys::futex_wake(&control.completed.0, 1);
        }
    }

    /// A copy of the first `length` bytes of a slot's message, in `room`; none if it does not fit.
    pub fn copy_message<'a>(&self, slot: usize, length: u32, room: &'a mut [u8]) -> Option<&'a [u8]> {
        let room = room.get_mut(..length as usize).filter(|room| room.len() <= MESSAGE_SIZE)?;
        // SAFETY: `length` is within both.
        unsafe { ptr::copy_nonoverlapping(self.message(slot), room.as_mut_ptr(), room.len()) };
        Some(room)
    }

    /// Puts a message into a slot; false if it is too long.
    pub fn put_message(&self, slot: usize, message: &[u8]) -> bool {
        if message.len() > MESSAGE_SIZE {
            return false;
        }
        // SAFETY: it fits.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr(), self.message(slot), message.len()) };
        self.slot(slot).length.store(message.len() as u32, Ordering::Relaxed);
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, with this size, and nothing borrows from it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), TOTAL) };
    }
}

/// Tells whether the other end of a connected socket is gone.
pub fn hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut asked = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    // SAFETY: one pollfd, and no waiting.
    unsafe { libc::poll(&mut asked, 1, 0) };
    asked.revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0
}
