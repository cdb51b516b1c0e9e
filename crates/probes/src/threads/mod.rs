//! Where threads are, to tell an operation that hangs from one whose end was missed.

use std::collections::HashMap;

use model::{Caller, Event, Level};

use crate::{generated::thread, iterator::KernelIterator, syscalls};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/threads.bpf.o"));

/// An iterator over all threads, loaded.
pub(crate) struct ThreadIterator(KernelIterator);

impl ThreadIterator {
    pub fn load() -> libbpf_rs::Result<Self> {
        KernelIterator::load(OBJECT, &[]).map(Self)
    }

    /// Every thread, by its id.
    pub fn look(&self) -> libbpf_rs::Result<HashMap<u32, thread>> {
        Ok(self.0.records::<thread>()?.into_iter().map(|thread| (thread.tid, thread)).collect())
    }
}

/// Calls in which threads wait for something else: never for a file system, unless their memory is a mapped file of
/// that file system.
const ELSEWHERE: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
];

/// Whether the thread can still be in this call of its own, a system call or one of the VFS. It cannot if it has gone, is
/// on a processor or wants one, or sleeps somewhere else.
pub(crate) fn can_be_in(call: &Event, thread: Option<&thread>) -> bool {
    let Some(thread) = thread else { return false };
    if call.operation.level() == Level::Library || thread.without_calls != 0 {
        return true;
    }
    if thread.asleep == 0 || thread.call < 0 {
        return false;
    }
    let number = libc::c_long::from(thread.call);
    if syscalls::takes_descriptor(number) && thread.no_file != 0 {
        return false;
    }
    match call.caller {
        Caller::Call(name) => ::syscalls::Sysno::new(thread.call as usize).is_some_and(|now| now.name() == name),
        _ => !ELSEWHERE.contains(&number),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::decode::decode_flight;
    use crate::generated::{Plain, flight, probe_id};

    fn read_of_vfs() -> Event {
        let raw = flight { start: 2, probe: probe_id::PROBE_VFS.0 as u8, ..flight::default() };
        decode_flight(raw.as_bytes(), 10).unwrap()
    }

    fn asleep_in(call: libc::c_long) -> thread {
        thread { call: call as i32, asleep: 1, ..thread::default() }
    }

    #[test]
    fn a_call_is_over_when_its_thread_is_gone_or_at_work_or_elsewhere() {
        let read = read_of_vfs();
        assert!(can_be_in(&read, Some(&asleep_in(libc::SYS_read))));
        assert!(can_be_in(&read, Some(&asleep_in(libc::SYS_sendfile))));
        assert!(!can_be_in(&read, None));
        assert!(!can_be_in(&read, Some(&asleep_in(libc::SYS_futex))));
        assert!(!can_be_in(&read, Some(&thread { no_file: 1, ..asleep_in(libc::SYS_read) })), "it reads a socket");
        assert!(!can_be_in(&read, Some(&thread { asleep: 0, ..asleep_in(libc::SYS_read) })));
        assert!(!can_be_in(&read, Some(&asleep_in(-1))));
    }

    #[test]
    fn a_system_call_is_over_when_its_thread_is_in_another() {
        let read = Event { caller: Caller::Call("pread64"), ..read_of_vfs() };
        assert!(can_be_in(&read, Some(&asleep_in(libc::SYS_pread64))));
        assert!(!can_be_in(&read, Some(&asleep_in(libc::SYS_read))));
    }

    #[test]
    fn a_call_of_a_library_lasts_whatever_its_thread_does() {
        let raw = flight { start: 2, probe: probe_id::PROBE_MPIIO.0 as u8, ..flight::default() };
        let open = decode_flight(raw.as_bytes(), 10).unwrap();
        assert!(can_be_in(&open, Some(&thread::default())) && !can_be_in(&open, None));
    }

    #[test]
    fn a_thread_of_the_kernels_own_is_believed() {
        assert!(can_be_in(&read_of_vfs(), Some(&thread { without_calls: 1, ..thread::default() })));
    }

    fn own_id() -> u32 {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn this_thread_is_at_work_and_one_that_sleeps_is_asleep() {
        let threads = match ThreadIterator::load() {
            Ok(threads) => threads,
            Err(error) => {
                let test = "this_thread_is_at_work_and_one_that_sleeps_is_asleep";
                return eprintln!("SKIP {test}: the iterator does not load: {error}");
            }
        };
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            send.send(own_id()).unwrap();
            // Longer than any test looks; it ends with the process.
            std::thread::sleep(Duration::from_secs(600));
        });
        let sleeper_id = receive.recv().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let all = threads.look().unwrap();
            let (own, sleeper) = (&all[&own_id()], &all[&sleeper_id]);
            assert_eq!((own.asleep, i64::from(own.call)), (0, libc::SYS_read));
            if (sleeper.asleep, i64::from(sleeper.call)) == (1, libc::SYS_clock_nanosleep) {
                break;
            }
            assert!(Instant::now() < until, "it is not seen asleep: {} in {}", sleeper.asleep, sleeper.call);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
