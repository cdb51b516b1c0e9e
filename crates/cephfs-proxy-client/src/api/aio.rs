//! Asynchronous I/O: several requests under way at once, and a thread that calls their callbacks. The first
//! asynchronous request of a connection starts the thread.

use std::{
    ffi::{c_int, c_void},
    mem, slice,
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use cephfs_proxy::{
    layout::{DATA_SIZE, SLOTS},
    wire::{Errno, Read, Write, result_of},
};

use nix::sys::signal::{SigSet, SigmaskHow};

use super::{
    files::{self, Ticket},
    guard, not_null,
};
use crate::{
    cache::{data, now},
    link::{CallError, DaemonLink, SlotClaim},
    reconnect::again,
    session::{RequestTarget, target, target_if_there},
    tables::Pointer,
};

/// The number of slots reserved for synchronous requests.
const RESERVE: usize = 4;
/// The most requests that wait for a slot.
const MOST_QUEUED: usize = 4096;
/// How long the thread sleeps before it first checks that a worker has taken the running requests, and how long before later checks.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
const LONG_SLEEP: Duration = Duration::from_millis(100);

/// `struct ceph_ll_io_info` of libcephfs 19 and newer.
#[repr(C)]
pub struct IoInfo {
    callback: Option<unsafe extern "C" fn(*mut IoInfo)>,
    private: *mut c_void,
    fh: Pointer,
    iov: *const libc::iovec,
    iovcnt: c_int,
    off: i64,
    result: i64,
    write: bool,
    fsync: bool,
    syncdataonly: bool,
}

/// An asynchronous request. The caller owns `info` and keeps it until the callback.
struct AsyncRequest {
    mount: Pointer,
    info: *mut IoInfo,
    /// When the request was submitted (`cache::now`).
    asked: u64,
    /// The ticket of a write, while the daemon has the request.
    ticket: Option<Ticket>,
    /// The number of bytes read or written, once known.
    count: Option<i64>,
}

// SAFETY: only one thread at a time uses the request: first the caller's, then the connection's.
unsafe impl Send for AsyncRequest {}

/// The jobs of a connection's thread.
#[derive(Default)]
struct Jobs {
    /// Jobs that the daemon has, each with its slot.
    running: Vec<(AsyncRequest, usize)>,
    /// Jobs that are too large for a slot, or for which no slot was free: the thread processes them itself. Also finished jobs whose callbacks have
    /// not been called yet.
    queued: Vec<AsyncRequest>,
    started: bool,
    /// Whether the thread sleeps for the long interval, so that it will not soon check that running jobs have been taken.
    sleeps: bool,
}

/// A connection's asynchronous requests.
#[derive(Default)]
pub struct Aio(Mutex<Jobs>);

impl Aio {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl AsyncRequest {
    fn info(&self) -> &IoInfo {
        // SAFETY: the caller keeps `info` until the callback, and only the thread that has the job uses it.
        unsafe { &*self.info }
    }

    fn parts(&self) -> Result<&[libc::iovec], Errno> {
        let count = usize::try_from(self.info().iovcnt).map_err(|_| Errno::INVAL)?;
        match count {
            0 => Ok(&[]),
            // SAFETY: the caller's array has that many elements.
            _ => Ok(unsafe { slice::from_raw_parts(not_null(self.info().iov.cast_mut())?, count) }),
        }
    }

    /// Reads from the daemon's memory, if all the data is there and the caller has one buffer for it. Several buffers would be several reads, but a
    /// read must return the file's state at one moment.
    fn read_there(&self) -> Result<Option<i64>, Errno> {
        let info = self.info();
        let (false, &[part]) = (info.write, self.parts()?) else { return Ok(None) };
        // SAFETY: the caller's part has that many bytes.
        let count = unsafe { data::read(self.mount, info.fh, info.off, part.iov_len, part.iov_base.cast()) };
        Ok(count.map(|count| count as i64))
    }

    /// Copies the data of a write into the slot, and submits the request.
    fn submit(&mut self, target: &RequestTarget, claim: &SlotClaim<'_>, length: usize) -> Result<(), CallError> {
        let (mount, file, offset) = (target.mount, target.file(self.info().fh)?, self.info().off);
        if !self.info().write {
            return claim.submit(&Read { mount, file, offset, length: length as u32, memory: 0 }, 0, true);
        }
        let mut at = 0;
        for part in self.parts()?.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the caller's part has that many bytes.
            unsafe { claim.give_at(at, not_null(part.iov_base)?.cast(), part.iov_len) };
            at += part.iov_len;
        }
        let ticket = files::begin_write(self.info().fh)?;
        match claim.submit(&Write { mount, file, offset }, at, true) {
            Ok(()) => self.ticket = Some(ticket),
            Err(error) => {
                files::end_write(ticket, claim, offset, Err(error))?;
            }
        }
        Ok(())
    }

    /// Takes the answer, and copies the data of a read to the caller's buffers.
    fn finish(&mut self, claim: &SlotClaim<'_>) -> Result<i64, CallError> {
        if self.info().write {
            let result = claim.finish::<Write>();
            return match self.ticket.take() {
                Some(ticket) => files::end_write(ticket, claim, self.info().off, result),
                None => result.map(|(count, _)| count),
            };
        }
        claim.harmless();
        let (count, cached) = claim.finish::<Read>()?;
        data::note(claim.link(), self.info().fh, cached, self.asked);
        let (mut at, length) = (0, (count as usize).min(DATA_SIZE));
        for part in self.parts()? {
            let piece = part.iov_len.min(length - at);
            // SAFETY: the caller's part has that many bytes.
            unsafe { claim.take_at(at, part.iov_base.cast(), piece) };
            at += piece;
        }
        Ok(count)
    }

    /// Processes the rest of the job synchronously: reads or writes, and syncs if requested.
    fn run(&mut self, target: &RequestTarget) -> Result<i64, CallError> {
        let count = match self.count {
            Some(count) => count,
            None => {
                let info = self.info();
                files::vectored(target, info.fh, self.parts()?, info.off, info.write)?
            }
        };
        self.count = Some(count);
        let info = self.info();
        if info.write && info.fsync {
            files::sync(target, info.fh, info.syncdataonly.into())?;
        }
        Ok(count)
    }

    /// Processes the rest of the job. `None` if its daemon is gone.
    fn try_run(&mut self) -> Option<Result<i64, CallError>> {
        let result = match target_if_there(self.mount) {
            Ok(target) => self.run(&target?),
            Err(error) => Err(error.into()),
        };
        Some(result).filter(|result| *result != Err(CallError::NotStarted))
    }

    /// Maps the memory of the file that was read, if the daemon has named this memory twice. The mapping may wait for the cluster, so the
    /// connection's thread does it.
    fn map_data(&self) {
        if let Ok(Some(target)) = target_if_there(self.mount)
            && let Ok(remote) = target.file(self.info().fh)
        {
            data::map_wanted(&target, self.info().fh, remote);
        }
    }

    /// Completes a job and calls the callback. `result` is the result of the daemon's part, or says that this part has not begun. If the job's
    /// daemon is gone, this waits for the next daemon if this thread `may_wait`; otherwise it returns the job.
    fn complete(mut self, result: Result<i64, CallError>, may_wait: bool) -> Option<AsyncRequest> {
        self.count = result.ok();
        // This comes before the callback, which may close the file.
        if result.is_ok() && !self.info().write {
            self.map_data();
        }
        let is_done = match result {
            Ok(_) => !(self.info().write && self.info().fsync),
            Err(error) => error != CallError::NotStarted,
        };
        let mut tried = if is_done { Some(result) } else { self.try_run() };
        if tried.is_none() && !may_wait {
            return Some(self);
        }
        let result = again(|| match tried.take() {
            Some(result) => result,
            None => self.run(&target(self.mount)?),
        });
        // SAFETY: `info` is valid until the callback, which is the caller's function. `info` is not used afterwards.
        unsafe {
            (*self.info).result = result.unwrap_or_else(result_of);
            if let Some(callback) = (*self.info).callback {
                callback(self.info);
            }
        }
        None
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ceph_ll_nonblocking_readv_writev(cmount: Pointer, io_info: *mut IoInfo) -> i64 {
    guard(|| {
        let target = target(cmount)?;
        let mut job = AsyncRequest { mount: cmount, info: not_null(io_info)?, asked: now(), ticket: None, count: None };
        target.file(job.info().fh)?;
        let mut length = 0usize;
        for part in job.parts()?.iter().filter(|part| part.iov_len > 0) {
            not_null(part.iov_base)?;
            length = length.checked_add(part.iov_len).ok_or(Errno::INVAL)?;
        }
        job.count = job.read_there()?;
        let mut jobs = target.link.aio.jobs();
        // The thread may have checked the daemon's jobs for the last time, and may be waiting for the next daemon.
        if target.link.is_dead() {
            return Err(CallError::NotStarted);
        }
        start(&target.link, &mut jobs)?;
        let fits = job.count.is_none() && length <= DATA_SIZE && jobs.running.len() < SLOTS - RESERVE;
        if let Some(claim) = fits.then(|| target.link.try_claim()).flatten() {
            job.submit(&target, &claim, length)?;
            if jobs.sleeps {
                claim.insist();
            }
            jobs.running.push((job, claim.leave()));
        } else if jobs.queued.len() < MOST_QUEUED {
            jobs.queued.push(job);
            target.link.nudge();
        } else {
            return Err(Errno::AGAIN.into());
        }
        Ok(0)
    })
}

/// Starts the connection's thread, with all signals blocked, unless the thread is running already.
fn start(link: &Arc<DaemonLink>, jobs: &mut Jobs) -> Result<(), Errno> {
    if jobs.started {
        return Ok(());
    }
    let link = link.clone();
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(|_| Errno::AGAIN)?;
    let spawned = thread::Builder::new().name("cephfs-proxy".into()).spawn(move || run(&link));
    let _ = before.thread_set_mask();
    jobs.started = spawned.is_ok();
    spawned.map(drop).map_err(|_| Errno::AGAIN)
}

/// The connection's thread: completes jobs until the daemon is gone, and then completes the remaining jobs.
fn run(link: &DaemonLink) {
    let mut in_vain = false;
    loop {
        let seen = link.completions();
        let alive = !link.is_dead();
        let (answered, queued, running) = {
            let mut jobs = link.aio.jobs();
            let ready = |(_, slot): &mut (AsyncRequest, usize)| !alive || link.is_answered(*slot);
            let answered: Vec<_> = jobs.running.extract_if(.., ready).collect();
            jobs.sleeps = in_vain && answered.is_empty() && jobs.queued.is_empty();
            let running: Vec<_> =
                if jobs.sleeps { jobs.running.iter().map(|(_, slot)| *slot).collect() } else { Vec::new() };
            (answered, mem::take(&mut jobs.queued), running)
        };
        let idle = answered.is_empty() && queued.is_empty();
        // All jobs finish before any is repeated at the next daemon: a repetition waits until no write is under way at the daemon that is gone.
        let finish = |(mut job, slot): (AsyncRequest, usize)| {
            let result = job.finish(&link.reclaim(slot));
            (job, result)
        };
        let finished: Vec<_> = answered.into_iter().map(finish).collect();
        let queued = queued.into_iter().map(|job| (job.count.ok_or(CallError::NotStarted), job));
        let all = finished.into_iter().chain(queued.map(|(result, job)| (job, result)));
        // The daemon is gone. The remaining jobs are completed after the jobs that the daemon had.
        let left: Vec<_> = all.filter_map(|(job, result)| job.complete(result, !alive)).collect();
        if !left.is_empty() {
            link.aio.jobs().queued.extend(left);
        }
        if idle && !alive {
            let mut jobs = link.aio.jobs();
            if jobs.running.is_empty() && jobs.queued.is_empty() {
                jobs.started = false;
                return;
            }
        }
        // A worker that expected a quick request should have taken all jobs by now.
        link.insist(running);
        in_vain = idle && !link.await_completion(seen, if in_vain { LONG_SLEEP } else { FIRST_SLEEP });
    }
}
