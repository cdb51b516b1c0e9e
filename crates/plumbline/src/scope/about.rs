//! The properties of an operation to which scopes can refer.

use model::{Mount, text::Text};

use super::{Pattern, ScopeKey};
use crate::who::Cgroup;

/// The bytes that the kernel keeps of a thread's name: TASK_COMM_LEN without the terminating zero.
pub const LONGEST_PROCESS: usize = 15;
/// Characters of a container's short id.
pub const SHORT_CONTAINER: usize = 12;

/// The known properties of an operation. An unknown property is empty or `None`, and no value of a scope matches it.
#[derive(Debug, Clone, Copy)]
pub struct OperationFacts<'a> {
    /// The mount that the operation was on.
    pub mount: &'a Mount,
    /// The requester's cgroup.
    pub cgroup: &'a Cgroup,
    /// The requester's user.
    pub user: Option<u32>,
    /// The requester's name.
    pub process: &'a [u8],
    /// The file's name, in the form in which the probe has it.
    pub file: &'a [u8],
}

impl OperationFacts<'_> {
    /// Whether the known property matches the pattern.
    pub(super) fn is_like(&self, key: ScopeKey, pattern: &Pattern) -> bool {
        let is = |text: &str| !text.is_empty() && pattern.matches(text.as_bytes());
        match key {
            ScopeKey::Mount => is(&self.mount.mountpoint),
            ScopeKey::Server => {
                !self.mount.server.is_empty() && pattern.matches_in_any_case(self.mount.server.as_bytes())
            }
            ScopeKey::Fstype => is(&self.mount.fstype),
            ScopeKey::User => false, // Asked for by number.
            ScopeKey::Cgroup => above(&self.cgroup.path).any(is),
            ScopeKey::Container => is(&self.cgroup.container) || is(&self.cgroup.names.container_name),
            ScopeKey::Namespace => is(&self.cgroup.names.namespace),
            ScopeKey::Pod => is(&self.cgroup.names.pod),
            ScopeKey::Workload => is(&self.cgroup.names.workload),
            ScopeKey::Job => is(&self.cgroup.job) || self.cgroup.job.split_once(':').is_some_and(|(_, name)| is(name)),
            ScopeKey::Process => !self.process.is_empty() && pattern.matches(self.process),
            ScopeKey::File => !self.file.is_empty() && pattern.matches(self.part_of_file(pattern)),
        }
    }

    /// The part of the file's name that a pattern is compared with: a pattern without a slash is compared with the last component only.
    fn part_of_file(&self, pattern: &Pattern) -> &[u8] {
        if pattern.has_slash() { self.file } else { last_component(self.file) }
    }
}

/// The path and its parents: `/a/b` and `/a` for `/a/b`; for the root, only the root.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let whole = Some(path).filter(|path| !path.is_empty());
    std::iter::successors(whole, |path| Some(path.rsplit_once('/')?.0).filter(|above| !above.is_empty()))
}

/// The last component of a path: `c` of `a/b/c`.
pub fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// A thread's name, truncated as the kernel does it.
pub fn kept_of_process(name: &str) -> Text<LONGEST_PROCESS> {
    Text::new(name.as_bytes())
}
