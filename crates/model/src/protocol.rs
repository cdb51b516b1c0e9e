//! Which operations a probe can name.

use std::fmt;

/// What one probe watches: its name and its operations. Each probe defines its own, as a static.
#[derive(Debug)]
pub struct Protocol {
    /// `smb`, `syscalls`: the name in commands, configuration, metrics and file names.
    pub name: &'static str,
    /// Operation names; the index is the code that the kernel side uses. An empty name is a hole.
    pub operations: &'static [&'static str],
    /// Codes of operations that wait by design (a change notification lasts until something changes),
    /// so that only a rule that names them judges them.
    pub waits_by_design: &'static [u16],
    /// Codes of operations that belong to healthy work and do not wait: no rule judges them either unless it names them.
    pub only_by_name: &'static [u16],
    /// Where on the way of an I/O the probe sees them.
    pub level: Level,
    /// The types of file systems whose requests these are, as mountinfo has them.
    pub filesystems: &'static [&'static str],
    /// Which way an operation of this name moves bytes, if it does.
    pub direction: fn(&str) -> Option<Direction>,
    /// The name of an operation's status code, where the protocol has names: `0xC0000022` is `STATUS_ACCESS_DENIED`.
    pub status_name: fn(u32) -> Option<&'static str>,
    /// The status code of that name, where the protocol has names.
    pub status_named: fn(&str) -> Option<u32>,
    /// One of those names, for who has misspelt another; empty where there are none that anybody knows.
    pub status_example: &'static str,
    /// The errno, positive, that the application gets for a status code; 0 if that cannot be said.
    pub status_errno: fn(u32) -> u32,
    /// Failures that belong to healthy work, such as a look for a file that is not there: only a rule that names them
    /// counts them. At most 32.
    pub ordinary: &'static [Code],
    /// What its operations say of the names of files.
    pub file_names: FileNames,
    /// Status codes by which a server asks to be asked again later: the client does so, and the application waits.
    pub later: &'static [u32],
}

/// Where on the way of an I/O a probe sees operations, uppermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Calls of a library. A thread in one may be anywhere: computing, or asking again and again for an answer.
    Library,
    /// System calls.
    SystemCall,
    /// Operations of a file system, whichever it is.
    FileSystem,
    /// Requests to a daemon of this host, which asks the servers for everybody.
    Proxy,
    /// Requests of a client in the kernel to a server.
    Request,
    /// What TCP sends for requests.
    Transport,
    /// What happens to the connections with servers.
    Connection,
}

impl Level {
    /// Whether a server stands behind the operations, so that the time can be the network's or the server's.
    pub fn is_remote(self) -> bool {
        self >= Self::Proxy
    }
}

/// What a probe's operations say of the name of the file that they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileNames {
    /// Nothing.
    None,
    /// Its last component.
    Last,
    /// A path, as far as there is room for it.
    Path,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the application.
    Read,
    /// From it.
    Written,
}

/// What says how an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The protocol's own status.
    Status(u32),
    /// The errno, positive.
    Errno(u32),
}

impl Protocol {
    /// One without operations, or statuses of its own: what fails says so by its errno. System calls, if nothing else is said.
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

/// No two have one name.
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

    /// The field's own name: `SMB2_WRITE`, `read`.
    pub fn name(self) -> &'static str {
        self.protocol.operations.get(usize::from(self.code)).copied().unwrap_or("")
    }

    /// Where on the way of an I/O it is seen.
    pub fn level(self) -> Level {
        self.protocol.level
    }

    /// Which way it moves bytes, if it does.
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
