//! Tracing and metrics of requests. Static probes report requests to tracers. Without a tracer and without metrics, not even the time is read.

use std::sync::atomic::Ordering;

use super::{DaemonState, connection::ClientConnection};
use crate::{
    layout::Slot,
    probe, semaphores, sys,
    wire::about::{self, RequestDescription},
};

/// The longest plausible wait of a request, nanoseconds. A client writes the time itself, so a longer wait is ignored.
const LONGEST_WAIT: u64 = 3_600_000_000_000;

semaphores!(REQUEST);

/// How long a request took, nanoseconds.
#[derive(Clone, Copy)]
struct RequestTimes {
    /// From the submission until a worker took the request; 0: not known.
    waited: u64,
    /// From then until the request was served. libcephfs takes nearly all of this time.
    served: u64,
}

/// Serves a request, and reports it to tracers and metrics.
pub fn watched(
    connection: &ClientConnection,
    shared: &DaemonState,
    line: &Slot,
    message: &[u8],
    data: u32,
    serve: impl FnOnce() -> i64,
) -> i64 {
    let submitted_at = line.submitted_at.load(Ordering::Relaxed);
    let is_watched = submitted_at != 0 || shared.figures.on || REQUEST.start() || REQUEST.done();
    if !is_watched {
        return serve();
    }
    let taken_at = sys::monotonic();
    let waited = if submitted_at == 0 { 0 } else { taken_at.saturating_sub(submitted_at).min(LONGEST_WAIT) };
    if REQUEST.start() {
        start(connection, RequestDescription::of(message, data), waited);
    }
    let result = serve();
    let served_at = sys::monotonic();
    if submitted_at & 1 != 0 {
        line.taken_at.store(taken_at, Ordering::Relaxed);
        line.served_at.store(served_at, Ordering::Relaxed);
    }
    let times = RequestTimes { waited, served: served_at.saturating_sub(taken_at) };
    if shared.figures.on {
        let operation = about::number(message);
        shared.figures.count(operation, result, about::moved(operation, result), times.waited, times.served);
    }
    if REQUEST.done() {
        done(connection, RequestDescription::of(message, data), result, times);
    }
    result
}

/// Tells the client whether to note the times of its requests' submission: only if a tracer or the metrics need them.
pub fn publish(connection: &ClientConnection, shared: &DaemonState) {
    let wanted = u32::from(shared.figures.on || REQUEST.start() || REQUEST.done());
    let timed = &connection.mapping.control().seen.0.timed;
    if timed.load(Ordering::Relaxed) != wanted {
        timed.store(wanted, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn start(connection: &ClientConnection, about: RequestDescription, waited: u64) {
    let RequestDescription { operation, handle, asked } = about;
    let (id, pid, uid) = (connection.id, connection.peer.pid, connection.peer.uid);
    probe!("libcephfsd", "request__start", REQUEST, "+0", id, operation, pid, uid, handle, asked, waited);
}

#[cold]
#[inline(never)]
fn done(connection: &ClientConnection, about: RequestDescription, result: i64, times: RequestTimes) {
    let RequestDescription { operation, handle, .. } = about;
    let (id, pid, uid) = (connection.id, connection.peer.pid, connection.peer.uid);
    let bytes = about::moved(operation, result);
    let RequestTimes { waited, served } = times;
    probe!(
        "libcephfsd",
        "request__done",
        REQUEST,
        "+2",
        id,
        operation,
        pid,
        uid,
        handle,
        bytes,
        result,
        waited,
        served
    );
}
