//! Names of the kernel's functions. The kernel is asked for each one: /proc/kallsyms is megabytes.

use libbpf_rs::{Object, ProgramInput};
use model::text::Text;

use crate::{
    generated::{Plain, symbol},
    iterator::open,
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/symbols.bpf.o"));

/// Asks the kernel for symbols.
pub struct Symbols {
    object: Object,
}

impl Symbols {
    /// Loads the iterator that looks symbols up.
    ///
    /// # Errors
    ///
    /// When the kernel refuses its programs.
    pub fn load() -> libbpf_rs::Result<Self> {
        Ok(Self { object: open(OBJECT, &[])?.load()? })
    }

    /// The function that an address is in.
    pub fn name(&self, address: u64) -> Option<String> {
        self.text(symbol { address, ..symbol::default() })
    }

    /// As a line of a stack has it: `vfs_write+0x1f0/0x420`.
    pub fn with_offset(&self, address: u64) -> Option<String> {
        self.text(symbol { address, with_offset: 1, ..symbol::default() })
    }

    /// Where .sched.text begins and ends; `None` if addresses are hidden (kptr_restrict).
    pub(crate) fn scheduler(&self) -> Option<(u64, u64)> {
        Some((self.address("__sched_text_start")?, self.address("__sched_text_end")?))
    }

    /// The address of a symbol of the kernel or of one of its modules; `None` if there is no such symbol, or if
    /// addresses are hidden.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        let mut asked = symbol::default();
        asked.name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as _);
        Some(self.run("address_of", asked)?.address).filter(|address| *address != 0)
    }

    fn text(&self, asked: symbol) -> Option<String> {
        let name = self.run("name_of", asked)?.name.map(|byte| byte as u8);
        let name = Text::<112>::new(&name).to_string();
        // An address outside all functions stays a number.
        (!name.is_empty() && !name.starts_with("0x")).then_some(name)
    }

    fn run(&self, program: &str, asked: symbol) -> Option<symbol> {
        let program = self.object.progs_mut().find(|found| found.name() == program)?;
        let mut bytes = [0; size_of::<symbol>()];
        bytes.copy_from_slice(asked.as_bytes());
        let input = ProgramInput { context_in: Some(&mut bytes), ..ProgramInput::default() };
        (program.test_run(input).ok()?.return_value == 1).then(|| symbol::from_bytes(&bytes))?
    }
}
