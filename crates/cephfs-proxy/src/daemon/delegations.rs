//! Delegations of files. While the daemon holds one, the cluster recalls it before another client may change the file.
//!
//! libcephfs reports a recall in a callback, under its own lock. The callback invalidates copies. One thread then returns the delegation, and the
//! other client waits for that. A worker cannot return the delegation: all workers may be waiting in libcephfs for that file. Directories cannot be
//! delegated (seen with 16.2: EAGAIN), so no delegation covers names.
//!
//! A file that a client has open for writing gets no delegation. libcephfs would grant only a write delegation, which holds the capability to
//! write. After a snapshot, libcephfs lets no write begin until all holders of this capability have returned it (`cap_snap.writing`).

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    ffi::c_void,
    ptr,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use super::{
    ceph::{CephFile, CephInode},
    coherence::Copies,
    handles::File,
    lock,
    mounts::SharedMount,
};

/// Milliseconds for which a client may rely on a delegation without asking again: far less than the cluster takes to evict a client that
/// is cut off (mds_session_timeout: 60 s).
pub const LIFE: u32 = 10_000;
/// Seconds after a recall until libcephfs unmounts a client that has not returned the delegation.
const RECALL_LIMIT: u32 = 30;
/// Pause after a refusal until a delegation of the file is requested again.
const PAUSE: Duration = Duration::from_secs(2);
/// Pause after a recall.
const PAUSE_AFTER: Duration = Duration::from_millis(100);
/// If no client has asked about a delegated file for this long, the delegation may go to another file. A client that uses a copy all the time asks
/// once in each [`LIFE`]. Without this limit, if more files are in use than can be delegated, each delegation would be lost before its next use.
pub const UNUSED: Duration = Duration::from_millis(LIFE as u64 + 2000);
/// The most delegations that are examined to find an unused one.
const LOOKED_AT: usize = 16;
/// Most files of which the daemon remembers that their attributes were requested.
const MOST_ASKED: usize = 16 << 10;

/// From cephfs/ceph_ll_client.h.
const DELEGATION_NONE: u32 = 0;
const DELEGATION_READ: u32 = 1;
const DELEGATION_WRITE: u32 = 2;

/// The file that holds a delegation. It is opened only for that.
struct DelegationHolder(*mut CephFile);

// SAFETY: libcephfs guards it with the mount's lock.
unsafe impl Send for DelegationHolder {}

/// One delegation.
pub struct Delegation {
    mount: Weak<SharedMount>,
    ino: u64,
    copies: Copies,
    revoked: AtomicBool,
    /// When a client was last told that the delegation covers a copy.
    used: Mutex<Instant>,
    /// Locked while the delegation is taken or returned; never in the callback.
    opened: Mutex<Option<DelegationHolder>>,
    returns: mpsc::Sender<Arc<Delegation>>,
}

/// The delegations of a mount.
#[derive(Default)]
pub struct Delegations {
    held: HashMap<u64, Arc<Delegation>>,
    /// Files for which a worker is taking a delegation: each file has one delegation at most.
    taking: HashSet<u64>,
    /// The queue of delegations to return.
    returns: Option<mpsc::Sender<Arc<Delegation>>>,
    /// The delegations, in the order in which they will be returned. Some of them have been returned already.
    order: VecDeque<Weak<Delegation>>,
    /// By file: when to request a delegation again.
    asked: HashMap<u64, Instant>,
    /// Files that are open for writing.
    writers: HashMap<u64, Vec<Weak<File>>>,
}

/// Starts the thread that returns a mount's delegations. It ends with the mount.
fn start_returning() -> Option<mpsc::Sender<Arc<Delegation>>> {
    let (sender, receiver) = mpsc::channel::<Arc<Delegation>>();
    let run = move || {
        while let Ok(delegation) = receiver.recv() {
            if let Some(mount) = delegation.mount.upgrade() {
                delegation.give_back(&mount);
            }
        }
    };
    std::thread::Builder::new().name("recalls".into()).spawn(run).ok().map(|_| sender)
}

/// Called by libcephfs, with its lock held, when another client of the cluster or of this daemon wants the file.
unsafe extern "C" fn recalled(_file: *mut CephFile, delegation: *mut c_void) {
    // SAFETY: `take` passed an Arc's pointer, whose reference `give_back` drops only after the last callback.
    let delegation = unsafe {
        Arc::increment_strong_count(delegation.cast_const().cast::<Delegation>());
        Arc::from_raw(delegation.cast_const().cast::<Delegation>())
    };
    delegation.revoke();
    let _ = delegation.returns.send(delegation.clone());
}

/// The callback for a delegation that is returned at once.
unsafe extern "C" fn is_returned_soon(_file: *mut CephFile, _nothing: *mut c_void) {}

impl Delegation {
    /// Invalidates all copies.
    fn revoke(&self) {
        if !self.revoked.swap(true, Ordering::SeqCst) {
            self.copies.void();
        }
    }

    /// Whether a client may use a copy.
    fn is_in_use(&self) -> bool {
        !self.revoked.load(Ordering::SeqCst) && lock(&self.used).elapsed() < UNUSED
    }

    /// Returns the delegation, unless that has been done.
    fn give_back(self: &Arc<Self>, mount: &SharedMount) {
        self.revoke();
        let mut opened = lock(&self.opened);
        let Some(DelegationHolder(file)) = opened.take() else { return };
        let ceph = mount.ceph();
        // SAFETY: the file is open, and this value owns it. No callback comes after the first call, so this value owns again the reference that
        // `take` gave to the callback.
        unsafe {
            (ceph.ceph_ll_delegation)(mount.raw(), file, DELEGATION_NONE, recalled, ptr::null_mut());
            (ceph.ceph_ll_close)(mount.raw(), file);
            Arc::decrement_strong_count(Arc::as_ptr(self));
        }
        drop(opened);
        let mut delegations = lock(&mount.delegations);
        if delegations.held.get(&self.ino).is_some_and(|held| Arc::ptr_eq(held, self)) {
            delegations.held.remove(&self.ino);
        }
    }
}

impl SharedMount {
    /// Enables delegations on the mount: libcephfs grants none without a recall timeout.
    pub fn allow_delegations(&self) {
        // SAFETY: the file system is mounted.
        unsafe { (self.ceph().ceph_set_deleg_timeout)(self.raw(), RECALL_LIMIT) };
    }

    /// Whether a delegation of the file is held. Callers read the file's version first: a recall after that changes the version.
    pub fn is_delegated(&self, ino: u64) -> bool {
        let delegations = lock(&self.delegations);
        let held = delegations.held.get(&ino).filter(|delegation| !delegation.revoked.load(Ordering::SeqCst));
        held.map(|delegation| *lock(&delegation.used) = Instant::now()).is_some()
    }

    /// Records that a client has opened a file for writing.
    pub fn opened_for_writing(&self, file: &Arc<File>) {
        let mut delegations = lock(&self.delegations);
        delegations.writers.entry(file.ino).or_default().push(Arc::downgrade(file));
    }

    /// Forgets the closed files of an inode. The caller is closing one of them.
    pub fn closing(&self, ino: u64) {
        // Another file of this inode that was closed at the same time may have removed this one.
        if let Entry::Occupied(mut writers) = lock(&self.delegations).writers.entry(ino) {
            writers.get_mut().retain(|writer| writer.strong_count() > 0);
            if writers.get().is_empty() {
                writers.remove();
            }
        }
    }

    /// Takes a delegation of a file if its attributes are requested again, or if the caller knows that the file is used `again`. Returns whether
    /// the delegation was granted now. The caller holds the inode.
    pub fn take_delegation(self: &Arc<Self>, ino: u64, inode: *mut CephInode, most: usize, again: bool) -> bool {
        let (surplus, returns) = {
            let mut delegations = lock(&self.delegations);
            if delegations.held.contains_key(&ino) || delegations.taking.contains(&ino) || delegations.is_written(ino) {
                return false;
            }
            let now = Instant::now();
            if delegations.asked.len() >= MOST_ASKED && !delegations.asked.contains_key(&ino) {
                delegations.asked.clear();
            }
            match delegations.asked.get(&ino) {
                Some(due) if *due <= now => delegations.asked.insert(ino, now + PAUSE),
                Some(_) => return false,
                None if again => delegations.asked.insert(ino, now + PAUSE),
                None => {
                    delegations.asked.insert(ino, now);
                    return false;
                }
            };
            if delegations.returns.is_none() {
                delegations.returns = start_returning();
            }
            let Some(returns) = delegations.returns.clone() else { return false };
            let Some(surplus) = delegations.make_room(most) else { return false };
            delegations.taking.insert(ino);
            (surplus, returns)
        };
        surplus.iter().for_each(|delegation| delegation.give_back(self));
        let delegation = Delegation {
            mount: Arc::downgrade(self),
            ino,
            copies: self.copies(ino),
            revoked: AtomicBool::new(false),
            used: Mutex::new(Instant::now()),
            opened: Mutex::new(None),
            returns,
        };
        let taken = Arc::new(delegation).take(self, inode);
        lock(&self.delegations).taking.remove(&ino);
        taken
    }

    /// Runs `body` while a delegation keeps everybody else from opening or changing a file that is open for writing. `None` if others have the file
    /// open, or may have. `body` must be short: everybody else who wants the file waits, and after a snapshot every write to the file waits, too.
    pub fn exclusively<T>(&self, file: &File, body: impl FnOnce() -> T) -> Option<T> {
        let held = {
            let mut delegations = lock(&self.delegations);
            if !delegations.taking.insert(file.ino) {
                return None;
            }
            delegations.held.get(&file.ino).cloned()
        };
        // This delegation is from before the file was opened for writing.
        if let Some(held) = held {
            held.give_back(self);
        }
        let delegation = self.ceph().ceph_ll_delegation;
        // SAFETY: the file is held. `taking` keeps other threads from taking or returning a delegation through it meanwhile.
        let done = unsafe {
            let taken = delegation(self.raw(), file.raw, DELEGATION_WRITE, is_returned_soon, ptr::null_mut()) == 0;
            taken.then(|| {
                let done = body();
                delegation(self.raw(), file.raw, DELEGATION_NONE, is_returned_soon, ptr::null_mut());
                done
            })
        };
        lock(&self.delegations).taking.remove(&file.ino);
        done
    }

    /// Returns all delegations before the mount is released.
    pub fn return_delegations(&self) {
        let all: Vec<_> = lock(&self.delegations).held.drain().map(|(_, delegation)| delegation).collect();
        all.iter().for_each(|delegation| delegation.give_back(self));
    }
}

impl Delegations {
    /// Whether a client has the file open for writing.
    fn is_written(&self, ino: u64) -> bool {
        self.writers.get(&ino).is_some_and(|writers| writers.iter().any(|writer| writer.strong_count() > 0))
    }

    /// Finds the oldest unused delegations, as many as must be returned before one more can be held. They stay in the table until they are
    /// returned. `None` if a search among some delegations finds too few.
    fn make_room(&mut self, most: usize) -> Option<Vec<Arc<Delegation>>> {
        let (mut surplus, mut looked_at) = (Vec::new(), 0);
        while self.held.len() - surplus.len() >= most.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            let Some(delegation) = oldest.upgrade() else { continue };
            if delegation.is_in_use() {
                self.order.push_back(oldest);
                looked_at += 1;
                if looked_at == LOOKED_AT {
                    break;
                }
            } else if self.held.get(&delegation.ino).is_some_and(|held| Arc::ptr_eq(held, &delegation)) {
                surplus.push(delegation);
            }
        }
        if self.order.len() > 2 * most {
            self.order.retain(|delegation| delegation.strong_count() > 0);
        }
        // The delegations that were found are returned in any case.
        (looked_at < LOOKED_AT || !surplus.is_empty()).then_some(surplus)
    }
}

impl Delegation {
    /// Requests the delegation, through a file that is opened for that.
    fn take(self: Arc<Self>, mount: &SharedMount, inode: *mut CephInode) -> bool {
        let (ceph, raw) = (mount.ceph(), mount.raw());
        let mut opened = lock(&self.opened);
        let mut file = ptr::null_mut();
        // SAFETY: all objects are held, and the pointer to the result is valid. The argument of the callback lives until `give_back`.
        let got = unsafe {
            if (ceph.ceph_ll_open)(raw, inode, libc::O_RDONLY, &mut file, mount.own.raw) < 0 || file.is_null() {
                return false;
            }
            let own = Arc::into_raw(self.clone());
            let got = (ceph.ceph_ll_delegation)(raw, file, DELEGATION_READ, recalled, own.cast_mut().cast()) == 0;
            if got {
                *opened = Some(DelegationHolder(file));
            } else {
                drop(Arc::from_raw(own));
                (ceph.ceph_ll_close)(raw, file);
            }
            got
        };
        if !got {
            return false;
        }
        let mut delegations = lock(&mount.delegations);
        delegations.asked.insert(self.ino, Instant::now() + PAUSE_AFTER);
        // This comes before other threads can see the delegation.
        self.copies.delegated();
        delegations.order.push_back(Arc::downgrade(&self));
        delegations.held.insert(self.ino, self.clone());
        true
    }
}
