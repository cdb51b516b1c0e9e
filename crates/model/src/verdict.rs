//! The verdict: which layer was at fault, and the cause.

use serde::{Deserialize, Serialize};

use crate::lenient::{lenient, lenient_list};

/// Where the time was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// This host: credits, queueing, scheduling, delivery.
    Client,
    /// The path between the hosts.
    Network,
    /// The server: its host, or its service.
    Server,
    /// The evidence does not say.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The causes that a verdict can name. Each belongs to one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Client: requests waited for credits, slots or the connection before they were sent.
    Queue,
    /// Client: packets waited in this host's queueing discipline.
    OwnQueue,
    /// Client: TCP could not hand packets to this host's interface: it was down, or there was no route.
    OwnInterface,
    /// Client: this host's route to the server changed, and answers over the new route come late, or do not come at
    /// all.
    OwnRoute,
    /// Client: this host dropped segments because of a filter, traffic control, a queueing discipline or a lack of
    /// memory.
    OwnDrops,
    /// Client: the receive window that this host offers is too small for the answers: one round trip brings at most one
    /// window.
    OwnWindow,
    /// Client: an MTU that is set on this host's route makes the segments small.
    OwnMtu,
    /// Client: this host reset its connections, as a program asked it to.
    OwnReset,
    /// Client: answers lay in the socket because the thread that reads it did not run.
    Receiver,
    /// Client: a thread that sends, reads or waits for answers was ready to run, and had no CPU.
    NoCpu,
    /// Client: answers had arrived, but the requester did not get them: its thread, or a worker, did not run.
    Delivery,
    /// Client: requests were answered fast; the calling process took the time itself, or waited for a CPU, memory or a lock.
    Requester,
    /// Client: this host requests and receives several times as much as before: its own load makes
    /// operations slow.
    Burst,
    /// Client: the daemon of this host that sends requests for all its clients does not serve them.
    OwnDaemon,
    /// Client: a program of this host through which the requests go (a TLS tunnel, a sidecar) passes them on late, or not at all.
    OwnProxy,
    /// Client: the daemon of a FUSE file system is slow, or does not answer, and does not wait for a server.
    FuseDaemon,
    /// Network: all round trips take longer than before.
    LongerPath,
    /// Network: round trips get longer the more data is sent: packets queue on the path.
    NarrowPath,
    /// Network: segments get lost.
    Loss,
    /// Network: no packets get through.
    NoPath,
    /// Network: a host on the path resets connections in the server's name.
    PathReset,
    /// Server: it is slow with some kinds of operations, and with others as fast as before.
    SlowOperation,
    /// Server: it is slow with operations of all kinds.
    SlowServer,
    /// Server: its host acknowledges requests, but its file service does not answer.
    Frozen,
    /// Server: its host and its clock stood still for a while, as a paused virtual machine does.
    Paused,
    /// Server: its host is down.
    HostGone,
    /// Server: it refused operations.
    Refused,
    /// Server: it closed or reset connections.
    Closed,
    /// Server: it no longer recognises sessions or leases of this client.
    SessionLost,
    /// Server, as seen on the server: requests waited until one of the server's threads took them.
    NoThread,
    /// Server, as seen on the server: its file system, or the disk below it, took the time.
    SlowExecution,
}

/// A cause and how likely it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The layer it belongs to.
    pub layer: Layer,
    /// The cause.
    pub cause: Cause,
    /// How likely it is, from 0 to 1.
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

/// Which layer was at fault, how certain this is, and why. Serialises as the `verdict` of `incident.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// The layer at fault.
    #[serde(deserialize_with = "lenient")]
    pub layer: Layer,
    /// From 0 (no idea) to 1.
    #[serde(deserialize_with = "lenient")]
    pub confidence: f64,
    /// The cause; `None` if the layer is unknown.
    #[serde(deserialize_with = "lenient")]
    pub cause: Option<Cause>,
    /// Other possible causes, the likeliest first. If the layer is unknown, the two likeliest.
    #[serde(deserialize_with = "lenient_list")]
    pub alternatives: Vec<Alternative>,
    /// The evidence: one sentence for each figure.
    #[serde(deserialize_with = "lenient_list")]
    pub because: Vec<String>,
    /// The mean time of slow operations by phase.
    #[serde(deserialize_with = "lenient")]
    pub phases_ms: PhasesMs,
    /// Both ends show the operations: the server's daemon was asked for its observations.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
    pub proven: bool,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 4] = [Self::Client, Self::Network, Self::Server, Self::Unknown];

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

impl Alternative {
    /// The cause and its probability in words: `the path is cut (50 %)`.
    pub fn describe(&self) -> String {
        format!("{} ({:.0} %)", self.cause.describe(), self.confidence.clamp(0.0, 1.0) * 100.0)
    }
}

impl Verdict {
    /// A verdict of an unknown layer, with the reason.
    pub fn unknown(because: impl Into<String>) -> Self {
        Self { because: vec![because.into()], ..Self::default() }
    }

    /// The layer and the cause that it names.
    pub fn accused(&self) -> (Layer, Option<Cause>) {
        (self.layer, self.cause)
    }
}

impl Cause {
    /// Every cause, in the order of layers.
    pub const ALL: [Self; 31] = [
        Self::Queue,
        Self::OwnQueue,
        Self::OwnInterface,
        Self::OwnRoute,
        Self::OwnDrops,
        Self::OwnWindow,
        Self::OwnMtu,
        Self::OwnReset,
        Self::Receiver,
        Self::NoCpu,
        Self::Delivery,
        Self::Requester,
        Self::Burst,
        Self::OwnDaemon,
        Self::OwnProxy,
        Self::FuseDaemon,
        Self::LongerPath,
        Self::NarrowPath,
        Self::Loss,
        Self::NoPath,
        Self::PathReset,
        Self::SlowOperation,
        Self::SlowServer,
        Self::Frozen,
        Self::Paused,
        Self::HostGone,
        Self::Refused,
        Self::Closed,
        Self::SessionLost,
        Self::NoThread,
        Self::SlowExecution,
    ];

    /// The layer that the cause belongs to.
    pub fn layer(self) -> Layer {
        match self {
            Self::Queue
            | Self::OwnQueue
            | Self::OwnInterface
            | Self::OwnRoute
            | Self::OwnDrops
            | Self::OwnWindow
            | Self::OwnMtu
            | Self::OwnReset
            | Self::Receiver
            | Self::NoCpu
            | Self::Delivery
            | Self::Requester
            | Self::Burst
            | Self::OwnDaemon
            | Self::OwnProxy
            | Self::FuseDaemon => Layer::Client,
            Self::LongerPath | Self::NarrowPath | Self::Loss | Self::NoPath | Self::PathReset => Layer::Network,
            Self::SlowOperation
            | Self::SlowServer
            | Self::Frozen
            | Self::Paused
            | Self::HostGone
            | Self::Refused
            | Self::Closed
            | Self::SessionLost
            | Self::NoThread
            | Self::SlowExecution => Layer::Server,
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
            Self::OwnWindow => "own_window",
            Self::OwnMtu => "own_mtu",
            Self::OwnReset => "own_reset",
            Self::Receiver => "receiver",
            Self::NoCpu => "no_cpu",
            Self::Delivery => "delivery",
            Self::Requester => "requester",
            Self::Burst => "burst",
            Self::OwnDaemon => "own_daemon",
            Self::OwnProxy => "own_proxy",
            Self::FuseDaemon => "fuse_daemon",
            Self::LongerPath => "longer_path",
            Self::NarrowPath => "narrow_path",
            Self::Loss => "loss",
            Self::NoPath => "no_path",
            Self::PathReset => "path_reset",
            Self::SlowOperation => "slow_operation",
            Self::SlowServer => "slow_server",
            Self::Frozen => "frozen",
            Self::Paused => "paused",
            Self::HostGone => "host_gone",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::SessionLost => "session_lost",
            Self::NoThread => "no_thread",
            Self::SlowExecution => "slow_execution",
        }
    }

    /// The cause in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Queue => "requests queue on this host",
            Self::OwnQueue => "this host's queueing discipline holds packets back",
            Self::OwnInterface => "this host could not send: its interface was down, or it had no route",
            Self::OwnRoute => "this host uses a new route, which does not reach the server or takes longer",
            Self::OwnDrops => "this host drops segments itself",
            Self::OwnWindow => "this host's receive window is too small for the answers",
            Self::OwnMtu => "the MTU of this host's route makes segments small",
            Self::OwnReset => "this host ends its connections itself",
            Self::Receiver => "this host reads answers late",
            Self::NoCpu => "threads of this host wait for a CPU",
            Self::Delivery => "this host delivers answers late",
            Self::Requester => "the callers wait for something on this host: a CPU, memory, a lock or each other",
            Self::Burst => "this host's own load is several times as high as before",
            Self::OwnDaemon => "libcephfsd on this host does not serve requests",
            Self::OwnProxy => "a proxy program on this host delays the requests",
            Self::FuseDaemon => {
                "the FUSE daemon on this host is slow or does not answer, and does not wait for a server"
            }
            Self::LongerPath => "the path became longer",
            Self::NarrowPath => "the bandwidth of the path is too low for the load",
            Self::Loss => "the path loses segments",
            Self::NoPath => "the path is cut",
            Self::PathReset => "a host on the path resets connections",
            Self::SlowOperation => "the server is slow with some kinds of operations",
            Self::SlowServer => "the server is slow",
            Self::Frozen => "the server's host is up, but its service does not answer",
            Self::Paused => "the server's host was paused",
            Self::HostGone => "the server's host is down",
            Self::Refused => "the server refuses requests",
            Self::Closed => "the server closes connections",
            Self::SessionLost => "the server no longer knows the client's session",
            Self::NoThread => "requests wait for a thread of the server",
            Self::SlowExecution => "the server's file system, or its disk, is slow",
        }
    }
}

impl From<(Cause, f64)> for Alternative {
    fn from((cause, confidence): (Cause, f64)) -> Self {
        Self { layer: cause.layer(), cause, confidence }
    }
}
