//! Kernel stacks: of blocked threads, or of those that are sampled.

use libbpf_rs::{MapCore, MapFlags};
use model::text::Text;

use super::Symbols;
use crate::{
    generated::{Plain, stack_options, stack_record},
    iterator::KernelIterator,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/task_stacks.bpf.o"));

/// The iterator over kernel stacks, loaded, and what names their functions.
pub struct Stacks {
    iterator: KernelIterator,
    symbols: Symbols,
}

impl Stacks {
    /// Loads the iterator for threads that are blocked (state D), and for all threads of `processes`, the first 64 of
    /// them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses its programs.
    pub fn load(processes: &[u32]) -> libbpf_rs::Result<Self> {
        let mut options = stack_options::default();
        options.processes.iter_mut().zip(processes).for_each(|(to, from)| *to = *from);
        Self::with(options)
    }

    /// Loads the iterator for sampling: see [`Stacks::sample`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses its programs.
    pub fn sampler() -> libbpf_rs::Result<Self> {
        Self::with(stack_options { sampling: 1, ..stack_options::default() })
    }

    fn with(options: stack_options) -> libbpf_rs::Result<Self> {
        Ok(Self { iterator: KernelIterator::load(OBJECT, options.as_bytes())?, symbols: Symbols::load()? })
    }

    /// Shows the stacks of these threads, the first 128 of them, and of the kernel's own threads that take answers from servers or are
    /// blocked.
    ///
    /// # Errors
    ///
    /// When reading fails.
    pub fn sample(&self, threads: impl Iterator<Item = u32>, show: impl FnMut(&Stack)) -> libbpf_rs::Result<()> {
        if let Some(sampled) = self.iterator.map("sampled") {
            let before: Vec<_> = sampled.keys().collect();
            before.iter().try_for_each(|key| sampled.delete(key))?;
            for thread in threads.take(sampled.max_entries() as usize) {
                sampled.update(&thread.to_ne_bytes(), &[1], MapFlags::ANY)?;
            }
        }
        self.each(show)
    }

    /// The function that a frame is in, and the function's module: `cifs_demultiplex_thread` and `cifs`. Functions of the kernel
    /// proper have no module.
    pub fn function(&self, address: u64) -> Option<(String, String)> {
        let text = self.symbols.with_offset(address)?;
        let (name, rest) = text.split_once('+').unwrap_or((&text, ""));
        let module = rest.split_once('[').map_or("", |(_, module)| module.trim_end_matches(']'));
        Some((name.to_owned(), module.to_owned()))
    }

    /// Shows each stack.
    ///
    /// # Errors
    ///
    /// When reading fails.
    pub fn each(&self, mut show: impl FnMut(&Stack)) -> libbpf_rs::Result<()> {
        self.iterator.each(|bytes| {
            let record = stack_record::from_bytes(bytes)?;
            let end = size_of::<stack_record>() + record.depth as usize * size_of::<u64>();
            let frames = bytes.get(size_of::<stack_record>()..end)?.chunks_exact(size_of::<u64>());
            show(&Stack { record, frames: frames.filter_map(u64::from_bytes).collect(), symbols: &self.symbols });
            Some(end)
        })
    }
}

/// A thread, and where it is in the kernel.
pub struct Stack<'a> {
    record: stack_record,
    frames: Vec<u64>,
    symbols: &'a Symbols,
}

impl Stack<'_> {
    /// The thread.
    pub fn pid(&self) -> u32 {
        self.record.pid
    }

    /// Its process.
    pub fn tgid(&self) -> u32 {
        self.record.tgid
    }

    /// Its name.
    pub fn comm(&self) -> Text<16> {
        Text::new(&self.record.comm.map(|byte| byte as u8))
    }

    /// The letter of `/proc/PID/stat`.
    pub fn state(&self) -> char {
        char::from(self.record.state)
    }

    /// Whether the thread runs just now. A thread that is runnable and does not run waits for a CPU.
    pub fn runs(&self) -> bool {
        self.record.on_cpu != 0
    }

    /// Whether it is the kernel's own.
    pub fn is_of_kernel(&self) -> bool {
        self.record.kernel_thread != 0
    }

    /// The thread's context switches so far. If the number has not changed, the thread has not been switched out since.
    pub fn switches(&self) -> u64 {
        self.record.switches
    }

    /// The addresses of the thread's frames, the innermost first; empty if the thread runs or is runnable.
    pub fn addresses(&self) -> &[u64] {
        &self.frames
    }

    /// `vfs_write+0x1f0/0x420`, the innermost first; empty for a thread that runs.
    pub fn frames(&self) -> impl Iterator<Item = String> {
        let name = |address: &u64| self.symbols.with_offset(*address).unwrap_or_else(|| format!("{address:#x}"));
        self.frames.iter().map(name)
    }
}
