//! Mounts of CephFS. Each client prepares its mount. Clients with the same configuration share one mount, which has its own process, a place. The
//! place's number is derived from the configuration.

use std::{
    ffi::{CStr, CString},
    io::{Seek, Write},
    os::fd::AsRawFd,
    path::PathBuf,
    ptr,
    sync::{Arc, Mutex, OnceLock, RwLock},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::MemfdFlags;

use super::{
    ceph::{Ceph, CephInode, CephMount},
    coherence::Coherence,
    data::DataCache,
    delegations::Delegations,
    handles::Perms,
    lock,
    sessions::{self, SessionNames},
};
use crate::wire::{ChangeMark, Errno, Statx, errno_in, errno_of, hello::LOBBY};

/// The least time for which a process waits for clients that have not mounted yet.
const UNMOUNTED_STAYS: Duration = Duration::from_secs(5);

/// The least time between the last write of a killed process and the end of its session. If others then change a file, their clocks may be behind
/// by this much.
const PAUSE_BEFORE: Duration = Duration::from_millis(500);

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

/// CEPH_STATX_CTIME and CEPH_STATX_VERSION.
const CHANGED: u32 = 0x80 | 0x1000;
/// AT_STATX_DONT_SYNC: libcephfs answers from what it has.
const DONT_SYNC: u32 = 0x4000;
/// CEPH_STATX_SIZE.
const STATX_SIZE: u32 = 0x200;
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

/// A `ceph_mount_info`. When it is dropped, it is unmounted if necessary, and released.
struct RawMount {
    ceph: &'static Ceph,
    mount: *mut CephMount,
    initialised: bool,
    mounted: bool,
}

// SAFETY: libcephfs protects a mount with its own locks.
unsafe impl Send for RawMount {}
// SAFETY: libcephfs protects a mount with its own locks.
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
        // SAFETY: this value owns the mount. No object that was opened through the mount is left, since each such object holds an Arc of the
        // `SharedMount`.
        unsafe {
            if self.mounted {
                (self.ceph.ceph_unmount)(self.mount);
            }
            (self.ceph.ceph_release)(self.mount);
        }
    }
}

/// A step of a preparation: its letter and its parts.
type ConfigurationStep<'b> = (u8, Vec<&'b [u8]>);

/// The steps of a preparation, as `MountIdentity::add` has written them.
fn steps(mut bytes: &[u8]) -> Option<Vec<ConfigurationStep<'_>>> {
    let mut steps = Vec::new();
    while let Some((&step, rest)) = bytes.split_first() {
        bytes = rest;
        let count = match step {
            b'd' => 0,
            b's' => 2,
            _ => 1,
        };
        let mut parts = Vec::new();
        for _ in 0..count {
            let (length, rest) = bytes.split_first_chunk::<8>()?;
            let (part, rest) = rest.split_at_checked(u64::from_le_bytes(*length).try_into().ok()?)?;
            parts.push(part);
            bytes = rest;
        }
        steps.push((step, parts));
    }
    Some(steps)
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
            raw: RawMount { ceph, mount, initialised: false, mounted: false },
            id: id.map_or_else(|| "admin".into(), |id| id.to_string_lossy().into_owned()),
            key,
        })
    }

    /// Repeats the steps of an earlier preparation. Also returns the root to mount.
    fn repeat(ceph: &'static Ceph, configuration: &[u8]) -> Result<(MountDraft, CString), Errno> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
        let steps = steps(configuration).ok_or(Errno::INVAL)?;
        let mut steps = steps.iter().map(|(step, parts)| (*step, parts.as_slice()));
        let Some((b'i', &[id])) = steps.next() else { return Err(Errno::INVAL) };
        let id = CStr::from_bytes_with_nul(id).ok();
        let (mut draft, mut root) = (MountDraft::create(ceph, id)?, None);
        for step in steps {
            match step {
                (b'd', _) => draft.read_file(None)?,
                (b'f', &[contents]) => draft.read_file(Some(contents))?,
                (b's', &[option, value]) => draft.set(&text(option)?, &text(value)?)?,
                (b'n', &[name]) => draft.select(&text(name)?)?,
                (b'r', &[path]) => root = Some(text(path)?),
                _ => return Err(Errno::INVAL),
            }
        }
        Ok((draft, root.ok_or(Errno::INVAL)?))
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
    // SAFETY: the option is a C string, and the buffer has the passed size.
    checked(unsafe { (raw.ceph.ceph_conf_get)(raw.mount, option.as_ptr(), room.as_mut_ptr().cast(), room.len()) })
        .map(drop)
}

/// A mounted file system, shared by clients.
pub struct SharedMount {
    raw: RawMount,
    /// Validity of clients' copies.
    pub coherence: Arc<Coherence>,
    /// The daemon's own identity.
    pub own: Perms,
    /// The delegations of this mount.
    pub delegations: Mutex<Delegations>,
    /// The cache of file data.
    pub data: DataCache,
    /// The locks for changes of names, by directory.
    pub names: [RwLock<()>; 64],
    /// The number that this process shares with the earlier processes of the mount (`sessions::lineage`).
    pub lineage: u64,
    /// The inode of the mount's root.
    root: *mut CephInode,
}

// SAFETY: libcephfs protects the inode with the mount's lock.
unsafe impl Send for SharedMount {}
// SAFETY: libcephfs protects the inode with the mount's lock.
unsafe impl Sync for SharedMount {}

impl SharedMount {
    /// Checks that the cluster has not evicted this mount. Returns 0 or more, or a negative errno. Usually libcephfs answers without a request,
    /// since it has a capability for the root. Otherwise it asks a metadata server.
    pub fn known(&self) -> i32 {
        let mut statx = Statx::default();
        // SAFETY: both objects are held, and the pointer to the result is valid.
        unsafe { (self.raw.ceph.ceph_ll_getattr)(self.raw.mount, self.root, &mut statx, STATX_MODE, 0, self.own.raw) }
    }

    /// The mark of an inode's last change, as far as libcephfs knows it without a request. The inode is held.
    pub fn mark(&self, inode: *mut CephInode) -> ChangeMark {
        self.changed(inode, DONT_SYNC)
    }

    /// The same, but asks a metadata server if libcephfs does not know the mark for certain.
    pub fn ask(&self, inode: *mut CephInode) -> ChangeMark {
        self.changed(inode, 0)
    }

    fn changed(&self, inode: *mut CephInode, flags: u32) -> ChangeMark {
        let statx = self.attributes(inode, CHANGED, flags);
        statx.map_or_else(ChangeMark::default, |statx| ChangeMark { version: statx.version, ctime: statx.ctime })
    }

    /// The size of a file, as far as libcephfs knows it without a request. The inode is held.
    pub fn size(&self, inode: *mut CephInode) -> Option<u64> {
        self.attributes(inode, STATX_SIZE, DONT_SYNC).map(|statx| statx.size)
    }

    /// The same, but asks a metadata server if libcephfs does not know the size for certain.
    pub fn ask_size(&self, inode: *mut CephInode) -> Option<u64> {
        self.attributes(inode, STATX_SIZE, 0).map(|statx| statx.size)
    }

    fn attributes(&self, inode: *mut CephInode, want: u32, flags: u32) -> Option<Statx> {
        let mut statx = Statx::default();
        // SAFETY: the caller holds the inode, and the pointer to the result is valid.
        let result =
            unsafe { (self.raw.ceph.ceph_ll_getattr)(self.raw.mount, inode, &mut statx, want, flags, self.own.raw) };
        (result >= 0 && statx.mask & want == want).then_some(statx)
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

/// A place: this process's mount, once it is mounted. The lobby never has a mount.
pub struct MountPlace {
    number: u64,
    names: SessionNames,
    /// The directory that contains the number shared with earlier processes. `lineage` is this number, once the process mounts.
    state: PathBuf,
    lineage: OnceLock<u64>,
    /// When the process was started.
    started: Instant,
    coherence: Arc<Coherence>,
    /// The bytes of file data that may be cached.
    data: usize,
    /// The thread that mounts holds the lock. Other threads with the same configuration wait for the lock.
    slot: Mutex<MountSlot>,
}

struct MountSlot {
    /// The configuration, once the process has mounted.
    key: Option<MountIdentity>,
    mount: Option<Arc<SharedMount>>,
    unused_since: Instant,
    /// Whether the process has mounted for clients that have not come yet.
    prepared: bool,
}

impl MountPlace {
    /// A place without a mount.
    pub fn new(number: u64, names: SessionNames, state: PathBuf, coherence: Coherence, data: usize) -> MountPlace {
        let slot = MountSlot { key: None, mount: None, unused_since: Instant::now(), prepared: false };
        MountPlace {
            number,
            names,
            state,
            lineage: OnceLock::new(),
            started: Instant::now(),
            coherence: Arc::new(coherence),
            data,
            slot: Mutex::new(slot),
        }
    }

    /// Mounts with the prepared configuration, or returns the existing mount, if this is the place for the configuration. Otherwise returns the
    /// number of the right place.
    pub fn mount(
        &self,
        draft: &mut Option<MountDraft>,
        root: Option<&CStr>,
    ) -> Result<(u64, Option<Arc<SharedMount>>), Errno> {
        let mut key = draft.as_ref().ok_or(Errno::ISCONN)?.key.clone();
        key.add(b'r', &[root.map_or(b"/", CStr::to_bytes)])?;
        let place = self.names.place(&key.0);
        if place != self.number {
            return Ok((place, None));
        }
        let mut slot = lock(&self.slot);
        // Another configuration may have the same number by chance.
        if slot.key.as_ref().is_some_and(|theirs| *theirs != key) {
            return Err(Errno::IO);
        }
        if slot.mount.is_none() {
            slot.mount = Some(self.mount_first(draft, &key, root)?);
            (slot.key, slot.unused_since) = (Some(key), Instant::now());
        }
        *draft = None;
        Ok((place, slot.mount.clone()))
    }

    /// Mounts with the configuration of another process's mount, before a client comes.
    pub fn mount_again(&self, ceph: &'static Ceph, configuration: &[u8]) -> Result<(), Errno> {
        let (draft, root) = MountDraft::repeat(ceph, configuration)?;
        let (place, mount) = self.mount(&mut Some(draft), Some(&root))?;
        mount.filter(|_| place == self.number).ok_or(Errno::INVAL)?;
        lock(&self.slot).prepared = true;
        Ok(())
    }

    /// The configuration of the mount, if there is one.
    pub fn configuration(&self) -> Option<Vec<u8>> {
        let slot = self.slot.try_lock().ok()?;
        slot.key.as_ref().filter(|_| slot.mount.is_some()).map(|key| key.0.clone())
    }

    fn mount_first(
        &self,
        draft: &mut Option<MountDraft>,
        key: &MountIdentity,
        root: Option<&CStr>,
    ) -> Result<Arc<SharedMount>, Errno> {
        let raw = &mut draft.as_mut().ok_or(Errno::ISCONN)?.raw;
        raw.init()?;
        // If an attempt to mount fails, later attempts keep the first attempt's value.
        let ended = |follows| {
            self.lineage.get_or_init(|| match self.names.number {
                Some(_) => sessions::lineage(&self.state, self.number, self.names.turn, follows),
                None => 0,
            });
        };
        if sessions::may_follow(&self.state, self.number, self.names.turn) {
            thread::sleep(PAUSE_BEFORE.saturating_sub(self.started.elapsed()));
        }
        self.names.begin(raw.ceph, raw.mount, &key.0, ended);
        raw.mount(root)?;
        let lineage = self.lineage.get().copied().unwrap_or_default();
        let lineage = if sessions::has_session(&self.state, self.number, self.names.turn) { lineage } else { 0 };
        raw.tune(NOTES);
        let raw = draft.take().ok_or(Errno::ISCONN)?.raw;
        let own = Perms::new(raw.ceph, 0, 0, Box::default()).ok_or(Errno::NOMEM)?;
        let mut inode = ptr::null_mut();
        // SAFETY: the file system is mounted, and the pointer to the result is valid.
        checked(unsafe { (raw.ceph.ceph_ll_lookup_root)(raw.mount, &mut inode) })?;
        let mount = Arc::new(SharedMount {
            raw,
            root: inode,
            coherence: self.coherence.clone(),
            own,
            delegations: Mutex::default(),
            data: DataCache::new(self.data),
            names: [const { RwLock::new(()) }; 64],
            lineage,
        });
        mount.allow_delegations();
        Ok(mount)
    }

    /// Whether this is the place where clients prepare their mounts.
    pub fn is_lobby(&self) -> bool {
        self.number == LOBBY
    }

    /// Whether the mount has been unused for `linger`. `clients`: whether there are any clients. If a request never returns, it still holds the
    /// mount, but does not count as a use once its client is gone.
    pub fn is_unused(&self, linger: Duration, clients: bool) -> bool {
        // The lock is held while a thread mounts.
        let Ok(mut slot) = self.slot.try_lock() else { return false };
        let is_used = slot.mount.as_ref().is_some_and(|mount| Arc::strong_count(mount) > 1);
        if is_used && clients {
            (slot.unused_since, slot.prepared) = (Instant::now(), false);
            return false;
        }
        let linger = if slot.key.is_none() || slot.prepared { linger.max(UNMOUNTED_STAYS) } else { linger };
        slot.unused_since.elapsed() >= linger
    }

    /// Takes the mount from this place, if no client uses it. Dropping the returned mount unmounts it, which can take long.
    pub fn take(&self) -> Option<Arc<SharedMount>> {
        self.slot.try_lock().ok()?.mount.take_if(|mount| Arc::strong_count(mount) == 1)
    }

    /// Notes that the process ends in order, without a mount.
    pub fn has_ended(&self) {
        if lock(&self.slot).key.is_some() {
            sessions::has_ended(&self.state, self.number, self.names.turn);
        }
    }

    /// Whether there is a mount, or a thread is mounting.
    pub fn is_mounted(&self) -> bool {
        self.slot.try_lock().map_or(true, |slot| slot.mount.is_some())
    }

    /// Has the cache of file data check its memory. Returns the bytes in use, unless a thread is mounting.
    pub fn tend_data(&self) -> Option<usize> {
        let mount = self.slot.try_lock().ok()?.mount.clone();
        Some(mount.map_or(0, |mount| mount.data.tend()))
    }

    /// Whether clients may cache names.
    pub fn keep_names(&self) -> bool {
        self.coherence.may_be_stale()
    }

    /// How long a released inode is kept in case the client takes it back: longer than any cached name that leads to the inode.
    pub fn idle_inodes_stay(&self) -> Duration {
        self.coherence.longest() * 2 + Duration::from_secs(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_was_written() {
        let mut key = MountIdentity::default();
        let written: [ConfigurationStep<'_>; 6] = [
            (b'i', vec![b"admin\0"]),
            (b'd', vec![]),
            (b'f', vec![b"[client]\n"]),
            (b's', vec![b"client_fs", b""]),
            (b'n', vec![b"cephfs"]),
            (b'r', vec![b"/"]),
        ];
        written.iter().for_each(|(step, parts)| key.add(*step, parts).unwrap());
        assert_eq!(steps(&key.0).unwrap(), written);
        assert_eq!(steps(&key.0[..key.0.len() - 1]), None, "it is cut");
    }
}
