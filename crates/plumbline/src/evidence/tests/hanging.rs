//! Tests with a mount whose server never answers: actions that hang on it must not delay the collector, and the
//! collector itself must not access the mount.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::disk::with_private_mounts;
use super::*;

/// A FUSE mount that reads requests and answers only the first, which sets it up. A process that waits for an answer
/// cannot be killed until this is dropped, as on a hard mount of a dead server.
struct Hung {
    mountpoint: PathBuf,
    device: (u32, u32),
    requests: Arc<AtomicUsize>,
}

impl Hung {
    fn mount(mountpoint: &Path) -> Self {
        let mut channel = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", channel.as_raw_fd());
        mount(Some("hung"), mountpoint, Some("fuse.hung"), MsFlags::empty(), Some(options.as_str())).unwrap();
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mountinfo.lines().find(|line| line.contains(" fuse.hung ")).unwrap();
        let (major, minor) = line.split(' ').nth(2).unwrap().split_once(':').unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let seen = requests.clone();
        thread::spawn(move || {
            let mut request = vec![0; 256 << 10];
            assert!(channel.read(&mut request).unwrap() > 0);
            // struct fuse_out_header and struct fuse_init_out, linux/fuse.h: length, error, unique; version 7.31.
            let mut answer = vec![0; 16 + 64];
            answer[0] = 80;
            answer[8..16].copy_from_slice(&request[8..16]);
            answer[16] = 7;
            answer[20] = 31;
            channel.write_all(&answer).unwrap();
            // Ends when the mount is gone.
            while channel.read(&mut request).is_ok() {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { mountpoint: mountpoint.to_owned(), device: (major.parse().unwrap(), minor.parse().unwrap()), requests }
    }

    fn scope(&self) -> IncidentScope {
        let mountpoint = self.mountpoint.to_str().unwrap().to_owned();
        let mount = model::Mount {
            mountpoint,
            source: "hung".to_owned(),
            fstype: "fuse.hung".to_owned(),
            ..Default::default()
        };
        IncidentScope { mounts: vec![ScopedMount { mount, device: Some(self.device) }], ..Default::default() }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Ends the connection, and with it every wait for an answer.
        let _ = umount2(&self.mountpoint, MntFlags::MNT_FORCE);
        let _ = umount2(&self.mountpoint, MntFlags::MNT_DETACH);
    }
}

fn with_a_hung_mount<Body: FnOnce(&TempDir, Hung)>(body: Body) {
    if !is_root() {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("SKIPPED: this test needs /dev/fuse");
    }
    let dir = tempfile::tempdir().unwrap();
    let mountpoint = tempfile::tempdir().unwrap();
    with_private_mounts::<Body, _>(|| body(&dir, Hung::mount(mountpoint.path())));
}

#[test]
fn no_action_touches_the_mount_it_is_about() {
    with_a_hung_mount(|dir, hung| {
        let collector = start(dir);
        let actions = ACTIONS.iter().map(|known| action(known.name, &[])).collect();
        let done = one(&collector, BundleRequest { scope: hung.scope(), ..request(&id(1), vec![], actions) });
        let path = written(&done);
        assert!(manifest(path).iter().all(|record| record["status"] != "timeout"), "{:?}", manifest(path));
        assert!(String::from_utf8_lossy(&unpack(path)["mounts.txt"]).contains(" fuse.hung "));
        assert_eq!(hung.requests.load(Ordering::SeqCst), 0);
        drop(collector);
    });
}

#[test]
fn a_command_that_not_even_a_kill_ends_is_left_behind_and_shown() {
    with_a_hung_mount(|dir, hung| {
        let collector = start(dir);
        let file = hung.mountpoint.join("file");
        // The others have the time that they need on a busy machine.
        let limits = Some((Duration::from_secs(1), 1 << 20));
        let stuck = ActionSpec { limits, ..action("stuck", &["cat", file.to_str().unwrap()]) };
        let done = one(&collector, request(&id(1), vec![], vec![stuck.clone(), shell("fine", "echo hi")]));
        let cut = record(written(&done), "stuck");
        assert_eq!((&cut["status"], &cut["file"]), (&"timeout".into(), &serde_json::Value::Null), "{cut}");
        assert_eq!(unpack(written(&done))["fine.txt"], b"hi\n");
        assert_eq!(collector.counters().abandoned, 1);

        // However many there are.
        let processes = ActionSpec { limits: Some((TIMEOUT, 64 << 20)), ..action("processes", &[]) };
        let done = one(&collector, request(&id(2), vec![], vec![processes]));
        let processes = String::from_utf8(unpack(written(&done))["processes.txt"].clone()).unwrap();
        assert!(processes.lines().any(|line| line.contains(" D ") && line.contains(" cat ")), "{processes}");

        // Three more may hang; then none is started until one comes back.
        one(&collector, request(&id(3), vec![], vec![stuck.clone(), stuck.clone(), stuck.clone()]));
        assert_eq!(collector.counters().abandoned, 4);
        let done = one(&collector, request(&id(4), vec![], vec![shell("fine", "echo hi")]));
        let refused = record(written(&done), "fine");
        assert!(refused["error"].as_str().unwrap().contains("4 earlier actions still hang"), "{refused}");
        drop(hung);
        let back = (5..).map(|n| one(&collector, request(&id(n), vec![], vec![shell("fine", "echo hi")])));
        let until = Instant::now() + TIMEOUT;
        assert!(
            back.take_while(|_| Instant::now() < until).any(|done| record(written(&done), "fine")["status"] == "ok")
        );
    });
}

#[test]
fn a_bundle_is_written_at_a_shutdown_although_an_action_hangs_in_the_kernel() {
    with_a_hung_mount(|dir, hung| {
        let file = hung.mountpoint.join("file");
        let stuck = action("stuck", &["cat", file.to_str().unwrap()]);
        let stop = |number: u64| {
            let collector = Collector::start(Settings { concurrency: 3, ..settings(dir.path()) }).unwrap();
            let before = hung.requests.load(Ordering::SeqCst);
            let actions = vec![stuck.clone(), stuck.clone(), shell("fine", "echo hi")];
            collector.submit(request(&id(number), vec![text("events.jsonl", "x")], actions)).unwrap();
            wait_until("they hang", || number > 1 || hung.requests.load(Ordering::SeqCst) > before);
            std::thread::sleep(Duration::from_millis(200));
            // Two fifths of it are left after actions are told to stop: less than they get to notice at other times.
            let end = collector.shutdown(Duration::from_millis(1200));
            if end.unfinished > 0 {
                return false;
            }
            let path = written(&end.done[0]);
            assert_eq!(record(path, "stuck")["status"], "timeout");
            assert_eq!(unpack(path)["fine.txt"], b"hi\n");
            true
        };
        // A busy machine may be too slow for it once, but not always; what waited too long never makes it.
        assert!((1..=5).any(stop));
        drop(hung);
    });
}

#[test]
fn a_mount_that_comes_over_the_bundles_costs_them_and_is_not_touched() {
    with_a_hung_mount(|dir, elsewhere| {
        drop(elsewhere);
        let collector = start(dir);
        written(&one(&collector, request(&id(1), vec![], vec![])));
        let hung = Hung::mount(&incidents(dir));
        let done = one(&collector, request(&id(2), vec![], vec![]));
        assert_eq!(lost(&done), LossReason::WatchedMount);
        let BundleOutcome::Lost { message, .. } = &done.outcome else { unreachable!() };
        let shown = incidents(dir).display().to_string();
        assert!(message.starts_with(&format!("{shown}: is on {shown}, a watched mount")), "{message}");
        collector.tidy().unwrap();
        assert!(matches!(answers(&collector, 1)[0].outcome, BundleOutcome::NotTidied { .. }));
        assert!(collector.reconfigure(settings(dir.path())).is_err());
        assert!(Collector::start(settings(dir.path())).is_err());
        assert!(Store::existing(dir.path(), INCIDENTS).is_err());
        assert!(crate::config::check_output_dir(dir.path(), &[incidents(dir)]).is_err());
        assert_eq!(hung.requests.load(Ordering::SeqCst), 0);
        drop(hung);
        written(&one(&collector, request(&id(3), vec![], vec![])));
    });
}

#[test]
fn logs_on_a_watched_mount_are_not_touched() {
    with_a_hung_mount(|dir, elsewhere| {
        drop(elsewhere);
        let collector = start(dir);
        let hung = Hung::mount(Path::new("/var/log"));
        let done = one(&collector, request(&id(1), vec![], vec![action("syslogs", &[]), action("journalctl", &[])]));
        for action in ["syslogs", "journalctl"] {
            let record = record(written(&done), action);
            assert_eq!(record["status"], "failed", "{record}");
            assert!(record["error"].as_str().unwrap().contains("is on /var/log, a watched mount"), "{record}");
        }
        assert_eq!(hung.requests.load(Ordering::SeqCst), 0);
        drop(hung);
    });
}
