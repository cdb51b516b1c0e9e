//! Answers questions about what this host's NFS server has served recently. The answer is only about the host that asks.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use exposition::{HttpServer, Responder, plain, read_request, whole};
use model::{Event, Incident, Level, Mount, Nanos, Requester, Served, text::printable};
use probes::Recorder;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{LONGEST, MAX_CLIENTS, PATH, limit::RateLimit, tls};
use crate::{
    config::PeersConfig,
    evidence::in_memory,
    publish::{Exchange, Outcomes},
    view::{clock::Clock, event},
    who::Cgroup,
};

/// How long a question waits for the daemon before it fails.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The most requests in an answer, the newest ones: as many as a bundle has of a flight recorder.
const MAX_REQUESTS: usize = 20_000;
/// The most questions per minute: of one address, and of all.
const QUESTIONS: (usize, usize) = (6, 120);
/// The most connections per minute, of one address and of all: each costs a handshake.
const CONNECTIONS: (usize, usize) = (12, 600);
/// The shortest time between two log lines about hosts that were refused.
const QUIET: Duration = Duration::from_secs(60);

/// The daemon's data at one moment.
pub struct ServedNow {
    /// The flight recorder.
    pub recorder: Recorder,
    /// The moment, CLOCK_MONOTONIC.
    pub now: Nanos,
    /// The wall clock.
    pub clock: Clock,
    /// The host that answers, and its losses.
    pub about: Incident,
}

/// Starts to answer at this address. `outcomes`: counts of questions that were answered and of those that were refused.
///
/// # Errors
///
/// When a certificate or a key cannot be used, or the address is in use or not one of this host's.
pub fn serve(
    address: SocketAddr,
    config: &PeersConfig,
    exchange: Arc<Exchange<ServedNow>>,
    outcomes: Arc<Outcomes>,
) -> Result<HttpServer> {
    let tls = Arc::new(tls::PeerIdentity::read(config)?.serving()?);
    let limits = PeerLimits {
        questions: RateLimit::new(QUESTIONS.0, QUESTIONS.1),
        connections: RateLimit::new(CONNECTIONS.0, CONNECTIONS.1),
        told: None,
    };
    let exporter = ServedExporter { exchange, tls, outcomes, limits: Mutex::new(limits) };
    HttpServer::serve(address, exporter).with_context(|| format!("cannot listen at {address}"))
}

struct ServedExporter {
    exchange: Arc<Exchange<ServedNow>>,
    tls: Arc<ServerConfig>,
    outcomes: Arc<Outcomes>,
    limits: Mutex<PeerLimits>,
}

struct PeerLimits {
    questions: RateLimit,
    connections: RateLimit,
    /// When the log last reported a refused host.
    told: Option<Instant>,
}

/// A connection of a peer.
struct PeerConnection {
    tls: StreamOwned<ServerConnection, TcpStream>,
    from: IpAddr,
}

impl Read for PeerConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tls.read(buffer)
    }
}

impl Write for PeerConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tls.flush()
    }
}

impl AsFd for PeerConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tls.sock.as_fd()
    }
}

impl Responder for ServedExporter {
    type Connection = PeerConnection;
    const THREAD: &'static str = "peers";
    const PATIENCE: Duration = Duration::from_millis(500);

    fn connect(&self, stream: TcpStream, from: SocketAddr) -> Option<PeerConnection> {
        let from = from.ip().to_canonical();
        self.limits().connections.take(from, Instant::now()).ok()?;
        let tls = ServerConnection::new(Arc::clone(&self.tls)).ok()?;
        Some(PeerConnection { tls: StreamOwned::new(tls, stream), from })
    }

    fn wants_write(&self, connection: &PeerConnection) -> bool {
        connection.tls.conn.wants_write()
    }

    fn answer(&self, head: &str, connection: &PeerConnection) -> Vec<u8> {
        let answer = self.answer_of(head, connection);
        match &answer {
            Ok(_) => self.outcomes.succeeded(),
            Err(_) => self.outcomes.failed(1),
        }
        answer.unwrap_or_else(|refusal| refusal)
    }

    fn broken(&self, connection: &PeerConnection, error: &io::Error) {
        self.outcomes.failed(1);
        let mut limits = self.limits();
        if limits.told.is_none_or(|at| at.elapsed() >= QUIET) {
            limits.told = Some(Instant::now());
            let why = printable(error.to_string().as_bytes());
            tracing::warn!("peers: {} was not let in: {why}", connection.from);
        }
    }

    fn rest(&self) {
        crate::daemon::release_free_memory();
    }
}

impl ServedExporter {
    fn limits(&self) -> std::sync::MutexGuard<'_, PeerLimits> {
        // No code under the lock can panic halfway through an update, so the state of a poisoned lock is consistent.
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inner error: an answer that says why the question is refused.
    fn answer_of(&self, head: &str, connection: &PeerConnection) -> Result<Vec<u8>, Vec<u8>> {
        let request = read_request(head)?;
        let words = |status: &str, text: &str| plain(status, text, request.with_body);
        let question = ServedQuestion::parse(request.target).map_err(|wrong| match wrong {
            WrongQuestion::Path => words("404 Not Found", "the served requests are at /served\n"),
            WrongQuestion::Query(why) => words("400 Bad Request", &format!("{why}\n")),
        })?;
        if let Err(wait) = self.limits().questions.take(connection.from, Instant::now()) {
            let seconds = wait.as_secs() + 1;
            let text = format!("too many questions; ask again in {seconds} s\n");
            let again = format!("Retry-After: {seconds}\r\n");
            let body = text.into_bytes();
            return Err(whole("429 Too Many Requests", "text/plain; charset=utf-8", &again, body, request.with_body));
        }
        let certificate = connection.tls.conn.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.ok_or_else(|| words("403 Forbidden", "a client certificate is required\n"))?;
        let is_own = |address: IpAddr| address == connection.from || tls::names(certificate, address);
        if let Some(other) = question.clients.iter().find(|address| !is_own(**address)) {
            let text = format!(
                "{other} is not an address of yours: your connection is from another address, and your certificate does not name {other}. This daemon tells \
                 a client nothing about other clients\n"
            );
            return Err(words("403 Forbidden", &text));
        }
        let busy = || words("503 Service Unavailable", "the daemon is busy; try again in a moment\n");
        let now = self.exchange.ask(TIMEOUT).ok_or_else(busy)?;
        let clients: Vec<_> =
            question.clients.iter().chain([&connection.from]).map(|one| Served::client_number(*one)).collect();
        let bundle = bundle(&now, &clients, question.seconds).map_err(|_| busy())?;
        Ok(whole("200 OK", "application/zstd", "", bundle, request.with_body))
    }
}

/// A question.
#[derive(Debug, PartialEq, Eq)]
struct ServedQuestion {
    /// How far back the question goes, seconds.
    seconds: u32,
    /// The addresses that are asked about, besides the one from which the question comes.
    clients: Vec<IpAddr>,
}

/// Why a request is not a valid question.
#[derive(Debug, PartialEq, Eq)]
enum WrongQuestion {
    Path,
    Query(String),
}

impl ServedQuestion {
    fn parse(target: &str) -> Result<Self, WrongQuestion> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path != PATH {
            return Err(WrongQuestion::Path);
        }
        let wrong = |text: String| Err(WrongQuestion::Query(text));
        let mut question = Self { seconds: 0, clients: Vec::new() };
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("seconds", number)) => match number.parse() {
                    Ok(seconds) if (1..=LONGEST).contains(&seconds) => question.seconds = seconds,
                    _ => return wrong(format!("seconds is a whole number from 1 to {LONGEST}")),
                },
                Some(("client", address)) => match address.parse::<IpAddr>() {
                    Ok(address) if question.clients.len() < MAX_CLIENTS => {
                        question.clients.push(address.to_canonical());
                    }
                    _ => return wrong(format!("client is an address, and there are {MAX_CLIENTS} at most")),
                },
                _ => return wrong("ask for seconds=N, and client=ADDRESS if need be".to_owned()),
            }
        }
        if question.seconds == 0 {
            return wrong("say how far back: seconds=N".to_owned());
        }
        Ok(question)
    }
}

/// The requests of these clients, as a bundle. It contains nothing about the server's files and processes or about other clients.
fn bundle(now: &ServedNow, clients: &[u32], seconds: u32) -> io::Result<Vec<u8>> {
    let since = now.now.saturating_sub(u64::from(seconds) * 1_000_000_000);
    let is_asked = |event: &Event| {
        event.operation.level() == Level::Served
            && u32::try_from(event.connection).is_ok_and(|client| clients.contains(&client))
    };
    let events: Vec<_> = now.recorder.events_since(since, usize::MAX).filter(is_asked).collect();
    let newest = events.get(events.len().saturating_sub(MAX_REQUESTS)..).unwrap_or_default();
    let (nowhere, nobody) = (Mount::default(), Cgroup::default());
    let mut lines = Vec::new();
    for event in newest {
        let event = Event { requester: Requester::default(), ..event.clone() };
        serde_json::to_writer(&mut lines, &event::line(&event, &nowhere, &nobody, &now.clock))?;
        lines.push(b'\n');
    }
    in_memory(&[("incident.json", &serde_json::to_vec(&now.about)?), ("recorder.jsonl", &lines)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_understood_or_it_is_said_what_is_wrong_with_it() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(ServedQuestion::parse("/served?seconds=45"), Ok(ServedQuestion { seconds: 45, clients: vec![] }));
        let clients = vec![address("10.0.0.1"), address("fe80::1"), address("10.0.0.2")];
        let text = "/served?client=10.0.0.1&seconds=120&client=fe80::1&client=::ffff:10.0.0.2";
        assert_eq!(ServedQuestion::parse(text), Ok(ServedQuestion { seconds: 120, clients }));
        assert_eq!(ServedQuestion::parse("/"), Err(WrongQuestion::Path));
        assert_eq!(ServedQuestion::parse("/metrics?seconds=1"), Err(WrongQuestion::Path));
        let many = format!("/served?seconds=1{}", "&client=10.0.0.1".repeat(MAX_CLIENTS + 1));
        for wrong in [
            "/served",
            "/served?",
            "/served?seconds=0",
            "/served?seconds=121",
            "/served?seconds=-1",
            "/served?seconds=1&client=",
            "/served?seconds=1&client=all",
            "/served?seconds=1&mount=/srv",
            "/served?client=10.0.0.1",
            &many,
        ] {
            assert!(matches!(ServedQuestion::parse(wrong), Err(WrongQuestion::Query(_))), "{wrong}");
        }
    }
}
