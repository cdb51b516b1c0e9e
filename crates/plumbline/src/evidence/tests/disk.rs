//! Tests with disks that are full, read-only or slow, and with a daemon that is killed.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;

use super::*;

/// Where the killed child keeps its bundles.
const CHILD_DIR: &str = "PLUMBLINE_TEST_OUTPUT_DIR";
/// Set in a process that has mounts of its own.
const PRIVATE: &str = "PLUMBLINE_TEST_PRIVATE_MOUNTS";

/// Runs `body`, the body of the calling test, in a private mount namespace. That takes a process of its own, since
/// /proc/self shows the namespace of a process's first thread. `Named` is a closure in that test, whose type has the
/// test's name.
pub fn with_private_mounts<Named, Body: FnOnce()>(body: Body) {
    if std::env::var_os(PRIVATE).is_some() {
        let nothing = None::<&str>;
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
        return body();
    }
    let closure = std::any::type_name::<Named>();
    let test = closure.split("::{{closure}}").next().unwrap().split_once("::").unwrap().1;
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env(PRIVATE, "yes");
    // SAFETY: unshare(2) is async-signal-safe.
    unsafe { again.pre_exec(|| Ok(unshare(CloneFlags::CLONE_NEWNS)?)) };
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Runs `body`, as [`with_private_mounts`] does, with an output directory on a file system of this size.
fn on_a_small_disk<Body: FnOnce(&Path)>(size: &str, body: Body) {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = || {
        let options = format!("size={size},mode=700");
        mount(Some("small"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        let _unmount = Unmount(dir.path());
        body(dir.path());
    };
    with_private_mounts::<Body, _>(mounted);
}

/// Unmounts when dropped, so that the mount point can be deleted.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

fn remount(dir: &Path, flags: MsFlags) {
    mount(None::<&str>, dir, None::<&str>, MsFlags::MS_REMOUNT | flags, Some("mode=700")).unwrap();
}

#[test]
fn a_full_disk_costs_the_bundle_and_nothing_else() {
    on_a_small_disk("256k", |dir| {
        let collector = Collector::start(settings(dir)).unwrap();
        for bytes in [150_000, 600_000] {
            assert_eq!(
                lost(&one(&collector, request(&id(1), vec![noise("events.jsonl", bytes)], vec![]))),
                LossReason::DiskFull
            );
            assert_eq!(listing(dir), [""; 0]);
        }
        let greedy = action("greedy", &["head", "-c", "500000", "/dev/urandom"]);
        let done = one(&collector, request(&id(2), vec![], vec![greedy]));
        assert_eq!(record(written(&done), "greedy")["status"], "failed");
        fs::write(dir.join("filler"), vec![0; 1 << 20]).unwrap_err();
        assert_eq!(
            lost(&one(&collector, request(&id(3), vec![text("events.jsonl", "x")], vec![]))),
            LossReason::DiskFull
        );
        assert_eq!(listing(dir), [id(2).bundle()]);
        fs::remove_file(dir.join("filler")).unwrap();
        written(&one(&collector, request(&id(3), vec![text("events.jsonl", "x")], vec![])));
    });
}

#[test]
fn a_read_only_disk_costs_the_bundle_and_nothing_else() {
    on_a_small_disk("1m", |dir| {
        remount(dir, MsFlags::MS_RDONLY);
        let collector = Collector::start(settings(dir)).unwrap();
        assert_eq!(lost(&one(&collector, request(&id(1), vec![], vec![]))), LossReason::ReadOnly);
        remount(dir, MsFlags::empty());
        written(&one(&collector, request(&id(2), vec![], vec![])));
        remount(dir, MsFlags::MS_RDONLY);
        assert_eq!(lost(&one(&collector, request(&id(3), vec![], vec![]))), LossReason::ReadOnly);
        assert_eq!(listing(dir), [id(2).bundle()]);
    });
}

#[test]
fn the_disk_limit_is_not_passed_for_a_moment() {
    const LIMIT: u64 = 512 << 10;
    on_a_small_disk("4m", |dir| {
        let used = || {
            let disk = statvfs(dir).unwrap();
            (disk.blocks() - disk.blocks_free()) * disk.fragment_size()
        };
        Store::open(dir, INCIDENTS).unwrap();
        let (before, over) = (used(), AtomicBool::new(false));
        let mut most = 0;
        thread::scope(|scope| {
            // statvfs sees files without a name, too.
            let watch = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    most = most.max(used() - before);
                }
            });
            let collector = Collector::start(Settings { max_bytes: LIMIT, concurrency: 3, ..settings(dir) }).unwrap();
            for n in 1..=20 {
                let actions = ["a", "b", "c", "d"].map(|name| action(name, &["head", "-c", "30000", "/dev/urandom"]));
                one(&collector, request(&id(n), vec![noise("events.jsonl", 10_000 * n as usize)], actions.to_vec()));
            }
            over.store(true, Ordering::Relaxed);
            watch.join().unwrap();
        });
        assert!(most > LIMIT / 2, "{most} bytes: nothing was seen");
        assert!(most <= LIMIT, "{most} bytes used, {LIMIT} allowed");
    });
}

#[test]
fn a_bundle_that_cannot_be_deleted_is_counted_and_passed_over() {
    on_a_small_disk("4m", |dir| {
        let collector = Collector::start(Settings { max_bytes: 70 << 10, ..settings(dir) }).unwrap();
        let paths = [1, 2].map(|n| written(&one(&collector, request(&id(n), vec![], vec![]))).to_owned());
        // A mount point cannot be deleted.
        mount(Some(&paths[0]), &paths[0], None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        let done = one(&collector, request(&id(3), vec![noise("events.jsonl", 62_000)], vec![]));
        written(&done);
        assert_eq!(done.sweep.failed, 1);
        assert!(done.sweep.error.as_ref().unwrap().contains(paths[0].to_str().unwrap()), "{:?}", done.sweep);
        assert_eq!(done.sweep.deleted.iter().map(|gone| gone.id.clone()).collect::<Vec<_>>(), [id(2)]);
        assert_eq!(listing(dir), [id(1).bundle(), id(3).bundle()]);
    });
}

/// Not a test by itself: the process that [`after_a_kill`] kills.
#[test]
#[ignore = "run by the tests that kill it"]
fn a_child_that_collects_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let collector = Collector::start(settings(Path::new(&dir))).unwrap();
    let slow = std::env::var("PLUMBLINE_TEST_SLOW").ok();
    let actions: Vec<ActionSpec> = slow.map(|marker| action("slow", &["sleep", &marker])).into_iter().collect();
    loop {
        let id = collector.next_id(jiff::Timestamp::now(), "smb", "latency");
        one(&collector, request(&id, vec![noise("events.jsonl", 500_000)], actions.clone()));
    }
}

fn spawn_child(dir: &Path, slow: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "evidence::tests::disk::a_child_that_collects_until_it_is_killed"]);
    command.env(CHILD_DIR, dir).envs(slow.map(|marker| ("PLUMBLINE_TEST_SLOW", marker)));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill_and_reap(mut child: Child) {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn after_a_kill_in_the_middle_no_command_is_left_and_the_next_start_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let marker = format!("{}.63", std::process::id());
    let child = spawn_child(dir.path(), Some(&marker));
    let begun = || {
        incidents(&dir).exists()
            && listing(dir.path()).iter().any(|name| name.ends_with(".tmp"))
            && commands::runs(&marker)
    };
    wait_until("the child collects", begun);
    kill_and_reap(child);
    assert_eq!(listing(dir.path()).len(), 1);
    wait_until("its command is gone", || !commands::runs(&marker));
    let collector = start(&dir);
    assert_eq!(collector.counters().leftovers, 1);
    assert_eq!(listing(dir.path()), [""; 0]);
    written(&one(&collector, request(&id(1), vec![], vec![])));
}

#[test]
fn whenever_it_is_killed_every_bundle_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=8 {
        let bundles = || if incidents(&dir).exists() { listing(dir.path()).len() } else { 0 };
        let before = bundles();
        let child = spawn_child(dir.path(), None);
        wait_until("the child has written some", || bundles() > before + 2);
        thread::sleep(Duration::from_millis(round * 3));
        kill_and_reap(child);
        let collector = start(&dir);
        assert!(collector.counters().leftovers <= 1);
        for name in listing(dir.path()) {
            assert_eq!(unpack(&incidents(&dir).join(name)).len(), 4);
        }
    }
}
