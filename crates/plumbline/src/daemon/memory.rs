//! Returns memory to the kernel after rare work: loading BPF programs and writing bundles take megabytes.

use std::{ffi::c_void, ptr::NonNull};

use nix::sys::mman::{MmapAdvise, madvise};
use procfs::{
    ProcResult,
    process::{MMPermissions, MMapPath, MemoryPageFlags, PageInfo, Process},
};

/// Makes the C library return large blocks to the kernel at once. Reading the kernel's types while probes are attached, and compression while a
/// bundle is written, take some MiB each, and the next time may be days away. By default, the C library raises its threshold after the first such
/// block and keeps later ones.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes no pointer and may be called at any time.
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Returns the free memory of the heap to the kernel.
pub fn release_free_memory() {
    // SAFETY: malloc_trim has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Drops the resident pages of the program file, and the heap's free memory. Pages that are needed again are mapped
/// from the page cache one by one. The code for starting, or for an incident, stays out of memory.
pub fn release_program() {
    if let Err(error) = release_own_pages() {
        tracing::debug!(%error, "the program's own pages stay in memory");
    }
    release_free_memory();
}

/// Drops the program's read-only pages. Returns how many bytes they had.
fn release_own_pages() -> ProcResult<usize> {
    let process = Process::myself()?;
    let (program, mut pages) = (process.exe()?, process.pagemap()?);
    let page = usize::try_from(procfs::page_size()).unwrap_or(4096);
    let mut released = 0;
    for map in process.maps()? {
        let is_program = matches!(&map.pathname, MMapPath::Path(path) if *path == program);
        if !is_program || map.perms.contains(MMPermissions::WRITE) {
            continue;
        }
        let (from, to) = map.address;
        let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else { continue };
        let infos = pages.get_range_info(from / page..to / page)?;
        let mut at = from;
        for run in infos.chunk_by(|one, other| is_as_in_file(one) == is_as_in_file(other)) {
            let length = run.len() * page;
            if let Some(address) = NonNull::new(at as *mut c_void).filter(|_| run.iter().all(is_as_in_file)) {
                // SAFETY: these pages are read-only and equal the file's. The next access maps the same content from
                // the file.
                unsafe { madvise(address, length, MmapAdvise::MADV_DONTNEED) }.map_err(std::io::Error::from)?;
                released += length;
            }
            at += length;
        }
    }
    Ok(released)
}

/// Whether a page is resident and backed by the file. A page that the loader relocated, or in which a tracer set a
/// breakpoint, is a private copy: dropping it would lose the change.
fn is_as_in_file(page: &PageInfo) -> bool {
    matches!(page, PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT | MemoryPageFlags::FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_the_program_is_given_back_and_it_goes_on() {
        let program = std::fs::metadata("/proc/self/exe").unwrap().len();
        let released = release_own_pages().unwrap();
        assert!(released > 1 << 20, "{released} of a file of {program} bytes");
        assert!(release_own_pages().is_ok());
    }
}
