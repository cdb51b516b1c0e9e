//! Looks at this process itself.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::*;

fn look_at_self() -> DaemonLook {
    let own = std::process::id();
    WatchedDaemon::new(own).look(own, 1).unwrap()
}

#[test]
fn threads_are_counted_by_what_they_wait_for() {
    let mut look = DaemonLook::default();
    for (state, wait) in [
        ('S', "fuse_dev_do_read"),
        ('S', "hrtimer_nanosleep"),
        ('S', "rpc_wait_bit_killable"),
        ('D', "poll"),
        ('R', ""),
        ('T', "do_signal_stop"),
    ] {
        count(&mut look, state, wait);
    }
    assert_eq!((look.threads, look.free, look.on_files, look.running, look.stopped), (6, 1, 2, 1, 1));
}

#[test]
fn a_look_says_what_was_sent_what_came_and_what_is_unread() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(server).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    client.write_all(b"request").unwrap();
    accepted.read_exact(&mut [0; 7]).unwrap();
    let own = std::process::id();
    let mut daemon = WatchedDaemon::new(own);
    let first = daemon.look(own, 1).unwrap();
    daemon.look = Some(Arc::new(first.clone()));
    daemon.at = 1;
    accepted.write_all(b"an answer").unwrap();
    let second = daemon.look(own, 1_000_000).unwrap();
    let to_server = |look: &DaemonLook| look.tcp.iter().find(|one| one.peer == Some(server)).copied().unwrap();
    let (before, after) = (to_server(&first), to_server(&second));
    assert_eq!((before.pid, before.unread, before.unacknowledged, before.resending), (own, 0, 0, 0));
    assert!(before.rtt_us > 0 && before.min_rtt_us > 0 && before.sent_ms < 10_000, "{before:?}");
    assert_eq!((after.unread, after.received, after.resent, second.since), (9, 9, 0, 999_999));
    assert!(second.connections >= 2 && second.threads > 0 && second.resending == 0);
}

#[test]
fn a_process_that_talks_by_its_standard_input_is_a_helper() {
    let before = look_at_self().helpers;
    let (ours, theirs) = UnixStream::pair().unwrap();
    // As sshfs does it: ssh is no child of it.
    let mut shell = Command::new("setsid");
    shell.args(["--fork", "sh", "-c", "echo $$ >&0; kill -STOP $$"]).stdin(Stdio::from(OwnedFd::from(theirs)));
    assert!(shell.status().unwrap().success());
    let mut pid = String::new();
    BufReader::new(&ours).read_line(&mut pid).unwrap();
    let stopped = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        look_at_self().stopped_helpers > 0
    });
    let helpers = look_at_self().helpers;
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    drop(ours);
    assert!(stopped && helpers > before, "{helpers} helpers, {before} before");
}
