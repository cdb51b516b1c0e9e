//! The two ends of requests as one story: what a client saw of its slow requests, and what the server saw of the same ones.
//!
//! The ends have no common clock, so only durations are compared: what passed between sending and the answer's arrival at the client, less what the request
//! was on the server, was between the two. Both ends are taken for what they are, claims: what does not fit is refused ([`EndsRefusal`]), or said.
//!
//! [`pair`](pairing::pair) finds the requests of the client among those of the server, [`Offset`](clock::Offset) tells whether they can be the same ones, and
//! `judge` names the layer.

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

/// Nanoseconds since 1970 by the clock of the end that says so.
pub type WallNanos = i64;

/// What names a request at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKey {
    /// A call of RPC: the number of the client's address (`Served::client_number`), and the call's own, which the client chose.
    Rpc {
        /// The client.
        client: u32,
        /// The call.
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
    /// Until it was sent.
    pub queue: u64,
    /// Sent until answered.
    pub wire: u64,
    /// Answered until the requester had it.
    pub deliver: u64,
    /// Of `wire`: in this host's own queues for sending, its queueing discipline and TCP's, at most.
    pub held: u64,
    /// Of `wire`: the answer lay in the socket, at least.
    pub unread: u64,
    /// Packets lay in this host's queueing discipline when it ended, and how long they did is not known.
    pub queued_behind: bool,
    /// How often it was sent again.
    pub resent: u32,
    /// There was no answer, or none yet.
    pub unanswered: bool,
}

/// What the client's bundle says.
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
    /// Segments that this host itself held back or dropped meanwhile (`TCP_HELD`, `TCP_DROPPED` and their like).
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
    /// When all of it had come in.
    pub start: WallNanos,
    /// Until a thread had it.
    pub waited: u64,
    /// Until the answer was ready.
    pub executed: u64,
    /// Until TCP had the answer.
    pub sent: u64,
}

/// What the server's bundle or recording says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerEnd {
    /// The host's name.
    pub host: String,
    /// Version of the Plumbline there.
    pub version: String,
    /// What it served.
    pub requests: Vec<ServedRequest>,
    /// Records were lost, or the file is not whole.
    pub incomplete: bool,
}

/// Where requests were, nanoseconds: a sum, or one request's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndsTimes {
    /// On the client before it was sent.
    pub queue: u64,
    /// On the client, in its queues for sending.
    pub held: u64,
    /// Between the two.
    pub network: u64,
    /// On the server, until a thread had it.
    pub waited: u64,
    /// On the server, until the answer was ready.
    pub executed: u64,
    /// On the server, until TCP had the answer.
    pub sent: u64,
    /// On the client, in the socket.
    pub unread: u64,
    /// On the client, until the requester had it.
    pub deliver: u64,
}

impl EndsTimes {
    /// On the client.
    pub fn client(&self) -> u64 {
        [self.queue, self.held, self.unread, self.deliver].into_iter().fold(0, u64::saturating_add)
    }

    /// On the server.
    pub fn server(&self) -> u64 {
        self.waited.saturating_add(self.executed).saturating_add(self.sent)
    }

    /// In all.
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
    /// What names it.
    pub key: RequestKey,
    /// Its name on the client.
    pub operation: String,
    /// When it began, by the client's clock.
    pub start: WallNanos,
    /// Where it was.
    pub times: EndsTimes,
}

/// Requests of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedOperation {
    /// Their name.
    pub operation: String,
    /// Those that the server has seen.
    pub found: u64,
    /// Where those were, on average.
    pub times: EndsTimes,
}

/// Whose it is, by both ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndsVerdict {
    /// The layer with most of the time beyond what is usual.
    pub layer: Layer,
    /// From 0 to 1; 0 if the layer is unknown.
    pub confidence: f64,
    /// The requests of the incident were found at the server in sufficient share, and nothing speaks against it.
    pub proven: bool,
    /// The cause; `None` if the layer is unknown, or the cause is.
    pub cause: Option<Cause>,
    /// The evidence: one sentence for each figure.
    pub because: Vec<String>,
}

/// What both ends tell together.
#[derive(Debug, Clone, PartialEq)]
pub struct EndsStory {
    /// Requests of the client's incident.
    pub asked: u64,
    /// Those that the server has seen, the slowest first.
    pub joined: Vec<JoinedRequest>,
    /// By name, most time first.
    pub operations: Vec<JoinedOperation>,
    /// Where they were, on average.
    pub times: EndsTimes,
    /// The same, usually; `None` if that is not known.
    pub usual: Option<EndsTimes>,
    /// The server's clock less the client's, nanoseconds.
    pub clock_offset: WallNanos,
    /// Whose it is.
    pub verdict: EndsVerdict,
    /// What is to be known of the input.
    pub notes: Vec<String>,
}

/// Joins both ends.
///
/// # Errors
///
/// When they do not belong together, or one of them cannot be true.
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
