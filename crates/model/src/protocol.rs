//! The operations that a probe can name.

use std::fmt;

/// A probe's name and its operations. Each probe defines its own, as a static.
#[derive(Debug)]
pub struct Protocol {
    /// `smb`, `syscalls`: the name in commands, configuration, metrics and file names.
    pub name: &'static str,
    /// Operation names; the index is the code that the kernel side uses. An empty name: the code is not used.
    pub operations: &'static [&'static str],
    /// Codes of operations that wait by design (a change notification lasts until something changes),
    /// so that only a rule that names them judges them.
    pub waits_by_design: &'static [u16],
    /// Codes of operations that are part of normal work and do not wait: rules judge them only if a rule names them.
    pub only_by_name: &'static [u16],
    /// The layer of the I/O path at which the probe sees them.
    pub level: Level,
    /// The types, as in mountinfo, of the file systems that make these requests.
    pub filesystems: &'static [&'static str],
    /// The direction in which the operation of this name moves bytes; `None` if it moves none.
    pub direction: fn(&str) -> Option<Direction>,
    /// The name of a status code, if the protocol has names: `0xC0000022` is `STATUS_ACCESS_DENIED`.
    pub status_name: fn(u32) -> Option<&'static str>,
    /// The status code of that name, where the protocol has names.
    pub status_named: fn(&str) -> Option<u32>,
    /// One of those names, as an example for the message about a misspelt name; empty if the protocol has no well-known
    /// names.
    pub status_example: &'static str,
    /// The errno, positive, that the application gets for a status code; 0 if it is not known.
    pub status_errno: fn(u32) -> u32,
    /// Failures that are normal, such as a lookup of a file that does not exist: only a rule that names them counts
    /// them. At most 32.
    pub ordinary: &'static [Code],
    /// What the protocol's operations know of the names of files.
    pub file_names: FileNames,
    /// Status codes by which a server asks the client to retry later: the client does so, and the application waits.
    pub later: &'static [u32],
    /// Status codes by which a server refuses a request only because the request was sent before: the answer to the
    /// first one was lost with its connection.
    pub repeated: &'static [u32],
    /// Whether the requests of one mount go to several daemons, with one connection for each. The answers of the other daemons are
    /// then evidence about a daemon that is slow.
    pub has_daemons: bool,
}

/// The layer of the I/O path at which a probe sees operations, uppermost first. The last level is on no I/O path of this
/// host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Calls of a library. A thread in such a call need not wait in the kernel: it may compute, or poll for an answer.
    Library,
    /// System calls.
    SystemCall,
    /// Operations of a file system of any type.
    FileSystem,
    /// Operations that a site has defined: their layer is not known.
    Own,
    /// Requests to a daemon of this host, which sends requests to the servers for all its clients.
    Proxy,
    /// Requests of the kernel to the daemon of a file system (FUSE), which may ask a server.
    Daemon,
    /// Requests of a client in the kernel to a server.
    Request,
    /// TCP's sends for requests.
    Transport,
    /// Events of the connections with servers.
    Connection,
    /// Requests that this host serves for other hosts. The requesters wait on those hosts, so these requests are below no operation
    /// of this host.
    Served,
}

impl Level {
    /// Whether the operations depend on a server, so that the time can be the network's or the server's.
    pub fn is_remote(self) -> bool {
        self >= Self::Proxy && self != Self::Served
    }

    /// Whether the operations are calls of programs. What such a call waits for depends on the call: `read` may ask a server, the page cache
    /// or a disk.
    pub fn is_of_calls(self) -> bool {
        self <= Self::FileSystem
    }

    /// Whether this is the level of the requests that a file system of this host makes for the calls on its mounts.
    pub fn is_of_requests(self) -> bool {
        matches!(self, Self::Daemon | Self::Request)
    }
}

/// What a probe's operations know of the name of their file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileNames {
    /// Nothing.
    None,
    /// Its last component.
    Last,
    /// A path, as far as there is room for it.
    Path,
}

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the application.
    Read,
    /// From the application.
    Written,
}

/// A code that says how an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The protocol's own status.
    Status(u32),
    /// The errno, positive.
    Errno(u32),
}

impl Protocol {
    /// A template without operations and without status codes: failures are known by errno. The level is that of system
    /// calls.
    pub const BY_ERRNO: Self = Self {
        name: "",
        operations: &[],
        waits_by_design: &[],
        only_by_name: &[],
        level: Level::SystemCall,
        filesystems: &[],
        direction: |_| None,
        status_name: |_| None,
        status_named: |_| None,
        status_example: "",
        status_errno: |_| 0,
        ordinary: &[],
        file_names: FileNames::None,
        later: &[],
        repeated: &[],
        has_daemons: false,
    };

    /// The operation called `name`, in any case; with or without the protocol's own prefix (`SMB2_WRITE`, `write`).
    pub fn operation(&'static self, name: &str) -> Option<Operation> {
        let matches = |full: &str| {
            full.eq_ignore_ascii_case(name)
                || full
                    .split_once('_')
                    .is_some_and(|(prefix, rest)| prefix == "SMB2" && rest.eq_ignore_ascii_case(name))
        };
        let code = self.operations.iter().position(|full| !full.is_empty() && matches(full))?;
        self.operation_by_code(u16::try_from(code).ok()?)
    }

    /// The operation with this code, if the protocol has one.
    pub fn operation_by_code(&'static self, code: u16) -> Option<Operation> {
        let name = self.operations.get(usize::from(code))?;
        (!name.is_empty()).then_some(Operation { protocol: self, code })
    }

    /// Every operation, in the order of their codes.
    pub fn all_operations(&'static self) -> impl Iterator<Item = Operation> {
        (0..self.operations.len()).filter_map(|code| self.operation_by_code(u16::try_from(code).ok()?))
    }
}

/// Compares names, which are unique.
impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Protocol {}

/// One kind of operation of one protocol. Exists only for codes that the protocol names.
#[derive(Clone, Copy)]
pub struct Operation {
    protocol: &'static Protocol,
    code: u16,
}

impl Operation {
    /// The protocol this operation belongs to.
    pub fn protocol(self) -> &'static Protocol {
        self.protocol
    }

    /// The code the kernel side uses, an index into [`Protocol::operations`].
    pub fn code(self) -> u16 {
        self.code
    }

    /// The protocol's name for it: `SMB2_WRITE`, `read`.
    pub fn name(self) -> &'static str {
        self.protocol.operations.get(usize::from(self.code)).copied().unwrap_or("")
    }

    /// The layer of the I/O path at which it is seen.
    pub fn level(self) -> Level {
        self.protocol.level
    }

    /// The direction in which it moves bytes; `None` if it moves none.
    pub fn direction(self) -> Option<Direction> {
        (self.protocol.direction)(self.name())
    }

    /// True for operations that last until something happens elsewhere, such as a change notification.
    pub fn waits_by_design(self) -> bool {
        self.protocol.waits_by_design.contains(&self.code)
    }

    /// True for operations that no rule judges unless it names them.
    pub fn only_by_name(self) -> bool {
        self.waits_by_design() || self.protocol.only_by_name.contains(&self.code)
    }

    fn identity(self) -> (&'static str, u16) {
        (self.protocol.name, self.code)
    }
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Operation {}

impl std::hash::Hash for Operation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl PartialOrd for Operation {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Operation {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol.name, self.name())
    }
}
