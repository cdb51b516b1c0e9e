//! The faults that `prove` makes. The layer of each is known, because the fault is made there.

use model::{Cause, Layer, Verdict};

/// The layer at fault, and what a verdict may say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// This layer is at fault.
    Layer(Layer),
    /// The client cannot see which layer is at fault. A verdict must not name a layer, but one of its alternatives must be this cause.
    Among(Cause),
    /// There is no fault: no incident must be reported.
    Nobody,
    /// The client can see that the operations are slow, but not where: an incident must be reported without a layer.
    Unseen,
}

impl Truth {
    /// The layer in which the fault was made; unknown if nobody can see it, `None` if there was no fault.
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

    /// Whether a verdict says everything that can be known about the fault.
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

/// Where and how a fault is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// No fault.
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
    /// The protocols with which the fault is tried; empty: all.
    pub protocols: &'static [&'static str],
}

const fn fault(name: &'static str, truth: Truth, act: Act) -> ProveFault {
    ProveFault { name, truth, act, protocols: &[] }
}

const NETWORK: Truth = Truth::Layer(Layer::Network);
const CLIENT: Truth = Truth::Layer(Layer::Client);
const SERVER: Truth = Truth::Layer(Layer::Server);

/// The faults with a server behind a router.
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

/// The faults with only a FUSE file system: the client cannot see which side of it is slow.
pub const FUSE: [ProveFault; 6] = [
    fault("nothing is wrong", Truth::Nobody, Act::Nothing),
    fault("writes take 300 ms", Truth::Unseen, Act::Fuse("write=300")),
    fault("reads take 300 ms", Truth::Unseen, Act::Fuse("read=300")),
    fault("names take 300 ms", Truth::Unseen, Act::Fuse("lookup=300 create=300 unlink=300")),
    fault("writes fail", Truth::Unseen, Act::Fuse("write=EIO")),
    fault("nothing returns", Truth::Unseen, Act::Fuse("all=60000")),
];
