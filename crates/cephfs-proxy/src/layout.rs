//! The layout of the memory that a client shares with the daemon.
//!
//! The daemon creates one mapping for each connection and seals its size, so that no client can shorten the memory while the daemon uses it. Both
//! sides can write everywhere in the memory. So a reader copies a value, checks the copy, and uses only the copy.
//!
//! ```text
//! Control       8 KiB    the submitted slots; a cache line for each slot; released inodes
//! messages      8 KiB    for each slot: the request, and in its place the answer
//! data          1 MiB    for each slot: bytes read or written, or names in a directory. Only touched pages take memory
//! ```

use std::{
    mem,
    os::fd::{AsFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

use rustix::{fs::SealFlags, io::Result, mm::ProtFlags};

use crate::{
    memory::{self, SharedMemory},
    sys,
};

/// The most requests that a client can have under way.
pub const SLOTS: usize = 16;
/// The most bytes of a request or an answer: more than the two names of a rename, or a name and a symbolic link's
/// target.
pub const MESSAGE_SIZE: usize = 8 << 10;
/// The most bytes of data of one request.
pub const DATA_SIZE: usize = 1 << 20;
/// The most inodes that can wait to be released.
pub const RELEASES: usize = 256;

/// A write of at least this many bytes does not wait for a flush. If too much is not flushed, the client does not keep the write, and the write may
/// be lost if the daemon dies. Otherwise, a client that writes faster than Ceph takes the data would be much slower (bench/ceph write-1m).
pub const LARGE: usize = 256 << 10;
/// The bytes that a kept write takes besides its data.
pub const KEPT_OVERHEAD: usize = 128;
/// When this many kept bytes are reached, the daemon flushes what the client has written. A smaller number costs more flushes, and each flush takes
/// a metadata server some ms.
pub const MUCH_UNFLUSHED: usize = 4 << 20;
/// The most bytes of a client that are kept and not flushed. If a small write would exceed the limit, it waits.
pub const MOST_UNFLUSHED: usize = 12 << 20;
/// The most bytes that a client process keeps: more than the daemon of one mount leaves unflushed. A write beyond this limit is not kept.
pub const MOST_KEPT: usize = 16 << 20;

const CONTROL_SIZE: usize = 8 << 10;
const MESSAGES: usize = CONTROL_SIZE;
const DATA: usize = MESSAGES + SLOTS * MESSAGE_SIZE;
/// The size of the mapping, bytes.
pub const TOTAL: usize = DATA + SLOTS * DATA_SIZE;

/// A slot's state: no request is under way.
pub const IDLE: u32 = 0;
/// A slot's state: the daemon has to answer the request.
pub const SUBMITTED: u32 = 1;
/// A slot's state: the daemon has to answer the request, and the client sleeps on the state until then.
pub const AWAITED: u32 = 2;
/// A slot's state: the daemon has answered the request.
pub const ANSWERED: u32 = 3;

/// A flush number greater than all others.
pub const ALL_FLUSHED: u64 = u64::MAX;

/// No worker polls `submitted`: the client has to send a wakeup.
pub const NOT_POLLING: u32 = 0;
/// A worker polls `submitted`, or will as soon as it has finished its current request, which it expects to be quick.
pub const POLLING: u32 = 1;
/// A client has sent a wakeup, and no worker has arrived yet.
pub const WAKEUP_SENT: u32 = 2;

/// The first pages of the mapping. Fields that are written together share a cache line of their own.
#[repr(C)]
pub struct ControlPages {
    /// A bit for each slot with a new request. The client sets it; the daemon clears it.
    pub submitted: CacheLine<AtomicU64>,
    /// NOT_POLLING, POLLING or WAKEUP_SENT.
    pub polling: CacheLine<AtomicU32>,
    /// The number of answers to asynchronous requests (`Slot::asynchronous`); a futex.
    pub completed: CacheLine<AtomicU32>,
    /// Not zero: the client sleeps on `completed`. The thread that wakes the client resets this field first.
    pub completion_awaited: CacheLine<AtomicU32>,
    /// The position in `releases` at which the client will put the next entry.
    pub release_tail: CacheLine<AtomicU32>,
    /// The position in `releases` at which the daemon will take the next entry.
    pub release_head: CacheLine<AtomicU32>,
    /// The slots.
    pub slots: [CacheLine<Slot>; SLOTS],
    /// A ring of released inodes.
    pub releases: [Release; RELEASES],
    /// For tracing.
    pub seen: CacheLine<TraceFields>,
    /// The daemon's flushes of everything that this client has written.
    pub flushes: CacheLine<FlushCounts>,
}

/// The flushes of a client's files, written by the daemon. Everything that was answered before a flush began is on disk once the flush is done.
#[repr(C)]
pub struct FlushCounts {
    /// The number of flushes that have begun.
    pub begun: AtomicU64,
    /// The number of the last successful flush; ALL_FLUSHED if the daemon ended in order, and has flushed everything.
    pub done: AtomicU64,
}

/// Fields for tracing, written by the daemon.
#[repr(C)]
pub struct TraceFields {
    /// The daemon's number of this connection.
    pub connection: AtomicU64,
    /// Not zero: the client shall set `Slot::submitted_at`.
    pub timed: AtomicU32,
}

/// A value with a cache line of its own.
#[repr(C, align(64))]
pub struct CacheLine<T>(pub T);

/// One request under way.
#[repr(C)]
pub struct Slot {
    /// IDLE, SUBMITTED, AWAITED or ANSWERED; a futex.
    pub state: AtomicU32,
    /// The length of the message, bytes.
    pub length: AtomicU32,
    /// The length of the data, bytes.
    pub data: AtomicU32,
    /// Not zero: no thread waits for this answer; `ControlPages::completed` counts it.
    pub asynchronous: AtomicU32,
    /// The result: not negative, or a negative errno.
    pub result: AtomicI64,
    /// When the client submitted the request, if a tracer or the daemon needs the time. This field and the next two are in nanoseconds of
    /// CLOCK_MONOTONIC; 0: not known. If this value is odd, the daemon sets the next two. Otherwise the daemon does not write them, as the write
    /// would cost the client a transfer of the cache line.
    pub submitted_at: AtomicU64,
    /// When a worker took the request.
    pub taken_at: AtomicU64,
    /// When the worker had served the request.
    pub served_at: AtomicU64,
}

/// A flag in a release's count: the daemon may keep the inode for a while after its last release.
pub const KEEP: u64 = 1 << 63;
/// Instead of a count: the client takes a kept inode back, once.
pub const RETAKE: u64 = 1 << 62;

/// A release of an inode.
#[repr(C)]
pub struct Release {
    /// The inode's handle.
    pub handle: AtomicU64,
    /// How many references are released, with or without KEEP; or RETAKE.
    pub count: AtomicU64,
}

const _: () = assert!(mem::size_of::<ControlPages>() <= CONTROL_SIZE && SLOTS <= 64);

/// A mapping of the shared memory. All access is by atomics, or by raw pointers.
pub struct SharedMapping(SharedMemory);

impl SharedMapping {
    /// Creates the memory. Returns the descriptor for the client and a mapping. The size is sealed.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the memory or the seals.
    pub fn create() -> Result<(OwnedFd, SharedMapping)> {
        let fd = memory::create("libcephfsd", TOTAL)?;
        memory::seal(&fd, SealFlags::empty())?;
        let mapping = SharedMapping::map(&fd)?;
        Ok((fd, mapping))
    }

    /// Maps memory of [`SharedMapping::create`]. A forked child does not inherit the mapping: the child must connect itself.
    ///
    /// # Errors
    ///
    /// When the memory has another size, or the kernel refuses the mapping.
    pub fn map(fd: impl AsFd) -> Result<SharedMapping> {
        let memory = SharedMemory::map(fd, TOTAL, ProtFlags::READ | ProtFlags::WRITE)?;
        memory.not_in_children();
        Ok(SharedMapping(memory))
    }

    /// The control pages.
    pub fn control(&self) -> &ControlPages {
        // SAFETY: the memory is mapped and aligned to a page; `ControlPages` consists of atomics, for which all bytes are
        // valid.
        unsafe { self.0.base().cast::<ControlPages>().as_ref() }
    }

    /// A slot; `slot` is below SLOTS.
    pub fn slot(&self, slot: usize) -> &Slot {
        &self.control().slots[slot % SLOTS].0
    }

    /// A slot's message: MESSAGE_SIZE bytes.
    pub fn message(&self, slot: usize) -> *mut u8 {
        // SAFETY: the offset is within the mapping.
        unsafe { self.0.base().as_ptr().add(MESSAGES + (slot % SLOTS) * MESSAGE_SIZE) }
    }

    /// A slot's data: DATA_SIZE bytes.
    pub fn data(&self, slot: usize) -> *mut u8 {
        // SAFETY: the offset is within the mapping.
        unsafe { self.0.base().as_ptr().add(DATA + (slot % SLOTS) * DATA_SIZE) }
    }

    /// Counts an answer to an asynchronous request, and wakes the client if it sleeps.
    pub fn complete(&self) {
        let control = self.control();
        control.completed.0.fetch_add(1, Ordering::SeqCst);
        let awaited = &control.completion_awaited.0;
        if awaited.load(Ordering::SeqCst) != 0 && awaited.swap(0, Ordering::SeqCst) != 0 {
            sys::futex_wake(&control.completed.0, 1);
        }
    }

    /// Copies the first `length` bytes of a slot's message into `room`; `None` if they do not fit.
    pub fn copy_message<'a>(&self, slot: usize, length: u32, room: &'a mut [u8]) -> Option<&'a [u8]> {
        let room = room.get_mut(..length as usize).filter(|room| room.len() <= MESSAGE_SIZE)?;
        // SAFETY: `room` is no longer than the message, which is aligned to its size.
        unsafe { memory::copy_from_peer(self.message(slot), room) };
        Some(room)
    }

    /// Puts a message into a slot; false if it is too long.
    pub fn put_message(&self, slot: usize, message: &[u8]) -> bool {
        if message.len() > MESSAGE_SIZE {
            return false;
        }
        // SAFETY: the length was checked, and the memory does not overlap.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr(), self.message(slot), message.len()) };
        self.slot(slot).length.store(message.len() as u32, Ordering::Relaxed);
        true
    }
}
