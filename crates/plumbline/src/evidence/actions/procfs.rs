//! Reads files of /proc in pieces of bounded size, without waiting, and within the caller's limits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use model::text::printable;
use nix::libc;

use crate::evidence::output::Output;

/// Opens a file for reading, without waiting even if it is a FIFO.
pub fn open(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    opened.with_context(|| format!("cannot read {}", path.display()))
}

/// Copies a file to the output.
///
/// # Errors
/// If it cannot be opened or read, or the output takes no more.
pub fn copy(path: &Path, out: &mut Output) -> Result<()> {
    copy_from(&mut open(path)?, out).with_context(|| format!("cannot read {}", path.display()))
}

/// Copies the rest of a file to the output.
///
/// # Errors
/// If it cannot be read, or the output takes no more.
pub fn copy_from(from: &mut impl Read, out: &mut Output) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        out.check()?;
        let count = from.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { return Ok(()) };
        out.write_all(read)?;
    }
}

/// A small file's content, at most `limit` bytes, as text that is safe to print; tabs and line breaks stay. Empty if
/// the file cannot be read, as a process may end at any time.
pub fn small(path: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    let read = open(path).map(|file| file.take(limit).read_to_end(&mut bytes));
    if !matches!(read, Ok(Ok(_))) {
        return String::new();
    }
    let mut text = String::with_capacity(bytes.len());
    for piece in bytes.split_inclusive(|byte| matches!(byte, b'\t' | b'\n')) {
        match piece.split_last() {
            Some((end @ (b'\t' | b'\n'), rest)) => {
                text.push_str(&printable(rest));
                text.push(char::from(*end));
            }
            _ => text.push_str(&printable(piece)),
        }
    }
    text
}

/// A small file's content as one field of a table; `-` if it is empty or cannot be read.
pub fn one_line(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = open(path).map(|file| file.take(256).read_to_end(&mut bytes));
    let text = printable(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
    if text.is_empty() { "-".to_owned() } else { text }
}

/// The entries of a directory of /proc whose names are numbers: processes, threads or descriptors. No entries if the directory is gone.
pub fn numbers(dir: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}
