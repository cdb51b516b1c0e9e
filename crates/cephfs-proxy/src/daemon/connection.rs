//! One client: its socket, the memory that it shares with the daemon, and its objects. Values in that memory are copied
//! and checked before they are used.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::net::Shutdown;

use super::{
    DaemonState, figures::RefusalReason, handles::Handles, lock, peer::ClientCredentials, pool::Pool, seen, serve,
    unflushed::Unflushed,
};
use crate::{
    adaptive_spin::AdaptiveSpin,
    layout::{self, MESSAGE_SIZE, RELEASES, SharedMapping},
    sys,
    wire::{Errno, Handle, result_of},
};

/// The number of requests after which a worker turns to other clients.
const TURN: usize = 64;
/// Requests that take less time do not need another worker, since waking a worker takes as long.
const QUICK: Duration = Duration::from_micros(50);

/// A connected client.
pub struct ClientConnection {
    /// The connection's number, which is never reused.
    pub id: u64,
    /// The client's credentials.
    pub peer: ClientCredentials,
    /// The client's objects. No function of libcephfs is called under this lock.
    pub handles: Mutex<Handles>,
    /// The shared memory.
    pub mapping: SharedMapping,
    /// The socket, which shows when the client ends.
    pub socket: OwnedFd,
    wakeup: OwnedFd,
    /// A bit for each slot that a worker has taken. Until the answer, the client's bit in `submitted` is ignored.
    busy: AtomicU64,
    /// The slot from which to look for the next request.
    next_slot: AtomicU32,
    /// Whether the client is in the queue for a worker.
    pub waits: AtomicBool,
    /// The number of workers that serve this client.
    pub workers: Mutex<usize>,
    /// The position up to which releases were taken. The lock ensures that one thread takes them at a time.
    released: Mutex<u32>,
    sweeping: AtomicBool,
    closed: AtomicBool,
    /// Whether the daemon ends the connection, not the client.
    orderly: AtomicBool,
    spin: AdaptiveSpin,
    /// The number of requests served.
    pub served: AtomicU64,
    /// What the client has written and the daemon has not flushed.
    pub unflushed: Unflushed,
    /// `served` when [`ClientConnection::call_if_stuck`] was last called.
    served_before: AtomicU64,
    /// Whether the last request was served quickly, so that the next one is expected to be quick.
    is_quick: AtomicBool,
}

/// Sets `polling` while a worker polls, so that the client skips the wakeup. A worker drops the guard before any operation that may take long.
/// Afterwards, the worker must poll once more, since the client may have relied on the flag until then. If another worker still polls at that time,
/// the client's wakeup is needless, unless that worker's request takes longer than expected.
struct PollGuard<'c>(&'c SharedMapping);

impl<'c> PollGuard<'c> {
    fn new(mapping: &'c SharedMapping) -> PollGuard<'c> {
        mapping.control().polling.0.store(layout::POLLING, Ordering::SeqCst);
        PollGuard(mapping)
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0.control().polling.0.store(layout::NOT_POLLING, Ordering::SeqCst);
    }
}

impl ClientConnection {
    /// A new connection.
    pub fn new(
        id: u64,
        peer: ClientCredentials,
        socket: OwnedFd,
        mapping: SharedMapping,
        wakeup: OwnedFd,
    ) -> ClientConnection {
        mapping.control().seen.0.connection.store(id, Ordering::Relaxed);
        ClientConnection {
            id,
            peer,
            handles: Mutex::default(),
            mapping,
            socket,
            wakeup,
            busy: AtomicU64::new(0),
            next_slot: AtomicU32::new(0),
            waits: AtomicBool::new(false),
            workers: Mutex::default(),
            released: Mutex::new(0),
            sweeping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            orderly: AtomicBool::new(false),
            spin: AdaptiveSpin::default(),
            served: AtomicU64::new(0),
            unflushed: Unflushed::default(),
            served_before: AtomicU64::new(0),
            is_quick: AtomicBool::new(true),
        }
    }

    /// The eventfd by which the client wakes a worker.
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// From now on, no request of the client is begun.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Notes that the daemon ends. After the client's last request, the daemon flushes the client's writes, and notes the flush in the shared
    /// memory.
    pub fn settle(&self) {
        self.orderly.store(true, Ordering::SeqCst);
    }

    /// Serves the client's requests on the calling thread, until no request is left or it is the turn of other clients. `room`: a buffer for a
    /// message.
    pub fn work(self: &Arc<Self>, shared: &DaemonState, pool: &Pool, room: &mut [u8; MESSAGE_SIZE]) {
        // The client has other workers, which will take the request, or waits for a free worker.
        if !shared.share.enter(self) {
            return;
        }
        {
            let mut polling = Some(PollGuard::new(&self.mapping));
            let mut looks = 0;
            for _ in 0..TURN {
                self.take_releases();
                self.spin.watch(looks, || self.waiting() != 0);
                let Some(slot) = self.take() else { break };
                if !self.is_quick.load(Ordering::Relaxed) {
                    polling = None;
                    self.call_another();
                }
                pool.about_to_block();
                let Some(next) = self.answer(shared, slot, room, &mut polling) else { break };
                looks = next;
            }
        }
        shared.share.leave(self);
        self.call_another();
    }

    /// Wakes another worker if requests are waiting and no request was served since the last call. A worker that polls needs no second worker.
    pub fn call_if_stuck(&self) {
        let served = self.served.load(Ordering::Relaxed);
        if self.served_before.swap(served, Ordering::Relaxed) == served {
            self.call_another();
        }
    }

    /// Wakes another worker if requests are waiting.
    fn call_another(&self) {
        if self.waiting() != 0 {
            sys::wake(self.wakeup());
        }
    }

    /// A bit for each slot that is submitted and not taken; 0 if the connection is closed.
    fn waiting(&self) -> u64 {
        if self.closed.load(Ordering::SeqCst) {
            return 0;
        }
        self.mapping.control().submitted.0.load(Ordering::SeqCst)
            & !self.busy.load(Ordering::SeqCst)
            & (u64::MAX >> (64 - layout::SLOTS))
    }

    /// Takes a submitted slot; `None` if there is none.
    fn take(&self) -> Option<usize> {
        loop {
            let waiting = self.waiting();
            if waiting == 0 {
                return None;
            }
            // Takes the slots in turn, starting after the last one, so that no slot waits while others are submitted again and again.
            let ahead = waiting & (u64::MAX << self.next_slot.load(Ordering::Relaxed));
            let chosen = if ahead == 0 { waiting } else { ahead };
            let bit = chosen & chosen.wrapping_neg();
            if self.busy.fetch_or(bit, Ordering::SeqCst) & bit == 0 {
                if self.mapping.control().submitted.0.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    self.next_slot.store((bit.trailing_zeros() + 1) % layout::SLOTS as u32, Ordering::Relaxed);
                    return Some(bit.trailing_zeros() as usize);
                }
                // Another worker has taken and answered the slot meanwhile; the client may be filling it again.
                self.busy.fetch_and(!bit, Ordering::SeqCst);
            }
        }
    }

    /// Serves a request. Returns how often to poll for the next one; `None` if the worker has to leave.
    fn answer<'c>(
        self: &'c Arc<Self>,
        shared: &DaemonState,
        slot: usize,
        room: &mut [u8; MESSAGE_SIZE],
        polling: &mut Option<PollGuard<'c>>,
    ) -> Option<u32> {
        let begun = Instant::now();
        let line = self.mapping.slot(slot);
        let (length, data) = (line.length.load(Ordering::Acquire), line.data.load(Ordering::Relaxed));
        let asynchronous = line.asynchronous.load(Ordering::Relaxed) != 0;
        let message = self.mapping.copy_message(slot, length, room);
        let result = match message {
            Some(message) => {
                seen::watched(self, shared, line, message, data, || serve::serve(self, shared, slot, message, data))
            }
            None => {
                shared.figures.refuse(RefusalReason::Malformed);
                result_of(Errno::BADMSG)
            }
        };
        if result == result_of(Errno::SHUTDOWN) {
            evicted();
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        self.is_quick.store(begun.elapsed() < QUICK, Ordering::Relaxed);
        line.result.store(result, Ordering::Relaxed);
        // The slot may be submitted again as soon as its state says so.
        self.busy.fetch_and(!(1 << slot), Ordering::SeqCst);
        // The flag is set before the answer, so that the client sees it when it submits the next request.
        polling.get_or_insert_with(|| PollGuard::new(&self.mapping));
        if line.state.swap(layout::ANSWERED, Ordering::SeqCst) == layout::AWAITED {
            sys::futex_wake(&line.state, 1);
        }
        if asynchronous {
            self.mapping.complete();
        }
        Some(self.spin.looks())
    }

    /// Whether the client's releases and idle inodes have to be processed. If so, the caller must call [`ClientConnection::sweep`]. Only one thread
    /// at a time gets true.
    pub fn begin_sweep(&self, limit: Duration) -> bool {
        let control = self.mapping.control();
        let released = control.release_tail.0.load(Ordering::Relaxed) != control.release_head.0.load(Ordering::Relaxed);
        (released || lock(&self.handles).expires(limit)) && !self.sweeping.swap(true, Ordering::SeqCst)
    }

    /// Takes the client's releases, and releases inodes that have been idle for `limit`.
    pub fn sweep(&self, limit: Duration) {
        self.take_releases();
        let gone = lock(&self.handles).expire(limit);
        drop(gone);
        self.sweeping.store(false, Ordering::SeqCst);
    }

    /// Takes the client's releases. The client's positions are not trusted, so this takes at most as many releases as the ring holds.
    pub fn take_releases(&self) {
        let control = self.mapping.control();
        let Ok(mut head) = self.released.try_lock() else { return };
        let tail = control.release_tail.0.load(Ordering::Acquire);
        if tail == *head {
            return;
        }
        let count = tail.wrapping_sub(*head).min(RELEASES as u32);
        let mut dropped = Vec::new();
        {
            let mut handles = lock(&self.handles);
            for index in 0..count {
                let release = &control.releases[head.wrapping_add(index) as usize % RELEASES];
                let handle = Handle(release.handle.load(Ordering::Relaxed));
                dropped.extend(handles.release(handle, release.count.load(Ordering::Relaxed)));
            }
        }
        *head = tail;
        control.release_head.0.store(tail, Ordering::Release);
        drop(head);
        drop(dropped);
    }
}

/// Ends this process after the cluster has evicted it (EBLOCKLISTED, which is ESHUTDOWN), for instance after a minute without contact. Nothing that
/// was opened through the mount will work again. The clients get a new process with a new mount.
fn evicted() -> ! {
    tracing::warn!("the cluster has evicted this daemon's session: the clients of this mount must mount again");
    // SAFETY: the process ends.
    unsafe { libc::_exit(1) }
}

impl ClientConnection {
    /// Tells the client that the connection is over. Its threads that wait for an answer notice it at once.
    fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        for slot in 0..layout::SLOTS {
            sys::futex_wake(&self.mapping.slot(slot).state, 1);
        }
        self.mapping.complete();
    }
}

impl Drop for ClientConnection {
    /// At an orderly end, the client connects to the next process while this process drops the client's objects.
    fn drop(&mut self) {
        if self.orderly.load(Ordering::SeqCst) {
            if self.flush_all() {
                self.mapping.control().flushes.0.done.store(layout::ALL_FLUSHED, Ordering::SeqCst);
            }
            self.hang_up();
        }
    }
}
