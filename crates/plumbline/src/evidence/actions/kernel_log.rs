//! The end of the kernel log.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};
use nix::libc;

use super::{ActionInput, procfs};
use crate::evidence::output::Output;

/// How many bytes of the log's end are kept.
const TAIL: u64 = 256 << 10;
/// The longest record, bytes: the kernel's PRINTK_MESSAGE_MAX is 2 KiB, and escaping can quadruple it.
const RECORD: usize = 8 << 10;

/// The newest records, oldest first.
pub fn dmesg(_: &ActionInput, out: &mut Output) -> Result<()> {
    let mut log = procfs::open(Path::new("/dev/kmsg"))?;
    // Reads the log twice instead of holding it in memory: the first time to learn its length.
    let mut total = 0;
    each_record(&mut log, |line| {
        total += line.len() as u64;
        out.check()
    })
    .context("cannot read /dev/kmsg")?;
    log.seek(SeekFrom::Start(0))?;
    let mut skip = total.saturating_sub(TAIL.min(out.left()));
    if skip > 0 {
        writeln!(out, "(earlier records are left out)")?;
    }
    Ok(each_record(&mut log, |line| {
        let before = skip;
        skip = skip.saturating_sub(line.len() as u64);
        if before > 0 { Ok(()) } else { out.write_all(line.as_bytes()) }
    })?)
}

fn each_record(log: &mut File, mut see: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let mut record = vec![0; RECORD];
    loop {
        match log.read(&mut record) {
            Ok(0) => return Ok(()),
            Ok(count) => see(&line(record.get(..count).unwrap_or_default()))?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // EPIPE: the record was overwritten before it was read. The next read returns the oldest that is left.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Formats a record as `dmesg --raw` does. A record is `priority,sequence,microseconds,flags;text`, then lines of
/// attributes (Documentation/ABI/testing/dev-kmsg).
fn line(record: &[u8]) -> String {
    let text = String::from_utf8_lossy(record.split(|byte| *byte == b'\n').next().unwrap_or_default());
    let (prefix, message) = text.split_once(';').unwrap_or(("", &text));
    let mut fields = prefix.split(',');
    let priority: u32 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(6);
    let time: u64 = fields.nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    let message = model::text::printable(message.as_bytes());
    format!("<{}>[{:5}.{:06}] {message}\n", priority & 7, time / 1_000_000, time % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_with_its_level_and_time() {
        let record = b"30,339,5140900,-;CIFS: VFS: \\\\srv has not responded\x1b\n SUBSYSTEM=net\n DEVICE=x\n";
        assert_eq!(line(record), "<6>[    5.140900] CIFS: VFS: \\\\srv has not responded\\x1b\n");
    }
}
