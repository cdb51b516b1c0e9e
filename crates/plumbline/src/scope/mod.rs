//! Which operations a rule is for: `only` and `except` of the configuration, and which of several rules judges an operation.

mod about;
mod pattern;
mod precedence;
mod when;

use std::fmt;

pub use about::{LONGEST_PROCESS, OperationFacts, SHORT_CONTAINER, kept_of_process, last_component};
pub use pattern::Pattern;
pub use precedence::{RuleGroup, groups};
pub use when::{IncidentSubject, On, When};

/// What of an operation a scope can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKey {
    /// The mount point.
    Mount,
    /// The server's name as it was mounted, in any case.
    Server,
    /// The file-system type.
    Fstype,
    /// Who asked: a user's number.
    User,
    /// The requester's cgroup, or one above it.
    Cgroup,
    /// The container's short id, or its name.
    Container,
    /// The namespace in Kubernetes of the requester's pod.
    Namespace,
    /// The requester's pod.
    Pod,
    /// What the requester's pod belongs to.
    Workload,
    /// What a batch system, Kubernetes or systemd calls the requester's work.
    Job,
    /// The name of the thread that asked.
    Process,
    /// The file's name; its path, where the value has a slash.
    File,
}

impl ScopeKey {
    /// Every key, as it is written.
    pub const ALL: [(&str, Self); 12] = [
        ("mount", Self::Mount),
        ("server", Self::Server),
        ("fstype", Self::Fstype),
        ("user", Self::User),
        ("cgroup", Self::Cgroup),
        ("container", Self::Container),
        ("namespace", Self::Namespace),
        ("pod", Self::Pod),
        ("workload", Self::Workload),
        ("job", Self::Job),
        ("process", Self::Process),
        ("file", Self::File),
    ];

    /// The key of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, key)| key)
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }

    /// Whether it is a property of the mount: then it is known also of what is only counted.
    pub fn is_of_mount(self) -> bool {
        matches!(self, Self::Mount | Self::Server | Self::Fstype)
    }

    /// Whether the cgroup says it.
    pub fn is_of_cgroup(self) -> bool {
        matches!(self, Self::Cgroup | Self::Container | Self::Namespace | Self::Pod | Self::Workload | Self::Job)
    }
}

/// One value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeValue {
    /// Text that it must look like.
    Like(Pattern),
    /// A user: as written, and by number.
    User(String, u32),
}

/// A key with its values, one of which must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What is asked for.
    pub key: ScopeKey,
    /// At least one.
    pub values: Vec<ScopeValue>,
}

/// The operations that a rule is for. By default, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// All of these must match.
    pub only: Vec<Condition>,
    /// None of these may match.
    pub except: Vec<Condition>,
}

/// Why a scope does not cover an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss<'a> {
    /// This condition of `only` does not match.
    Only(&'a Condition),
    /// This condition of `except` matches.
    Except(&'a Condition),
}

impl Scope {
    /// Whether it covers everything, so that nobody need ask.
    pub fn is_everything(&self) -> bool {
        self.only.is_empty() && self.except.is_empty()
    }

    /// How specific it is: the more keys `only` has, the more.
    pub fn keys(&self) -> usize {
        self.only.len()
    }

    /// Whether some condition is about such a key.
    pub fn asks(&self, is_such: impl Fn(ScopeKey) -> bool) -> bool {
        self.only.iter().chain(&self.except).any(|condition| is_such(condition.key))
    }

    /// Whether it covers the operation. What is not known of one matches no value.
    pub fn covers(&self, about: &OperationFacts<'_>) -> bool {
        self.miss(about).is_none()
    }

    /// Why it does not cover the operation; `None` if it does.
    pub fn miss(&self, about: &OperationFacts<'_>) -> Option<Miss<'_>> {
        let only = self.only.iter().find(|condition| !condition.matches(about)).map(Miss::Only);
        only.or_else(|| self.except.iter().find(|condition| condition.matches(about)).map(Miss::Except))
    }
}

impl Condition {
    fn matches(&self, about: &OperationFacts<'_>) -> bool {
        self.values.iter().any(|value| match value {
            ScopeValue::User(_, uid) => about.user == Some(*uid),
            ScopeValue::Like(pattern) => about.is_like(self.key, pattern),
        })
    }
}

/// `mount /mnt/a or /mnt/b`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.iter().map(|value| match value {
            ScopeValue::User(name, _) => name.as_str(),
            ScopeValue::Like(pattern) => pattern.as_str(),
        });
        write!(f, "{} {}", self.key.name(), values.collect::<Vec<_>>().join(" or "))
    }
}

/// `only mount /mnt/a, process postgres; except user root`; nothing if it covers everything.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |conditions: &[Condition]| conditions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let parts = [("only", &self.only), ("except", &self.except)];
        let parts = parts.into_iter().filter(|(_, conditions)| !conditions.is_empty());
        f.write_str(&parts.map(|(word, all)| format!("{word} {}", list(all))).collect::<Vec<_>>().join("; "))
    }
}
