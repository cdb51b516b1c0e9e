//! What the kernel counts about a program: how often it ran, for how long, and how often it was refused.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Object, libbpf_sys};

/// Sums over the programs of one probe since they were attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramRuns {
    /// Runs that the kernel refused because the same program was already running on that CPU: the operation there was
    /// preempted in the program.
    pub missed: u64,
    /// Time spent, nanoseconds; only while `kernel.bpf_stats_enabled` is set.
    pub nanoseconds: u64,
    /// Runs; only while `kernel.bpf_stats_enabled` is set.
    pub count: u64,
}

/// Asks for every program of these objects that is loaded.
pub(crate) fn of<'a>(objects: impl Iterator<Item = &'a Object>) -> ProgramRuns {
    objects.flat_map(Object::progs).filter(|program| program.autoload()).fold(ProgramRuns::default(), |sum, program| {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
        // SAFETY: the kernel writes at most `length` bytes to `info`, which is that long; all bits are valid in it.
        let error = unsafe {
            libbpf_sys::bpf_obj_get_info_by_fd(program.as_fd().as_raw_fd(), (&raw mut info).cast(), &raw mut length)
        };
        if error != 0 {
            return sum;
        }
        ProgramRuns {
            missed: sum.missed + info.recursion_misses,
            nanoseconds: sum.nanoseconds + info.run_time_ns,
            count: sum.count + info.run_cnt,
        }
    })
}
