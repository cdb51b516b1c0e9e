//! Operations that a site defines itself, from one hook to another. Their programs are those of own.bpf.c. This kernel's types tell the
//! programs where the values are: nothing is compiled.

use crate::generated::probe_id;

mod definition;
mod functions;
mod probe;
mod registry;
mod resolve;
#[cfg(test)]
mod tests;
mod tracefs;
mod walk;
mod ways;
mod words;

pub(crate) use probe::OwnProbe;
pub(crate) use registry::current;

pub use definition::{At, Definition, HOOKS, OwnHook, ValueRoot, ValueSource, is_good_name};
pub use registry::{MOST_OPERATIONS, MOST_PROTOCOLS, enter, learn, protocols};
pub use resolve::MissingInKernel;

/// An operation in force.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnOperation {
    pub definition: Definition,
    /// Of its probe's.
    pub is_first: bool,
    /// The most operations under way that are remembered.
    pub flights: u32,
}

/// Whether a probe's number in records is one of those that sites define.
pub fn is_own(number: u8) -> bool {
    (probe_id::PROBE_OWN.0..probe_id::PROBE_OWN_END.0).contains(&number.into())
}

/// Why this kernel has no way to see an operation; `None` if a way looks possible, or may become possible once the
/// operation's module is loaded.
pub fn refusal(definition: &Definition) -> Option<MissingInKernel> {
    let modules = [&definition.begin, &definition.end].into_iter().filter_map(|hook| hook.value.module());
    if modules.into_iter().any(|module| !std::path::Path::new("/sys/module").join(module).exists()) {
        return None;
    }
    probe::plans(definition).err()
}
