//! Wait channels: in which function of the kernel's each thread sleeps.

use std::{cell::RefCell, collections::HashMap, io};

use super::{Symbols, proc};
use crate::{
    generated::{Plain, wait_options, wait_record},
    iterator::KernelIterator,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/task_waits.bpf.o"));

/// The functions in which threads sleep, and the way to find these.
pub(super) struct Waits {
    kernel: Option<(KernelIterator, Symbols)>,
    /// Address by thread.
    asleep: HashMap<u32, u64>,
    names: RefCell<HashMap<u64, String>>,
}

impl Waits {
    /// By an iterator. It fails if addresses are hidden (kernel.kptr_restrict), too.
    pub fn load(threads: bool) -> libbpf_rs::Result<Self> {
        let symbols = Symbols::load()?;
        let hidden = || io::Error::other("the kernel does not say where its scheduler is");
        let (from, to) = symbols.scheduler().ok_or_else(hidden)?;
        let options = wait_options {
            scheduler_from: from,
            scheduler_to: to,
            threads: u32::from(threads),
            ..wait_options::default()
        };
        let iterator = KernelIterator::load(OBJECT, options.as_bytes())?;
        Ok(Self { kernel: Some((iterator, symbols)), ..Self::by_proc() })
    }

    /// By /proc, which is read for a thread when the thread is asked about.
    pub fn by_proc() -> Self {
        Self { kernel: None, asleep: HashMap::new(), names: RefCell::default() }
    }

    /// Finds out where all threads sleep now.
    pub fn look(&mut self) -> libbpf_rs::Result<()> {
        if let Some((iterator, _)) = &self.kernel {
            let found = iterator.records::<wait_record>()?;
            self.asleep = found.into_iter().map(|thread| (thread.pid, thread.address)).collect();
        }
        Ok(())
    }

    /// The function that a thread slept in; `None` if the thread did not sleep.
    pub fn name(&self, process: u32, thread: u32) -> Option<String> {
        let Some((_, symbols)) = &self.kernel else { return proc::wait_channel(process, thread) };
        let address = *self.asleep.get(&thread)?;
        let mut names = self.names.borrow_mut();
        if let Some(name) = names.get(&address) {
            return Some(name.clone());
        }
        let name = symbols.name(address)?;
        names.insert(address, name.clone());
        Some(name)
    }
}
