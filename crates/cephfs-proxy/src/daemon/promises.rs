//! Promises that nobody changes a file behind our back: delegations, which the cluster asks back before it lets anybody else have the file.
//!
//! libcephfs tells of a recall in a callback, under its own lock. That makes copies void and leaves the rest to one thread, which
//! gives the delegation back; the other client waits until then. Nobody else may do that work: all workers may be waiting in libcephfs for
//! that very file. Directories cannot be delegated (seen with 16.2: EAGAIN), so names are never promised.

use std::{
    collections::{HashMap, VecDeque},
    ffi::c_void,
    ptr,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use super::{
    ceph::CephFile,
    coherence::Copies,
    handles::{File, Inode},
    lock,
    mounts::Mount,
};

/// Milliseconds for which a promise is believed without being asked for again: far less than it takes the cluster to give up a client that
/// is cut off (mds_session_timeout: 60 s).
pub const LIFE: u32 = 10_000;
/// Seconds after which libcephfs takes it that we shall never give one back, and gives up the mount.
const RECALL_LIMIT: u32 = 30;
/// Who was refused one is not asked for again so soon.
const PAUSE: Duration = Duration::from_secs(2);
/// And who had one that was broken.
const PAUSE_AFTER: Duration = Duration::from_millis(100);
/// Files whose attributes were asked for before, at most.
const MOST_ASKED: usize = 16 << 10;

/// From cephfs/ceph_ll_client.h.
const DELEGATION_NONE: u32 = 0;
const DELEGATION_READ: u32 = 1;
const DELEGATION_WRITE: u32 = 2;

/// Through which a delegation is held.
enum Opened {
    /// Opened by us, for nothing else.
    Own(*mut CephFile),
    /// A client's.
    Theirs(*mut CephFile),
}

// SAFETY: libcephfs guards it with the mount's lock.
unsafe impl Send for Opened {}

/// One delegation.
pub struct Promise {
    mount: Weak<Mount>,
    ino: u64,
    copies: Copies,
    broken: AtomicBool,
    /// Locked while it is taken or given back; never in the callback.
    opened: Mutex<Option<Opened>>,
    returns: mpsc::Sender<Arc<Promise>>,
}

/// The delegations of a mount.
#[derive(Default)]
pub struct Promises {
    held: HashMap<u64, Arc<Promise>>,
    order: VecDeque<u64>,
    /// When it may be worth asking.
    asked: HashMap<u64, Instant>,
    /// Files that are open for writing.
    writers: HashMap<u64, Vec<Weak<File>>>,
}

/// Where promises go that are to be given back.
fn returns() -> Option<&'static mpsc::Sender<Arc<Promise>>> {
    static RETURNS: OnceLock<Option<mpsc::Sender<Arc<Promise>>>> = OnceLock::new();
    RETURNS
        .get_or_init(|| {
            let (sender, receiver) = mpsc::channel::<Arc<Promise>>();
            let run = move || {
                while let Ok(promise) = receiver.recv() {
                    if let Some(mount) = promise.mount.upgrade() {
                        promise.give_back(&mount);
                    }
                }
            };
            std::thread::Builder::new().name("recalls".into()).spawn(run).ok().map(|_| sender)
        })
        .as_ref()
}

/// The cluster, or somebody here, wants to have the file. libcephfs's lock is held.
unsafe extern "C" fn recalled(_file: *mut CephFile, promise: *mut c_void) {
    // SAFETY: `take` gave it for this; it stays until the delegation has been given back.
    let promise = unsafe {
        Arc::increment_strong_count(promise.cast_const().cast::<Promise>());
        Arc::from_raw(promise.cast_const().cast::<Promise>())
    };
    promise.break_it();
    let _ = promise.returns.send(promise.clone());
}

impl Promise {
    /// Makes all copies void.
    fn break_it(&self) {
        if !self.broken.swap(true, Ordering::SeqCst) {
            self.copies.void();
        }
    }

    /// Gives the delegation back, if that has not been done.
    fn give_back(self: &Arc<Self>, mount: &Mount) {
        self.break_it();
        let mut opened = lock(&self.opened);
        let Some(Opened::Own(file) | Opened::Theirs(file)) = *opened else { return };
        let ceph = mount.ceph();
        // SAFETY: the file is open: ours, or a client's, which is closed only after this. No callback comes after the first call, so that
        // what `take` gave for it is ours again.
        unsafe {
            (ceph.ceph_ll_delegation)(mount.raw(), file, DELEGATION_NONE, recalled, ptr::null_mut());
            if let Some(Opened::Own(file)) = opened.take() {
                (ceph.ceph_ll_close)(mount.raw(), file);
            }
            Arc::decrement_strong_count(Arc::as_ptr(self));
        }
        drop(opened);
        let mut promises = lock(&mount.promises);
        if promises.held.get(&self.ino).is_some_and(|held| Arc::ptr_eq(held, self)) {
            promises.held.remove(&self.ino);
        }
    }
}

impl Mount {
    /// Prepares it for delegations; without, there are none.
    pub fn allow_promises(&self) {
        // SAFETY: a mount that works.
        unsafe { (self.ceph().ceph_set_deleg_timeout)(self.raw(), RECALL_LIMIT) };
    }

    /// Whether a file is promised. To be asked after the word was read: if it is broken later, the word shows it.
    pub fn is_promised(&self, ino: u64) -> bool {
        lock(&self.promises).held.get(&ino).is_some_and(|promise| !promise.broken.load(Ordering::SeqCst))
    }

    /// A file is open for writing from now on.
    pub fn opened_for_writing(&self, file: &Arc<File>) {
        let mut promises = lock(&self.promises);
        promises.writers.entry(file.ino).or_default().push(Arc::downgrade(file));
    }

    /// It is about to be closed.
    pub fn closing(&self, ino: u64, file: *mut CephFile) {
        let promise = {
            let mut promises = lock(&self.promises);
            let Some(writers) = promises.writers.get_mut(&ino) else { return };
            writers.retain(|writer| writer.strong_count() > 0);
            if writers.is_empty() {
                promises.writers.remove(&ino);
            }
            promises.held.get(&ino).cloned()
        };
        if let Some(promise) = promise {
            let theirs = matches!(&*lock(&promise.opened), Some(Opened::Theirs(theirs)) if *theirs == file);
            if theirs {
                promise.give_back(self);
            }
        }
    }

    /// Has a file promised whose attributes are asked for again; says whether it is, newly.
    pub fn take_promise(self: &Arc<Self>, inode: &Inode, most: usize) -> bool {
        let ino = inode.ino;
        let (surplus, writer) = {
            let mut promises = lock(&self.promises);
            if promises.held.contains_key(&ino) {
                return false;
            }
            let now = Instant::now();
            match promises.asked.get(&ino) {
                Some(due) if *due <= now => promises.asked.insert(ino, now + PAUSE),
                Some(_) => return false,
                None => {
                    if promises.asked.len() >= MOST_ASKED {
                        promises.asked.clear();
                    }
                    promises.asked.insert(ino, now);
                    return false;
                }
            };
            let writers: Vec<_> = promises.writers.get(&ino).into_iter().flatten().filter_map(Weak::upgrade).collect();
            let writer = match writers.len() {
                0 => None,
                1 => writers.into_iter().next(),
                _ => return false,
            };
            (promises.make_room(most), writer)
        };
        surplus.iter().for_each(|promise| promise.give_back(self));
        let Some(returns) = returns() else { return false };
        let promise = Promise {
            mount: Arc::downgrade(self),
            ino,
            copies: self.copies(ino),
            broken: AtomicBool::new(false),
            opened: Mutex::new(None),
            returns: returns.clone(),
        };
        let taken = Arc::new(promise).take(self, inode, writer.as_deref());
        // Whoever closes it meanwhile leaves that to us.
        drop(writer);
        taken
    }

    /// The cluster keeps none of them any more: all copies are void.
    pub fn break_promises(&self) {
        lock(&self.promises).held.values().for_each(|promise| promise.break_it());
    }

    /// All of them, when the mount goes.
    pub fn give_back_promises(&self) {
        let all: Vec<_> = lock(&self.promises).held.drain().map(|(_, promise)| promise).collect();
        all.iter().for_each(|promise| promise.give_back(self));
    }
}

impl Promises {
    /// Those that have been there for longest, so many that there is room for one more without them. They stay until they have been given
    /// back: who closes a file finds its promise here.
    fn make_room(&mut self, most: usize) -> Vec<Arc<Promise>> {
        let mut surplus = Vec::new();
        while self.held.len() - surplus.len() >= most.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            surplus.extend(self.held.get(&oldest).cloned());
        }
        if self.order.len() > 2 * most {
            let held = &self.held;
            self.order.retain(|ino| held.contains_key(ino));
        }
        surplus
    }
}

impl Promise {
    /// Asks for the delegation: by the client's own file, if that is open for writing, since nobody else can have one then; else by one
    /// that is opened for it.
    fn take(self: Arc<Self>, mount: &Mount, inode: &Inode, writer: Option<&File>) -> bool {
        let (ceph, raw) = (mount.ceph(), mount.raw());
        let mut opened = lock(&self.opened);
        // SAFETY: all of them are held, and a place for the result. What the callback gets stays until `give_back`.
        let got = unsafe {
            let (file, kind) = match writer {
                Some(writer) => (writer.raw, DELEGATION_WRITE),
                None => {
                    let mut file = ptr::null_mut();
                    if (ceph.ceph_ll_open)(raw, inode.raw, libc::O_RDONLY, &mut file, mount.own.raw) < 0
                        || file.is_null()
                    {
                        return false;
                    }
                    (file, DELEGATION_READ)
                }
            };
            let own = Arc::into_raw(self.clone());
            let got = (ceph.ceph_ll_delegation)(raw, file, kind, recalled, own.cast_mut().cast()) == 0;
            if got {
                *opened = Some(if writer.is_some() { Opened::Theirs(file) } else { Opened::Own(file) });
            } else {
                drop(Arc::from_raw(own));
                if writer.is_none() {
                    (ceph.ceph_ll_close)(raw, file);
                }
            }
            got
        };
        if !got {
            return false;
        }
        let mut promises = lock(&mount.promises);
        promises.asked.insert(self.ino, Instant::now() + PAUSE_AFTER);
        if promises.held.contains_key(&self.ino) {
            // Two were faster than each other. This one goes again, since nobody can close its file before it is back.
            drop((promises, opened));
            self.give_back(mount);
            return false;
        }
        // Before anybody sees it.
        self.copies.promised();
        promises.order.push_back(self.ino);
        promises.held.insert(self.ino, self.clone());
        true
    }
}
