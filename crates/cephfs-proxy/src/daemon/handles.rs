//! The objects of a connection, by handles that are valid for this connection only.
//!
//! A worker that uses an object holds an `Arc` of it, so that another thread of the client can release the object meanwhile. The object is dropped
//! with its last `Arc`.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{
    ceph::{Ceph, CephDir, CephFile, CephInode, CephPerms},
    mounts::{MountDraft, SharedMount},
    written::FileWrites,
};
use crate::{
    layout,
    wire::{Errno, Handle},
};

/// A mount as one client sees it.
pub struct ClientMount {
    /// The preparation; `None` once it is mounted.
    pub draft: Mutex<Option<MountDraft>>,
    /// The mount, once it is mounted.
    pub mounted: Mutex<Option<Arc<SharedMount>>>,
    /// The client's working directory, from the root.
    pub directory: Mutex<std::ffi::CString>,
}

/// Pairs a pointer of libcephfs with its mount, which must outlive it.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident $raw:ty, $put:ident $(, $(#[$more_doc:meta])* $more:ident: $type:ty)*) => {
        $(#[$doc])*
        pub struct $name {
            /// The mount through which the object was opened.
            pub mount: Arc<SharedMount>,
            /// libcephfs's pointer.
            pub raw: *mut $raw,
            /// The inode's number.
            pub ino: u64,
            $($(#[$more_doc])* pub $more: $type,)*
        }

        // SAFETY: libcephfs protects the object with the mount's lock.
        unsafe impl Send for $name {}
        // SAFETY: libcephfs protects the object with the mount's lock.
        unsafe impl Sync for $name {}

        impl $name {
            /// Closes the object. Returns libcephfs's result.
            #[allow(dead_code, reason = "nobody asks that of an inode")]
            pub fn give_back(self) -> i32 {
                self.parting();
                let mut this = std::mem::ManuallyDrop::new(self);
                // SAFETY: `this` is never dropped, so the pointer is closed once, here; then the mount is dropped once.
                unsafe {
                    let result = (this.mount.ceph().$put)(this.mount.raw(), this.raw);
                    std::ptr::drop_in_place(&raw mut this.mount);
                    result
                }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                self.parting();
                // SAFETY: the pointer is closed once: here, or in `give_back`, which does not drop.
                unsafe { (self.mount.ceph().$put)(self.mount.raw(), self.raw) };
            }
        }
    };
}

owned!(
    /// An inode, with one reference.
    Inode CephInode, ceph_ll_put,
    /// The type: S_IFREG, S_IFDIR and so on.
    kind: u32,
    /// The snapshot that contains the inode, CEPH_NOSNAP, or CEPH_SNAPDIR for a directory of snapshots.
    snapshot: u64);
owned!(
    /// An open file.
    File CephFile, ceph_ll_close,
    /// Whether it is a directory, opened as a file.
    is_directory: bool,
    /// Whether data that is read through it may be in the cache (`data`).
    is_cacheable: bool,
    /// The file's inode, which libcephfs keeps as long as the file is open.
    inode: *mut CephInode,
    /// The writes to the file.
    written: FileWrites);
owned!(
    /// An open directory.
    Dir CephDir, ceph_ll_releasedir);

impl Inode {
    /// Whether it can contain names.
    pub fn is_directory(&self) -> bool {
        self.kind == libc::S_IFDIR
    }

    fn parting(&self) {}
}

impl Dir {
    fn parting(&self) {}
}

impl File {
    fn parting(&self) {
        self.mount.closing(self.ino);
    }
}

/// The identity of a request.
pub struct Perms {
    /// The library.
    pub ceph: &'static Ceph,
    /// libcephfs's pointer.
    pub raw: *mut CephPerms,
    /// The supplementary groups: libcephfs keeps a pointer to them and makes no copy (libcephfs.h).
    pub groups: Box<[u32]>,
}

impl Perms {
    /// `ceph_userperm_new`; `None` if memory is exhausted.
    pub fn new(ceph: &'static Ceph, uid: u32, gid: u32, mut groups: Box<[u32]>) -> Option<Perms> {
        // SAFETY: the pointer and the number of groups match, and the box keeps the groups in place as long as `raw`.
        let raw = unsafe { (ceph.ceph_userperm_new)(uid, gid, groups.len() as i32, groups.as_mut_ptr()) };
        (!raw.is_null()).then_some(Perms { ceph, raw, groups })
    }
}

// SAFETY: the identity is never changed.
unsafe impl Send for Perms {}
// SAFETY: the identity is never changed.
unsafe impl Sync for Perms {}

impl Drop for Perms {
    fn drop(&mut self) {
        // SAFETY: `ceph_userperm_new` made it, and no borrow outlives the value.
        unsafe { (self.ceph.ceph_userperm_destroy)(self.raw) };
    }
}

/// An object of a connection.
#[derive(Clone)]
pub enum HeldObject {
    /// A mount.
    Mount(Arc<ClientMount>),
    /// An inode.
    Inode(Arc<Inode>),
    /// A file.
    File(Arc<File>),
    /// An open directory, which one worker reads at a time.
    Dir(Arc<Mutex<Dir>>),
    /// An identity.
    Perms(Arc<Perms>),
}

struct HandleSlot {
    generation: u32,
    /// The mount's handle; 0 for an object that belongs to no mount.
    owner: Handle,
    /// How many references to an inode the client has.
    count: u64,
    /// When the client released its last reference, if the inode may be kept.
    idle: Option<Instant>,
    /// Whether the handle is in `resting`.
    queued: bool,
    held: Option<HeldObject>,
}

/// All objects of a connection.
#[derive(Default)]
pub struct Handles {
    places: Vec<HandleSlot>,
    free: Vec<u32>,
    weight: usize,
    /// The handles of the client's inodes, so that an inode gets the same handle again.
    inodes: HashMap<(Handle, usize), Handle>,
    /// Handles of inodes that became idle at that time, and may still be idle. Each handle is in the queue once.
    resting: VecDeque<(Instant, Handle)>,
}

impl Handles {
    /// The number of objects.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The upper bound of the memory of all objects, bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Adds an object and returns its handle.
    pub fn add(&mut self, owner: Handle, held: HeldObject) -> Handle {
        self.weight += held.weight();
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(HandleSlot { generation: 0, owner, count: 0, idle: None, queued: false, held: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1).max(1);
        (place.owner, place.count, place.idle, place.held) = (owner, 1, None, Some(held));
        place.queued = false;
        Handle(u64::from(place.generation) << 32 | u64::from(index))
    }

    /// Adds an inode. If the client has the inode already, adds a reference. Returns the handle, and in that case the surplus reference, which the
    /// caller must drop where no lock is held.
    pub fn add_inode(&mut self, owner: Handle, inode: Inode) -> (Handle, Option<Inode>) {
        let key = (owner, inode.raw as usize);
        if let Some(&handle) = self.inodes.get(&key)
            && let Ok(place) = self.place(handle)
        {
            (place.count, place.idle) = (place.count.saturating_add(1), None);
            return (handle, Some(inode));
        }
        let handle = self.add(owner, HeldObject::Inode(Arc::new(inode)));
        self.inodes.insert(key, handle);
        (handle, None)
    }

    fn place(&mut self, handle: Handle) -> Result<&mut HandleSlot, Errno> {
        if handle.0 == 0 {
            return Err(Errno::INVAL);
        }
        let generation = (handle.0 >> 32) as u32;
        let place = self.places.get_mut(handle.0 as u32 as usize).ok_or(Errno::BADF)?;
        if place.generation == generation && place.held.is_some() { Ok(place) } else { Err(Errno::BADF) }
    }

    /// The object of `handle`, if it belongs to the mount `owner`.
    pub fn get(&mut self, owner: Handle, handle: Handle) -> Result<HeldObject, Errno> {
        let place = self.place(handle)?;
        if place.owner != owner {
            return Err(Errno::BADF);
        }
        place.held.clone().ok_or(Errno::BADF)
    }

    /// Removes an object. The caller must drop the object where no lock is held.
    pub fn remove(&mut self, owner: Handle, handle: Handle) -> Result<HeldObject, Errno> {
        self.get(owner, handle)?;
        let place = self.place(handle)?;
        let held = place.held.take().ok_or(Errno::BADF)?;
        self.weight -= held.weight();
        if let HeldObject::Inode(inode) = &held {
            self.inodes.remove(&(owner, inode.raw as usize));
        }
        self.free.push(handle.0 as u32);
        Ok(held)
    }

    /// Releases `count` references to an inode, or a file or directory. Returns the object if that was the last reference. The caller must drop the
    /// object where no lock is held.
    pub fn release(&mut self, handle: Handle, count: u64) -> Option<HeldObject> {
        let place = self.place(handle).ok()?;
        match place.held {
            Some(HeldObject::Inode(_)) => {}
            Some(HeldObject::File(_) | HeldObject::Dir(_)) => {
                let owner = place.owner;
                return self.remove(owner, handle).ok();
            }
            _ => return None,
        }
        if count & layout::RETAKE != 0 {
            (place.count, place.idle) = (place.count.saturating_add(1), None);
            return None;
        }
        place.count = place.count.saturating_sub(count & !layout::KEEP);
        if place.count > 0 {
            return None;
        }
        if count & layout::KEEP != 0 {
            let now = Instant::now();
            place.idle = Some(now);
            if !std::mem::replace(&mut place.queued, true) {
                self.rest(now, handle);
            }
            return None;
        }
        let owner = place.owner;
        self.remove(owner, handle).ok()
    }

    /// Queues an idle inode. Entries of inodes that are gone stay in the queue. If there are too many such entries, they are removed first.
    fn rest(&mut self, now: Instant, handle: Handle) {
        if self.resting.len() > 2 * self.places.len() {
            let mut resting = std::mem::take(&mut self.resting);
            resting.retain(|(_, handle)| self.place(*handle).is_ok_and(|place| place.queued));
            self.resting = resting;
        }
        self.resting.push_back((now, handle));
    }

    /// All objects for which `kind` returns a value.
    pub fn all<T>(&self, kind: impl Fn(&HeldObject) -> Option<T>) -> Vec<T> {
        self.places.iter().filter_map(|place| place.held.as_ref().and_then(&kind)).collect()
    }

    /// Whether [`Handles::expire`] has inodes to check.
    pub fn expires(&self, limit: Duration) -> bool {
        self.resting.front().is_some_and(|(since, _)| since.elapsed() >= limit)
    }

    /// Removes inodes that have been idle for `limit`. The caller must drop them where no lock is held.
    pub fn expire(&mut self, limit: Duration) -> Vec<HeldObject> {
        let mut gone = Vec::new();
        while let Some(&(since, handle)) = self.resting.front()
            && since.elapsed() >= limit
        {
            self.resting.pop_front();
            let Ok(place) = self.place(handle) else { continue };
            place.queued = false;
            match place.idle {
                Some(later) if later > since => {
                    place.queued = true;
                    self.resting.push_back((later, handle));
                }
                Some(_) => {
                    let owner = place.owner;
                    gone.extend(self.remove(owner, handle));
                }
                None => {}
            }
        }
        gone
    }

    /// Removes all objects of a mount, in an order in which they can be dropped.
    pub fn remove_all(&mut self, owner: Handle) -> Vec<HeldObject> {
        let theirs: Vec<Handle> = self
            .places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.owner == owner && place.held.is_some())
            .map(|(index, place)| Handle(u64::from(place.generation) << 32 | index as u64))
            .collect();
        let mut removed: Vec<HeldObject> =
            theirs.into_iter().filter_map(|handle| self.remove(owner, handle).ok()).collect();
        removed.sort_by_key(|held| matches!(held, HeldObject::Inode(_)));
        removed
    }
}
