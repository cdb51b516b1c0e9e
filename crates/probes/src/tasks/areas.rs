//! Files that processes have mapped.

use model::MountKey;

use crate::{
    generated::{Plain, area_record},
    iterator::KernelIterator,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/task_areas.bpf.o"));

/// The iterator over parts of memory, loaded. Reading it waits for processes that hang while they change their memory map.
pub struct Areas(KernelIterator);

impl Areas {
    /// Loads it.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it: it takes BTF and permission.
    pub fn load() -> libbpf_rs::Result<Self> {
        KernelIterator::load(OBJECT, &[]).map(Self)
    }

    /// Shows each part that a file is mapped to, process by process.
    ///
    /// # Errors
    ///
    /// When reading fails.
    pub fn each(&self, mut show: impl FnMut(&Area)) -> libbpf_rs::Result<()> {
        self.0.each(|bytes| {
            let record = area_record::from_bytes(bytes)?;
            let end = size_of::<area_record>() + record.path_length as usize;
            show(&Area { record, path: bytes.get(size_of::<area_record>()..end)? });
            Some(end)
        })
    }
}

/// A part of a process's memory, and the file behind it.
pub struct Area<'a> {
    record: area_record,
    path: &'a [u8],
}

impl Area<'_> {
    /// The process that the memory belongs to, by its number.
    pub fn tgid(&self) -> u32 {
        self.record.tgid
    }

    /// The first address, and that behind the last.
    pub fn range(&self) -> (u64, u64) {
        (self.record.start, self.record.end)
    }

    /// `rwxs` or `rwxp` as in `/proc/PID/maps`, with `-` for what is not allowed.
    pub fn permissions(&self) -> String {
        let letters = [(1, 'r'), (2, 'w'), (4, 'x')];
        let allowed = letters.map(|(bit, letter)| if self.record.flags & bit == 0 { '-' } else { letter });
        allowed.into_iter().chain([if self.record.flags & 8 == 0 { 'p' } else { 's' }]).collect()
    }

    /// The superblock's device.
    pub fn device(&self) -> MountKey {
        MountKey(u64::from(self.record.device))
    }

    /// Inode number.
    pub fn inode(&self) -> u64 {
        self.record.inode
    }

    /// The file's path as the process's mount namespace has it; empty if the kernel does not say.
    pub fn path(&self) -> &[u8] {
        self.path
    }
}
