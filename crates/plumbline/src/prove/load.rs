//! The load: threads that read, write, and make and delete files, at a moderate pace, on each mount.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::talk::obey;

/// Bytes of a read and a write.
const BLOCK: usize = 16 << 10;
/// Bytes of a file that is read or written.
const FILE: usize = 1 << 20;
/// How often a thread does it.
const PACE: Duration = Duration::from_millis(100);
/// Threads that read and write, of each.
const EACH: usize = 3;

/// Does as it is told: `on DIRECTORY`.
pub fn part() {
    obey(|words| {
        match words {
            ["on", directory] => on(Path::new(directory))?,
            _ => bail!("the load does not know {words:?}"),
        }
        Ok(String::new())
    });
}

fn on(directory: &Path) -> Result<()> {
    fs::write(directory.join("read"), vec![7; FILE]).context("cannot write what is to be read")?;
    for index in 0..EACH {
        let (read, written) = (directory.join("read"), directory.join(format!("written-{index}")));
        fs::write(&written, vec![0; FILE]).with_context(|| format!("cannot write {}", written.display()))?;
        start("prove-read", move |turn| read_at(&read, turn))?;
        start("prove-write", move |turn| write_at(&written, turn))?;
    }
    let made = directory.join("made");
    start("prove-make", move |_| make(&made))
}

/// A thread that does something again and again. What fails is tried again: it may be what is proved.
fn start(name: &str, act: impl Fn(usize) -> std::io::Result<()> + Send + 'static) -> Result<()> {
    let work = move || {
        for turn in 0.. {
            let began = Instant::now();
            // It may fail: that may be the fault.
            let _ = act(turn);
            thread::sleep(PACE.saturating_sub(began.elapsed()));
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(())
}

fn offset(turn: usize) -> u64 {
    (turn.wrapping_mul(BLOCK) % FILE) as u64
}

/// From the server, not from what this host has in memory.
fn read_at(path: &Path, turn: usize) -> std::io::Result<()> {
    let file = File::open(path)?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
    file.read_at(&mut vec![0; BLOCK], offset(turn)).map(|_| ())
}

fn write_at(path: &Path, turn: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(nix::libc::O_SYNC).open(path)?;
    file.write_at(&vec![1; BLOCK], offset(turn)).map(|_| ())
}

fn make(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(nix::libc::O_SYNC).open(path)?;
    let written = file.write_at(&[1; 4096], 0);
    drop(file);
    fs::remove_file(path)?;
    written.map(|_| ())
}
