//! Limits the data that a client has to keep in case this daemon is killed: once a client has written much, the daemon flushes the data without a
//! request. The counts in the shared memory (`FlushCounts`) tell the client which data is on disk, even after this process has ended.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{DaemonState, connection::ClientConnection, handles::HeldObject, lock};
use crate::layout::{KEPT_OVERHEAD, MOST_UNFLUSHED, MUCH_UNFLUSHED};

/// If a client writes faster than Ceph takes the data, the client keeps no large write for this long.
const TOO_FAST: Duration = Duration::from_secs(1);

/// What a client has written and the daemon has not flushed.
#[derive(Default)]
pub struct Unflushed {
    sizes: Mutex<UnflushedSizes>,
    /// The number of the last flush. Locked during a flush.
    flushing: Mutex<u64>,
}

/// The numbers of unflushed bytes.
#[derive(Default)]
struct UnflushedSizes {
    /// The bytes of writes under way.
    beginning: usize,
    /// The bytes of writes that have ended since the last flush began.
    written: usize,
    /// The bytes of earlier writes, while that flush is under way.
    leaving: usize,
    /// Whether a worker has been told to flush.
    is_called: bool,
    /// Until when the client keeps no large write.
    too_fast: Option<Instant>,
}

impl UnflushedSizes {
    fn are_too_much(&self) -> bool {
        self.beginning + self.written + self.leaving > MOST_UNFLUSHED && self.written + self.leaving > 0
    }
}

/// A write under way, until this is dropped.
pub struct WriteUnderWay<'c> {
    connection: &'c Arc<ClientConnection>,
    shared: &'c DaemonState,
    size: usize,
}

impl ClientConnection {
    /// Begins a write of this many bytes, which the client will keep. If too much is not flushed, flushes first.
    pub fn begin_write<'c>(self: &'c Arc<Self>, shared: &'c DaemonState, length: usize) -> WriteUnderWay<'c> {
        let size = length + KEPT_OVERHEAD;
        let is_too_much = {
            let mut sizes = lock(&self.unflushed.sizes);
            sizes.beginning += size;
            sizes.are_too_much()
        };
        if is_too_much {
            self.flush_if(UnflushedSizes::are_too_much);
        }
        WriteUnderWay { connection: self, shared, size }
    }

    /// The same for a large write, without a flush. `None` if too much is not flushed, or was a moment ago: then the client does not keep the
    /// write.
    pub fn begin_large_write<'c>(
        self: &'c Arc<Self>,
        shared: &'c DaemonState,
        length: usize,
    ) -> Option<WriteUnderWay<'c>> {
        let size = length + KEPT_OVERHEAD;
        let mut sizes = lock(&self.unflushed.sizes);
        let now = Instant::now();
        if sizes.too_fast.is_some_and(|until| now < until) {
            return None;
        }
        sizes.beginning += size;
        if sizes.are_too_much() {
            sizes.beginning -= size;
            sizes.too_fast = Some(now + TOO_FAST);
            return None;
        }
        Some(WriteUnderWay { connection: self, shared, size })
    }

    /// Flushes all that the client has written, if `needed` still returns true once no other thread flushes.
    fn flush_if(&self, needed: fn(&UnflushedSizes) -> bool) {
        let mut number = lock(&self.unflushed.flushing);
        {
            let mut sizes = lock(&self.unflushed.sizes);
            if !needed(&sizes) {
                return;
            }
            sizes.leaving = std::mem::take(&mut sizes.written);
        }
        let counts = &self.mapping.control().flushes.0;
        *number += 1;
        // The number is stored before the list of files is made. So the list includes all files whose writes the client saw answered before it
        // saw this number.
        counts.begun.store(*number, Ordering::SeqCst);
        if self.flush_all() {
            counts.done.store(*number, Ordering::SeqCst);
        }
        lock(&self.unflushed.sizes).leaving = 0;
    }

    /// Flushes all that the client has written. Returns whether all of it is on disk, as far as is known.
    pub fn flush_all(&self) -> bool {
        let files = lock(&self.handles).all(|held| match held {
            HeldObject::File(file) => Some(file.clone()),
            _ => None,
        });
        // All files are flushed, even if one of them fails. Until the client has been told of a failure, nothing counts as flushed.
        files.iter().filter(|file| !file.flush()).count() == 0
    }
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        let place = {
            let mut sizes = lock(&self.connection.unflushed.sizes);
            sizes.beginning -= self.size;
            sizes.written += self.size;
            let is_much = sizes.written >= MUCH_UNFLUSHED && !sizes.is_called;
            let place = if is_much { self.shared.share.enter_flush() } else { None };
            sizes.is_called |= place.is_some();
            place
        };
        let Some(place) = place else { return };
        if let Some(pool) = self.shared.pool.get().and_then(std::sync::Weak::upgrade) {
            let connection = self.connection.clone();
            pool.submit(Box::new(move || {
                let _place = place;
                loop {
                    connection.flush_if(|sizes| sizes.written >= MUCH_UNFLUSHED);
                    let mut sizes = lock(&connection.unflushed.sizes);
                    sizes.is_called = sizes.written >= MUCH_UNFLUSHED;
                    if !sizes.is_called {
                        return;
                    }
                }
            }));
        }
    }
}
