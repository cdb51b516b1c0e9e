//! The files that a process has mapped (proc_pid_maps(5)).

use std::fs;

use model::MountKey;

use crate::aside::aside;

/// Processes whose mappings are read at a time.
const AT_A_TIME: usize = 32;

/// A file as the kernel names it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub device: MountKey,
    pub inode: u64,
}

/// A file that may be a library or a program, with the first of its mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedFile {
    pub file: FileId,
    /// `7f0000000000-7f0000001000`: its name in map_files.
    pub range: String,
    /// As the process sees it.
    pub path: String,
}

/// Those of a process, each file once; none if it is gone, or its memory is locked for long.
pub(super) fn of(pid: u32) -> Vec<MappedFile> {
    aside(move || read(pid)).unwrap_or_default()
}

/// The mappings of many processes. Several processes are read at a time. If that takes long, they are read one by one,
/// because one of them may be the cause.
pub(super) fn of_all(pids: &[u32]) -> impl Iterator<Item = (u32, Vec<MappedFile>)> {
    pids.chunks(AT_A_TIME).flat_map(|some| {
        let asked = some.to_vec();
        let read = aside(move || asked.into_iter().map(|pid| (pid, read(pid))).collect::<Vec<_>>());
        read.unwrap_or_else(|| some.iter().map(|pid| (*pid, of(*pid))).collect())
    })
}

fn read(pid: u32) -> Vec<MappedFile> {
    parse(&fs::read(format!("/proc/{pid}/maps")).unwrap_or_default())
}

fn parse(text: &[u8]) -> Vec<MappedFile> {
    let mut found: Vec<MappedFile> = Vec::new();
    for mapping in text.split(|byte| *byte == b'\n').filter_map(parse_line) {
        if !found.iter().any(|other| other.file == mapping.file) {
            found.push(mapping);
        }
    }
    found
}

/// Range, permissions, offset, device, inode, and the path behind some blanks.
fn parse_line(line: &[u8]) -> Option<MappedFile> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(6, ' ');
    let (range, permissions, device, inode) = (fields.next()?, fields.next()?, fields.nth(1)?, fields.next()?);
    let path = fields.next()?.trim_start();
    let inode = inode.parse().ok().filter(|inode| *inode != 0)?;
    if !path.starts_with('/') || !(permissions.contains('x') || path.contains(".so")) {
        return None;
    }
    let (major, minor) = device.split_once(':')?;
    let [major, minor] = [major, minor].map(|number| u32::from_str_radix(number, 16).ok());
    let file = FileId { device: MountKey::device(major?, minor?), inode };
    Some(MappedFile { file, range: range.to_owned(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_programs_are_found_each_once() {
        let found = parse(
            b"\
55d0a0000000-55d0a0001000 r--p 00000000 08:01 131 /usr/bin/a b
55d0a0001000-55d0a0002000 r-xp 00001000 08:01 131 /usr/bin/a b
7f0000000000-7f0000001000 r--p 00000000 00:2a 77                         /x/libmpi.so.40 (deleted)
7f0000001000-7f0000002000 r-xp 00001000 00:2a 77                         /x/libmpi.so.40 (deleted)
7f0000003000-7f0000004000 rw-s 00000000 00:01 5                          /dev/shm/data
7f0000005000-7f0000006000 r-xp 00000000 00:00 0                          [vdso]
garbage
",
        );
        let brief: Vec<_> = found.iter().map(|m| (m.file.inode, m.range.as_str(), m.path.as_str())).collect();
        assert_eq!(
            brief,
            [
                (131, "55d0a0001000-55d0a0002000", "/usr/bin/a b"),
                (77, "7f0000000000-7f0000001000", "/x/libmpi.so.40 (deleted)")
            ]
        );
        assert_eq!(found[1].file.device, MountKey::device(0, 42));
    }

    #[test]
    fn this_process_has_mapped_its_program() {
        let own = std::env::current_exe().unwrap();
        assert!(of(std::process::id()).iter().any(|mapping| mapping.path == own.to_string_lossy()));
        assert!(of(u32::MAX).is_empty());
    }
}
