//! The flight recorder: the last operations of every kind on every CPU, overwritten in a circle.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd},
};

use libbpf_rs::{MapCore, MapHandle};
use model::{Event, Nanos};

use crate::{decode, generated::record};

/// Bytes of one record, `struct record` of bpf/event.h.
pub const RECORD_SIZE: usize = size_of::<record>();

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
    /// The copy holds every operation that ended after this time. Of the operations that ended earlier, at least one
    /// CPU has overwritten its first.
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

    /// A recorder of these records alone, no larger than necessary.
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

/// An upper bound of when the newest missing record was overwritten: the oldest end in the slice of each CPU whose ring
/// has wrapped around, and the latest of these ends over all CPUs.
fn whole_since(bytes: &[u8], record_size: usize, per_cpu: usize) -> Nanos {
    let slices = bytes.chunks_exact((record_size * per_cpu).max(1));
    let oldest = slices.filter_map(|slice| {
        let ends = || slice.chunks_exact(record_size).filter_map(end_of);
        // A record that is being written has no end time: that either of the last two has one shows that the ring has
        // wrapped around.
        ends().skip(per_cpu.saturating_sub(2)).any(|end| end != 0).then(|| ends().filter(|end| *end != 0).min())?
    });
    oldest.max().unwrap_or_default()
}

/// Every record starts with the time of its end; 0 while it is being written.
fn end_of(record: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(..8)?.try_into().ok()?))
}

/// The recorder's memory, mapped read-only.
struct RecorderMapping {
    memory: *const u8,
    length: usize,
}

impl RecorderMapping {
    fn new(map: &MapHandle, length: usize) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of a BPF_F_MMAPABLE array, read-only, of the array's own length.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, map.as_fd().as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { memory: memory.cast(), length })
    }

    /// Copies records to `to`, whose length is a multiple of [`RECORD_SIZE`]. The kernel side may write during the copy: a
    /// record that changed during the copy becomes all zero. Returns false if the records are not all within the mapping.
    fn copy(&self, first: usize, to: &mut [u8]) -> bool {
        let at = first * RECORD_SIZE;
        if at.checked_add(to.len()).is_none_or(|end| end > self.length) {
            return false;
        }
        // SAFETY: the range is within the mapping, checked above; `to` is memory of our own. The bytes are integers.
        unsafe { std::ptr::copy_nonoverlapping(self.memory.add(at), to.as_mut_ptr(), to.len()) };
        for (index, record) in to.chunks_exact_mut(RECORD_SIZE).enumerate() {
            // SAFETY: within the mapping; it begins at a page and records are 64 bytes, so the address is aligned.
            let end_now = unsafe { self.memory.add(at + index * RECORD_SIZE).cast::<u64>().read_volatile() };
            if end_of(record) != Some(end_now) {
                record.fill(0);
            }
        }
        true
    }
}

impl RecorderMapping {
    /// Records of a CPU, each given by the number of records that the CPU had written before it.
    fn records(&self, cpu: usize, per_cpu: u64, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize * RECORD_SIZE];
        for (index, record) in range.zip(bytes.chunks_exact_mut(RECORD_SIZE)) {
            self.copy((cpu as u64 * per_cpu + index % per_cpu) as usize, record);
        }
        bytes
    }
}

impl Drop for RecorderMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nothing refers to it any more.
        unsafe { libc::munmap(self.memory.cast_mut().cast(), self.length) };
    }
}

/// Copies the recorder's memory without a system call per record.
pub(crate) fn copy(map: &MapHandle, per_cpu: u32) -> libbpf_rs::Result<Recorder> {
    let length = RECORD_SIZE * map.max_entries() as usize;
    let mut bytes = vec![0; length];
    RecorderMapping::new(map, length)?.copy(0, &mut bytes);
    let whole_since = whole_since(&bytes, RECORD_SIZE, per_cpu as usize);
    Ok(Recorder { bytes, record_size: RECORD_SIZE, whole_since })
}

/// Records of one CPU, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The CPU on which the operations ended.
    pub cpu: u32,
    /// How many records this CPU had written before the first of these.
    pub first: u64,
    /// The records, [`RECORD_SIZE`] bytes each.
    pub bytes: Vec<u8>,
}

/// Where a reader of the recorder is, for each CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// The next record to be read.
    next: u64,
    /// The next record was being written when the reader last looked at it.
    awaited: bool,
}

/// Reads the recorder step by step: each call returns the records written since the previous call.
pub struct Tail {
    mapping: RecorderMapping,
    per_cpu: u64,
    cursors: Vec<Cursor>,
}

impl Tail {
    /// A reader that begins with the oldest record that is there.
    pub(crate) fn new(map: &MapHandle, per_cpu: u32) -> libbpf_rs::Result<Self> {
        let entries = map.max_entries();
        let mapping = RecorderMapping::new(map, RECORD_SIZE * entries as usize)?;
        let cursors = vec![Cursor::default(); (entries / per_cpu.max(1)) as usize];
        Ok(Self { mapping, per_cpu: per_cpu.into(), cursors })
    }

    /// An empty copy of the recorder, for [`RecorderCopy::apply`].
    pub fn ring(&self) -> Option<RecorderCopy> {
        RecorderCopy::new(u32::try_from(self.cursors.len()).ok()?, u32::try_from(self.per_cpu).ok()?)
    }

    /// What was written since the last call, and how many records were overwritten before they were read. `heads`: how many
    /// records each CPU has written so far; it is asked again afterwards.
    pub(crate) fn read(
        &mut self,
        heads: impl Fn() -> libbpf_rs::Result<Vec<u64>>,
    ) -> libbpf_rs::Result<(Vec<Slice>, u64)> {
        let (mut slices, mut lost) = (Vec::new(), 0);
        let before = heads()?;
        for (cpu, (cursor, head)) in self.cursors.iter_mut().zip(before).enumerate() {
            let first = cursor.next.max(head.saturating_sub(self.per_cpu));
            lost += first - cursor.next;
            let mut bytes = self.mapping.records(cpu, self.per_cpu, first..head);
            let is_whole = |record: &[u8]| end_of(record).is_some_and(|end| end != 0);
            // A record that is being written is waited for once.
            let skipped = usize::from(first == cursor.next && cursor.awaited) * RECORD_SIZE;
            let records = bytes.get(skipped..).unwrap_or_default().chunks_exact(RECORD_SIZE);
            let whole = skipped + records.take_while(|record| is_whole(record)).count() * RECORD_SIZE;
            let stopped = whole < bytes.len();
            bytes.truncate(whole);
            *cursor = Cursor { next: first + (whole / RECORD_SIZE) as u64, awaited: stopped };
            if bytes.chunks_exact(RECORD_SIZE).any(is_whole) {
                slices.push(Slice { cpu: cpu as u32, first, bytes });
            }
        }
        // A record that was overwritten during the read may mix two operations, or hold a later operation than its
        // place says.
        for (slice, head) in slices.iter_mut().filter_map(|slice| {
            let head = heads().ok()?.get(slice.cpu as usize).copied()?;
            Some((slice, head))
        }) {
            let overwritten = head.saturating_sub(self.per_cpu).saturating_sub(slice.first) as usize * RECORD_SIZE;
            let overwritten = overwritten.min(slice.bytes.len());
            slice.bytes.drain(..overwritten);
            slice.first += (overwritten / RECORD_SIZE) as u64;
            lost += (overwritten / RECORD_SIZE) as u64;
        }
        slices.retain(|slice| !slice.bytes.is_empty());
        Ok((slices, lost))
    }
}

/// The newest records since `seen`, about `most` of them, an equal part from each CPU that wrote any; and the number of records written. `seen` is
/// updated. The mapping does not remain.
pub(crate) fn newest(
    map: &MapHandle,
    per_cpu: u32,
    seen: &mut Vec<u64>,
    heads: Vec<u64>,
    most: usize,
) -> libbpf_rs::Result<(Vec<Slice>, u64)> {
    seen.resize(heads.len(), 0);
    let news: Vec<u64> = seen.iter().zip(&heads).map(|(before, head)| head.saturating_sub(*before)).collect();
    let writers = news.iter().filter(|new| **new > 0).count();
    let written = news.iter().sum();
    seen.clone_from(&heads);
    if writers == 0 {
        return Ok((Vec::new(), written));
    }
    let per_cpu = u64::from(per_cpu);
    let each = (most / writers).max(1) as u64;
    let mapping = RecorderMapping::new(map, RECORD_SIZE * map.max_entries() as usize)?;
    let mut slices = Vec::new();
    for (cpu, (new, head)) in news.into_iter().zip(heads).enumerate() {
        let first = head - new.min(each).min(per_cpu);
        slices.push(Slice { cpu: cpu as u32, first, bytes: mapping.records(cpu, per_cpu, first..head) });
    }
    Ok((slices, written))
}

/// A copy of the recorder that is kept up to date slice by slice.
#[derive(Debug, Clone)]
pub struct RecorderCopy {
    bytes: Vec<u8>,
    cpus: u32,
    per_cpu: u32,
}

/// No recorder is larger, in bytes.
const MOST_BYTES: usize = 64 << 20;

impl RecorderCopy {
    /// An empty recorder with this many records for each of this many CPUs; `None` if there is none of that shape.
    pub fn new(cpus: u32, per_cpu: u32) -> Option<Self> {
        let length = RECORD_SIZE.checked_mul(cpus as usize)?.checked_mul(per_cpu as usize)?;
        let sound = per_cpu.is_power_of_two() && length > 0 && length <= MOST_BYTES;
        sound.then(|| Self { bytes: vec![0; length], cpus, per_cpu })
    }

    /// CPUs, and records for each of them.
    pub fn shape(&self) -> (u32, u32) {
        (self.cpus, self.per_cpu)
    }

    /// Puts a slice in its place, over the old content. A slice of a CPU that the recorder does not have changes
    /// nothing.
    pub fn apply(&mut self, slice: &Slice) {
        let per_cpu = u64::from(self.per_cpu);
        if slice.cpu >= self.cpus {
            return;
        }
        for (index, record) in slice.bytes.chunks_exact(RECORD_SIZE).enumerate() {
            let slot = u64::from(slice.cpu) * per_cpu + slice.first.wrapping_add(index as u64) % per_cpu;
            let at = slot as usize * RECORD_SIZE;
            if let Some(place) = self.bytes.get_mut(at..at + RECORD_SIZE) {
                place.copy_from_slice(record);
            }
        }
    }

    /// The recorder as it is now.
    pub fn recorder(&self) -> Recorder {
        let whole_since = whole_since(&self.bytes, RECORD_SIZE, self.per_cpu as usize);
        Recorder { bytes: self.bytes.clone(), record_size: RECORD_SIZE, whole_since }
    }
}

/// The operations of a slice, in the order in which they ended.
pub fn operations(slice: &Slice) -> impl Iterator<Item = Event> + '_ {
    slice.bytes.chunks_exact(RECORD_SIZE).filter_map(decode::decode_record)
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
    fn a_ring_that_is_fed_slice_by_slice_holds_the_newest_of_each_cpu() {
        let record = |end: u64| {
            let mut bytes = vec![0; RECORD_SIZE];
            bytes[..8].copy_from_slice(&end.to_ne_bytes());
            bytes
        };
        let slice =
            |cpu, first, ends: &[u64]| Slice { cpu, first, bytes: ends.iter().flat_map(|end| record(*end)).collect() };
        let ends = |ring: &RecorderCopy| {
            let mut ends: Vec<_> = ring.recorder().records().filter_map(end_of).filter(|end| *end > 0).collect();
            ends.sort_unstable();
            ends
        };
        let mut ring = RecorderCopy::new(2, 4).unwrap();
        ring.apply(&slice(0, 0, &[1, 2]));
        ring.apply(&slice(1, 8, &[11]));
        assert_eq!((ends(&ring), ring.recorder().whole_since()), (vec![1, 2, 11], 0));
        ring.apply(&slice(0, 2, &[3, 4, 5]));
        assert_eq!((ends(&ring), ring.recorder().whole_since()), (vec![2, 3, 4, 5, 11], 2));
        ring.apply(&slice(7, 0, &[99]));
        ring.apply(&Slice { cpu: 0, first: u64::MAX, bytes: vec![1; RECORD_SIZE + 5] });
        assert!(
            RecorderCopy::new(0, 4).is_none()
                && RecorderCopy::new(2, 3).is_none()
                && RecorderCopy::new(u32::MAX, 1 << 31).is_none()
        );
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
