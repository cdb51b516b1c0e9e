//! The load on each mount: threads that read, write, create and delete files at a moderate pace.

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

/// The bytes of one read or write.
const BLOCK: usize = 16 << 10;
/// The size of a file.
const FILE: usize = 1 << 20;
/// How often a thread does an operation.
const PACE: Duration = Duration::from_millis(100);
/// The number of threads that read, and of threads that write.
const EACH: usize = 3;

/// The helper process: obeys lines `on DIRECTORY`.
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

/// Starts a thread that repeats an operation. After an error it tries again, since the fault may cause errors.
fn start(name: &str, act: impl Fn(usize) -> std::io::Result<()> + Send + 'static) -> Result<()> {
    let work = move || {
        for turn in 0.. {
            let began = Instant::now();
            // The fault may cause an error.
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

/// Reads from the server, not from this host's page cache.
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
