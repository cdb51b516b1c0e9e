//! The best rung: one system call walks all tasks and writes what it finds into memory of ours.

use std::{fs, io, os::fd::AsFd, os::fd::AsRawFd, os::unix::fs::MetadataExt, ptr::NonNull};

use libbpf_rs::{MapCore, Object, ProgramInput};

use crate::{
    generated::{Plain, task_record, walk_options},
    iterator::open,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tasks.bpf.o"));

pub(crate) struct TaskWalk {
    object: Object,
    records: ArrayMapping,
    options: walk_options,
    most: u32,
}

impl TaskWalk {
    /// With room for the current number of tasks, and a quarter more.
    pub fn load(options: walk_options, most: u32) -> libbpf_rs::Result<Self> {
        Self::with_room(options, most, expected(options.threads != 0))
    }

    fn with_room(options: walk_options, most: u32, expected: u32) -> libbpf_rs::Result<Self> {
        let room = expected.saturating_add(expected / 4).saturating_add(256).clamp(1, most.max(1));
        let mut object = open(OBJECT, options.as_bytes())?;
        for mut map in object.maps_mut().filter(|map| map.name() == "records") {
            map.set_max_entries(room)?;
        }
        let object = object.load()?;
        let map = object.maps().find(|map| map.name() == "records");
        let map = map.ok_or_else(|| io::Error::other("the object has no map"))?;
        let records = ArrayMapping::of(map.as_fd().as_raw_fd(), room as usize)?;
        Ok(Self { object, records, options, most })
    }

    /// The records, and how many there would be with room for all.
    pub fn run(&mut self) -> libbpf_rs::Result<(&[task_record], usize)> {
        let mut found = self.walk()?;
        if found > self.records.length && self.records.length < self.most as usize {
            *self = Self::with_room(self.options, self.most, u32::try_from(found).unwrap_or(u32::MAX))?;
            found = self.walk()?;
        }
        Ok((self.records.first(found), found))
    }

    /// Returns the number of tasks that the walk has found.
    pub fn walk(&self) -> libbpf_rs::Result<usize> {
        let program = self.object.progs_mut().next().ok_or_else(|| io::Error::other("the object has no program"))?;
        Ok(program.test_run(ProgramInput::default())?.return_value as usize)
    }
}

/// How many tasks there are: the number of links of /proc is the number of processes, and the fourth word of loadavg has the
/// number of threads.
fn expected(threads: bool) -> u32 {
    let processes = || u32::try_from(fs::metadata("/proc").ok()?.nlink()).ok();
    let of_loadavg = || fs::read_to_string("/proc/loadavg").ok()?.split([' ', '/']).nth(4)?.parse().ok();
    (if threads { of_loadavg() } else { processes() }).unwrap_or(4096)
}

/// The memory of an array that can be mapped.
struct ArrayMapping {
    at: NonNull<task_record>,
    length: usize,
}

impl ArrayMapping {
    fn of(map: i32, length: usize) -> io::Result<Self> {
        let bytes = length * size_of::<task_record>();
        // SAFETY: a fresh shared mapping of a BPF_F_MMAPABLE array, read-only, of the array's own length.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, map, 0) };
        match NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED) {
            Some(at) => Ok(Self { at, length }),
            None => Err(io::Error::last_os_error()),
        }
    }

    fn first(&self, count: usize) -> &[task_record] {
        // SAFETY: the mapping is page-aligned, lives as long as self, and holds `length` records of integers; the kernel side writes
        // only while walk() runs, which takes the borrow that this one ends.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), count.min(self.length)) }
    }
}

impl Drop for ArrayMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in of(), not used again.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length * size_of::<task_record>()) };
    }
}
