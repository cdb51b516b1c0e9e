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

/// The properties of an operation to which a scope can refer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKey {
    /// The mount point.
    Mount,
    /// The server's name as it was mounted, in any case.
    Server,
    /// The file-system type.
    Fstype,
    /// The user id of the requester.
    User,
    /// The requester's cgroup, or one above it.
    Cgroup,
    /// The container's short id, or its name.
    Container,
    /// The namespace in Kubernetes of the requester's pod.
    Namespace,
    /// The requester's pod.
    Pod,
    /// The workload to which the requester's pod belongs.
    Workload,
    /// The name of the requester's job in a batch system, Kubernetes or systemd.
    Job,
    /// The name of the thread that asked.
    Process,
    /// The file's name; its path, where the value has a slash.
    File,
}

impl ScopeKey {
    /// Every key with its name in the configuration.
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

    /// The key's name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }

    /// Whether it is a property of the mount. Such a property is also known of operations that are only counted.
    pub fn is_of_mount(self) -> bool {
        matches!(self, Self::Mount | Self::Server | Self::Fstype)
    }

    /// Whether it is a property of the cgroup.
    pub fn is_of_cgroup(self) -> bool {
        matches!(self, Self::Cgroup | Self::Container | Self::Namespace | Self::Pod | Self::Workload | Self::Job)
    }
}

/// One value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeValue {
    /// A pattern that the property must match.
    Like(Pattern),
    /// A user: as written in the configuration, and the user id.
    User(String, u32),
}

/// A key with its values, one of which must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The property.
    pub key: ScopeKey,
    /// The values, at least one.
    pub values: Vec<ScopeValue>,
}

/// The operations for which a rule is. By default, these are all operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// All of these must match.
    pub only: Vec<Condition>,
    /// None of these may match.
    pub except: Vec<Condition>,
}

/// Why a scope does not include an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss<'a> {
    /// This condition of `only` does not match.
    Only(&'a Condition),
    /// This condition of `except` matches.
    Except(&'a Condition),
}

impl Scope {
    /// Whether the scope includes every operation, so that no property of an operation is needed.
    pub fn is_everything(&self) -> bool {
        self.only.is_empty() && self.except.is_empty()
    }

    /// The number of keys in `only`: the more keys, the more specific is the scope.
    pub fn keys(&self) -> usize {
        self.only.len()
    }

    /// Whether a condition refers to a key for which `is_such` is true.
    pub fn asks(&self, is_such: impl Fn(ScopeKey) -> bool) -> bool {
        self.only.iter().chain(&self.except).any(|condition| is_such(condition.key))
    }

    /// Whether the scope includes the operation. No value matches an unknown property.
    pub fn covers(&self, about: &OperationFacts<'_>) -> bool {
        self.miss(about).is_none()
    }

    /// Why the scope does not include the operation; `None` if it includes it.
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
