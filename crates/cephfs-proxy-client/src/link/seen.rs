//! Tracing of requests by static probes. Without a tracer, a request only costs loads of two words that nobody writes.

use std::sync::atomic::{AtomicU64, Ordering};

use cephfs_proxy::{
    layout::Slot,
    probe, semaphores, sys,
    wire::{
        Errno,
        about::{self, RequestDescription},
        result_of,
    },
};

use super::{CallError, DaemonLink};

semaphores!(CALL);

/// Called before a request is submitted: notes the time, if a tracer or the daemon needs it.
pub fn submitting(link: &DaemonLink, line: &Slot, message: &[u8], data: u32) {
    let seen = &link.mapping.control().seen.0;
    let listened = CALL.start() || CALL.done();
    if listened {
        line.taken_at.store(0, Ordering::Relaxed);
        start(link, line, RequestDescription::of(message, data));
    }
    // The time is read after the probe, since the tracer's time does not count as waiting.
    let now = if listened || seen.timed.load(Ordering::Relaxed) != 0 { sys::monotonic() & !1 } else { 0 };
    line.submitted_at.store(now | u64::from(listened), Ordering::Relaxed);
}

/// Called when a request is over, with its result or because the daemon is gone. A request that will be repeated
/// is reported as ECONNRESET.
pub fn finished(link: &DaemonLink, line: &Slot, operation: u16, over: Result<i64, CallError>) {
    if CALL.done() {
        let result = match over {
            Ok(result) => result,
            Err(CallError::NotStarted) => result_of(Errno::CONNRESET),
            Err(CallError::Unknown | CallError::Errno(_)) => result_of(Errno::IO),
        };
        done(link, line, operation, result);
    }
}

/// A number that is unique among the process's requests under way.
fn request(line: &Slot) -> u64 {
    std::ptr::from_ref(line) as u64
}

fn connection(link: &DaemonLink) -> u64 {
    link.mapping.control().seen.0.connection.load(Ordering::Relaxed)
}

#[cold]
#[inline(never)]
fn start(link: &DaemonLink, line: &Slot, about: RequestDescription) {
    let RequestDescription { operation, handle, asked } = about;
    let (request, connection, socket) = (request(line), connection(link), link.path.as_ptr());
    probe!("libcephfs_proxy", "call__start", CALL, "+0", request, operation, connection, handle, asked, socket);
}

#[cold]
#[inline(never)]
fn done(link: &DaemonLink, line: &Slot, operation: u16, result: i64) {
    let time = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let (submitted_at, taken_at, served_at) = (time(&line.submitted_at), time(&line.taken_at), time(&line.served_at));
    let is_timed = submitted_at != 0 && taken_at >= submitted_at;
    let (waited, served) =
        if is_timed { (taken_at - submitted_at, served_at.saturating_sub(taken_at)) } else { (0, 0) };
    let (request, connection, bytes) = (request(line), connection(link), about::moved(operation, result));
    probe!("libcephfs_proxy", "call__done", CALL, "+2", request, operation, connection, bytes, result, waited, served);
}
