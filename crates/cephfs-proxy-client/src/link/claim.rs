//! A slot while somebody uses it: a request, its data, and the answer.

use std::{cell::Cell, os::fd::AsFd, ptr, sync::atomic::Ordering};

use cephfs_proxy::{
    layout::{self, DATA_SIZE, MESSAGE_SIZE},
    sys,
    wire::{self, Errno, Operation},
};

use super::{FIRST_PATIENCE, GONE, Link, PATIENCE, UNKNOWN, seen};

/// A slot of one's own, freed with it.
pub struct Claim<'l> {
    pub(super) link: &'l Link,
    pub(super) slot: usize,
    /// It is the daemon's turn.
    pub(super) pending: Cell<bool>,
    /// Nobody has rung for it, since a worker looks anyway.
    pub(super) relies: Cell<bool>,
    /// What to say if the daemon goes away meanwhile: GONE or UNKNOWN.
    pub(super) fate: Cell<Errno>,
}

impl Claim<'_> {
    /// Leaves the slot with the daemon: see `Link::reclaim`.
    pub fn leave(self) -> usize {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }

    /// Puts data into the slot: of the caller's, `length` bytes, DATA_SIZE at most.
    ///
    /// # Safety
    /// `from` must be good for that many bytes.
    pub unsafe fn give(&self, from: *const u8, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.give_at(0, from, length) };
    }

    /// Likewise, from `at` on.
    ///
    /// # Safety
    /// Likewise.
    pub unsafe fn give_at(&self, at: usize, from: *const u8, length: usize) {
        let at = at.min(DATA_SIZE);
        // SAFETY: the caller's promise, and the slot's data is that long.
        unsafe {
            ptr::copy_nonoverlapping(from, self.link.mapping.data(self.slot).add(at), length.min(DATA_SIZE - at));
        }
    }

    /// Takes data out of the slot: at most `length` bytes, which are as many as the caller has room for.
    ///
    /// # Safety
    /// `to` must be good for that many bytes.
    pub unsafe fn take(&self, to: *mut u8, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.take_at(0, to, length) };
    }

    /// Likewise, from `at` on.
    ///
    /// # Safety
    /// Likewise.
    pub unsafe fn take_at(&self, at: usize, to: *mut u8, length: usize) {
        let at = at.min(DATA_SIZE);
        // SAFETY: the caller's promise, and the slot's data is that long.
        unsafe { ptr::copy_nonoverlapping(self.link.mapping.data(self.slot).add(at), to, length.min(DATA_SIZE - at)) };
    }

    /// A copy of data in the slot.
    pub fn copy(&self, length: usize) -> Vec<u8> {
        let mut copy = vec![0; length.min(DATA_SIZE)];
        // SAFETY: as many as there is room for.
        unsafe { self.take(copy.as_mut_ptr(), copy.len()) };
        copy
    }

    /// Makes a request that `data` bytes of the slot's data go with, and waits for its result and answer.
    pub fn call<'a, O: Operation<'a>>(&self, operation: &O, data: usize) -> Result<(i64, O::Answer), Errno> {
        self.submit(operation, data, false)?;
        self.finish::<O>()
    }

    /// What was submitted may be done twice, although others like it may not.
    pub fn harmless(&self) {
        self.fate.set(GONE);
    }

    /// Waits for the answer to what was submitted.
    pub fn finish<'a, O: Operation<'a>>(&self) -> Result<(i64, O::Answer), Errno> {
        let line = self.link.mapping.slot(self.slot);
        let over = self.wait();
        let result = line.result.load(Ordering::Relaxed);
        seen::finished(self.link, line, O::CODE, over.map(|()| result));
        over?;
        if result < 0 {
            return Err(Errno(i32::try_from(-result).unwrap_or(libc::EIO)));
        }
        let mut room = [0; 512];
        let answer = self.link.mapping.copy_message(self.slot, line.length.load(Ordering::Relaxed), &mut room);
        let answer = wire::decode(answer.ok_or(Errno(libc::EPROTO))?).map_err(|_| Errno(libc::EPROTO))?;
        Ok((result, answer))
    }

    /// Makes a request that `data` bytes of the slot's data go with, and does not wait. The answer to an asynchronous one is told by
    /// `Link::await_completion`.
    pub fn submit<'a, O: Operation<'a>>(&self, operation: &O, data: usize, asynchronous: bool) -> Result<(), Errno> {
        let mapping = &self.link.mapping;
        let mut small = [0; 512];
        let mut large;
        let message = match operation.encode(&mut small) {
            Ok(message) => message,
            Err(_) => {
                large = vec![0; MESSAGE_SIZE];
                operation.encode(&mut large).map_err(|_| Errno(libc::ENAMETOOLONG))?
            }
        };
        self.fate.set(if O::REPEATABLE { GONE } else { UNKNOWN });
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

    /// Whoever does not look any longer whether it is answered sees to it that it has been taken, at least.
    pub fn insist(&self) {
        if self.relies.replace(false) {
            self.link.insist([self.slot]);
        }
    }

    /// The daemon is gone. What it had not taken yet, it has not done.
    fn fate(&self) -> Errno {
        let untouched = self.link.mapping.control().submitted.0.load(Ordering::SeqCst) & (1 << self.slot) != 0;
        if untouched { GONE } else { self.fate.get() }
    }

    fn wait(&self) -> Result<(), Errno> {
        let state = &self.link.mapping.slot(self.slot).state;
        let spin = &self.link.spin;
        if spin.watch(spin.looks(), || state.load(Ordering::Acquire) == layout::ANSWERED) {
            self.pending.set(false);
            return Ok(());
        }
        self.insist();
        let mut limit = FIRST_PATIENCE;
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
            // Then its answer, if there is one, is there: that is looked at once more.
            if state.load(Ordering::SeqCst) == layout::AWAITED && layout::hung_up(self.link.socket.as_fd()) {
                self.link.dead.store(true, Ordering::SeqCst);
            }
            limit = PATIENCE;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // The daemon may still write into it; only one that is gone does not.
        if self.pending.get() && self.wait().is_err() {
            return;
        }
        self.link.mapping.slot(self.slot).state.store(layout::IDLE, Ordering::Relaxed);
        self.link.free(self.slot);
    }
}
