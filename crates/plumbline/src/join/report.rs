//! The story as an object with stable names: what `--json` prints, and what the text is made of.

use diagnose::ends::{ClientEnd, EndsStory, EndsTimes, RequestKey, ServerEnd};
use jiff::Timestamp;
use model::{Cause, Layer, Served};
use serde::Serialize;

use crate::view::event::milliseconds;

/// Requests that are listed one by one.
const SLOWEST: usize = 10;

/// Where an end's file is, and what it is of.
pub struct EndAbout {
    /// The file.
    pub file: String,
    /// Its incident; empty of a recording.
    pub incident: String,
}

/// What both ends tell together. Times are milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct JoinReport {
    /// The client's end.
    pub client: JoinedEnd,
    /// The server's end.
    pub server: JoinedEnd,
    /// Requests of the client's incident.
    pub asked: u64,
    /// Those of them that the server has seen.
    pub found: u64,
    /// The server's clock less the client's.
    pub clock_offset_ms: f64,
    /// Whose it is.
    pub verdict: JoinVerdict,
    /// Where a request was, on average.
    pub mean: JoinTimes,
    /// The same before the incident; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<JoinTimes>,
    /// By operation, most time first.
    pub operations: Vec<JoinRow>,
    /// The slowest requests.
    pub slowest: Vec<JoinRow>,
    /// What is to be known of the files.
    pub notes: Vec<String>,
}

/// An end.
#[derive(Debug, Clone, Serialize)]
pub struct JoinedEnd {
    /// The host's name.
    pub host: String,
    /// Version of the Plumbline there.
    pub plumbline: String,
    /// The file.
    pub file: String,
    /// The incident; empty of a recording.
    pub incident: String,
    /// Requests that it tells of.
    pub requests: u64,
}

/// Whose it is, and how sure that is.
#[derive(Debug, Clone, Serialize)]
pub struct JoinVerdict {
    /// The layer.
    pub layer: Layer,
    /// From 0 to 1.
    pub confidence: f64,
    /// Whether both ends show it.
    pub proven: bool,
    /// The cause's word; `None` if it is not known.
    pub cause: Option<Cause>,
    /// The cause in words; empty if it is not known.
    pub said: &'static str,
    /// One sentence for each figure.
    pub because: Vec<String>,
}

/// Where the time was, milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct JoinTimes {
    /// In all.
    pub duration_ms: f64,
    /// On the client, in all; the next four are its parts.
    pub client_ms: f64,
    /// Until it was sent.
    pub client_queue_ms: f64,
    /// In the client's queues for sending.
    pub client_held_ms: f64,
    /// In the client's socket.
    pub client_unread_ms: f64,
    /// Until the requester had it.
    pub client_deliver_ms: f64,
    /// Between the two.
    pub network_ms: f64,
    /// On the server, in all; the next three are its parts.
    pub server_ms: f64,
    /// Until a thread had it.
    pub server_wait_ms: f64,
    /// Until it was executed.
    pub server_execute_ms: f64,
    /// Until TCP had the answer.
    pub server_send_ms: f64,
}

/// A request, or those of one operation, on average.
#[derive(Debug, Clone, Serialize)]
pub struct JoinRow {
    /// The operation.
    pub operation: String,
    /// How many: 1 of a request.
    pub count: u64,
    /// Of a request: when it began, by the client's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Of a request: the client's address, where its number tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Of a request: the call's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// Where the time was.
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
