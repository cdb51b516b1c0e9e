//! Memory that processes share: a sealed memfd(2), and mappings of it.

use std::{
    ffi::c_void,
    os::fd::{AsFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::{Errno, Result},
    mm::{Advice, MapFlags, ProtFlags},
};

/// Creates memory of `size` bytes, all zero. The caller adds the seals (fcntl(2), F_ADD_SEALS).
///
/// # Errors
///
/// When the kernel refuses the memory.
pub fn create(name: &str, size: usize) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size as u64)?;
    Ok(fd)
}

/// Seals the size of the memory, and adds the seals `more`. Nobody can change the sealed properties afterwards.
///
/// # Errors
///
/// When the kernel does not support the seals.
pub fn seal(fd: &OwnedFd, more: SealFlags) -> Result<()> {
    rustix::fs::fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | more)
}

/// Copies bytes that the other process may change meanwhile, by atomic loads.
///
/// # Safety
///
/// `from` is aligned to 8 bytes, and `to.len()` bytes from there are mapped.
pub unsafe fn copy_from_peer(from: *mut u8, to: &mut [u8]) {
    let (words, rest) = to.as_chunks_mut::<8>();
    let mut from_word = from.cast::<u64>();
    for word in words {
        // SAFETY: the word is mapped and aligned; for an atomic, all bytes are valid.
        unsafe {
            *word = AtomicU64::from_ptr(from_word).load(Ordering::Relaxed).to_ne_bytes();
            from_word = from_word.add(1);
        }
    }
    let mut from_byte = from_word.cast::<u8>();
    for byte in rest {
        // SAFETY: the byte is mapped; for an atomic, all bytes are valid.
        unsafe {
            *byte = AtomicU8::from_ptr(from_byte).load(Ordering::Relaxed);
            from_byte = from_byte.add(1);
        }
    }
}

/// A mapping of shared memory, until this value is dropped.
pub struct SharedMemory {
    base: NonNull<c_void>,
    size: usize,
}

// SAFETY: the value only owns the mapping and returns its address. The code that uses the address is responsible for the access.
unsafe impl Send for SharedMemory {}
// SAFETY: the value only owns the mapping and returns its address. The code that uses the address is responsible for the access.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps memory that has `size` bytes.
    ///
    /// # Errors
    ///
    /// EPROTO when it has another size, or when the kernel refuses the mapping.
    pub fn map(fd: impl AsFd, size: usize, access: ProtFlags) -> Result<SharedMemory> {
        if u64::try_from(rustix::fs::fstat(&fd)?.st_size) != Ok(size as u64) {
            return Err(Errno::PROTO);
        }
        // SAFETY: the kernel chooses the address, so the mapping replaces none.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), size, access, MapFlags::SHARED, fd, 0)? };
        NonNull::new(base).map(|base| SharedMemory { base, size }).ok_or(Errno::NOMEM)
    }

    /// Keeps forked children from inheriting the mapping: a child has nothing at this address.
    pub fn not_in_children(&self) {
        // SAFETY: the range is this value's own mapping, and the advice does not change its content.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr(), self.size, Advice::LinuxDontFork) };
    }

    /// Keeps the mapping out of core dumps. A dump would make the kernel allocate all absent pages, and would contain the data of others.
    pub fn not_in_core_dumps(&self) {
        // SAFETY: the range is this value's own mapping, and the advice does not change its content.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr(), self.size, Advice::LinuxDontDump) };
    }

    /// The mapping's address, which is aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it with this size, and what borrows from its owner does not outlive the value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_from_a_peer_is_all_of_it() {
        let words: Vec<u64> = (0..8).map(|word| word * 0x0101_0101_0101_0101).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for length in 0..=bytes.len() {
            let mut copy = vec![0xFF; length];
            // SAFETY: the words are aligned, and there are at least as many bytes.
            unsafe { copy_from_peer(words.as_ptr().cast_mut().cast(), &mut copy) };
            assert_eq!(copy, bytes[..length]);
        }
    }
}
