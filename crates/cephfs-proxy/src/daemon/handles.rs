//! What a connection holds: numbers that mean something to it alone, each with what it stands for.
//!
//! Whoever works on something has an `Arc` of it, so that another of the client's threads can give it back meanwhile: it goes with the
//! last who has it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{
    ceph::{Ceph, CephDir, CephFile, CephInode, CephPerms},
    mounts::{Draft, Mount},
};
use crate::{
    layout,
    wire::{Errno, Handle},
};

/// A mount as one client sees it.
pub struct ClientMount {
    /// Until it is mounted.
    pub draft: Mutex<Option<Draft>>,
    /// Once it is.
    pub mounted: Mutex<Option<Arc<Mount>>>,
    /// Its working directory, from the root.
    pub directory: Mutex<std::ffi::CString>,
}

/// Pairs a pointer of libcephfs's with its mount, which stays as long as it does.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident $raw:ty, $put:ident $(, $(#[$more_doc:meta])* $more:ident: $type:ty)?) => {
        $(#[$doc])*
        pub struct $name {
            /// Through which it was opened.
            pub mount: Arc<Mount>,
            /// For libcephfs.
            pub raw: *mut $raw,
            /// The inode's number.
            pub ino: u64,
            $($(#[$more_doc])* pub $more: $type,)?
        }

        // SAFETY: libcephfs guards it with the mount's lock.
        unsafe impl Send for $name {}
        // SAFETY: likewise.
        unsafe impl Sync for $name {}

        impl $name {
            /// Gives it back, and says what libcephfs says to that.
            #[allow(dead_code, reason = "nobody asks that of an inode")]
            pub fn give_back(self) -> i32 {
                self.parting();
                let mut this = std::mem::ManuallyDrop::new(self);
                // SAFETY: it is given back once: `this` is not dropped; its mount is, afterwards, and only once.
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
                // SAFETY: it is given back once: here.
                unsafe { (self.mount.ceph().$put)(self.mount.raw(), self.raw) };
            }
        }
    };
}

owned!(
    /// An inode, with one reference.
    Inode CephInode, ceph_ll_put,
    /// Whether there can be names in it.
    is_directory: bool);
owned!(
    /// An open file.
    File CephFile, ceph_ll_close,
    /// Whether it is a directory, opened as a file.
    is_directory: bool);
owned!(
    /// An open directory.
    Dir CephDir, ceph_ll_releasedir);

impl Inode {
    fn parting(&self) {}
}

impl Dir {
    fn parting(&self) {}
}

impl File {
    /// `ceph_ll_fsync`, of all there is: asked for the data only, libcephfs leaves the size behind, and what was appended would not survive
    /// us. It also says 0 when the cluster has evicted us and what was written is lost.
    pub fn sync(&self) -> i32 {
        // SAFETY: the file is held.
        let result = unsafe { (self.mount.ceph().ceph_ll_fsync)(self.mount.raw(), self.raw, 0) };
        if result < 0 { result } else { self.mount.known().min(0) }
    }

    fn parting(&self) {
        self.mount.closing(self.ino, self.raw);
    }
}

/// In whose name something is done.
pub struct Perms {
    /// Whose functions these are.
    pub ceph: &'static Ceph,
    /// For them.
    pub raw: *mut CephPerms,
    /// Further groups: libcephfs points at them and makes no copy (libcephfs.h).
    pub groups: Box<[u32]>,
}

impl Perms {
    /// `ceph_userperm_new`; none if there is no memory.
    pub fn new(ceph: &'static Ceph, uid: u32, gid: u32, mut groups: Box<[u32]>) -> Option<Perms> {
        // SAFETY: as many groups as it is told, which stay where they are as long as it does.
        let raw = unsafe { (ceph.ceph_userperm_new)(uid, gid, groups.len() as i32, groups.as_mut_ptr()) };
        (!raw.is_null()).then_some(Perms { ceph, raw, groups })
    }
}

// SAFETY: it is never changed.
unsafe impl Send for Perms {}
// SAFETY: likewise.
unsafe impl Sync for Perms {}

impl Drop for Perms {
    fn drop(&mut self) {
        // SAFETY: made by `ceph_userperm_new`, and nobody uses it any more.
        unsafe { (self.ceph.ceph_userperm_destroy)(self.raw) };
    }
}

/// What a handle stands for.
#[derive(Clone)]
pub enum Held {
    /// A mount.
    Mount(Arc<ClientMount>),
    /// An inode.
    Inode(Arc<Inode>),
    /// A file.
    File(Arc<File>),
    /// A directory; one reads it at a time.
    Dir(Arc<Mutex<Dir>>),
    /// An identity.
    Perms(Arc<Perms>),
}

struct Place {
    generation: u32,
    /// The mount's handle; 0 for what belongs to none.
    owner: Handle,
    /// How often an inode was handed out.
    count: u64,
    /// Since when the client has not had it, if it may stay.
    idle: Option<Instant>,
    /// Whether it is among those that rest.
    queued: bool,
    held: Option<Held>,
}

/// All that a connection holds.
#[derive(Default)]
pub struct Handles {
    places: Vec<Place>,
    free: Vec<u32>,
    weight: usize,
    /// Inodes that the client has already, so that it gets the same handle again.
    inodes: HashMap<(Handle, usize), Handle>,
    /// Those that were idle at that time, and perhaps still are; each once.
    resting: VecDeque<(Instant, Handle)>,
}

impl Handles {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Bytes that they take, at most.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// A handle for something.
    pub fn add(&mut self, owner: Handle, held: Held) -> Handle {
        self.weight += held.weight();
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, owner, count: 0, idle: None, queued: false, held: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1).max(1);
        (place.owner, place.count, place.idle, place.held) = (owner, 1, None, Some(held));
        place.queued = false;
        Handle(u64::from(place.generation) << 32 | u64::from(index))
    }

    /// A handle for an inode: the one that there is, if there is one. Then what is left over is returned, to be dropped where no
    /// lock is held.
    pub fn add_inode(&mut self, owner: Handle, inode: Inode) -> (Handle, Option<Inode>) {
        let key = (owner, inode.raw as usize);
        if let Some(&handle) = self.inodes.get(&key)
            && let Ok(place) = self.place(handle)
        {
            (place.count, place.idle) = (place.count.saturating_add(1), None);
            return (handle, Some(inode));
        }
        let handle = self.add(owner, Held::Inode(Arc::new(inode)));
        self.inodes.insert(key, handle);
        (handle, None)
    }

    fn place(&mut self, handle: Handle) -> Result<&mut Place, Errno> {
        if handle.0 == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let generation = (handle.0 >> 32) as u32;
        let place = self.places.get_mut(handle.0 as u32 as usize).ok_or(Errno(libc::EBADF))?;
        if place.generation == generation && place.held.is_some() { Ok(place) } else { Err(Errno(libc::EBADF)) }
    }

    /// What `handle` stands for, if it belongs to `owner`.
    pub fn get(&mut self, owner: Handle, handle: Handle) -> Result<Held, Errno> {
        let place = self.place(handle)?;
        if place.owner != owner {
            return Err(Errno(libc::EBADF));
        }
        place.held.clone().ok_or(Errno(libc::EBADF))
    }

    /// Takes it away from the client. To be dropped where no lock is held.
    pub fn remove(&mut self, owner: Handle, handle: Handle) -> Result<Held, Errno> {
        self.get(owner, handle)?;
        let place = self.place(handle)?;
        let held = place.held.take().ok_or(Errno(libc::EBADF))?;
        self.weight -= held.weight();
        if let Held::Inode(inode) = &held {
            self.inodes.remove(&(owner, inode.raw as usize));
        }
        self.free.push(handle.0 as u32);
        Ok(held)
    }

    /// The client gives an inode back so many times, or a file or directory. What is returned then is to be dropped where no lock is held.
    pub fn release(&mut self, handle: Handle, count: u64) -> Option<Held> {
        let place = self.place(handle).ok()?;
        match place.held {
            Some(Held::Inode(_)) => {}
            Some(Held::File(_) | Held::Dir(_)) => {
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

    /// Those that are gone meanwhile leave their entries behind: no more of these than there are places.
    fn rest(&mut self, now: Instant, handle: Handle) {
        if self.resting.len() > 2 * self.places.len() {
            let mut resting = std::mem::take(&mut self.resting);
            resting.retain(|(_, handle)| self.place(*handle).is_ok_and(|place| place.queued));
            self.resting = resting;
        }
        self.resting.push_back((now, handle));
    }

    /// All that is held, of one kind.
    pub fn all<T>(&self, kind: impl Fn(&Held) -> Option<T>) -> Vec<T> {
        self.places.iter().filter_map(|place| place.held.as_ref().and_then(&kind)).collect()
    }

    /// Takes away inodes that have been idle for that long. To be dropped where no lock is held.
    pub fn expire(&mut self, limit: Duration) -> Vec<Held> {
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

    /// Takes away all that belongs to a mount, in an order in which it can be dropped.
    pub fn remove_all(&mut self, owner: Handle) -> Vec<Held> {
        let theirs: Vec<Handle> = self
            .places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.owner == owner && place.held.is_some())
            .map(|(index, place)| Handle(u64::from(place.generation) << 32 | index as u64))
            .collect();
        let mut removed: Vec<Held> = theirs.into_iter().filter_map(|handle| self.remove(owner, handle).ok()).collect();
        removed.sort_by_key(|held| matches!(held, Held::Inode(_)));
        removed
    }
}
