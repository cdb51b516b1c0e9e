//! Reads a hash map with few system calls and without an allocation for each entry.
//!
//! libbpf-rs's `lookup_batch` is not used, because it takes a batch that is not full for the last one. For a hash map, the kernel
//! ends a batch before the first bucket that has more entries than the batch has room left (__htab_map_lookup_and_delete_batch()
//! of kernel/bpf/hashtab.c), so few batches are full. The last batch is the one that ends with ENOENT.

use std::{io, os::fd::AsRawFd, ptr};

use libbpf_rs::{MapCore, libbpf_sys};
use nix::errno::Errno;

/// Entries in a batch. A bucket of the kernel's table with more entries than this takes a larger batch.
const BATCH: usize = 256;

/// Shows the key and value of each entry of a hash map. No entry is shown twice. An entry that is added during the walk
/// may not be shown.
pub(crate) fn each(map: &impl MapCore, mut show: impl FnMut(&[u8], &[u8])) -> libbpf_rs::Result<()> {
    let (key_size, value_size) = (map.key_size() as usize, map.value_size() as usize);
    let most = (map.max_entries() as usize).max(BATCH);
    let mut room = BATCH.min(most);
    let (mut keys, mut values) = (vec![0_u8; room * key_size], vec![0_u8; room * value_size]);
    // The position at which the kernel continues: for hash maps, the number of a bucket.
    let mut next: Option<u32> = None;
    loop {
        let from = next;
        let (mut to, mut count) = (0_u32, u32::try_from(room).unwrap_or(u32::MAX));
        // SAFETY: `keys` and `values` have room for `count` entries of the map's own sizes, and the kernel writes no more than
        // that; `from` and `to` are as large as a hash map's position (a u32); options may be missing.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from.as_ref().map_or(ptr::null_mut(), |from| ptr::from_ref(from).cast_mut().cast()),
                (&raw mut to).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                ptr::null(),
            )
        };
        let error = (result < 0).then(|| Errno::from_raw(-result));
        match error {
            None | Some(Errno::ENOENT) => {
                let entries = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size));
                entries.take(count as usize).for_each(|(key, value)| show(key, value));
                if error.is_some() {
                    return Ok(());
                }
                next = Some(to);
            }
            Some(Errno::EINTR) => {}
            Some(Errno::ENOSPC) if room < most => {
                room = (room * 2).min(most);
                keys.resize(room * key_size, 0);
                values.resize(room * value_size, 0);
            }
            Some(error) => return Err(io::Error::from(error).into()),
        }
    }
}
