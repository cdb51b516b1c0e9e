//! An HTTP server for one page, or for the answers of a [`Responder`]: one thread, a few connections, none of which blocks another.
//!
//! Every connection serves one request, and is then closed. The time to send the request and the time to receive the answer are limited. If all
//! connections are in use, the server closes the one that has waited longest for its request, or else one whose client receives nothing of its
//! answer. So slow clients lock out nobody.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use crate::{
    PageSource,
    answer::{answer, too_long},
};

/// The most connections at a time, which also limits the answers in memory. Further connections wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4;
/// The most bytes of a request, headers included.
const MAX_REQUEST: usize = 8192;
/// The time limit from the connection until the complete request.
const TO_ASK: Duration = Duration::from_secs(5);
/// The time limit from the request until the client has received the answer.
const TO_TAKE: Duration = Duration::from_secs(10);
/// A connection whose client receives nothing of the answer for so long may be closed for a new one.
const LAZY: Duration = Duration::from_secs(1);

/// Answers the requests of a server, over its own type of connections.
pub trait Responder: Send + Sync + 'static {
    /// A connection for requests. It never blocks: an operation that would block returns [`ErrorKind::WouldBlock`]. `flush` succeeds once the
    /// kernel has all data.
    type Connection: Read + Write + AsFd + Send;
    /// The thread's name.
    const THREAD: &'static str;
    /// A client may take this long to send its request, even if other clients wait.
    const PATIENCE: Duration;

    /// Accepts a non-blocking connection; `None`: the server closes the connection at once.
    fn connect(&self, stream: TcpStream, from: SocketAddr) -> Option<Self::Connection>;
    /// Whether the connection must write something before it can read more.
    fn wants_write(&self, connection: &Self::Connection) -> bool;
    /// The complete answer to a request. `head` is everything before the empty line of the request.
    fn answer(&self, head: &str, connection: &Self::Connection) -> Vec<u8>;
    /// Called when a connection fails before its request is complete.
    fn broken(&self, _connection: &Self::Connection, _error: &io::Error) {}
    /// Called when the last client has disconnected.
    fn rest(&self) {}
}

/// Serves a page in plain text.
struct PlainPage(Arc<dyn PageSource>);

impl Responder for PlainPage {
    type Connection = TcpStream;
    const THREAD: &'static str = "metrics";
    const PATIENCE: Duration = Duration::ZERO;

    fn connect(&self, stream: TcpStream, _from: SocketAddr) -> Option<TcpStream> {
        Some(stream)
    }

    fn wants_write(&self, _connection: &TcpStream) -> bool {
        false
    }

    fn answer(&self, head: &str, _connection: &TcpStream) -> Vec<u8> {
        answer(head, &*self.0)
    }

    fn rest(&self) {
        self.0.rest();
    }
}

/// An HTTP server, which runs until it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server for a page.
    ///
    /// # Errors
    ///
    /// When the address is in use, or is not an address of this host.
    pub fn start(address: SocketAddr, source: Arc<dyn PageSource>) -> Result<Self> {
        Self::serve(address, PlainPage(source))
    }

    /// Starts a server that answers with `responder`.
    ///
    /// # Errors
    ///
    /// When the address is in use, or is not an address of this host.
    pub fn serve<R: Responder>(address: SocketAddr, responder: R) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let work = move || ServerLoop { listener, responder, stop: stopped, connections: Vec::new() }.serve();
        let thread = std::thread::Builder::new().name(R::THREAD.into()).stack_size(256 << 10).spawn(work);
        Ok(Self { address, stop, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    /// Returns once the server's socket is closed. The caller must hold no lock that the source needs for an answer.
    fn drop(&mut self) {
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct ServerLoop<R: Responder> {
    listener: TcpListener,
    responder: R,
    stop: Arc<EventFd>,
    connections: Vec<HttpConnection<R::Connection>>,
}

struct HttpConnection<C> {
    stream: C,
    deadline: Instant,
    /// When the client last received a part of its answer.
    moved: Instant,
    state: HttpState,
}

enum HttpState {
    Asking(Vec<u8>),
    Taking { answer: Vec<u8>, taken: usize },
    Done,
}

impl<R: Responder> ServerLoop<R> {
    fn serve(mut self) {
        while !self.is_stopped() {
            self.wait();
            self.accept();
            for index in 0..self.connections.len() {
                if let Some(connection) = self.connections.get_mut(index) {
                    connection.advance(&self.responder);
                }
            }
            let now = Instant::now();
            let before = self.connections.len();
            self.connections.retain(|one| !matches!(one.state, HttpState::Done) && one.deadline > now);
            if before > 0 && self.connections.is_empty() {
                self.responder.rest();
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.read().is_ok()
    }

    /// Waits until a socket is ready, or a time limit expires.
    fn wait(&self) {
        let now = Instant::now();
        let full = (!self.has_room()).then(|| if R::PATIENCE.is_zero() { LAZY } else { R::PATIENCE.min(LAZY) });
        let deadlines = self.connections.iter().map(|one| one.deadline.saturating_duration_since(now));
        let next = deadlines.chain(full).min();
        let timeout = next.map_or(PollTimeout::NONE, |next| {
            PollTimeout::try_from(next + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut wanted = vec![PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        if self.has_room() {
            wanted.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        wanted.extend(self.connections.iter().map(|one| {
            let flags = match one.state {
                HttpState::Asking(_) if !self.responder.wants_write(&one.stream) => PollFlags::POLLIN,
                HttpState::Asking(_) => PollFlags::POLLIN | PollFlags::POLLOUT,
                _ => PollFlags::POLLOUT,
            };
            PollFd::new(one.stream.as_fd(), flags)
        }));
        if poll(&mut wanted, timeout).is_err() {
            // Memory is exhausted for the moment. The pause, after any error, prevents a busy loop.
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn has_room(&self) -> bool {
        self.connections.len() < MAX_CONNECTIONS || self.first_to_go().is_some()
    }

    fn first_to_go(&self) -> Option<usize> {
        let is_asking = |one: &HttpConnection<_>| matches!(one.state, HttpState::Asking(_));
        let patience = |one: &HttpConnection<_>| if is_asking(one) { R::PATIENCE } else { LAZY };
        let may_go = self.connections.iter().enumerate().filter(|(_, one)| one.moved.elapsed() >= patience(one));
        may_go.min_by_key(|(_, one)| (!is_asking(one), one.moved)).map(|(index, _)| index)
    }

    fn accept(&mut self) {
        // The number per round is limited, so that new connections do not delay the answers of earlier ones.
        for _ in 0..MAX_CONNECTIONS {
            if !self.has_room() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, from)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let Some(stream) = self.responder.connect(stream, from) else { continue };
                    if self.connections.len() >= MAX_CONNECTIONS
                        && let Some(index) = self.first_to_go()
                    {
                        self.connections.swap_remove(index);
                    }
                    let now = Instant::now();
                    let state = HttpState::Asking(Vec::new());
                    self.connections.push(HttpConnection { stream, deadline: now + TO_ASK, moved: now, state });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Descriptors may be exhausted. The listener stays readable, so the pause prevents a busy loop.
                    std::thread::sleep(Duration::from_millis(100));
                    return;
                }
            }
        }
    }
}

impl<C: Read + Write + AsFd + Send> HttpConnection<C> {
    /// Advances the connection as far as possible without blocking.
    fn advance(&mut self, responder: &impl Responder<Connection = C>) {
        if let HttpState::Asking(request) = &mut self.state {
            let Some(answer) = ask(&mut self.stream, request, responder) else { return };
            self.moved = Instant::now();
            self.deadline = self.moved + TO_TAKE;
            self.state = answer;
        }
        if let HttpState::Taking { answer, taken } = &mut self.state {
            while let Some(rest) = answer.get(*taken..).filter(|rest| !rest.is_empty()) {
                match self.stream.write(rest) {
                    Ok(written) if written > 0 => {
                        *taken += written;
                        self.moved = Instant::now();
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                    _ => break,
                }
            }
            if self.stream.flush().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return;
            }
            self.state = HttpState::Done;
        }
    }
}

/// Reads the available part of the request. Returns the next state if the request is complete, or if nothing more will arrive.
fn ask<R: Responder>(stream: &mut R::Connection, request: &mut Vec<u8>, responder: &R) -> Option<HttpState> {
    let mut buffer = [0; 2048];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Some(HttpState::Done),
            Ok(count) => request.extend(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => {
                responder.broken(stream, &error);
                return Some(HttpState::Done);
            }
        }
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(request.get(..end).unwrap_or_default()).into_owned();
            return Some(HttpState::Taking { answer: responder.answer(&head, stream), taken: 0 });
        }
        if request.len() >= MAX_REQUEST {
            return Some(HttpState::Taking { answer: too_long(), taken: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    struct TestPage;

    impl PageSource for TestPage {
        fn name(&self) -> &'static str {
            "a test"
        }
        fn page(&self, _: Format) -> Option<Vec<u8>> {
            Some(b"a_page 1\n".to_vec())
        }
    }

    /// A server, for as long as `clients` talk to it.
    fn with_server(clients: impl FnOnce(SocketAddr)) {
        let server = HttpServer::start("127.0.0.1:0".parse().unwrap(), Arc::new(TestPage)).unwrap();
        clients(server.address());
    }

    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn each_request_gets_its_answer() {
        with_server(|address| {
            for (request, status) in [
                ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
                ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "200 OK"),
                ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
                ("GET /../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
                ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
                ("GET /metrics\r\n\r\n", "400 Bad Request"),
                ("GET /metrics HTTP/2.0\r\n\r\n", "400 Bad Request"),
                ("\0\u{ff}\r\n\r\n", "400 Bad Request"),
            ] {
                let answer = exchange(address, request.as_bytes());
                assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
            }
            let head = exchange(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
            let long = exchange(address, &[b'x'; MAX_REQUEST]);
            assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
        });
    }

    #[test]
    fn those_who_say_nothing_shut_nobody_out() {
        with_server(|address| {
            let silent: Vec<_> = (0..3 * MAX_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
            let answer = exchange(address, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.contains("a_page 1"), "{answer}");
            drop(silent);
        });
    }

    #[test]
    fn those_who_take_nothing_make_room_for_those_who_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(EventFd::new().unwrap());
        let connection = |state, moved| {
            let (stream, now) = (TcpStream::connect(address).unwrap(), Instant::now());
            HttpConnection { stream, deadline: now + TO_TAKE, moved: now - moved, state }
        };
        let taking = || HttpState::Taking { answer: vec![0], taken: 0 };
        let mut work = ServerLoop { listener, responder: PlainPage(Arc::new(TestPage)), stop, connections: vec![] };
        work.connections
            .extend((0..MAX_CONNECTIONS as u32).map(|n| connection(taking(), LAZY / 2 * n / MAX_CONNECTIONS as u32)));
        assert_eq!(work.first_to_go(), None);
        work.connections[2].moved -= LAZY;
        assert_eq!(work.first_to_go(), Some(2));
        work.connections[1].state = HttpState::Asking(vec![]);
        assert_eq!(work.first_to_go(), Some(1), "who has asked for nothing goes first");
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_and_is_free_once_the_server_has_gone() {
        let server = HttpServer::start("127.0.0.1:0".parse().unwrap(), Arc::new(TestPage)).unwrap();
        let address = server.address();
        assert!(HttpServer::start(address, Arc::new(TestPage)).is_err());
        drop(server);
        assert!(HttpServer::start(address, Arc::new(TestPage)).is_ok());
    }
}
