//! Gives memory back that is needed only now and then: loading programs and writing bundles take megabytes.

use std::{ffi::c_void, ptr::NonNull};

use nix::sys::mman::{MmapAdvise, madvise};
use procfs::{
    ProcResult,
    process::{MMPermissions, MMapPath, MemoryPageFlags, PageInfo, Process},
};

/// Gives back what was allocated and is free.
pub fn release_free_memory() {
    // SAFETY: malloc_trim has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Gives back the parts of the program that are in memory. Those that are needed again come back from the page cache one by one; those for
/// starting, and for an incident, do not.
pub fn release_program() {
    if let Err(error) = release_own_pages() {
        tracing::debug!(%error, "the program's own pages stay in memory");
    }
    release_free_memory();
}

/// Returns how many bytes that was.
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
                // SAFETY: these pages are read-only and as the file has them. Whoever touches one finds the same content, read anew.
                unsafe { madvise(address, length, MmapAdvise::MADV_DONTNEED) }.map_err(std::io::Error::from)?;
                released += length;
            }
            at += length;
        }
    }
    Ok(released)
}

/// Whether a page is in memory as the file has it. What the loader has relocated, and where a tracer has set a breakpoint, is a copy, and nowhere else.
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
