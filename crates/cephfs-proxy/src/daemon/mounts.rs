//! Mounts of CephFS. Each client prepares its mount; clients with the same configuration share one.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    io::{Seek, Write},
    os::fd::AsRawFd,
    ptr,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::fs::MemfdFlags;

use super::{
    ceph::{Ceph, CephInode, CephMount},
    coherence::Coherence,
    delegations::Delegations,
    handles::Perms,
    lock,
    sessions::{MountSession, Sessions},
    share::WorkerShare,
};
use crate::wire::{Errno, Statx, errno_in, errno_of};

/// The most bytes of configuration that a client can set before it mounts.
const MOST_CONFIGURATION: usize = 1 << 20;

/// An option of libcephfs, its default, and the value to set if the option has its default.
type Tuned = (&'static CStr, &'static CStr, &'static CStr);

/// Options to set before `ceph_init`, which reads them. From client_oc_target_dirty bytes on, libcephfs writes back
/// early. Its default of 8 MiB is meant for one client; many clients exceed it at once, and constant write-back slows
/// writes down. The new value is half of client_oc_max_dirty.
const WRITING_BACK: &[Tuned] = &[(c"client_oc_target_dirty", c"8388608", c"52428800")];

/// Options to set after mounting, when the cluster's own configuration is known. libcephfs logs its calls in memory for
/// crash reports. That takes longer than most calls, and wakes a thread for each.
const NOTES: &[Tuned] = &[(c"debug_client", c"0/5", c"0/0"), (c"debug_objectcacher", c"0/5", c"0/0")];

/// CEPH_STATX_MODE.
const STATX_MODE: u32 = 1;

/// The configuration of a mount; mounts with equal keys are shared.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct MountIdentity(Vec<u8>);

impl MountIdentity {
    /// Adds a step of the preparation, encoded unambiguously.
    fn add(&mut self, step: u8, parts: &[&[u8]]) -> Result<(), Errno> {
        if self.0.len() + parts.iter().map(|part| part.len() + 8).sum::<usize>() > MOST_CONFIGURATION {
            return Err(Errno::TOOBIG);
        }
        self.0.push(step);
        for part in parts {
            self.0.extend_from_slice(&(part.len() as u64).to_le_bytes());
            self.0.extend_from_slice(part);
        }
        Ok(())
    }
}

/// A `ceph_mount_info`; unmounted, if it is mounted, and released when it is dropped.
struct RawMount {
    ceph: &'static Ceph,
    mount: *mut CephMount,
    initialised: bool,
    mounted: bool,
    /// The session's name, which no other mount may use until this one is gone.
    session: Mutex<Option<MountSession>>,
}

// SAFETY: libcephfs guards a mount with locks of its own.
unsafe impl Send for RawMount {}
// SAFETY: libcephfs guards a mount with locks of its own.
unsafe impl Sync for RawMount {}

impl RawMount {
    /// `ceph_init`, unless that has been done: a second call would leak libcephfs's first client with all its threads.
    fn init(&mut self) -> Result<(), Errno> {
        if !self.initialised {
            self.tune(WRITING_BACK);
            // SAFETY: the mount is not mounted yet.
            checked(unsafe { (self.ceph.ceph_init)(self.mount) })?;
            self.initialised = true;
        }
        Ok(())
    }

    /// `ceph_mount`; the mount must be initialised.
    fn mount(&mut self, root: Option<&CStr>) -> Result<(), Errno> {
        // SAFETY: the pointer is a C string or null.
        let result = unsafe { (self.ceph.ceph_mount)(self.mount, root.map_or(ptr::null(), CStr::as_ptr)) };
        // If mounting fails, libcephfs shuts the client down, so it is no longer initialised.
        self.initialised = result >= 0;
        self.mounted = self.initialised;
        checked(result).map(drop)
    }

    fn tune(&self, options: &[Tuned]) {
        for (option, default, ours) in options {
            let mut value = [0; 32];
            if get(self, option, &mut value).is_ok() && value.starts_with(default.to_bytes_with_nul()) {
                // SAFETY: the arguments are C strings.
                unsafe { (self.ceph.ceph_conf_set)(self.mount, option.as_ptr(), ours.as_ptr()) };
            }
        }
    }
}

impl Drop for RawMount {
    fn drop(&mut self) {
        // SAFETY: this value owns the mount. Nothing that was opened through it is left, as that holds an Arc of the
        // `SharedMount`.
        unsafe {
            if self.mounted {
                (self.ceph.ceph_unmount)(self.mount);
            }
            (self.ceph.ceph_release)(self.mount);
        }
    }
}

/// A result of libcephfs: 0 or more, or an errno if it is negative.
pub fn checked(result: i32) -> Result<i32, Errno> {
    if result < 0 { Err(errno_of(result.into())) } else { Ok(result) }
}

/// A mount in preparation.
pub struct MountDraft {
    raw: RawMount,
    id: String,
    key: MountIdentity,
}

impl MountDraft {
    /// `ceph_create`.
    pub fn create(ceph: &'static Ceph, id: Option<&CStr>) -> Result<MountDraft, Errno> {
        let mut mount = ptr::null_mut();
        // SAFETY: the pointer to the result is valid, and the other is a C string or null.
        checked(unsafe { (ceph.ceph_create)(&mut mount, id.map_or(ptr::null(), CStr::as_ptr)) })?;
        let mut key = MountIdentity::default();
        key.add(b'i', &[id.map_or(&[], CStr::to_bytes_with_nul)])?;
        Ok(MountDraft {
            raw: RawMount { ceph, mount, initialised: false, mounted: false, session: Mutex::default() },
            id: id.map_or_else(|| "admin".into(), |id| id.to_string_lossy().into_owned()),
            key,
        })
    }

    /// The client's id in Ceph: `admin` of `client.admin`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `ceph_conf_read_file` of these contents, or of libcephfs's default files.
    pub fn read_file(&mut self, contents: Option<&[u8]>) -> Result<(), Errno> {
        let Some(contents) = contents else {
            self.key.add(b'd', &[])?;
            // SAFETY: libcephfs accepts a null path, which means its default files.
            return checked(unsafe { (self.raw.ceph.ceph_conf_read_file)(self.raw.mount, ptr::null()) }).map(drop);
        };
        self.key.add(b'f', &[contents])?;
        let mut file = std::fs::File::from(rustix::fs::memfd_create("ceph.conf", MemfdFlags::CLOEXEC)?);
        file.write_all(contents).and_then(|()| file.rewind()).map_err(|error| errno_in(&error))?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| Errno::INVAL)?;
        // SAFETY: the argument is a C string.
        checked(unsafe { (self.raw.ceph.ceph_conf_read_file)(self.raw.mount, path.as_ptr()) }).map(drop)
    }

    /// `ceph_conf_set`.
    pub fn set(&mut self, option: &CStr, value: &CStr) -> Result<(), Errno> {
        // SAFETY: the arguments are C strings.
        checked(unsafe { (self.raw.ceph.ceph_conf_set)(self.raw.mount, option.as_ptr(), value.as_ptr()) })?;
        self.key.add(b's', &[option.to_bytes(), value.to_bytes()])
    }

    /// `ceph_init`.
    pub fn init(&mut self) -> Result<(), Errno> {
        self.raw.init()
    }

    /// `ceph_select_filesystem`.
    pub fn select(&mut self, name: &CStr) -> Result<(), Errno> {
        // SAFETY: the argument is a C string.
        checked(unsafe { (self.raw.ceph.ceph_select_filesystem)(self.raw.mount, name.as_ptr()) })?;
        self.key.add(b'n', &[name.to_bytes()])
    }

    /// `ceph_conf_get`, into `room`.
    pub fn get(&self, option: &CStr, room: &mut [u8]) -> Result<(), Errno> {
        get(&self.raw, option, room)
    }
}

fn get(raw: &RawMount, option: &CStr, room: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: a C string, and room of that size.
    checked(unsafe { (raw.ceph.ceph_conf_get)(raw.mount, option.as_ptr(), room.as_mut_ptr().cast(), room.len()) })
        .map(drop)
}

/// A mounted file system, shared by clients.
pub struct SharedMount {
    raw: RawMount,
    /// The mount's number, which is part of the hash of version table entries (see `coherence`).
    pub number: u64,
    /// Validity of clients' copies.
    pub coherence: Arc<Coherence>,
    /// The daemon's own identity.
    pub own: Perms,
    /// The delegations of this mount.
    pub delegations: Mutex<Delegations>,
    /// The locks of changes of names, by directory.
    pub names: [RwLock<()>; 64],
    /// The workers of this mount's clients.
    pub share: Arc<WorkerShare>,
    /// The inode of the mount's root.
    root: *mut CephInode,
}

// SAFETY: libcephfs guards the inode with the mount's lock.
unsafe impl Send for SharedMount {}
// SAFETY: libcephfs guards the inode with the mount's lock.
unsafe impl Sync for SharedMount {}

impl SharedMount {
    /// Checks that the cluster has not evicted this mount: 0 or more, or a negative errno. Usually libcephfs knows the
    /// answer, since it has a capability for the root; otherwise it asks a metadata server.
    pub fn known(&self) -> i32 {
        let mut statx = Statx::default();
        // SAFETY: both objects are held, and the pointer to the result is valid.
        unsafe { (self.raw.ceph.ceph_ll_getattr)(self.raw.mount, self.root, &mut statx, STATX_MODE, 0, self.own.raw) }
    }

    /// The library.
    pub fn ceph(&self) -> &'static Ceph {
        self.raw.ceph
    }

    /// libcephfs's pointer.
    pub fn raw(&self) -> *mut CephMount {
        self.raw.mount
    }

    /// `ceph_conf_get`, into `room`.
    pub fn get(&self, option: &CStr, room: &mut [u8]) -> Result<(), Errno> {
        get(&self.raw, option, room)
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        self.return_delegations();
        // SAFETY: this value owns the root's inode, and releases it once, while the file system is mounted.
        unsafe { (self.raw.ceph.ceph_ll_put)(self.raw.mount, self.root) };
    }
}

/// The place of one mount.
pub struct MountPlace {
    /// The workers of this mount's clients, also while they wait for the mount.
    pub share: Arc<WorkerShare>,
    key: MountIdentity,
    /// The thread that mounts holds the lock; others with the same configuration wait for it.
    slot: Mutex<MountSlot>,
}

#[derive(Default)]
struct MountSlot {
    mount: Option<Arc<SharedMount>>,
    idle_since: Option<Instant>,
}

/// All mounts, by configuration.
pub struct SharedMounts {
    by_key: Mutex<HashMap<MountIdentity, Arc<MountPlace>>>,
    /// The most workers of one mount.
    workers: usize,
    coherence: Arc<Coherence>,
    number: AtomicU64,
}

impl SharedMounts {
    /// A collection without mounts, each of which may have so many workers.
    pub fn new(coherence: Coherence, workers: usize) -> SharedMounts {
        SharedMounts { by_key: Mutex::default(), workers, coherence: Arc::new(coherence), number: AtomicU64::new(0) }
    }

    /// The place of the mount that was prepared.
    pub fn place(&self, draft: &MountDraft, root: Option<&CStr>) -> Result<Arc<MountPlace>, Errno> {
        let mut key = draft.key.clone();
        key.add(b'r', &[root.map_or(b"/", CStr::to_bytes)])?;
        let place = |key: &MountIdentity| {
            let share = WorkerShare::new(self.workers);
            Arc::new(MountPlace { share, key: key.clone(), slot: Mutex::default() })
        };
        Ok(lock(&self.by_key).entry(key).or_insert_with_key(place).clone())
    }

    /// Mounts what was prepared, or returns a mount with the same configuration.
    pub fn mount(
        &self,
        sessions: &Arc<Sessions>,
        place: &MountPlace,
        draft: &mut Option<MountDraft>,
        root: Option<&CStr>,
    ) -> Result<Arc<SharedMount>, Errno> {
        let (key, share) = (&place.key, place.share.clone());
        let mut place = lock(&place.slot);
        if let Some(mount) = &place.mount {
            *draft = None;
            return Ok(mount.clone());
        }
        let raw = &mut draft.as_mut().ok_or(Errno::ISCONN)?.raw;
        raw.init()?;
        *lock(&raw.session) = sessions.name(&key.0).inspect(|session| session.begin(raw.ceph, raw.mount));
        raw.mount(root).inspect_err(|_| drop(lock(&raw.session).take()))?;
        raw.tune(NOTES);
        let raw = draft.take().ok_or(Errno::ISCONN)?.raw;
        let own = Perms::new(raw.ceph, 0, 0, Box::default()).ok_or(Errno::NOMEM)?;
        let mut inode = ptr::null_mut();
        // SAFETY: the file system is mounted, and the pointer to the result is valid.
        checked(unsafe { (raw.ceph.ceph_ll_lookup_root)(raw.mount, &mut inode) })?;
        let mount = Arc::new(SharedMount {
            raw,
            root: inode,
            number: self.number.fetch_add(1, Ordering::Relaxed),
            coherence: self.coherence.clone(),
            own,
            delegations: Mutex::default(),
            names: [const { RwLock::new(()) }; 64],
            share,
        });
        mount.allow_delegations();
        place.mount = Some(mount.clone());
        Ok(mount)
    }

    /// Gives up a mount that the cluster has evicted: clients with the same configuration get a new one.
    pub fn give_up(&self, mount: &Arc<SharedMount>) {
        drop(lock(&mount.raw.session).take());
        mount.revoke_delegations();
        let places: Vec<_> = lock(&self.by_key).values().cloned().collect();
        for place in places {
            // A locked place is being mounted, so it is not this mount's.
            let mut gone = None;
            if let Ok(mut place) = place.slot.try_lock()
                && place.mount.as_ref().is_some_and(|theirs| Arc::ptr_eq(theirs, mount))
            {
                gone = place.mount.take();
            }
            drop(gone);
        }
    }

    /// Removes mounts that have been unused for `linger`. Dropping them unmounts, which can take long.
    pub fn idle(&self, linger: Duration) -> Vec<Arc<SharedMount>> {
        let mut idle = Vec::new();
        lock(&self.by_key).retain(|_, place| {
            // A thread that mounts, or is about to, holds a reference to the place.
            if Arc::strong_count(place) > 1 {
                return true;
            }
            let mut place = lock(&place.slot);
            let Some(mount) = &place.mount else { return false };
            if Arc::strong_count(mount) > 1 {
                place.idle_since = None;
                return true;
            }
            if place.idle_since.get_or_insert_with(Instant::now).elapsed() < linger {
                return true;
            }
            idle.extend(place.mount.take());
            false
        });
        idle
    }

    /// Whether clients may cache names.
    pub fn keep_names(&self) -> bool {
        self.coherence.may_be_stale()
    }

    /// How long a released inode stays in case the client takes it back: longer than any cached name that leads to it.
    pub fn idle_inodes_stay(&self) -> Duration {
        self.coherence.longest() * 2 + Duration::from_secs(20)
    }

    /// The number of mounts.
    pub fn count(&self) -> usize {
        lock(&self.by_key).len()
    }
}
