//! The faults that are made: each of one layer, because it is made there.

use model::{Cause, Layer, Verdict};

/// Who is at fault, and what a verdict may say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// This layer.
    Layer(Layer),
    /// Nobody can tell from the client: a verdict must not name a layer, but one of its alternatives must be this.
    Among(Cause),
    /// Nobody: nothing must be reported.
    Nobody,
    /// What is seen says that it is slow, and not where: it must be reported, and no layer named.
    Unseen,
}

impl Truth {
    /// Where the fault was made: unknown if nobody can see it, `None` if there was none.
    pub fn made_at(self) -> Option<Layer> {
        match self {
            Self::Layer(layer) => Some(layer),
            Self::Among(cause) => Some(cause.layer()),
            Self::Unseen => Some(Layer::Unknown),
            Self::Nobody => None,
        }
    }

    /// Whether a verdict names a layer that was not at fault.
    pub fn is_denied_by(self, verdict: &Verdict) -> bool {
        verdict.layer != Layer::Unknown && Some(verdict.layer) != self.made_at()
    }

    /// Whether a verdict says all that can be known of it.
    pub fn is_named_by(self, verdict: &Verdict) -> bool {
        match self {
            Self::Layer(layer) => verdict.layer == layer,
            Self::Among(cause) => {
                verdict.cause == Some(cause) || verdict.alternatives.iter().any(|other| other.cause == cause)
            }
            Self::Unseen => verdict.layer == Layer::Unknown,
            Self::Nobody => false,
        }
    }
}

/// Where a fault is made, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// None.
    Nothing,
    /// What the router sends to the server, to the client, or to both (netem's words).
    Path(RouterQueue, &'static str),
    /// What this host sends to the servers waits in its own queueing discipline (netem's words).
    OwnQueue(&'static str),
    /// A word for the server's host that makes the fault, and one that ends it.
    Server(&'static str, &'static str),
    /// A word for the server's host that makes its disk slow. The fault needs a disk that can be slow.
    SlowDisk(&'static str),
    /// The FUSE file system's control file.
    Fuse(&'static str),
}

/// Which of the router's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterQueue {
    Up,
    Down,
    Both,
}

/// One fault that `prove` makes.
#[derive(Debug, Clone, Copy)]
pub struct ProveFault {
    pub name: &'static str,
    pub truth: Truth,
    pub act: Act,
    /// On which protocols it is tried; empty: on all.
    pub protocols: &'static [&'static str],
}

const fn fault(name: &'static str, truth: Truth, act: Act) -> ProveFault {
    ProveFault { name, truth, act, protocols: &[] }
}

const NETWORK: Truth = Truth::Layer(Layer::Network);
const CLIENT: Truth = Truth::Layer(Layer::Client);
const SERVER: Truth = Truth::Layer(Layer::Server);

/// With a server behind a router.
pub const NETWORKED: [ProveFault; 13] = [
    fault("nothing is wrong", Truth::Nobody, Act::Nothing),
    fault("the path takes 50 ms more", NETWORK, Act::Path(RouterQueue::Both, "delay 25ms")),
    fault("the way back takes 40 ms more", NETWORK, Act::Path(RouterQueue::Down, "delay 40ms")),
    fault("the path loses 6 % of the packets", NETWORK, Act::Path(RouterQueue::Both, "loss 6%")),
    fault("the path forwards 1.5 Mbit/s", NETWORK, Act::Path(RouterQueue::Up, "rate 1500kbit limit 200")),
    fault("the path is cut", Truth::Among(Cause::NoPath), Act::Path(RouterQueue::Both, "loss 100%")),
    fault("this host's own queue holds packets for 60 ms", CLIENT, Act::OwnQueue("delay 60ms")),
    fault("the server's disk takes 80 ms for a write", SERVER, Act::SlowDisk("80")),
    fault("the server's disk takes no writes", SERVER, Act::Server("freeze", "thaw")),
    fault("the server's disk is full", SERVER, Act::Server("fill", "empty")),
    ProveFault {
        protocols: &["smb"],
        ..fault("the server's processes stand still", Truth::Among(Cause::Frozen), Act::Server("stop", "go-on"))
    },
    fault("the server's services are stopped", SERVER, Act::Server("down", "back")),
    fault("nothing is wrong any more", Truth::Nobody, Act::Nothing),
];

/// With a FUSE file system only: which side of it is slow cannot be seen.
pub const FUSE: [ProveFault; 6] = [
    fault("nothing is wrong", Truth::Nobody, Act::Nothing),
    fault("writes take 300 ms", Truth::Unseen, Act::Fuse("write=300")),
    fault("reads take 300 ms", Truth::Unseen, Act::Fuse("read=300")),
    fault("names take 300 ms", Truth::Unseen, Act::Fuse("lookup=300 create=300 unlink=300")),
    fault("writes fail", Truth::Unseen, Act::Fuse("write=EIO")),
    fault("nothing returns", Truth::Unseen, Act::Fuse("all=60000")),
];
