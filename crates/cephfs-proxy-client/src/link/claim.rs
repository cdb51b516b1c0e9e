//! A claimed slot: a request, its data, and the answer.

use std::{cell::Cell, os::fd::AsFd, ptr, sync::atomic::Ordering};

use cephfs_proxy::{
    layout::{self, DATA_SIZE, MESSAGE_SIZE},
    sys,
    wire::{self, Errno, ProxyOperation, errno_of},
};

use super::{CHECK_INTERVAL, CallError, DaemonLink, FIRST_CHECK, seen};

/// A claimed slot, which is freed when this is dropped.
pub struct SlotClaim<'l> {
    pub(super) link: &'l DaemonLink,
    pub(super) slot: usize,
    /// Whether a request is submitted whose answer was not taken yet.
    pub(super) pending: Cell<bool>,
    /// Whether no wakeup was sent for the request, since a worker polls.
    pub(super) relies: Cell<bool>,
    /// Whether the request may be repeated if the daemon goes away, even if that daemon has begun the request.
    pub(super) repeatable: Cell<bool>,
}

impl SlotClaim<'_> {
    /// Leaves the slot to the daemon and returns its number, for `DaemonLink::reclaim`.
    pub fn leave(self) -> usize {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }

    /// Copies the caller's data into the slot: `length` bytes, at most DATA_SIZE.
    ///
    /// # Safety
    /// `from` must be good for that many bytes.
    pub unsafe fn give(&self, from: *const u8, length: usize) {
        // SAFETY: the caller guarantees it (see above).
        unsafe { self.give_at(0, from, length) };
    }

    /// Copies the caller's data into the slot, at offset `at`.
    ///
    /// # Safety
    /// `from` must be good for `length` bytes.
    pub unsafe fn give_at(&self, at: usize, from: *const u8, length: usize) {
        let at = at.min(DATA_SIZE);
        // SAFETY: the caller guarantees its memory (see above), and the slot's data is that long.
        unsafe {
            ptr::copy_nonoverlapping(from, self.link.mapping.data(self.slot).add(at), length.min(DATA_SIZE - at));
        }
    }

    /// Copies data out of the slot: at most `length` bytes.
    ///
    /// # Safety
    /// `to` must be good for that many bytes.
    pub unsafe fn take(&self, to: *mut u8, length: usize) {
        // SAFETY: the caller guarantees it (see above).
        unsafe { self.take_at(0, to, length) };
    }

    /// Copies data out of the slot, from offset `at`.
    ///
    /// # Safety
    /// `to` must be good for `length` bytes.
    pub unsafe fn take_at(&self, at: usize, to: *mut u8, length: usize) {
        let at = at.min(DATA_SIZE);
        // SAFETY: the caller guarantees its memory (see above), and the slot's data is that long.
        unsafe { ptr::copy_nonoverlapping(self.link.mapping.data(self.slot).add(at), to, length.min(DATA_SIZE - at)) };
    }

    /// The data that was sent with a request that is now answered.
    pub fn sent(&self, length: usize) -> &[u8] {
        // SAFETY: the slot's data has that length. Nobody changes the data before the next request: the daemon only reads the data sent with a
        // write.
        unsafe { std::slice::from_raw_parts(self.link.mapping.data(self.slot), length.min(DATA_SIZE)) }
    }

    /// The connection.
    pub fn link(&self) -> &DaemonLink {
        self.link
    }

    /// A copy of data in the slot.
    pub fn copy(&self, length: usize) -> Vec<u8> {
        let mut copy = vec![0; length.min(DATA_SIZE)];
        // SAFETY: pointer and length are those of a vector.
        unsafe { self.take(copy.as_mut_ptr(), copy.len()) };
        copy
    }

    /// Submits a request with `data` bytes of the slot's data, and waits for its result and answer.
    pub fn call<'a, O: ProxyOperation<'a>>(&self, operation: &O, data: usize) -> Result<(i64, O::Answer), CallError> {
        self.submit(operation, data, false)?;
        self.finish::<O>()
    }

    /// Allows the submitted request to be repeated, although its operation is not repeatable in general.
    pub fn harmless(&self) {
        self.repeatable.set(true);
    }

    /// Waits for the result and the answer of the submitted request.
    pub fn finish<'a, O: ProxyOperation<'a>>(&self) -> Result<(i64, O::Answer), CallError> {
        let line = self.link.mapping.slot(self.slot);
        let over = self.wait();
        let result = line.result.load(Ordering::Relaxed);
        seen::finished(self.link, line, O::CODE, over.map(|()| result));
        over?;
        if result < 0 {
            return Err(errno_of(result).into());
        }
        let mut room = [0; 512];
        let answer = self.link.mapping.copy_message(self.slot, line.length.load(Ordering::Relaxed), &mut room);
        let answer = wire::decode(answer.ok_or(Errno::PROTO)?).map_err(|_| Errno::PROTO)?;
        Ok((result, answer))
    }

    /// Submits a request with `data` bytes of the slot's data, without waiting. `DaemonLink::await_completion` waits for
    /// answers to asynchronous requests.
    pub fn submit<'a, O: ProxyOperation<'a>>(
        &self,
        operation: &O,
        data: usize,
        asynchronous: bool,
    ) -> Result<(), CallError> {
        let mapping = &self.link.mapping;
        let mut small = [0; 512];
        let mut large;
        let message = match operation.encode(&mut small) {
            Ok(message) => message,
            Err(_) => {
                large = vec![0; MESSAGE_SIZE];
                operation.encode(&mut large).map_err(|_| Errno::NAMETOOLONG)?
            }
        };
        self.repeatable.set(O::REPEATABLE);
        mapping.put_message(self.slot, message);
        let line = mapping.slot(self.slot);
        line.data.store(data as u32, Ordering::Relaxed);
        line.asynchronous.store(asynchronous.into(), Ordering::Relaxed);
        seen::submitting(self.link, line, message, data as u32);
        line.state.store(layout::SUBMITTED, Ordering::Release);
        self.pending.set(true);
        mapping.control().submitted.0.fetch_or(1 << self.slot, Ordering::SeqCst);
        self.relies.set(!self.link.call_worker());
        Ok(())
    }

    /// Sends a wakeup if none was sent and no worker has taken the request. Call this when polling for the answer ends.
    pub fn insist(&self) {
        if self.relies.replace(false) {
            self.link.insist([self.slot]);
        }
    }

    /// The error after the daemon has gone away.
    fn fate(&self) -> CallError {
        let untouched = self.link.mapping.control().submitted.0.load(Ordering::SeqCst) & (1 << self.slot) != 0;
        if untouched || self.repeatable.get() { CallError::NotStarted } else { CallError::Unknown }
    }

    fn wait(&self) -> Result<(), CallError> {
        let state = &self.link.mapping.slot(self.slot).state;
        let spin = &self.link.spin;
        if spin.watch(spin.looks(), || state.load(Ordering::Acquire) == layout::ANSWERED) {
            self.pending.set(false);
            return Ok(());
        }
        self.insist();
        let mut limit = FIRST_CHECK;
        loop {
            if self.link.is_dead() && state.load(Ordering::SeqCst) != layout::ANSWERED {
                return Err(self.fate());
            }
            let now = state.compare_exchange(layout::SUBMITTED, layout::AWAITED, Ordering::SeqCst, Ordering::SeqCst);
            match now {
                Ok(_) | Err(layout::AWAITED) => sys::futex_wait(state, layout::AWAITED, limit),
                Err(_) => {
                    self.pending.set(false);
                    return Ok(());
                }
            }
            // If the daemon has hung up, it may have answered before that, so the state is read once more.
            if state.load(Ordering::SeqCst) == layout::AWAITED && sys::hung_up(self.link.socket.as_fd()) {
                self.link.dead.store(true, Ordering::SeqCst);
            }
            limit = CHECK_INTERVAL;
        }
    }
}

impl Drop for SlotClaim<'_> {
    fn drop(&mut self) {
        // While the daemon lives, it may still write into the slot. If the daemon is gone, the slot is not reused.
        if self.pending.get() && self.wait().is_err() {
            return;
        }
        self.link.mapping.slot(self.slot).state.store(layout::IDLE, Ordering::Relaxed);
        self.link.free(self.slot);
    }
}
