//! The process table, in one go: what `plumbline ps` shows, and what an incident's bundle holds.
//!
//! Nothing is loaded until it is asked for: [`Tasks::load`] takes the kernel memory, and dropping it frees all of the
//! memory.

mod areas;
mod files;
mod pin;
mod proc;
mod sockets;
mod stacks;
mod symbols;
mod waits;
mod walk;

use model::text::Text;

use crate::{
    Capability, ProbeSupport,
    generated::{Plain, task_record, walk_options},
    iterator::KernelIterator,
    kernel::{PERMISSION, may_load},
};

pub use areas::{Area, Areas};
pub use files::{FileIterator, OpenFile};
pub use pin::{pin, unpin};
pub use sockets::{ProcessSocket, Sockets};
pub use stacks::{Stack, Stacks};
pub use symbols::Symbols;
use waits::Waits;

const ITERATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/task_iterator.bpf.o"));

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct TaskOptions {
    /// A record for each thread rather than for each process.
    pub threads: bool,
    /// Also the function in which each thread sleeps: takes about ten times as long as everything else.
    pub wait_channels: bool,
    /// The most records, of 128 bytes each; tasks beyond this number are only counted.
    pub most: u32,
}

impl Default for TaskOptions {
    fn default() -> Self {
        // As many as there can be threads (kernel.pid_max of a 64-bit machine is 4 194 304 at most): 128 MiB of them.
        Self { threads: false, wait_channels: false, most: 1 << 20 }
    }
}

/// Ways to the process table, best first.
enum TaskRung {
    Walk(walk::TaskWalk),
    Iterator(KernelIterator),
    Proc,
}

/// The way to the process table, loaded.
pub struct Tasks {
    rung: TaskRung,
    options: TaskOptions,
    waits: Option<Waits>,
    /// The fields for which /proc has to be read, and why.
    missing: String,
}

impl Tasks {
    /// Takes the best way that this kernel has. /proc is always there.
    pub fn load(options: TaskOptions) -> Self {
        Self::load_from(options, wanted_rung())
    }

    /// As [`Tasks::load`], but uses no better way than `first`, as [`Tasks::via`] names it.
    pub fn load_from(options: TaskOptions, first: &str) -> Self {
        let raw = walk_options { threads: u32::from(options.threads), ..walk_options::default() };
        let mut refused = Vec::new();
        let mut rung = TaskRung::Proc;
        if first == WALK {
            match walk::TaskWalk::load(raw, options.most) {
                Ok(walk) => rung = TaskRung::Walk(walk),
                Err(error) => refused.push(format!("{WALK}: {error}")),
            }
        }
        if matches!(rung, TaskRung::Proc) && first != PROC {
            match KernelIterator::load(ITERATOR, raw.as_bytes()) {
                Ok(iterator) => rung = TaskRung::Iterator(iterator),
                Err(error) => refused.push(format!("{SEQUENCE}: {error}")),
            }
        }
        let mut missing = String::new();
        let waits = options.wait_channels.then(|| match rung {
            TaskRung::Proc => Waits::by_proc(),
            _ => Waits::load(options.threads).unwrap_or_else(|error| {
                missing = format!("wait channels come from /proc: {error}");
                Waits::by_proc()
            }),
        });
        if matches!(rung, TaskRung::Proc) {
            missing = refused.join("; ");
        }
        Self { rung, options, waits, missing }
    }

    /// By which way: `bpf_iter_task`, `iter/task` or `/proc`.
    pub fn via(&self) -> &'static str {
        match self.rung {
            TaskRung::Walk(_) => WALK,
            TaskRung::Iterator(_) => SEQUENCE,
            TaskRung::Proc => PROC,
        }
    }

    /// As a row of `plumbline doctor`.
    pub fn capability(&self) -> Capability {
        let fix = match (self.missing.is_empty(), may_load()) {
            (true, _) => "",
            (false, true) => "a kernel with CONFIG_DEBUG_INFO_BTF; kernel.kptr_restrict below 2",
            (false, false) => PERMISSION,
        };
        Capability {
            probe: "tasks",
            state: if self.missing.is_empty() { ProbeSupport::Ready } else { ProbeSupport::Degraded },
            via: vec![self.via()],
            reason: self.missing.clone(),
            fix: fix.to_owned(),
            may_come: false,
        }
    }

    /// Everything that is there now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a program that it has run before, or /proc cannot be read.
    pub fn snapshot(&mut self) -> libbpf_rs::Result<TaskSnapshot<'_>> {
        let most = self.options.most as usize;
        if let Some(waits) = &mut self.waits {
            waits.look()?;
        }
        let (records, found) = match &mut self.rung {
            TaskRung::Walk(walk) => {
                let (records, found) = walk.run()?;
                (Records::Mapped(records), found)
            }
            rung => {
                let mut records = match rung {
                    TaskRung::Iterator(iterator) => iterator.records()?,
                    _ => proc::read(self.options.threads)?,
                };
                let found = records.len();
                records.truncate(most);
                (Records::Read(records), found)
            }
        };
        Ok(TaskSnapshot { records, found, waits: self.waits.as_ref() })
    }
}

/// For benchmarks: the kernel's own walk over all processes, whose results are discarded.
pub struct EmptyWalk(walk::TaskWalk);

impl EmptyWalk {
    /// Loads it.
    ///
    /// # Errors
    ///
    /// When the kernel has no such walk.
    pub fn load() -> libbpf_rs::Result<Self> {
        walk::TaskWalk::load(walk_options { nothing: 1, ..walk_options::default() }, 1).map(Self)
    }

    /// Returns how many there are.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a program that it has run before.
    pub fn run(&self) -> libbpf_rs::Result<usize> {
        self.0.walk()
    }
}

const WALK: &str = "bpf_iter_task";
const SEQUENCE: &str = "iter/task";
const PROC: &str = "/proc";

/// For tests: `PLUMBLINE_TASKS_VIA` is the best rung that is tried.
fn wanted_rung() -> &'static str {
    let wanted = std::env::var("PLUMBLINE_TASKS_VIA").unwrap_or_default();
    [SEQUENCE, PROC].into_iter().find(|rung| *rung == wanted).unwrap_or(WALK)
}

enum Records<'a> {
    Mapped(&'a [task_record]),
    Read(Vec<task_record>),
}

/// The process table at one moment.
pub struct TaskSnapshot<'a> {
    records: Records<'a>,
    found: usize,
    waits: Option<&'a Waits>,
}

impl TaskSnapshot<'_> {
    /// How many there are. Tasks without room for a record are not listed.
    pub fn found(&self) -> usize {
        self.found
    }

    /// Each of them, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = Task<'_>> {
        let records = match &self.records {
            Records::Mapped(records) => records,
            Records::Read(records) => records.as_slice(),
        };
        records.iter().map(|record| Task { record, waits: self.waits })
    }
}

/// A process, or a thread. For a process, CPU time and I/O are the sums over all its threads, including those that have
/// ended.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    record: &'a task_record,
    waits: Option<&'a Waits>,
}

impl Task<'_> {
    /// The thread's own number; of a process, that of its first.
    pub fn pid(&self) -> u32 {
        self.record.pid
    }

    /// The process's number.
    pub fn tgid(&self) -> u32 {
        self.record.tgid
    }

    /// The parent process's number, 0 for none.
    pub fn ppid(&self) -> u32 {
        self.record.ppid
    }

    /// Real user.
    pub fn uid(&self) -> u32 {
        self.record.uid
    }

    /// Real group.
    pub fn gid(&self) -> u32 {
        self.record.gid
    }

    /// Its name, of the first thread if it is a process.
    pub fn comm(&self) -> Text<16> {
        Text::new(&self.record.comm.map(|byte| byte as u8))
    }

    /// The letter of `/proc/PID/stat`: of a process, its first thread's.
    pub fn state(&self) -> char {
        char::from(self.record.state)
    }

    /// Threads of the process.
    pub fn threads(&self) -> u32 {
        self.record.threads
    }

    /// Whether it is a thread of the kernel's own.
    pub fn is_kernel(&self) -> bool {
        self.record.kernel != 0
    }

    /// When it was started: nanoseconds of CLOCK_BOOTTIME.
    pub fn start(&self) -> u64 {
        self.record.start
    }

    /// CPU time, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.record.cpu_ns
    }

    /// Memory that is resident, pages.
    pub fn rss_pages(&self) -> u64 {
        self.record.rss_pages
    }

    /// Bytes that it caused to be read from storage, and to be written to it.
    pub fn io_bytes(&self) -> (u64, u64) {
        (self.record.read_bytes, self.record.written_bytes)
    }

    /// Bytes that its system calls read and wrote, of any kind of file.
    pub fn io_chars(&self) -> (u64, u64) {
        (self.record.read_chars, self.record.written_chars)
    }

    /// Id of its cgroup (v2); 0 if it is not known.
    pub fn cgroup(&self) -> u64 {
        self.record.cgroup
    }

    /// The kernel function that it sleeps in; `None` if it does not sleep, if this was not asked for, or if the kernel
    /// does not say.
    pub fn wait_channel(&self) -> Option<String> {
        self.waits?.name(self.record.tgid, self.record.pid)
    }
}
