//! The last rung, for kernels without BTF or permission: /proc, file by file. One buffer serves all processes.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};

use crate::generated::task_record;

/// USER_HZ, in which /proc counts time: 100 but on Alpha and IA-64.
const TICK_NS: u64 = 1_000_000_000 / 100;
/// PF_KTHREAD, include/linux/sched.h.
const TASK_OF_KERNEL: u64 = 0x0020_0000;

/// All processes or threads that exist now. One that ends during the walk is left out.
pub(super) fn read(threads: bool) -> io::Result<Vec<task_record>> {
    let (mut reader, mut records) = (ProcReader::default(), Vec::new());
    for pid in numbers("/proc")? {
        if !threads {
            records.extend(reader.record(pid, pid, false));
            continue;
        }
        for tid in numbers(&format!("/proc/{pid}/task")).into_iter().flatten() {
            records.extend(reader.record(pid, tid, true));
        }
    }
    Ok(records)
}

/// `None` if it does not sleep, or has ended.
pub(super) fn wait_channel(pid: u32, tid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).ok().filter(|name| !name.is_empty() && name != "0")
}

fn numbers(folder: &str) -> io::Result<impl Iterator<Item = u32> + use<>> {
    Ok(fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

#[derive(Default)]
struct ProcReader {
    path: String,
    text: Vec<u8>,
}

impl ProcReader {
    fn record(&mut self, pid: u32, tid: u32, thread: bool) -> Option<task_record> {
        let mut record = task_record { tgid: pid, pid: tid, ..task_record::default() };
        let folder = |path: &mut String| {
            if thread { write!(path, "/proc/{pid}/task/{tid}/") } else { write!(path, "/proc/{pid}/") }
        };
        stat(self.file(folder, "stat")?, &mut record)?;
        let status = self.file(folder, "status")?;
        record.uid = named(status, b"Uid:")? as u32;
        record.gid = named(status, b"Gid:")? as u32;
        // Reading this of another user's process needs more permission than reading the rest.
        if let Some(io) = self.file(folder, "io") {
            record.read_chars = named(io, b"rchar:").unwrap_or(0);
            record.written_chars = named(io, b"wchar:").unwrap_or(0);
            record.read_bytes = named(io, b"read_bytes:").unwrap_or(0);
            record.written_bytes = named(io, b"write_bytes:").unwrap_or(0);
        }
        Some(record)
    }

    fn file(&mut self, folder: impl Fn(&mut String) -> std::fmt::Result, name: &str) -> Option<&[u8]> {
        self.path.clear();
        self.text.clear();
        folder(&mut self.path).ok()?;
        self.path.push_str(name);
        File::open(&self.path).ok()?.take(8 << 10).read_to_end(&mut self.text).ok()?;
        Some(&self.text)
    }
}

/// The name is in brackets and may itself hold brackets, spaces and line breaks: what follows the last one counts.
fn stat(text: &[u8], record: &mut task_record) -> Option<()> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let name = text.get(open + 1..close)?;
    record.comm.iter_mut().take(15).zip(name).for_each(|(to, from)| *to = *from as _);
    // proc_pid_stat(5) counts from 1; behind the name comes 3, the state.
    let mut fields = std::str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace();
    record.state = *fields.next()?.as_bytes().first()?;
    let mut at = 3;
    let mut number = |field: usize| {
        let found = fields.nth(field - at - 1)?.parse::<u64>().ok();
        at = field;
        found
    };
    record.ppid = number(4)? as u32;
    record.kernel = u8::from(number(9)? & TASK_OF_KERNEL != 0);
    record.cpu_ns = number(14)? * TICK_NS;
    record.cpu_ns += number(15)? * TICK_NS;
    record.threads = number(20)? as u32;
    record.start = number(22)? * TICK_NS;
    record.rss_pages = number(24)?;
    Some(())
}

/// The first number behind a name at the beginning of a line.
fn named(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_hides_nothing() {
        let mut record = task_record::default();
        let text =
            b"42 (a) (b 7) S 17 42 42 0 -1 2097216 0 0 0 0 150 50 0 0 20 0 3 0 1000 4096 77 18446744073709551615";
        stat(text, &mut record).unwrap();
        assert_eq!((record.state, record.ppid, record.kernel, record.threads), (b'S', 17, 1, 3));
        assert_eq!((record.cpu_ns, record.start, record.rss_pages), (2_000_000_000, 10_000_000_000, 77));
        assert!(stat(b"42", &mut record).is_none());
    }
}
