//! Open files, of all processes, without asking a file system for anything.

use model::{MountKey, text::Text};

use crate::{
    generated::{Plain, file_record},
    iterator::KernelIterator,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/task_files.bpf.o"));

/// The iterator over open files, loaded.
pub struct FileIterator(KernelIterator);

impl FileIterator {
    /// Loads it.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it: it takes BTF and permission.
    pub fn load() -> libbpf_rs::Result<Self> {
        KernelIterator::load(OBJECT, &[]).map(Self)
    }

    /// Shows each file that is open now, process by process.
    ///
    /// # Errors
    ///
    /// When reading fails.
    pub fn each(&self, mut show: impl FnMut(&OpenFile)) -> libbpf_rs::Result<()> {
        self.0.each(|bytes| {
            let record = file_record::from_bytes(bytes)?;
            let end = size_of::<file_record>() + record.path_length as usize;
            show(&OpenFile { record, path: bytes.get(size_of::<file_record>()..end)? });
            Some(end)
        })
    }
}

/// A descriptor and what it leads to.
pub struct OpenFile<'a> {
    record: file_record,
    path: &'a [u8],
}

impl OpenFile<'_> {
    /// The process that has the descriptor, by its number.
    pub fn tgid(&self) -> u32 {
        self.record.tgid
    }

    /// The descriptor.
    pub fn fd(&self) -> u32 {
        self.record.fd
    }

    /// The thread's name.
    pub fn comm(&self) -> Text<16> {
        Text::new(&self.record.comm.map(|byte| byte as u8))
    }

    /// The superblock's device.
    pub fn device(&self) -> MountKey {
        MountKey(u64::from(self.record.device))
    }

    /// The mount's id, as in `/proc/PID/mountinfo`.
    pub fn mount(&self) -> u32 {
        self.record.mount
    }

    /// Inode number.
    pub fn inode(&self) -> u64 {
        self.record.inode
    }

    /// Where reading or writing goes on, bytes.
    pub fn position(&self) -> u64 {
        self.record.position
    }

    /// As open(2) has them.
    pub fn flags(&self) -> u32 {
        self.record.flags
    }

    /// st_mode: what kind of file it is, and who may use it.
    pub fn mode(&self) -> u32 {
        self.record.mode
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.record.mode & libc::S_IFMT == libc::S_IFSOCK
    }

    /// Type of the file system: `nfs4`, `fuse.sshfs`.
    pub fn fstype(&self) -> String {
        let [kind, sub] =
            [self.record.fstype, self.record.subtype].map(|text| Text::<16>::new(&text.map(|byte| byte as u8)));
        if sub.is_empty() { kind.to_string() } else { format!("{kind}.{sub}") }
    }

    /// Its path as the process's mount namespace has it, `socket:[17]` of what has none; empty if the kernel does not say.
    pub fn path(&self) -> &[u8] {
        self.path
    }
}
