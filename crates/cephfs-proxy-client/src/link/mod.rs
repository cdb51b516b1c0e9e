//! A connection with the daemon. Requests use shared memory; the socket only shows when the other side is gone.

mod call_error;
mod claim;
mod seen;
mod socket;

use std::{
    cell::Cell,
    env,
    ffi::CString,
    mem::ManuallyDrop,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use cephfs_proxy::{
    adaptive_spin::AdaptiveSpin,
    layout::{self, RELEASES, SLOTS, SharedMapping},
    sys,
    version_table::VersionTable,
    wire::{
        self, Errno, Handle, Malformed, ProxyOperation, Wire, WireWriter, errno_of,
        hello::{self, Hello, MAGIC, PACKET_SIZE, VERSION, Welcome},
    },
};

use crate::{api::Aio, fork};
pub use call_error::CallError;
pub use claim::SlotClaim;

/// The path of the daemon's socket, unless this environment variable has another path. Ceph's own proxy uses the same names.
const SOCKET: &str = "/run/libcephfsd.sock";
const SOCKET_VARIABLE: &str = "LIBCEPHFSD_SOCKET";
/// How often a waiting thread checks that the daemon lives, and the time until its first check.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const FIRST_CHECK: Duration = Duration::from_millis(20);

/// A connection.
pub struct DaemonLink {
    /// The connection's number among all of this process and its parents; 0 until the connection is in the tables.
    pub id: u64,
    /// The place to which the connection leads.
    pub place: u64,
    socket: ManuallyDrop<OwnedFd>,
    wakeup: ManuallyDrop<OwnedFd>,
    /// The version table, which shows whether copies are valid.
    pub versions: VersionTable,
    mapping: ManuallyDrop<SharedMapping>,
    /// The path of the daemon's socket.
    path: CString,
    /// A bit for each free slot.
    free: AtomicU64,
    /// Counts slots that became free while a thread waited for one; a futex.
    freed: AtomicU32,
    waiters: AtomicU32,
    dead: AtomicBool,
    spin: AdaptiveSpin,
    completion_spin: AdaptiveSpin,
    /// Held by the thread that awaits a packet on the socket.
    pub packets: Mutex<()>,
    /// The asynchronous requests.
    pub aio: Aio,
    /// Whether the connection belongs to the parent process.
    abandoned: AtomicBool,
    /// Whether names may be cached.
    pub keeps_names: bool,
    /// The number of the last flush by the daemon that this process has taken into account.
    pub seen_flush: AtomicU64,
    /// The version of the daemon's libcephfs.
    pub version: [i32; 3],
    /// That version as text.
    pub version_text: CString,
}

impl DaemonLink {
    /// Connects to a place. Waits for the daemon's answer at most for `limit`, but at least a second.
    pub fn connect(place: u64, limit: Duration) -> Result<DaemonLink, Errno> {
        let path = env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(SOCKET), PathBuf::from);
        let socket = socket::open(&path, limit.max(Duration::from_secs(1)))?;
        let mut room = [0; PACKET_SIZE];
        let mut hello = WireWriter::new(&mut room);
        let malformed = |_: Malformed| Errno::PROTO;
        Hello { magic: MAGIC, version: VERSION, place }.put(&mut hello).map_err(malformed)?;
        sys::send_packet(socket.as_fd(), hello.written(), &[])?;
        let mut packet = [0; PACKET_SIZE];
        let (length, descriptors) = sys::receive_packet(socket.as_fd(), &mut packet)?;
        if length == 0 {
            return Err(Errno::CONNRESET);
        }
        // The rest of the packet differs between versions.
        if hello::spoken(&packet[..length]).map_err(malformed)? != (MAGIC, VERSION) {
            return Err(Errno::PROTONOSUPPORT);
        }
        let welcome: Welcome = wire::decode(&packet[..length]).map_err(malformed)?;
        if welcome.status != 0 {
            return Err(errno_of(-i64::from(welcome.status)));
        }
        let mut descriptors = descriptors.into_iter();
        let (Some(memory), Some(wakeup), Some(versions)) = (descriptors.next(), descriptors.next(), descriptors.next())
        else {
            return Err(Errno::PROTO);
        };
        let mapping = SharedMapping::map(&memory)?;
        Ok(DaemonLink {
            id: 0,
            place,
            socket: ManuallyDrop::new(socket),
            wakeup: ManuallyDrop::new(wakeup),
            versions: VersionTable::map(&versions)?,
            mapping: ManuallyDrop::new(mapping),
            path: CString::new(path.into_os_string().into_vec()).map_err(|_| Errno::INVAL)?,
            free: AtomicU64::new(u64::MAX >> (64 - SLOTS)),
            freed: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            spin: AdaptiveSpin::default(),
            completion_spin: AdaptiveSpin::default(),
            packets: Mutex::default(),
            aio: Aio::default(),
            abandoned: AtomicBool::new(false),
            keeps_names: welcome.keeps_names,
            seen_flush: AtomicU64::new(0),
            version: welcome.ceph,
            version_text: CString::from_vec_with_nul(welcome.text).map_err(|_| Errno::PROTO)?,
        })
    }

    /// Abandons the parent's connection in a child: closes the descriptors. The child does not inherit the memory.
    pub fn abandon(&self) {
        self.dead.store(true, Ordering::SeqCst);
        if !self.abandoned.swap(true, Ordering::SeqCst) {
            // SAFETY: this value owns the descriptors, and `drop` does not close them again.
            unsafe {
                rustix::io::close(self.socket.as_raw_fd());
                rustix::io::close(self.wakeup.as_raw_fd());
            }
        }
    }

    /// Takes a packet that the daemon has sent before its last answer: a number, and a descriptor.
    pub fn packet(&self) -> Result<(u64, OwnedFd), Errno> {
        let mut number = [0; 8];
        let (length, descriptors) = sys::receive_packet(self.socket.as_fd(), &mut number)?;
        match descriptors.into_iter().next() {
            Some(fd) if length == number.len() => Ok((u64::from_le_bytes(number), fd)),
            _ => Err(Errno::PROTO),
        }
    }

    /// Whether the connection is known to be dead.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// How many flushes the daemon has begun by itself.
    pub fn flushes(&self) -> u64 {
        self.mapping.control().flushes.0.begun.load(Ordering::SeqCst)
    }

    /// The number of the daemon's last flush that has succeeded (`FlushCounts::done`).
    pub fn flushed(&self) -> u64 {
        if self.abandoned.load(Ordering::Relaxed) {
            return 0;
        }
        self.mapping.control().flushes.0.done.load(Ordering::SeqCst)
    }

    /// Claims a slot; waits until one is free.
    pub fn claim(&self) -> Result<SlotClaim<'_>, CallError> {
        loop {
            if self.is_dead() {
                return Err(CallError::NotStarted);
            }
            if let Some(claim) = self.try_claim() {
                return Ok(claim);
            }
            self.wait_for_slot();
        }
    }

    /// Claims a slot if one is free. A thread that already holds a slot must use this function, and must not wait for another slot.
    pub fn try_claim(&self) -> Option<SlotClaim<'_>> {
        loop {
            let free = self.free.load(Ordering::Relaxed);
            let bit = free & free.wrapping_neg();
            if bit == 0 {
                return None;
            }
            if self.free.fetch_and(!bit, Ordering::Acquire) & bit != 0 {
                let slot = bit.trailing_zeros() as usize;
                return Some(self.claimed(slot, false));
            }
        }
    }

    #[cold]
    fn wait_for_slot(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let freed = self.freed.load(Ordering::SeqCst);
        if self.free.load(Ordering::SeqCst) == 0 {
            sys::futex_wait(&self.freed, freed, CHECK_INTERVAL);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    fn free(&self, slot: usize) {
        self.free.fetch_or(1 << slot, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.freed.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&self.freed, 1);
        }
    }

    /// The number of answered asynchronous requests, plus the number of calls of `nudge`.
    pub fn completions(&self) -> u32 {
        self.mapping.control().completed.0.load(Ordering::SeqCst)
    }

    /// Sleeps until the number of completions differs from `seen`, but at most for `limit`. Returns whether it differs.
    pub fn await_completion(&self, seen: u32, limit: Duration) -> bool {
        let control = self.mapping.control();
        let more = || control.completed.0.load(Ordering::SeqCst) != seen;
        let spin = &self.completion_spin;
        if spin.watch(spin.looks(), more) {
            return true;
        }
        control.completion_awaited.0.store(1, Ordering::SeqCst);
        sys::futex_wait(&control.completed.0, seen, limit);
        control.completion_awaited.0.store(0, Ordering::Relaxed);
        let more = more();
        if !more && sys::hung_up(self.socket.as_fd()) {
            self.dead.store(true, Ordering::SeqCst);
        }
        more
    }

    /// Wakes the thread that awaits a completion.
    pub fn nudge(&self) {
        self.mapping.complete();
    }

    /// Sends a wakeup unless a worker polls or a wakeup is pending. Returns whether it sent one.
    fn call_worker(&self) -> bool {
        let polling = &self.mapping.control().polling.0;
        let calls = polling.load(Ordering::SeqCst) == layout::NOT_POLLING
            && polling
                .compare_exchange(layout::NOT_POLLING, layout::WAKEUP_SENT, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if calls {
            sys::wake(self.wakeup.as_fd());
        }
        calls
    }

    /// Sends a wakeup if any of these slots has not been taken: the worker that polls may still be serving a long request.
    pub fn insist(&self, slots: impl IntoIterator<Item = usize>) {
        let submitted = self.mapping.control().submitted.0.load(Ordering::SeqCst);
        if slots.into_iter().any(|slot| submitted & 1 << slot != 0) {
            sys::wake(self.wakeup.as_fd());
        }
    }

    /// Whether the request in a slot that was left to the daemon is answered.
    pub fn is_answered(&self, slot: usize) -> bool {
        self.mapping.slot(slot).state.load(Ordering::Acquire) == layout::ANSWERED
    }

    /// Claims again a slot that was left to the daemon. The slot's request must not be repeated.
    pub fn reclaim(&self, slot: usize) -> SlotClaim<'_> {
        self.claimed(slot, true)
    }

    fn claimed(&self, slot: usize, pending: bool) -> SlotClaim<'_> {
        SlotClaim {
            link: self,
            slot,
            pending: Cell::new(pending),
            relies: Cell::new(false),
            repeatable: Cell::new(false),
        }
    }

    /// Releases `count` references to an inode, without waiting: the daemon takes the release with the next request, or a little later. Returns
    /// false if there is no room. Call this under the tables' lock, since only one caller at a time may use the ring.
    pub fn release(&self, inode: Handle, count: u64) -> bool {
        let control = self.mapping.control();
        let tail = control.release_tail.0.load(Ordering::Relaxed);
        if self.is_full() {
            return false;
        }
        let release = &control.releases[tail as usize % RELEASES];
        release.handle.store(inode.0, Ordering::Relaxed);
        release.count.store(count, Ordering::Relaxed);
        control.release_tail.0.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// Releases `count` references to an inode; waits for room.
    pub fn give_back(&self, inode: Handle, count: u64) -> Result<(), CallError> {
        loop {
            let alone = fork::tables();
            if self.release(inode, count) {
                return Ok(());
            }
            drop(alone);
            // The daemon takes releases with every request.
            self.call(&wire::Nop {})?;
        }
    }

    /// Whether there is no room for a release until the daemon takes the waiting releases.
    pub fn is_full(&self) -> bool {
        let control = self.mapping.control();
        let waiting =
            control.release_tail.0.load(Ordering::Relaxed).wrapping_sub(control.release_head.0.load(Ordering::Acquire));
        waiting >= RELEASES as u32
    }

    /// Releases a file or a directory, if there is room.
    pub fn try_give_back(&self, handle: Handle) -> bool {
        let _alone = fork::tables();
        self.release(handle, 1)
    }

    /// Releases references to an inode that the daemon may keep for a while.
    pub fn retire(&self, inode: Handle, count: u64) -> bool {
        self.release(inode, count | layout::KEEP)
    }

    /// Takes back one reference to an inode that was released by `retire` and is still kept.
    pub fn retake(&self, inode: Handle) -> bool {
        self.release(inode, layout::RETAKE)
    }

    /// Makes a request without data, and waits for the answer.
    pub fn call<'a, O: ProxyOperation<'a>>(&self, operation: &O) -> Result<O::Answer, CallError> {
        self.claim()?.call(operation, 0).map(|(_, answer)| answer)
    }
}

impl Drop for DaemonLink {
    fn drop(&mut self) {
        if self.abandoned.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the fields are dropped once, here. No claim is left, since claims borrow from this value.
        unsafe {
            ManuallyDrop::drop(&mut self.mapping);
            ManuallyDrop::drop(&mut self.wakeup);
            ManuallyDrop::drop(&mut self.socket);
        }
    }
}
