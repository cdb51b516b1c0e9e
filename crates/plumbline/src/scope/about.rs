//! What scopes may ask of an operation.

use model::{Mount, text::Text};

use super::{Pattern, ScopeKey};
use crate::who::Cgroup;

/// Bytes that the kernel keeps of a thread's name: TASK_COMM_LEN, less the zero at its end.
pub const LONGEST_PROCESS: usize = 15;
/// Characters of a container's short id.
pub const SHORT_CONTAINER: usize = 12;

/// What is known of an operation. What is not is empty, or `None`, and no value of a scope matches it.
#[derive(Debug, Clone, Copy)]
pub struct OperationFacts<'a> {
    /// Where it went.
    pub mount: &'a Mount,
    /// Where the requester lives.
    pub cgroup: &'a Cgroup,
    /// The requester's user.
    pub user: Option<u32>,
    /// The requester's name.
    pub process: &'a [u8],
    /// The file, as the probe has it.
    pub file: &'a [u8],
}

impl OperationFacts<'_> {
    /// Whether what is known looks like the pattern.
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

    /// A pattern without a slash is about the last component alone.
    fn part_of_file(&self, pattern: &Pattern) -> &[u8] {
        if pattern.has_slash() { self.file } else { last_component(self.file) }
    }
}

/// `/a/b`, `/a` of `/a/b`; of the root, itself.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let whole = Some(path).filter(|path| !path.is_empty());
    std::iter::successors(whole, |path| Some(path.rsplit_once('/')?.0).filter(|above| !above.is_empty()))
}

/// `c` of `a/b/c`.
pub fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// A thread's name as the kernel keeps it.
pub fn kept_of_process(name: &str) -> Text<LONGEST_PROCESS> {
    Text::new(name.as_bytes())
}
