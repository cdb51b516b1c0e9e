//! What the caller holds: mounts, inodes, files, directories and identities, each by a number that passes for a pointer.

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    sync::{Arc, Mutex},
};

use cephfs_proxy::wire::{Errno, Handle, Statx};

use crate::{
    cache::{Attributes, Batch, Hint, Idle, Kept, List, Names, Xattrs},
    link::Link,
    reconnect::Outage,
    session::DEFAULT_PERMS,
    writes::Writes,
};

/// What the caller takes for a pointer.
pub type Pointer = *mut c_void;

/// In whose name something is done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// By what an inode is found again when the daemon is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Where the mount begins.
    Root,
    /// Its number, and the snapshot's: CEPH_NOSNAP for none.
    Number { ino: u64, snapshot: u64 },
}

impl From<&Statx> for Origin {
    /// libcephfs says both whatever was asked for, the snapshot as the device.
    fn from(statx: &Statx) -> Origin {
        Origin::Number { ino: statx.ino, snapshot: statx.dev }
    }
}

/// A step of a mount's preparation, kept so that it can be made again: at another daemon, or in a child that was forked.
#[derive(Clone)]
pub enum Step {
    /// `ceph_conf_read_file`.
    Read(Option<Vec<u8>>),
    /// `ceph_conf_set`.
    Set(CString, CString),
    /// `ceph_init`.
    Init,
    /// `ceph_select_filesystem`.
    Select(CString),
    /// `ceph_mount`.
    Mount(Option<CString>),
    /// `ceph_chdir`; only the last one counts.
    Chdir(CString),
}

/// `struct ceph_mount_info`.
pub struct Mount {
    /// The connection that it is at.
    pub link: Arc<Link>,
    /// There.
    pub remote: Handle,
    /// `ceph_create`'s.
    pub id: Option<CString>,
    /// All since.
    pub steps: Vec<Step>,
    /// What `ceph_getcwd` returns a pointer to.
    pub directory: CString,
    /// The number of its root, once it is needed.
    pub root: Option<u64>,
}

/// `Inode`.
pub struct Inode {
    /// Its mount, as the caller knows it.
    pub mount: u64,
    /// The connection by which it has `remote`: `Link::id`.
    pub link: u64,
    /// At that connection's daemon.
    pub remote: Handle,
    /// For another one's.
    pub origin: Origin,
    /// How often the caller has it.
    pub held: u64,
    /// How often the daemon has handed it out.
    pub owed: u64,
    /// Whether we have it, too, for good.
    pub pinned: bool,
    /// Its attributes, if there is a copy.
    pub attributes: Option<Kept<Attributes>>,
    /// Its extended attributes, as far as there are copies.
    pub xattrs: Xattrs,
    /// The list of names in it, if there is a copy.
    pub list: Option<Kept<List>>,
    /// What its names were.
    pub hint: Hint,
    /// What is known of names in it.
    pub names: Names,
    /// When it became idle, counted: nobody has it but us.
    pub idle: u64,
    /// Whether it waits among the idle ones.
    pub queued: bool,
}

impl Inode {
    /// One that the daemon has handed out.
    pub fn new(mount: u64, link: u64, remote: Handle, origin: Origin, owed: u64) -> Inode {
        Inode {
            mount,
            link,
            remote,
            origin,
            held: owed,
            owed,
            pinned: false,
            attributes: None,
            xattrs: Xattrs::default(),
            list: None,
            hint: Hint::default(),
            names: Names::default(),
            idle: 0,
            queued: false,
        }
    }

    /// Whether it is of this mount, over this connection.
    pub fn is_at(&self, mount: u64, link: &Link) -> bool {
        self.mount == mount && self.link == link.id
    }

    /// It is another connection's from now on.
    pub fn forget_copies(&mut self) {
        (self.attributes, self.xattrs, self.list, self.names) = (None, Xattrs::default(), None, Names::default());
        (self.hint, self.idle, self.queued) = (Hint::default(), 0, false);
    }
}

/// `Fh`.
pub struct File {
    /// Its mount.
    pub mount: u64,
    /// As an inode's.
    pub link: u64,
    /// As an inode's.
    pub remote: Handle,
    /// What is open.
    pub origin: Origin,
    /// How: O_RDWR and the like.
    pub flags: i32,
    /// Who opened it.
    pub identity: Arc<Identity>,
    /// Where `ceph_ll_lseek` went last.
    pub position: i64,
    /// What became of what was written.
    pub writes: Writes,
}

impl File {
    /// Its handle, if it has one at this connection; an error if something that was written may be lost.
    pub fn at(&self, link: u64) -> Result<Option<Handle>, Errno> {
        if self.writes.lost() { Err(Errno(libc::EIO)) } else { Ok((self.link == link).then_some(self.remote)) }
    }
}

/// `struct ceph_dir_result`.
pub struct Dir {
    /// Its mount.
    pub mount: u64,
    /// As an inode's.
    pub link: u64,
    /// As an inode's; none if it has only been read from a copy.
    pub remote: Option<Handle>,
    /// What is open.
    pub origin: Origin,
    /// Who opened it.
    pub identity: Arc<Identity>,
    /// Entries that have come and were not asked for yet.
    pub batch: Arc<Mutex<Batch>>,
}

/// Things of one kind, by numbers that are never used twice in a row. A number says its kind, so that none passes for another.
pub struct Table<T> {
    kind: u8,
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

const GENERATIONS: u32 = 1 << 23;

impl<T> Table<T> {
    const fn new(kind: u8) -> Table<T> {
        Table { kind, places: Vec::new(), free: Vec::new() }
    }

    /// A number for something.
    pub fn add(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        *place = ((place.0 + 1) % GENERATIONS, Some(value));
        let generation = place.0;
        self.number(generation, index)
    }

    fn number(&self, generation: u32, index: u32) -> u64 {
        u64::from(self.kind) << 56 | u64::from(generation) << 32 | u64::from(index)
    }

    fn index(&self, number: u64) -> Result<usize, Errno> {
        if number == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let (kind, generation, index) =
            ((number >> 56) as u8, (number >> 32) as u32 & 0xff_ffff, number as u32 as usize);
        match self.places.get(index) {
            Some((current, Some(_))) if kind == self.kind && *current == generation => Ok(index),
            _ => Err(Errno(libc::EBADF)),
        }
    }

    /// What has this number.
    pub fn get(&mut self, number: u64) -> Result<&mut T, Errno> {
        let index = self.index(number)?;
        self.places[index].1.as_mut().ok_or(Errno(libc::EBADF))
    }

    /// Takes it out.
    pub fn remove(&mut self, number: u64) -> Result<T, Errno> {
        let index = self.index(number)?;
        self.free.push(index as u32);
        self.places[index].1.take().ok_or(Errno(libc::EBADF))
    }

    /// All of them.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    /// The numbers of all that `which` says.
    pub fn numbers(&self, which: impl Fn(&T) -> bool) -> Vec<u64> {
        let chosen = self.places.iter().enumerate().filter(|(_, (_, value))| value.as_ref().is_some_and(&which));
        chosen.map(|(index, (generation, _))| self.number(*generation, index as u32)).collect()
    }

    /// Takes out all that `which` says.
    pub fn remove_all(&mut self, which: impl Fn(&T) -> bool) {
        for (index, (_, value)) in self.places.iter_mut().enumerate() {
            if value.as_ref().is_some_and(&which) {
                *value = None;
                self.free.push(index as u32);
            }
        }
    }
}

/// All that the library knows.
pub struct Tables {
    /// The connection.
    pub link: Option<Arc<Link>>,
    /// How many there have been.
    pub links: u64,
    /// Those up to this one were the parent's, before a fork: what was opened by them is none of ours.
    pub parents: u64,
    /// While there is none.
    pub outage: Option<Outage>,
    pub mounts: Table<Mount>,
    pub inodes: Table<Inode>,
    pub files: Table<File>,
    pub dirs: Table<Dir>,
    pub perms: Table<Arc<Identity>>,
    /// Inodes that the caller has, by mount, connection and the daemon's handle.
    pub known: HashMap<(u64, u64, Handle), u64>,
    /// What the connection's daemon calls identities.
    pub identities: HashMap<Arc<Identity>, Handle>,
    /// Inodes that nobody has but us.
    pub idle: Idle,
    /// Names that are kept.
    pub names: usize,
    /// Extended attributes that were asked for last; an empty one is the list of them.
    pub wanted_xattrs: Vec<Box<[u8]>>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            link: None,
            links: 0,
            parents: 0,
            outage: None,
            mounts: Table::new(0x11),
            inodes: Table::new(0x12),
            files: Table::new(0x13),
            dirs: Table::new(0x14),
            perms: Table::new(0x15),
            known: HashMap::new(),
            identities: HashMap::new(),
            idle: Idle::default(),
            names: 0,
            wanted_xattrs: Vec::new(),
        }
    }
}

impl Table<Arc<Identity>> {
    /// Whether this is somebody.
    pub fn knows(&self, perms: Pointer) -> bool {
        perms as u64 == DEFAULT_PERMS || self.index(perms as u64).is_ok()
    }
}

impl Tables {
    /// An inode that the caller has, or we.
    pub fn present(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes
            .get(number)
            .and_then(|inode| if inode.held > 0 || inode.pinned { Ok(inode) } else { Err(Errno(libc::EBADF)) })
    }

    /// An inode that the caller has.
    pub fn inode(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get(number).and_then(|inode| if inode.held > 0 { Ok(inode) } else { Err(Errno(libc::EBADF)) })
    }

    /// What only we have, by a connection that is gone, is gone with it.
    fn forget_idle(&mut self) {
        self.inodes.remove_all(|inode| inode.held == 0);
        self.idle = Idle::default();
        self.mounts.all().for_each(|mount| mount.root = None);
        self.inodes.all().for_each(Inode::forget_copies);
        self.recount();
    }

    /// Counts the names that are kept.
    pub fn recount(&mut self) {
        self.names = self.inodes.all().map(|inode| inode.names.len()).sum();
    }

    /// The connection, if the daemon is there as far as we know.
    pub fn live_link(&self) -> Option<Arc<Link>> {
        self.link.as_ref().filter(|link| !link.is_dead()).cloned()
    }

    /// A new connection takes the place of one that is dead; if another thread was faster, its it is.
    pub fn take_link(&mut self, mut link: Link) -> Arc<Link> {
        if let Some(theirs) = self.live_link() {
            return theirs;
        }
        self.links += 1;
        link.id = self.links;
        let link = Arc::new(link);
        if let Some(gone) = self.link.replace(link.clone()) {
            let settled = gone.settled();
            for file in self.files.all().filter(|file| file.link == gone.id) {
                file.writes.daemon_gone(settled);
            }
        }
        self.identities.clear();
        self.known.clear();
        self.forget_idle();
        self.outage = None;
        link
    }

    /// Whether the daemon of the last connection, if it was this one, said at its end that it has kept all.
    pub fn settled(&self, link: u64) -> bool {
        self.link.as_ref().is_some_and(|last| last.id == link && last.settled())
    }

    /// Takes out the files of a mount; says whether something that was written to them may be lost. The parent's are the parent's affair.
    pub fn forget_files(&mut self, mount: u64) -> bool {
        let gone = self.link.as_ref().filter(|link| link.is_dead()).map(|link| (link.id, link.settled()));
        let (mut lost, parents) = (false, self.parents);
        for file in self.files.all().filter(|file| file.mount == mount && file.link > parents) {
            if let Some((link, settled)) = gone
                && file.link == link
            {
                file.writes.daemon_gone(settled);
            }
            lost |= file.writes.lost();
        }
        self.files.remove_all(|file| file.mount == mount);
        lost
    }

    /// Whether the connection is this one.
    pub fn is_current(&self, link: &Link) -> bool {
        self.link.as_ref().is_some_and(|current| current.id == link.id)
    }

    /// In a child that has just been forked.
    pub fn forked(&mut self) {
        self.identities.clear();
        self.known.clear();
        self.forget_idle();
        self.parents = self.links;
        if let Some(link) = self.link.take() {
            link.abandon();
        }
        for mount in self.mounts.all() {
            mount.link.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_good_for_what_it_was_given_for_and_no_longer() {
        let (mut files, mut dirs) = (Table::new(1), Table::new(2));
        let (file, dir) = (files.add("file"), dirs.add("dir"));
        assert_eq!(files.get(file), Ok(&mut "file"));
        assert_eq!(files.get(dir), Err(Errno(libc::EBADF)));
        assert_eq!(files.get(0), Err(Errno(libc::EINVAL)));
        assert_eq!(files.get(u64::MAX), Err(Errno(libc::EBADF)));
        assert_eq!(files.numbers(|value| *value == "file"), [file]);
        assert_eq!(files.remove(file), Ok("file"));
        let again = files.add("another");
        assert_ne!(again, file);
        assert_eq!(files.get(file), Err(Errno(libc::EBADF)));
        assert_eq!(dirs.remove(dir), Ok("dir"));
    }
}
