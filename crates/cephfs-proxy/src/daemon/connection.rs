//! One client: its socket, the memory it shares with us, and what it holds. What is in that memory is copied, checked, then used.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    Shared,
    figures::Refusal,
    handles::{Handles, Held},
    lock,
    peer::Peer,
    pool::Pool,
    seen, serve,
};
use crate::{
    adaptive_spin::AdaptiveSpin,
    layout::{self, MESSAGE_SIZE, Mapping, RELEASES},
    sys,
    wire::{Handle, Request},
};

/// After so many requests a worker turns to the other clients' before it goes on with this one's.
const TURN: usize = 64;
/// What is served so soon is not worth another worker: to wake one takes as long.
const QUICK: Duration = Duration::from_micros(50);

/// A client that has been welcomed.
pub struct Connection {
    /// Never used for another one.
    pub id: u64,
    /// Who it is.
    pub peer: Peer,
    /// What it holds. No call of libcephfs is made under this lock.
    pub handles: Mutex<Handles>,
    /// What it shares with us.
    pub mapping: Mapping,
    /// Its first packet came by it, and its end is seen by it.
    pub socket: OwnedFd,
    bell: OwnedFd,
    /// Slots that a worker has taken: what the client says of them meanwhile does not count.
    busy: AtomicU64,
    workers: AtomicU32,
    /// Releases that were taken; and one takes them at a time.
    released: Mutex<u32>,
    closed: AtomicBool,
    /// We leave, not the client.
    orderly: AtomicBool,
    spin: AdaptiveSpin,
    /// Requests that were served.
    pub served: AtomicU64,
    /// The last request was served in a moment: so may be the next.
    is_quick: AtomicBool,
}

/// Sets `polling` while a worker polls, so that the client skips the wakeup. A worker drops the guard before anything that may take long.
/// It must poll once more after that, since the client may have relied on the flag until then. Another worker may still poll: the
/// client's wakeup is needless in that case, unless that worker's request takes longer than expected.
struct PollGuard<'c>(&'c Mapping);

impl<'c> PollGuard<'c> {
    fn new(mapping: &'c Mapping) -> PollGuard<'c> {
        mapping.control().polling.0.store(layout::POLLING, Ordering::SeqCst);
        PollGuard(mapping)
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0.control().polling.0.store(layout::NOT_POLLING, Ordering::SeqCst);
    }
}

impl Connection {
    /// A new one.
    pub fn new(id: u64, peer: Peer, socket: OwnedFd, mapping: Mapping, bell: OwnedFd) -> Connection {
        mapping.control().seen.0.connection.store(id, Ordering::Relaxed);
        Connection {
            id,
            peer,
            handles: Mutex::default(),
            mapping,
            socket,
            bell,
            busy: AtomicU64::new(0),
            workers: AtomicU32::new(0),
            released: Mutex::new(0),
            closed: AtomicBool::new(false),
            orderly: AtomicBool::new(false),
            spin: AdaptiveSpin::default(),
            served: AtomicU64::new(0),
            is_quick: AtomicBool::new(true),
        }
    }

    /// The eventfd that the client rings.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// From now on no request of it is begun.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// The daemon ends: when the last request of this client is answered, what it wrote is flushed, and it is told so.
    pub fn settle(&self) {
        self.orderly.store(true, Ordering::SeqCst);
    }

    /// Answers what has been submitted, on the calling thread, until there is no more or it is others' turn.
    /// `room` is for a message.
    pub fn work(&self, shared: &Shared, pool: &Pool, room: &mut [u8; MESSAGE_SIZE]) {
        let most = shared.limits.workers_per_client();
        if self.workers.fetch_add(1, Ordering::SeqCst) < most {
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
                looks = self.answer(shared, slot, room, &mut polling);
            }
        }
        // Whoever finds too many workers here leaves, and relies on those to see what it saw.
        if self.workers.fetch_sub(1, Ordering::SeqCst) <= most {
            self.call_another();
        }
    }

    /// Has another worker see to what is submitted.
    fn call_another(&self) {
        if self.waiting() != 0 {
            sys::ring(self.bell());
        }
    }

    /// Slots that are submitted and not taken.
    fn waiting(&self) -> u64 {
        if self.closed.load(Ordering::SeqCst) {
            return 0;
        }
        self.mapping.control().submitted.0.load(Ordering::SeqCst)
            & !self.busy.load(Ordering::SeqCst)
            & (u64::MAX >> (64 - layout::SLOTS))
    }

    /// Takes a slot that is submitted.
    fn take(&self) -> Option<usize> {
        loop {
            let waiting = self.waiting();
            if waiting == 0 {
                return None;
            }
            let bit = waiting & waiting.wrapping_neg();
            if self.busy.fetch_or(bit, Ordering::SeqCst) & bit == 0 {
                if self.mapping.control().submitted.0.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    return Some(bit.trailing_zeros() as usize);
                }
                // Another worker has taken and answered it since we looked; the client may be filling it again.
                self.busy.fetch_and(!bit, Ordering::SeqCst);
            }
        }
    }

    /// Serves a request, and says how often to look for the next.
    fn answer<'c>(
        &'c self,
        shared: &Shared,
        slot: usize,
        room: &mut [u8; MESSAGE_SIZE],
        polling: &mut Option<PollGuard<'c>>,
    ) -> u32 {
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
                shared.figures.refuse(Refusal::Malformed);
                -i64::from(libc::EBADMSG)
            }
        };
        if result == -i64::from(libc::ESHUTDOWN) {
            self.expel(shared, message.and_then(|message| Request::decode(message).ok()?.mount()));
            return 0;
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        self.is_quick.store(begun.elapsed() < QUICK, Ordering::Relaxed);
        line.result.store(result, Ordering::Relaxed);
        // The slot may be submitted again as soon as its state says so.
        self.busy.fetch_and(!(1 << slot), Ordering::SeqCst);
        // Before the client has its answer, so that it cannot be faster.
        polling.get_or_insert_with(|| PollGuard::new(&self.mapping));
        if line.state.swap(layout::ANSWERED, Ordering::SeqCst) == layout::AWAITED {
            sys::futex_wake(&line.state, 1);
        }
        if asynchronous {
            self.mapping.complete();
        }
        self.spin.looks()
    }

    /// Lets go of what the client has not asked for again for so long.
    pub fn expire(&self, limit: Duration) {
        let gone = lock(&self.handles).expire(limit);
        drop(gone);
    }

    /// Takes what the client gives back without asking for an answer: not more than there can be, whatever it says.
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

impl Connection {
    /// The cluster has given us up (EBLOCKLISTED, which is ESHUTDOWN), as it does when it has not heard of us for a minute: nothing that was
    /// opened through that mount will ever work again. So the client goes, and finds us again with a mount that is new. Others that it has
    /// may be as good as ever, and somebody else's, too: it finds those again as they are.
    fn expel(&self, shared: &Shared, mount: Option<Handle>) {
        self.close();
        tracing::warn!("the cluster has evicted us: process {} has to mount again", self.peer.pid);
        let held = mount.and_then(|mount| lock(&self.handles).get(Handle(0), mount).ok());
        if let Some(Held::Mount(mount)) = held
            && let Some(mount) = lock(&mount.mounted).clone()
        {
            shared.mounts.give_up(&mount);
        }
        // SAFETY: takes no pointer.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl Drop for Connection {
    /// What the client holds goes after this, and the socket, by which it hears of it, last.
    fn drop(&mut self) {
        if !self.orderly.load(Ordering::SeqCst) {
            return;
        }
        let files = lock(&self.handles).all(|held| match held {
            Held::File(file) => Some(file.clone()),
            _ => None,
        });
        if files.iter().all(|file| file.sync() >= 0) {
            self.mapping.control().settled.0.store(1, Ordering::SeqCst);
        }
    }
}
