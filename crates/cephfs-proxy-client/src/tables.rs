//! The caller's objects: mounts, inodes, files, directories and identities. The caller uses each object's number as a pointer.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    ffi::{CString, c_void},
    sync::{Arc, Mutex, atomic::Ordering},
};

use cephfs_proxy::wire::{Errno, Handle, Opened, Statx};

use crate::{
    cache::data::FileData,
    cache::{CachedAnswer, CachedAttributes, DirectoryNames, EntryBatch, Hint, Idle, List, Xattrs},
    link::DaemonLink,
    reconnect::Outage,
    session::DEFAULT_PERMS,
    writes::WriteLog,
};

/// A number in the form of a pointer, for the caller.
pub type Pointer = *mut c_void;

/// The identity of requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

/// How to find an inode again at another daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The root of the mount.
    Root,
    /// By the inode's number and the snapshot's (CEPH_NOSNAP for none).
    Number { ino: u64, snapshot: u64 },
}

impl From<&Statx> for Origin {
    /// libcephfs always fills in both numbers, and puts the snapshot's number in the device.
    fn from(statx: &Statx) -> Origin {
        Origin::Number { ino: statx.ino, snapshot: statx.dev }
    }
}

/// A step of a mount's preparation. The step is kept, so that it can be repeated at another daemon, or in a forked child.
#[derive(Clone)]
pub enum MountStep {
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
pub struct MountObject {
    /// The connection on which the mount was prepared.
    pub link: Arc<DaemonLink>,
    /// The handle on that connection.
    pub remote: Handle,
    /// The argument of `ceph_create`.
    pub id: Option<CString>,
    /// The steps of its preparation since then.
    pub steps: Vec<MountStep>,
    /// The working directory, to which `ceph_getcwd` returns a pointer.
    pub directory: CString,
    /// The number of the root's inode, after its first use.
    pub root: Option<u64>,
}

/// `Inode`.
pub struct Inode {
    /// The caller's number of its mount.
    pub mount: u64,
    /// The connection on which `remote` is valid (`DaemonLink::id`).
    pub link: u64,
    /// The handle on that connection.
    pub remote: Handle,
    /// How to find the inode at another daemon.
    pub origin: Origin,
    /// The number of the caller's references.
    pub held: u64,
    /// The number of references that the daemon has granted.
    pub owed: u64,
    /// Whether the library itself holds the inode for good.
    pub pinned: bool,
    /// The cached attributes.
    pub attributes: Option<CachedAnswer<CachedAttributes>>,
    /// The cached extended attributes.
    pub xattrs: Xattrs,
    /// The cached list of names of a directory.
    pub list: Option<CachedAnswer<List>>,
    /// The names of the directory when it was last read.
    pub hint: Hint,
    /// The cached names of a directory.
    pub names: DirectoryNames,
    /// The counter's value when the inode became idle, that is, when only the library held it; 0: not idle.
    pub idle: u64,
    /// Whether the inode is in the queue of idle inodes.
    pub queued: bool,
}

impl Inode {
    /// An inode that the daemon has returned `owed` times.
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
            names: DirectoryNames::default(),
            idle: 0,
            queued: false,
        }
    }

    /// Whether the inode belongs to this mount, and its handle to this connection.
    pub fn is_at(&self, mount: u64, link: &DaemonLink) -> bool {
        self.mount == mount && self.link == link.id
    }

    /// Drops all copies, since the inode moves to another connection.
    pub fn forget_copies(&mut self) {
        (self.attributes, self.xattrs, self.list, self.names) =
            (None, Xattrs::default(), None, DirectoryNames::default());
        (self.hint, self.idle, self.queued) = (Hint::default(), 0, false);
    }
}

/// `Fh`.
pub struct FileObject {
    /// The caller's number of its mount.
    pub mount: u64,
    /// The connection on which `remote` is valid.
    pub link: u64,
    /// The handle on that connection.
    pub remote: Handle,
    /// The inode.
    pub origin: Origin,
    /// The flags with which the file was opened.
    pub flags: i32,
    /// The identity with which the file was opened.
    pub identity: Arc<Identity>,
    /// The last result of `ceph_ll_lseek`.
    pub position: i64,
    /// Where the file's data can be read without a request.
    pub data: FileData,
    /// Whether a successful write may be lost. If so, the file must not be used any more.
    pub lost: bool,
}

/// A file by the caller's number of its mount, and its inode.
pub type LogKey = (u64, Origin);

impl FileObject {
    /// Whether the file was opened for writing.
    pub fn is_writer(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether writes through this handle go to the end of the file.
    pub fn appends(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }

    /// The key of the log of the file's writes.
    pub fn key(&self) -> LogKey {
        (self.mount, self.origin)
    }

    /// The handle, if it is valid on this connection; an error if writes may be lost.
    pub fn at(&self, link: u64) -> Result<Option<Handle>, Errno> {
        if self.lost { Err(Errno::IO) } else { Ok((self.link == link).then_some(self.remote)) }
    }
}

/// `struct ceph_dir_result`.
pub struct Dir {
    /// The caller's number of its mount.
    pub mount: u64,
    /// The connection on which `remote` is valid.
    pub link: u64,
    /// The handle on that connection; `None` if the directory has only been read from a copy.
    pub remote: Option<Handle>,
    /// The inode.
    pub origin: Origin,
    /// The identity with which the directory was opened.
    pub identity: Arc<Identity>,
    /// Entries that have arrived, but were not read yet.
    pub batch: Arc<Mutex<EntryBatch>>,
}

/// Objects of one kind, by number. A number contains its kind and a generation. So a number is never mistaken for an object of another kind, or for
/// an earlier object in the same place.
pub struct HandleTable<T> {
    kind: u8,
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

const GENERATIONS: u32 = 1 << 23;

impl<T> HandleTable<T> {
    const fn new(kind: u8) -> HandleTable<T> {
        HandleTable { kind, places: Vec::new(), free: Vec::new() }
    }

    /// Adds an object and returns its number.
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
            return Err(Errno::INVAL);
        }
        let (kind, generation, index) =
            ((number >> 56) as u8, (number >> 32) as u32 & 0xff_ffff, number as u32 as usize);
        match self.places.get(index) {
            Some((current, Some(_))) if kind == self.kind && *current == generation => Ok(index),
            _ => Err(Errno::BADF),
        }
    }

    /// The object with this number.
    pub fn get(&mut self, number: u64) -> Result<&mut T, Errno> {
        let index = self.index(number)?;
        self.places[index].1.as_mut().ok_or(Errno::BADF)
    }

    /// Removes an object.
    pub fn remove(&mut self, number: u64) -> Result<T, Errno> {
        let index = self.index(number)?;
        self.free.push(index as u32);
        self.places[index].1.take().ok_or(Errno::BADF)
    }

    /// All objects.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    /// The numbers of all objects for which `which` holds.
    pub fn numbers(&self, which: impl Fn(&T) -> bool) -> Vec<u64> {
        let chosen = self.places.iter().enumerate().filter(|(_, (_, value))| value.as_ref().is_some_and(&which));
        chosen.map(|(index, (generation, _))| self.number(*generation, index as u32)).collect()
    }

    /// Removes all objects for which `which` holds.
    pub fn remove_all(&mut self, which: impl Fn(&T) -> bool) {
        for (index, (_, value)) in self.places.iter_mut().enumerate() {
            if value.as_ref().is_some_and(&which) {
                *value = None;
                self.free.push(index as u32);
            }
        }
    }
}

/// The library's state.
pub struct Tables {
    /// The current or last connection to each place.
    pub places: HashMap<u64, Arc<DaemonLink>>,
    /// The number of connections so far.
    pub links: u64,
    /// Connections up to this number belonged to the parent before a fork. Their objects do not belong to this process.
    pub parents: u64,
    /// The outages: places to which there is no connection although one is needed.
    pub outages: HashMap<u64, Outage>,
    /// Mounts that a thread prepares again at another daemon. Other threads wait.
    pub reviving: HashSet<u64>,
    /// The writes to the files that are open for writing.
    pub logs: HashMap<LogKey, WriteLog>,
    pub mounts: HandleTable<MountObject>,
    pub inodes: HandleTable<Inode>,
    pub files: HandleTable<FileObject>,
    pub dirs: HandleTable<Dir>,
    pub perms: HandleTable<Arc<Identity>>,
    /// The numbers of inodes, by mount, connection and the daemon's handle.
    pub known: HashMap<(u64, u64, Handle), u64>,
    /// The handles of identities, by connection.
    pub identities: HashMap<u64, HashMap<Arc<Identity>, Handle>>,
    /// Inodes that only the library holds.
    pub idle: Idle,
    /// The number of cached names.
    pub names: usize,
    /// The extended attributes requested last; an empty name stands for the list of attributes.
    pub wanted_xattrs: Vec<Box<[u8]>>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            places: HashMap::new(),
            links: 0,
            parents: 0,
            outages: HashMap::new(),
            reviving: HashSet::new(),
            logs: HashMap::new(),
            mounts: HandleTable::new(0x11),
            inodes: HandleTable::new(0x12),
            files: HandleTable::new(0x13),
            dirs: HandleTable::new(0x14),
            perms: HandleTable::new(0x15),
            known: HashMap::new(),
            identities: HashMap::new(),
            idle: Idle::default(),
            names: 0,
            wanted_xattrs: Vec::new(),
        }
    }
}

impl HandleTable<Arc<Identity>> {
    /// Whether this is a valid number of an identity.
    pub fn knows(&self, perms: Pointer) -> bool {
        perms as u64 == DEFAULT_PERMS || self.index(perms as u64).is_ok()
    }
}

impl Tables {
    /// An inode that the caller or the library holds.
    pub fn present(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes
            .get(number)
            .and_then(|inode| if inode.held > 0 || inode.pinned { Ok(inode) } else { Err(Errno::BADF) })
    }

    /// An inode that the caller holds.
    pub fn inode(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get(number).and_then(|inode| if inode.held > 0 { Ok(inode) } else { Err(Errno::BADF) })
    }

    /// Forgets what was valid on a connection: handles of identities, inodes that only the library holds, and copies.
    fn forget_link(&mut self, link: u64) {
        self.identities.remove(&link);
        self.known.retain(|(_, at, _), _| *at != link);
        self.inodes.remove_all(|inode| inode.held == 0 && inode.link == link);
        self.idle.retain(&mut self.inodes);
        self.inodes.all().filter(|inode| inode.link == link).for_each(Inode::forget_copies);
        self.files.all().for_each(|file| file.data.forget(link));
        self.recount();
    }

    /// Counts the cached names again.
    pub fn recount(&mut self) {
        self.names = self.inodes.all().map(|inode| inode.names.len()).sum();
    }

    /// The connection to a place, unless it is known to be dead.
    pub fn live_link(&self, place: u64) -> Option<Arc<DaemonLink>> {
        self.places.get(&place).filter(|link| !link.is_dead()).cloned()
    }

    /// The connection with this number, if it is the last connection to its place.
    fn last(&self, link: u64) -> Option<&Arc<DaemonLink>> {
        self.places.values().find(|last| last.id == link)
    }

    /// The connection with this number, unless it is known to be dead.
    pub fn live(&self, link: u64) -> Option<Arc<DaemonLink>> {
        self.last(link).filter(|link| !link.is_dead()).cloned()
    }

    /// Replaces a dead connection by a new one to the same place. If another thread was faster, returns that thread's connection.
    pub fn take_link(&mut self, mut link: DaemonLink) -> Arc<DaemonLink> {
        if let Some(theirs) = self.live_link(link.place) {
            return theirs;
        }
        self.links += 1;
        link.id = self.links;
        let link = Arc::new(link);
        self.outages.remove(&link.place);
        if let Some(gone) = self.places.insert(link.place, link.clone()) {
            self.daemon_gone(&gone);
            self.forget_link(gone.id);
        }
        link
    }

    /// Closes connections that neither a mount nor a thread uses: the connection to the lobby once everything is mounted, and the connection to a
    /// place once its mount is released.
    pub fn give_up_links(&mut self) {
        let unused: Vec<_> = self.places.extract_if(|_, link| Arc::strong_count(link) == 1).collect();
        unused.iter().for_each(|(_, link)| self.daemon_gone(link));
        let places = &self.places;
        self.identities.retain(|link, _| places.values().any(|last| last.id == *link));
    }

    /// Notes the end of a connection's daemon, and which flushes this daemon has completed.
    fn daemon_gone(&mut self, gone: &DaemonLink) {
        let flushed = gone.flushed();
        self.logs.values_mut().filter(|log| log.link == gone.id).for_each(|log| log.daemon_gone(flushed));
    }

    /// Notes which flushes a daemon has completed without a request.
    pub fn flushed(&mut self, link: &DaemonLink) {
        let flushed = link.flushed();
        if link.seen_flush.swap(flushed, Ordering::Relaxed) != flushed {
            self.logs.values_mut().filter(|log| log.link == link.id).for_each(|log| log.flushed(flushed));
        }
    }

    /// Adds an open file. `opened` contains the mark of the file's last change.
    pub fn add_file(&mut self, file: FileObject, opened: &Opened) -> u64 {
        if file.is_writer() {
            let log = self.logs.entry(file.key()).or_insert_with(WriteLog::numbered);
            log.writers += 1;
            log.opened(file.link, opened);
        }
        self.files.add(file)
    }

    /// Notes that a file was opened again, through this connection. Returns the file's handle. If another thread was faster, this is that thread's
    /// handle. A file that should have been restored before is lost.
    pub fn moved(&mut self, number: u64, link: u64, opened: &Opened) -> Result<Handle, Errno> {
        let file = self.files.get(number)?;
        if let Some(theirs) = file.at(link)? {
            return Ok(theirs);
        }
        let key = file.key();
        if file.is_writer()
            && let Some(log) = self.logs.get_mut(&key)
        {
            if log.is_to_be_restored() {
                self.lose(key);
                return Err(Errno::IO);
            }
            log.opened(link, opened);
        }
        let file = self.files.get(number)?;
        (file.link, file.remote) = (link, opened.file);
        Ok(opened.file)
    }

    /// Removes an open file.
    pub fn remove_file(&mut self, number: u64) -> Result<FileObject, Errno> {
        let file = self.files.remove(number)?;
        // If the file is lost, or belongs to the parent, its log is already gone.
        let has_log = file.is_writer() && !file.lost && file.link > self.parents;
        if has_log && let Entry::Occupied(mut log) = self.logs.entry(file.key()) {
            log.get_mut().writers -= 1;
            if log.get().writers == 0 {
                log.remove();
            }
        }
        Ok(file)
    }

    /// The log of a file that is open for writing; `None` if the file is not open for writing, or is lost.
    pub fn log(&mut self, file: Pointer) -> Result<Option<&mut WriteLog>, Errno> {
        let file = self.files.get(file as u64)?;
        Ok(if file.is_writer() && !file.lost { self.logs.get_mut(&file.key()) } else { None })
    }

    /// Gives up the kept writes to a file, which is then lost.
    pub fn lose(&mut self, key: LogKey) {
        let parents = self.parents;
        self.logs.remove(&key);
        self.files.all().filter(|file| file.key() == key && file.link > parents).for_each(|file| file.lost = true);
    }

    /// Whether Ceph may lack some of the writes to the files of a mount.
    pub fn has_unconfirmed(&self, mount: u64) -> bool {
        self.logs.iter().any(|((there, _), log)| *there == mount && log.is_unconfirmed())
    }

    /// Removes the files of a mount. Returns whether writes to them may be lost; the parent's files do not count.
    pub fn forget_files(&mut self, mount: u64) -> bool {
        let parents = self.parents;
        let lost = self.has_unconfirmed(mount)
            || self.files.all().any(|file| file.mount == mount && file.link > parents && file.lost);
        self.files.remove_all(|file| file.mount == mount);
        self.logs.retain(|(there, _), _| *there != mount);
        lost
    }

    /// Whether this is a current connection.
    pub fn is_current(&self, link: &DaemonLink) -> bool {
        self.last(link.id).is_some()
    }

    /// Adapts the state in a child that has just been forked.
    pub fn forked(&mut self) {
        self.identities.clear();
        self.reviving.clear();
        self.logs.clear();
        self.known.clear();
        self.inodes.remove_all(|inode| inode.held == 0);
        self.idle = Idle::default();
        self.mounts.all().for_each(|mount| mount.root = None);
        self.inodes.all().for_each(Inode::forget_copies);
        self.recount();
        self.files.all().for_each(|file| file.data = FileData::Unknown);
        self.parents = self.links;
        for (_, link) in self.places.drain() {
            link.abandon();
        }
        for mount in self.mounts.all() {
            mount.link.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use cephfs_proxy::wire::{ChangeMark, Timespec};

    use super::*;

    /// The daemon's answer when the file is opened there.
    fn opened(file: u64) -> Opened {
        let mark = ChangeMark { version: 10, ctime: Timespec { seconds: 1, nanoseconds: 0 } };
        Opened { file: Handle(file), mark, lineage: 9 }
    }

    /// Tables with a file that was opened for writing at the first daemon.
    fn with_file() -> (Tables, u64, LogKey) {
        let mut tables = Tables::default();
        let identity = Arc::new(Identity { uid: 0, gid: 0, groups: Vec::new() });
        let (origin, flags) = (Origin::Number { ino: 5, snapshot: 0 }, libc::O_RDWR);
        let file = FileObject {
            mount: 7,
            link: 1,
            remote: Handle(3),
            origin,
            flags,
            identity,
            position: 0,
            data: FileData::Unknown,
            lost: false,
        };
        let key = file.key();
        let number = tables.add_file(file, &opened(3));
        (tables, number, key)
    }

    #[test]
    fn a_file_is_used_at_the_next_daemon_if_nothing_of_it_may_be_missing_there() {
        let (mut tables, number, key) = with_file();
        tables.logs.get_mut(&key).unwrap().daemon_gone(0);
        assert_eq!(tables.moved(number, 2, &opened(4)), Ok(Handle(4)));
        assert_eq!(tables.moved(number, 2, &opened(6)), Ok(Handle(4)), "another thread was faster");
        assert_eq!(tables.logs[&key].link, 2);
    }

    #[test]
    fn a_file_whose_write_has_not_ended_at_a_daemon_that_is_gone_is_lost() {
        let (mut tables, number, key) = with_file();
        let log = tables.logs.get_mut(&key).unwrap();
        log.begin();
        log.daemon_gone(0);
        let (number_of_log, link) = (log.number, 2);
        assert_eq!(tables.moved(number, link, &opened(4)), Err(Errno::IO));
        assert!(tables.files.get(number).unwrap().lost && !tables.logs.contains_key(&key));
        assert_eq!(tables.moved(number, link, &opened(4)), Err(Errno::IO), "until it is closed");
        tables.remove_file(number).unwrap();
        let (mut tables, ..) = with_file();
        assert_ne!(
            tables.logs.values_mut().next().unwrap().number,
            number_of_log,
            "the late write does not count there"
        );
    }

    #[test]
    fn a_number_is_good_for_what_it_was_given_for_and_no_longer() {
        let (mut files, mut dirs) = (HandleTable::new(1), HandleTable::new(2));
        let (file, dir) = (files.add("file"), dirs.add("dir"));
        assert_eq!(files.get(file), Ok(&mut "file"));
        assert_eq!(files.get(dir), Err(Errno::BADF));
        assert_eq!(files.get(0), Err(Errno::INVAL));
        assert_eq!(files.get(u64::MAX), Err(Errno::BADF));
        assert_eq!(files.numbers(|value| *value == "file"), [file]);
        assert_eq!(files.remove(file), Ok("file"));
        let again = files.add("another");
        assert_ne!(again, file);
        assert_eq!(files.get(file), Err(Errno::BADF));
        assert_eq!(dirs.remove(dir), Ok("dir"));
    }
}
