//! The program, mounted for real, each time in a mount namespace of the test's own.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy knows to be tests")]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid, gettid};
use tempfile::TempDir;

/// slowfs mounted below a temporary directory; only this test's thread and its children see the mount.
struct TestMount {
    slowfs: Child,
    directory: TempDir,
}

impl TestMount {
    /// `None`, loudly, where nothing can be mounted.
    fn new(test: &str) -> Option<Self> {
        if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            // Past the test harness, which would keep it to itself; in one piece, as other tests write too.
            let line = format!("SKIP {test}: it takes root and /dev/fuse\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return None;
        }
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mountpoint = directory.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let slowfs = Command::new(env!("CARGO_BIN_EXE_slowfs"))
            .arg(&mountpoint)
            .args(["--name", "slowfs-test", "--control"])
            .arg(directory.path().join("control"))
            .spawn()
            .unwrap();
        let mounted = Self { slowfs, directory };
        wait_until("slowfs is mounted", || mounted.is_mounted());
        Some(mounted)
    }

    fn is_mounted(&self) -> bool {
        let line = format!(" {} rw,nosuid,nodev,relatime - fuse.slowfs slowfs-test ", self.path("").display());
        fs::read_to_string("/proc/thread-self/mountinfo").unwrap().contains(&line)
    }

    fn path(&self, name: &str) -> PathBuf {
        let mountpoint = self.directory.path().join("mnt");
        if name.is_empty() { mountpoint } else { mountpoint.join(name) }
    }

    fn control(&self, text: &str) {
        fs::write(self.directory.path().join("control"), text).unwrap();
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.slowfs.id() as i32), Signal::SIGTERM);
        let _ = self.slowfs.wait();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_application_finds_what_it_left_there() {
    let Some(mounted) = TestMount::new("an_application_finds_what_it_left_there") else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    let mut file = File::create_new(mounted.path("d/a")).unwrap();
    let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(mounted.path("d/a"), mounted.path("b")).unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), content);
    OpenOptions::new().append(true).open(mounted.path("b")).unwrap().write_all(b"end").unwrap();
    assert_eq!(fs::metadata(mounted.path("b")).unwrap().len(), 200_003);
    File::options().write(true).open(mounted.path("b")).unwrap().set_len(3).unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), content[..3]);
    assert_eq!(fs::remove_dir(mounted.path("b")).unwrap_err().kind(), ErrorKind::NotADirectory);
    let mut names: Vec<_> = fs::read_dir(mounted.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "d"]);
    fs::remove_file(mounted.path("b")).unwrap();
    fs::remove_dir(mounted.path("d")).unwrap();
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
}

#[test]
fn a_write_takes_at_least_as_long_as_the_control_file_says() {
    let Some(mounted) = TestMount::new("a_write_takes_at_least_as_long_as_the_control_file_says") else { return };
    let mut file = File::create_new(mounted.path("a")).unwrap();
    mounted.control("write=120");
    for _ in 0..3 {
        let start = Instant::now();
        file.write_all(b"slow").unwrap();
        assert!(start.elapsed() >= Duration::from_millis(120));
    }
}

#[test]
fn a_hung_write_holds_up_nothing_else_and_ends_when_the_control_file_says_so() {
    let Some(mounted) = TestMount::new("a_hung_write_holds_up_nothing_else_and_ends_when_the_control_file_says_so")
    else {
        return;
    };
    let mut file = File::create_new(mounted.path("a")).unwrap();
    mounted.control("write=600000");
    let (ended, end) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| ended.send(file.write(b"hung").map_err(|error| error.to_string())).unwrap());
        thread::sleep(Duration::from_millis(100));
        let mut other = OpenOptions::new().read(true).open(mounted.path("a")).unwrap();
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(fs::metadata(mounted.path("a")).unwrap().len(), 0);
        assert!(end.try_recv().is_err(), "the write is back already");
        mounted.control("");
        assert_eq!(end.recv_timeout(Duration::from_secs(10)), Ok(Ok(4)));
        other.rewind().unwrap();
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 4);
    });
}

#[test]
fn an_error_reaches_the_application() {
    let Some(mounted) = TestMount::new("an_error_reaches_the_application") else { return };
    let mut file = File::create_new(mounted.path("a")).unwrap();
    mounted.control("write=ENOSPC open=1:EACCES");
    assert_eq!(file.write(b"x").unwrap_err().raw_os_error(), Some(Errno::ENOSPC as i32));
    assert_eq!(File::open(mounted.path("a")).unwrap_err().raw_os_error(), Some(Errno::EACCES as i32));
    mounted.control("");
    file.write_all(b"x").unwrap();
}

#[test]
fn a_signal_unmounts_even_while_a_write_hangs() {
    let Some(mut mounted) = TestMount::new("a_signal_unmounts_even_while_a_write_hangs") else { return };
    let mut file = File::create_new(mounted.path("a")).unwrap();
    mounted.control("write=600000");
    let (tell, told) = mpsc::channel();
    let writer = thread::spawn(move || {
        tell.send(gettid()).unwrap();
        file.write(b"hung").unwrap_err().raw_os_error()
    });
    let call = format!("/proc/self/task/{}/syscall", told.recv().unwrap());
    wait_until("the write hangs", || {
        fs::read_to_string(&call).is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_write)))
    });
    kill(Pid::from_raw(mounted.slowfs.id() as i32), Signal::SIGTERM).unwrap();
    assert!(mounted.slowfs.wait().unwrap().success());
    assert_eq!(writer.join().unwrap(), Some(Errno::ECONNABORTED as i32));
    assert!(!mounted.is_mounted());
}
