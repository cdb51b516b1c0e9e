//! The story as an object with stable names: the output of `--json`, and the input of the text.

use diagnose::ends::{ClientEnd, EndsStory, EndsTimes, RequestKey, ServerEnd};
use jiff::Timestamp;
use model::{Cause, Layer, Served};
use serde::Serialize;

use crate::view::event::milliseconds;

/// The most requests that are listed.
const SLOWEST: usize = 10;

/// An end's file and incident.
pub struct EndAbout {
    /// The file.
    pub file: String,
    /// The incident's id; empty for a recording.
    pub incident: String,
}

/// The story from both ends. Times are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct JoinReport {
    /// The client's end.
    pub client: JoinedEnd,
    /// The server's end.
    pub server: JoinedEnd,
    /// Requests of the client's incident.
    pub asked: u64,
    /// The number of these requests that the server has seen.
    pub found: u64,
    /// The server's clock less the client's.
    pub clock_offset_ms: f64,
    /// The layer at fault.
    pub verdict: JoinVerdict,
    /// The mean times of a request.
    pub mean: JoinTimes,
    /// The mean times of requests before the incident; absent if they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<JoinTimes>,
    /// The operations, most time first.
    pub operations: Vec<JoinRow>,
    /// The slowest requests.
    pub slowest: Vec<JoinRow>,
    /// Remarks about the files.
    pub notes: Vec<String>,
}

/// The client or the server.
#[derive(Debug, Clone, Serialize)]
pub struct JoinedEnd {
    /// The host's name.
    pub host: String,
    /// The version of Plumbline on this host.
    pub plumbline: String,
    /// The file.
    pub file: String,
    /// The incident's id; empty for a recording.
    pub incident: String,
    /// The number of requests in the file.
    pub requests: u64,
}

/// The layer at fault, with its confidence.
#[derive(Debug, Clone, Serialize)]
pub struct JoinVerdict {
    /// The layer.
    pub layer: Layer,
    /// From 0 to 1.
    pub confidence: f64,
    /// Whether the data of both ends show it.
    pub proven: bool,
    /// The cause; `None` if it is not known.
    pub cause: Option<Cause>,
    /// The cause in words; empty if it is not known.
    pub said: &'static str,
    /// One sentence for each figure.
    pub because: Vec<String>,
}

/// The parts of a request's time, milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct JoinTimes {
    /// The whole duration.
    pub duration_ms: f64,
    /// The time on the client; the next four are its parts.
    pub client_ms: f64,
    /// Until the request was sent.
    pub client_queue_ms: f64,
    /// In the client's queues for sending.
    pub client_held_ms: f64,
    /// Until the client read the answer from its socket.
    pub client_unread_ms: f64,
    /// Until the requester had the answer.
    pub client_deliver_ms: f64,
    /// The time between client and server.
    pub network_ms: f64,
    /// The time on the server; the next three are its parts.
    pub server_ms: f64,
    /// Until a thread took the request.
    pub server_wait_ms: f64,
    /// Until the request was executed.
    pub server_execute_ms: f64,
    /// Until the answer was passed to TCP.
    pub server_send_ms: f64,
}

/// A request, or the mean of the requests of one operation.
#[derive(Debug, Clone, Serialize)]
pub struct JoinRow {
    /// The operation.
    pub operation: String,
    /// The number of requests; 1 for a single request.
    pub count: u64,
    /// For a single request: when it began, by the client's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// For a single request: the client's address, if it can be told from the request's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// For a single request: the number of the RPC call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// The parts of the time.
    #[serde(flatten)]
    pub times: JoinTimes,
}

impl From<&EndsTimes> for JoinTimes {
    fn from(times: &EndsTimes) -> Self {
        Self {
            duration_ms: milliseconds(times.all()),
            client_ms: milliseconds(times.client()),
            client_queue_ms: milliseconds(times.queue),
            client_held_ms: milliseconds(times.held),
            client_unread_ms: milliseconds(times.unread),
            client_deliver_ms: milliseconds(times.deliver),
            network_ms: milliseconds(times.network),
            server_ms: milliseconds(times.server()),
            server_wait_ms: milliseconds(times.waited),
            server_execute_ms: milliseconds(times.executed),
            server_send_ms: milliseconds(times.sent),
        }
    }
}

impl JoinReport {
    /// The report of a story about these two files.
    pub fn new(story: &EndsStory, client: (EndAbout, &ClientEnd), server: (EndAbout, &ServerEnd)) -> Self {
        let (EndAbout { file, incident }, end) = client;
        let requests = end.requests.len() as u64;
        let client = JoinedEnd { host: end.host.clone(), plumbline: end.version.clone(), file, incident, requests };
        let (EndAbout { file, incident }, end) = server;
        let requests = end.requests.len() as u64;
        let server = JoinedEnd { host: end.host.clone(), plumbline: end.version.clone(), file, incident, requests };
        let verdict = &story.verdict;
        Self {
            client,
            server,
            asked: story.asked,
            found: story.joined.len() as u64,
            clock_offset_ms: story.clock_offset as f64 / 1e6,
            verdict: JoinVerdict {
                layer: verdict.layer,
                confidence: verdict.confidence,
                proven: verdict.proven,
                cause: verdict.cause,
                said: verdict.cause.map_or("", Cause::describe),
                because: verdict.because.clone(),
            },
            mean: (&story.times).into(),
            usual: story.usual.as_ref().map(Into::into),
            operations: story
                .operations
                .iter()
                .map(|of| JoinRow {
                    operation: of.operation.clone(),
                    count: of.found,
                    time: None,
                    client: None,
                    xid: None,
                    times: (&of.times).into(),
                })
                .collect(),
            slowest: story
                .joined
                .iter()
                .take(SLOWEST)
                .map(|one| {
                    let RequestKey::Rpc { client, xid } = one.key;
                    JoinRow {
                        operation: one.operation.clone(),
                        count: 1,
                        time: Timestamp::from_nanosecond(one.start.into()).ok().map(|time| format!("{time:.6}")),
                        client: Served::address(client).map(|address| address.to_string()),
                        xid: Some(xid),
                        times: (&one.times).into(),
                    }
                })
                .collect(),
            notes: story.notes.clone(),
        }
    }
}
