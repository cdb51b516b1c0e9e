//! The flight recorder: the last operations of every kind on every CPU, overwritten in a circle.

use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapHandle};
use model::{Event, Nanos};

use crate::decode;

/// Records for each CPU: a power of two, so that the kernel side can mask, and at least 64.
pub(crate) fn per_cpu(records: u32, cpus: u32) -> u32 {
    let share = (records / cpus).max(64);
    1 << share.ilog2()
}

/// A copy of the recorder at one moment.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    bytes: Vec<u8>,
    record_size: usize,
    whole_since: Nanos,
}

impl Recorder {
    /// Every operation that ended after this is in it: of those that ended before, some CPU has overwritten its first.
    pub fn whole_since(&self) -> Nanos {
        self.whole_since
    }

    /// Every operation in it, oldest end first.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.events_since(0, usize::MAX)
    }

    /// The operations in it that ended at `since` or later, the newest `limit` of them, oldest end first.
    pub fn events_since(&self, since: u64, limit: usize) -> impl Iterator<Item = Event> + '_ {
        self.newest(since, limit).into_iter().filter_map(|at| decode::decode_record(self.record(at)))
    }

    /// A recorder of these alone, no larger than it must be.
    pub fn excerpt(&self, since: u64, limit: usize) -> Self {
        let order = self.newest(since, limit);
        let mut bytes = Vec::with_capacity(order.len() * self.record_size);
        order.into_iter().for_each(|at| bytes.extend_from_slice(self.record(at)));
        Self { bytes, record_size: self.record_size, whole_since: self.whole_since.max(since) }
    }

    /// Where these are.
    fn newest(&self, since: u64, limit: usize) -> Vec<usize> {
        let mut order: Vec<(u64, usize)> = self
            .records()
            .enumerate()
            .filter_map(|(index, record)| Some((end_of(record)?, index)))
            .filter(|(end, _)| *end != 0 && *end >= since)
            .collect();
        order.sort_unstable();
        let excess = order.len().saturating_sub(limit);
        order.into_iter().skip(excess).map(|(_, index)| index).collect()
    }

    fn record(&self, index: usize) -> &[u8] {
        let at = index * self.record_size;
        self.bytes.get(at..at + self.record_size).unwrap_or_default()
    }

    fn records(&self) -> std::slice::ChunksExact<'_, u8> {
        self.bytes.chunks_exact(self.record_size.max(1))
    }
}

/// When the newest was overwritten that is missing now, at the latest: the oldest end in the slice of a CPU that has gone
/// round, the latest of all CPUs.
fn whole_since(bytes: &[u8], record_size: usize, per_cpu: usize) -> Nanos {
    let slices = bytes.chunks_exact((record_size * per_cpu).max(1));
    let oldest = slices.filter_map(|slice| {
        let ends = || slice.chunks_exact(record_size).filter_map(end_of);
        // One that is being written has no end: either of the last two says that the circle has been closed.
        ends().skip(per_cpu.saturating_sub(2)).any(|end| end != 0).then(|| ends().filter(|end| *end != 0).min())?
    });
    oldest.max().unwrap_or_default()
}

/// Every record starts with the time of its end; 0 while it is being written.
fn end_of(record: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(..8)?.try_into().ok()?))
}

/// Copies the recorder's memory without a system call per record.
pub(crate) fn copy(map: &MapHandle, record_size: usize, per_cpu: u32) -> libbpf_rs::Result<Recorder> {
    use std::os::fd::AsFd;
    let length = record_size * map.max_entries() as usize;
    // SAFETY: a fresh shared mapping of a BPF_F_MMAPABLE array, read-only, of the array's own length.
    let memory = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, map.as_fd().as_raw_fd(), 0)
    };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let mut bytes = vec![0; length];
    // SAFETY: both are `length` bytes and distinct. The kernel side writes meanwhile: the bytes are integers, and a
    // record that changed under the copy is found and dropped below.
    unsafe { std::ptr::copy_nonoverlapping(memory.cast::<u8>(), bytes.as_mut_ptr(), length) };
    for (index, record) in bytes.chunks_exact_mut(record_size).enumerate() {
        // SAFETY: within the mapping; records are 8-byte aligned.
        let end_now = unsafe { memory.cast::<u8>().add(index * record_size).cast::<u64>().read_volatile() };
        if end_of(record) != Some(end_now) {
            record.fill(0);
        }
    }
    // SAFETY: the mapping made above, not used again.
    unsafe { libc::munmap(memory, length) };
    let whole_since = whole_since(&bytes, record_size, per_cpu as usize);
    Ok(Recorder { bytes, record_size, whole_since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_gets_the_same_power_of_two() {
        assert_eq!(per_cpu(32_768, 2), 16_384);
        assert_eq!(per_cpu(32_768, 3), 8_192);
        assert_eq!(per_cpu(1, 512), 64);
    }

    #[test]
    fn what_a_cpu_has_overwritten_is_not_claimed_to_be_there() {
        let recorder = |ends: [u64; 8]| ends.iter().flat_map(|end| end.to_ne_bytes()).collect::<Vec<_>>();
        let since = |ends| whole_since(&recorder(ends), 8, 4);
        assert_eq!(since([0; 8]), 0);
        assert_eq!(since([10, 20, 0, 0, 11, 12, 0, 0]), 0, "neither CPU has gone round");
        assert_eq!(since([50, 20, 30, 40, 11, 12, 0, 0]), 20, "one has, and lost what ended before 20");
        assert_eq!(since([50, 20, 30, 40, 81, 82, 79, 0]), 79, "as has the other, which is writing its last");
    }
}
