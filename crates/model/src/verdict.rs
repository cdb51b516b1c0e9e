//! Who was at fault, as far as the evidence says.

use serde::{Deserialize, Serialize};

use crate::lenient::{lenient, lenient_list};

/// Where the time was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// This host: credits, queueing, scheduling, delivery.
    Client,
    /// Between the hosts.
    Network,
    /// The peer.
    Server,
    /// The evidence does not say.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What was wrong: the names that a verdict can give, each of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Client: requests waited for credits, slots or the connection before they were sent.
    Queue,
    /// Client: packets waited in this host's queueing discipline.
    OwnQueue,
    /// Client: TCP could not hand packets to this host's interface: it was down, or there was no route.
    OwnInterface,
    /// Client: this host's route to the server changed, and nothing came back by the new one.
    OwnRoute,
    /// Client: this host dropped segments itself: a filter, traffic control, a queueing discipline, or for want of memory.
    OwnDrops,
    /// Client: answers lay in the socket because the thread that reads it did not run.
    Receiver,
    /// Client: a thread that sends, reads or waits for answers was ready to run, and had no CPU.
    NoCpu,
    /// Client: answers were there, and the requester did not get them: it, or a worker, did not run.
    Delivery,
    /// Client: who called took the time itself, or waited for a processor or memory: its requests were answered fast.
    Requester,
    /// Client: it asks for several times as much as before, and gets it: its own load makes operations slow.
    Burst,
    /// Client: the daemon of this host that asks for everybody does not serve.
    OwnDaemon,
    /// Network: every round trip takes longer than before.
    LongerPath,
    /// Network: round trips take longer the more is sent: packets queue on the way.
    NarrowPath,
    /// Network: segments get lost.
    Loss,
    /// Network: nothing comes through.
    NoPath,
    /// Server: it is slow with some kinds of operations, and as fast as ever with others.
    SlowOperation,
    /// Server: it is slow with all that it is asked.
    SlowServer,
    /// Server: its host acknowledges requests, and its service does not answer.
    Frozen,
    /// Server: its host stood still for a while, and its clock with it, as a virtual machine that is paused.
    Paused,
    /// Server: its host is gone.
    HostGone,
    /// Server: it refused operations.
    Refused,
    /// Server: it closed or reset connections.
    Closed,
    /// Server: it no longer knows sessions or leases.
    SessionLost,
}

/// A cause and how likely it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Whose it is.
    pub layer: Layer,
    /// What it is.
    pub cause: Cause,
    /// From 0 to 1.
    pub confidence: f64,
}

/// Mean time per slow operation and phase, milliseconds; `None` where the evidence does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhasesMs {
    /// Before the request was handed to the connection.
    #[serde(deserialize_with = "lenient")]
    pub queue: Option<f64>,
    /// In this host's send path.
    #[serde(deserialize_with = "lenient")]
    pub send: Option<f64>,
    /// Between the hosts.
    #[serde(deserialize_with = "lenient")]
    pub network: Option<f64>,
    /// On the server.
    #[serde(deserialize_with = "lenient")]
    pub server: Option<f64>,
    /// From the answer's arrival until the requester had it.
    #[serde(deserialize_with = "lenient")]
    pub deliver: Option<f64>,
}

/// Which layer was at fault, how sure that is, and why. Serialises as the `verdict` of `incident.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// The layer at fault.
    #[serde(deserialize_with = "lenient")]
    pub layer: Layer,
    /// From 0 (no idea) to 1.
    #[serde(deserialize_with = "lenient")]
    pub confidence: f64,
    /// What was wrong there; `None` if the layer is unknown.
    #[serde(deserialize_with = "lenient")]
    pub cause: Option<Cause>,
    /// What else it may be, the likeliest first: of an unknown layer the two likeliest.
    #[serde(deserialize_with = "lenient_list")]
    pub alternatives: Vec<Alternative>,
    /// The figures that say so, one sentence each.
    #[serde(deserialize_with = "lenient_list")]
    pub because: Vec<String>,
    /// Where the time went.
    #[serde(deserialize_with = "lenient")]
    pub phases_ms: PhasesMs,
}

impl Layer {
    /// The word in JSON, logs and OTLP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Network => "network",
            Self::Server => "server",
            Self::Unknown => "unknown",
        }
    }
}

impl PhasesMs {
    /// Each phase with its name, in the order of time.
    pub fn named(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("queue", self.queue),
            ("send", self.send),
            ("network", self.network),
            ("server", self.server),
            ("deliver", self.deliver),
        ]
    }
}

impl Verdict {
    /// A verdict that admits that it is none, and why.
    pub fn unknown(because: impl Into<String>) -> Self {
        Self { because: vec![because.into()], ..Self::default() }
    }
}

impl Cause {
    /// All of them, in the order of layers.
    pub const ALL: [Self; 23] = [
        Self::Queue,
        Self::OwnQueue,
        Self::OwnInterface,
        Self::OwnRoute,
        Self::OwnDrops,
        Self::Receiver,
        Self::NoCpu,
        Self::Delivery,
        Self::Requester,
        Self::Burst,
        Self::OwnDaemon,
        Self::LongerPath,
        Self::NarrowPath,
        Self::Loss,
        Self::NoPath,
        Self::SlowOperation,
        Self::SlowServer,
        Self::Frozen,
        Self::Paused,
        Self::HostGone,
        Self::Refused,
        Self::Closed,
        Self::SessionLost,
    ];

    /// Whose it is.
    pub fn layer(self) -> Layer {
        match self {
            Self::Queue
            | Self::OwnQueue
            | Self::OwnInterface
            | Self::OwnRoute
            | Self::OwnDrops
            | Self::Receiver
            | Self::NoCpu
            | Self::Delivery
            | Self::Requester
            | Self::Burst
            | Self::OwnDaemon => Layer::Client,
            Self::LongerPath | Self::NarrowPath | Self::Loss | Self::NoPath => Layer::Network,
            Self::SlowOperation
            | Self::SlowServer
            | Self::Frozen
            | Self::Paused
            | Self::HostGone
            | Self::Refused
            | Self::Closed
            | Self::SessionLost => Layer::Server,
        }
    }

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::OwnQueue => "own_queue",
            Self::OwnInterface => "own_interface",
            Self::OwnRoute => "own_route",
            Self::OwnDrops => "own_drops",
            Self::Receiver => "receiver",
            Self::NoCpu => "no_cpu",
            Self::Delivery => "delivery",
            Self::Requester => "requester",
            Self::Burst => "burst",
            Self::OwnDaemon => "own_daemon",
            Self::LongerPath => "longer_path",
            Self::NarrowPath => "narrow_path",
            Self::Loss => "loss",
            Self::NoPath => "no_path",
            Self::SlowOperation => "slow_operation",
            Self::SlowServer => "slow_server",
            Self::Frozen => "frozen",
            Self::Paused => "paused",
            Self::HostGone => "host_gone",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::SessionLost => "session_lost",
        }
    }

    /// The same in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Queue => "requests queue on this host",
            Self::OwnQueue => "this host's queueing discipline holds packets back",
            Self::OwnInterface => "this host could not send: its interface was down, or it had no route",
            Self::OwnRoute => "this host sends by a new route, which leads nowhere",
            Self::OwnDrops => "this host drops segments itself",
            Self::Receiver => "this host reads answers late",
            Self::NoCpu => "threads of this host wait for a CPU",
            Self::Delivery => "this host delivers answers late",
            Self::Requester => "the callers wait on this host, for a processor, memory or each other",
            Self::Burst => "this host asks for several times as much as before",
            Self::OwnDaemon => "this host's daemon does not serve",
            Self::LongerPath => "the path became longer",
            Self::NarrowPath => "the path is too narrow for the load",
            Self::Loss => "the path loses segments",
            Self::NoPath => "the path is cut",
            Self::SlowOperation => "the server is slow with some kinds of operations",
            Self::SlowServer => "the server is slow",
            Self::Frozen => "the server's host is there and its service does not answer",
            Self::Paused => "the server's host stood still",
            Self::HostGone => "the server's host is gone",
            Self::Refused => "the server refuses",
            Self::Closed => "the server closes connections",
            Self::SessionLost => "the server forgot the session",
        }
    }
}

impl From<(Cause, f64)> for Alternative {
    fn from((cause, confidence): (Cause, f64)) -> Self {
        Self { layer: cause.layer(), cause, confidence }
    }
}
