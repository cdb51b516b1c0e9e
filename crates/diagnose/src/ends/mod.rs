//! Joins the two ends of requests: what a client saw of its slow requests, and what the server saw of the same requests.
//!
//! The ends have no common clock, so only durations are compared. The network's time is the time from the sending to the answer's arrival at the
//! client, less the request's time on the server. What each end reports is only a claim: contradictory input is refused ([`EndsRefusal`]) or noted.
//!
//! [`pair`](pairing::pair) finds the client's requests among the server's, [`Offset`](clock::Offset) tells whether the pairs can be the same
//! requests, and `judge` names the layer.

mod clock;
mod judge;
mod pairing;
mod refusal;
mod settle;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr};

use model::{Cause, Layer};

pub use refusal::EndsRefusal;
pub use settle::BothSides;

/// Nanoseconds since 1970 by the clock of the end that reports them.
pub type WallNanos = i64;

/// Identifies a request at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKey {
    /// An RPC call.
    Rpc {
        /// The number of the client's address (`Served::client_number`).
        client: u32,
        /// The number of the call, which the client chose.
        xid: u32,
    },
    // SMB's will be SessionId and MessageId.
}

/// A slow request of the client's incident. Durations are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientRequest {
    /// The call's number.
    pub xid: u32,
    /// Its name.
    pub operation: String,
    /// When it began.
    pub start: WallNanos,
    /// From its start until it was sent.
    pub queue: u64,
    /// From the sending until the answer's arrival.
    pub wire: u64,
    /// From the answer's arrival until the requester had the answer.
    pub deliver: u64,
    /// The part of `wire` in this host's own send queues, those of its queueing discipline and of TCP: an upper bound.
    pub held: u64,
    /// The part of `wire` for which the answer lay unread in the socket: a lower bound.
    pub unread: u64,
    /// Whether packets lay in this host's queueing discipline when the request ended; for how long is not known.
    pub queued_behind: bool,
    /// How often the request was sent again.
    pub resent: u32,
    /// Whether the request has no answer, or none yet.
    pub unanswered: bool,
}

/// The contents of the client's bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientEnd {
    /// The host's name.
    pub host: String,
    /// Version of the Plumbline there.
    pub version: String,
    /// Its addresses; empty if they are not known.
    pub addresses: Vec<IpAddr>,
    /// The slow requests of its incident.
    pub requests: Vec<ClientRequest>,
    /// Medians of the time on the wire before the incident, nanoseconds, by operation.
    pub usual_wire: BTreeMap<String, u64>,
    /// Number of events of segments that this host itself held back or dropped meanwhile (`TCP_HELD`, `TCP_DROPPED` and similar).
    pub held_events: u64,
    /// Events were lost, or the bundle is not whole.
    pub incomplete: bool,
}

/// A request that the server served. Durations are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedRequest {
    /// The number of the client's address.
    pub client: u32,
    /// The call's number.
    pub xid: u32,
    /// Its name.
    pub operation: String,
    /// When all of the request had arrived.
    pub start: WallNanos,
    /// From its arrival until a thread took it.
    pub waited: u64,
    /// From then until the answer was ready.
    pub executed: u64,
    /// From then until TCP had the answer.
    pub sent: u64,
}

/// The contents of the server's bundle or recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerEnd {
    /// The host's name.
    pub host: String,
    /// Version of the Plumbline there.
    pub version: String,
    /// The requests that it served.
    pub requests: Vec<ServedRequest>,
    /// Records were lost, or the file is not whole.
    pub incomplete: bool,
}

/// Where requests spent their time, nanoseconds: one request, or a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndsTimes {
    /// On the client, before the request was sent.
    pub queue: u64,
    /// On the client, in its queues for sending.
    pub held: u64,
    /// On the network between client and server.
    pub network: u64,
    /// On the server, until a thread took the request.
    pub waited: u64,
    /// On the server, until the answer was ready.
    pub executed: u64,
    /// On the server, until TCP had the answer.
    pub sent: u64,
    /// On the client, while the answer lay unread in the socket.
    pub unread: u64,
    /// On the client, until the requester had the answer.
    pub deliver: u64,
}

impl EndsTimes {
    /// The time on the client.
    pub fn client(&self) -> u64 {
        [self.queue, self.held, self.unread, self.deliver].into_iter().fold(0, u64::saturating_add)
    }

    /// The time on the server.
    pub fn server(&self) -> u64 {
        self.waited.saturating_add(self.executed).saturating_add(self.sent)
    }

    /// The total time.
    pub fn all(&self) -> u64 {
        self.client().saturating_add(self.network).saturating_add(self.server())
    }

    fn each(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            queue: of(self.queue, other.queue),
            held: of(self.held, other.held),
            network: of(self.network, other.network),
            waited: of(self.waited, other.waited),
            executed: of(self.executed, other.executed),
            sent: of(self.sent, other.sent),
            unread: of(self.unread, other.unread),
            deliver: of(self.deliver, other.deliver),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn less(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn mean(self, count: u64) -> Self {
        let of_each = Self {
            queue: count,
            held: count,
            network: count,
            waited: count,
            executed: count,
            sent: count,
            unread: count,
            deliver: count,
        };
        self.each(of_each, |sum, count| sum / count.max(1))
    }
}

/// A request that both ends have seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedRequest {
    /// The request's key at both ends.
    pub key: RequestKey,
    /// Its name on the client.
    pub operation: String,
    /// When it began, by the client's clock.
    pub start: WallNanos,
    /// Where the request spent its time.
    pub times: EndsTimes,
}

/// Requests of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedOperation {
    /// The operation's name.
    pub operation: String,
    /// How many of the requests the server has seen.
    pub found: u64,
    /// Where these requests spent their time, on average.
    pub times: EndsTimes,
}

/// The verdict from both ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndsVerdict {
    /// The layer with most of the extra time, the time beyond the usual.
    pub layer: Layer,
    /// From 0 to 1; 0 if the layer is unknown.
    pub confidence: f64,
    /// Whether enough of the incident's requests were found at the server, and nothing speaks against the layer.
    pub proven: bool,
    /// The cause; `None` if the layer or the cause is unknown.
    pub cause: Option<Cause>,
    /// The evidence: one sentence for each figure.
    pub because: Vec<String>,
}

/// The result of joining both ends.
#[derive(Debug, Clone, PartialEq)]
pub struct EndsStory {
    /// Number of requests in the client's incident.
    pub asked: u64,
    /// The requests that the server has seen, the slowest first.
    pub joined: Vec<JoinedRequest>,
    /// The same by operation, the one with most time first.
    pub operations: Vec<JoinedOperation>,
    /// Where the requests spent their time, on average.
    pub times: EndsTimes,
    /// Where they usually spend their time; `None` if that is not known.
    pub usual: Option<EndsTimes>,
    /// The server's clock less the client's, nanoseconds.
    pub clock_offset: WallNanos,
    /// The verdict.
    pub verdict: EndsVerdict,
    /// Remarks on the input, for instance on what was left out.
    pub notes: Vec<String>,
}

/// Joins both ends.
///
/// # Errors
///
/// If the ends do not belong together, or contradict each other.
pub fn join(client: &ClientEnd, server: &ServerEnd) -> Result<EndsStory, EndsRefusal> {
    if client.requests.is_empty() {
        return Err(EndsRefusal::NoRequests);
    }
    if server.requests.is_empty() {
        return Err(EndsRefusal::NothingServed);
    }
    let paired = pairing::pair(client, server)?;
    Ok(judge::judge(client, server, paired))
}
