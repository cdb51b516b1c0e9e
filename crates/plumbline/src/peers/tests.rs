//! Both sides over loopback, with certificates that openssl makes: who hears what, and who hears nothing.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use exposition::HttpServer;
use model::{EventLine, Host, Incident};
use nix::sys::eventfd::EventFd;
use probes::{RECORD_SIZE, RecorderCopy, Slice};
use rustls::{ClientConfig, ClientConnection, ServerConnection, StreamOwned, pki_types::ServerName};

use super::{
    PeerAsker, PeerQuestion, ServedNow, serve,
    tls::{self, PeerIdentity},
};
use crate::{
    config::{AskedServers, PeersConfig},
    evidence::{IncidentId, each_entry, read_incident},
    publish::{Exchange, Outcomes},
    view::clock::Clock,
};

const SECOND: u64 = 1_000_000_000;
/// The recorder's present.
const NOW: u64 = 1_000 * SECOND;

/// Certificates of two authorities.
struct Pki(tempfile::TempDir);

impl Pki {
    /// `None`, and a line that says so, without openssl.
    fn new(test: &str) -> Option<Self> {
        let pki = Self(tempfile::tempdir().unwrap());
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("SKIP {test}: there is no openssl");
            return None;
        }
        for authority in ["site", "other"] {
            pki.make(authority, None, &[]);
        }
        pki.issue("server", "site", "serverAuth", "IP:127.0.0.1");
        pki.issue("client", "site", "clientAuth", "IP:10.1.0.1,DNS:client,IP:127.0.0.1");
        pki.issue("false_client", "other", "clientAuth", "IP:10.1.0.1");
        Some(pki)
    }

    fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.0.path().join(format!("{name}.{kind}"))
    }

    fn issue(&self, name: &str, authority: &str, usage: &str, names: &str) {
        let (names, usage) = (format!("subjectAltName={names}"), format!("extendedKeyUsage={usage}"));
        self.make(
            name,
            Some(authority),
            &["-addext", &names, "-addext", &usage, "-addext", "basicConstraints=critical,CA:FALSE"],
        );
    }

    fn make(&self, name: &str, authority: Option<&str>, more: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
        openssl.args(["-subj", &format!("/CN={name}"), "-keyout"]).arg(self.path(name, "key"));
        openssl.arg("-out").arg(self.path(name, "pem")).args(more);
        if let Some(authority) = authority {
            openssl.arg("-CA").arg(self.path(authority, "pem")).arg("-CAkey").arg(self.path(authority, "key"));
        }
        let made = openssl.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn config(&self, name: &str, authority: &str) -> PeersConfig {
        PeersConfig {
            listen: None,
            ask: AskedServers::Nobody,
            timeout: Duration::from_secs(30),
            certificate: self.path(name, "pem"),
            key: self.path(name, "key"),
            authority: self.path(authority, "pem"),
        }
    }

    fn identity(&self, name: &str, authority: &str) -> PeerIdentity {
        PeerIdentity::read(&self.config(name, authority)).unwrap()
    }
}

/// A record of a WRITE of a client, as `struct record` lays it out.
fn record(client: &str, xid: u32, end: u64) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_SIZE];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &end.to_ne_bytes());
    put(16, &200_000_u32.to_ne_bytes());
    put(24, &150_000_u32.to_ne_bytes());
    put(28, &4711_u32.to_ne_bytes());
    put(52, &xid.to_ne_bytes());
    put(56, &38_u16.to_ne_bytes());
    put(58, &[16]);
    put(60, &client.parse::<std::net::Ipv4Addr>().unwrap().to_bits().to_ne_bytes());
    bytes
}

/// A daemon that has served three clients.
struct TestDaemon {
    server: Option<HttpServer>,
    outcomes: Arc<Outcomes>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestDaemon {
    fn start(pki: &Pki) -> Self {
        let (exchange, outcomes) = (Arc::new(Exchange::<ServedNow>::new().unwrap()), Arc::default());
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::clone(&exchange));
        let stopped = Arc::clone(&stop);
        let answer = move || {
            while !stopped.load(Ordering::Relaxed) {
                if asked.is_asked() {
                    asked.answer(served());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            asked.close();
        };
        let thread = Some(std::thread::spawn(answer));
        let config = pki.config("server", "site");
        let server = serve("127.0.0.1:0".parse().unwrap(), &config, exchange, Arc::clone(&outcomes)).unwrap();
        Self { server: Some(server), outcomes, stop, thread }
    }

    fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address()
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.server = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn served() -> ServedNow {
    let clients = [("127.0.0.1", 1), ("10.1.0.1", 2), ("10.9.9.9", 3)];
    let mut bytes: Vec<u8> = clients.iter().flat_map(|(client, xid)| record(client, *xid, NOW - SECOND)).collect();
    bytes.extend(record("127.0.0.1", 4, NOW - 100 * SECOND));
    let mut ring = RecorderCopy::new(1, 64).unwrap();
    ring.apply(&Slice { cpu: 0, first: 0, bytes });
    let host = Host { name: "server1".into(), plumbline: "1.0.0".into(), ..Host::default() };
    let about = Incident { id: "asked".into(), host, ..Incident::default() };
    ServedNow { recorder: ring.recorder(), now: NOW, clock: Clock::from_boot(0), about }
}

/// What a question is answered with, byte by byte.
fn asked(address: SocketAddr, tls: ClientConfig, target: &str) -> io::Result<Vec<u8>> {
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let connection = ClientConnection::new(Arc::new(tls), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(answer),
    }
}

/// The status, and what follows the head.
fn parts(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    (head.split(' ').nth(1).unwrap().to_owned(), answer[end + 4..].to_vec())
}

/// The numbers of the requests in an answer.
fn xids(bundle: &[u8]) -> Vec<u64> {
    let mut xids = Vec::new();
    each_entry(bundle, |name, _, content| {
        if name == "recorder.jsonl" {
            let text = io::read_to_string(content)?;
            for line in text.lines() {
                let line: EventLine<'_> = serde_json::from_str(line)?;
                assert_eq!((line.probe.as_ref(), line.operation.as_ref(), line.pid), ("server", "WRITE", 0));
                xids.extend(line.xid);
            }
        }
        Ok(true)
    })
    .unwrap();
    xids
}

#[test]
fn a_host_hears_what_was_served_to_itself_and_nothing_of_others() {
    let Some(pki) = Pki::new("a_host_hears_what_was_served_to_itself_and_nothing_of_others") else { return };
    let daemon = TestDaemon::start(&pki);
    let ask = |target: &str| {
        parts(&asked(daemon.address(), pki.identity("client", "site").asking().unwrap(), target).unwrap())
    };
    let (status, bundle) = ask("/served?seconds=30");
    assert_eq!((status.as_str(), xids(&bundle)), ("200", vec![1]), "the address that it asks from, of late");
    let incident = read_incident(&*bundle).unwrap();
    assert_eq!((incident.host.name.as_str(), incident.host.addresses.len()), ("server1", 0));
    let (_, bundle) = ask("/served?seconds=120&client=10.1.0.1");
    let mut all = xids(&bundle);
    all.sort_unstable();
    assert_eq!(all, [1, 2, 4], "and that which its certificate names");
    let (status, words) = ask("/served?seconds=30&client=10.9.9.9");
    let words = String::from_utf8(words).unwrap();
    assert!(status == "403" && words.starts_with("10.9.9.9 is not an address of yours"), "{status} {words}");
    assert_eq!((ask("/metrics").0.as_str(), ask("/served?seconds=9999").0.as_str()), ("404", "400"));
    assert_eq!(daemon.outcomes.read(), (2, 3));
}

#[test]
fn who_asks_too_often_hears_when_to_ask_again() {
    let Some(pki) = Pki::new("who_asks_too_often_hears_when_to_ask_again") else { return };
    let daemon = TestDaemon::start(&pki);
    let ask =
        || asked(daemon.address(), pki.identity("client", "site").asking().unwrap(), "/served?seconds=1").unwrap();
    for _ in 0..6 {
        assert_eq!(parts(&ask()).0, "200");
    }
    let answer = ask();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains(" 429 ") && text.contains("\r\nRetry-After: ") && text.contains("ask again in"), "{text}");
}

#[test]
fn without_a_certificate_of_the_authority_there_is_no_answer() {
    let Some(pki) = Pki::new("without_a_certificate_of_the_authority_there_is_no_answer") else { return };
    let daemon = TestDaemon::start(&pki);
    let ask = |tls| asked(daemon.address(), tls, "/served?seconds=30");
    let mut roots = rustls::RootCertStore::empty();
    let pem = std::fs::read(pki.path("site", "pem")).unwrap();
    for authority in rustls::pki_types::pem::PemObject::pem_slice_iter(&pem) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let nobody = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let nobody = nobody.with_root_certificates(roots).with_no_client_auth();
    assert!(ask(nobody).is_err(), "no certificate");
    // It trusts the server, and the server does not know it.
    let mut config = pki.config("false_client", "site");
    assert!(ask(PeerIdentity::read(&config).unwrap().asking().unwrap()).is_err(), "a certificate of another authority");
    // No TLS at all.
    let mut plain = TcpStream::connect(daemon.address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    plain.write_all(b"GET /served?seconds=30 HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|four| four == b"HTTP"), "{answer:?}");
    assert_eq!(daemon.outcomes.read(), (0, 3));
    // Files that are none, and a key of another certificate.
    config.key = pki.path("server", "key");
    assert!(PeerIdentity::read(&config).unwrap().asking().is_err());
    config.key = pki.path("site", "pem");
    let error = format!("{:#}", PeerIdentity::read(&config).err().unwrap());
    assert!(error.contains("site.pem") && error.contains("no private key"), "{error}");
    config.authority = Path::new("/nonexistent.pem").into();
    assert!(format!("{:#}", PeerIdentity::read(&config).err().unwrap()).contains("/nonexistent.pem"));
}

fn wake() -> Arc<EventFd> {
    Arc::new(EventFd::new().unwrap())
}

fn question(at: SocketAddr) -> PeerQuestion {
    let incident = IncidentId::parse("20261127T004307Z-nfs-latency-1").unwrap();
    PeerQuestion { incident, at: at.to_string().parse().unwrap(), seconds: 30 }
}

/// What the thread that asks gets.
fn answer_to(asker: &PeerAsker, at: SocketAddr) -> Result<Vec<u8>, String> {
    assert!(asker.ask(question(at)));
    let begin = Instant::now();
    loop {
        if let Some(answer) = asker.answers().pop() {
            return answer.answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no answer, and no error");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_thread_that_asks_brings_a_bundle_or_says_why_there_is_none() {
    let Some(pki) = Pki::new("the_thread_that_asks_brings_a_bundle_or_says_why_there_is_none") else { return };
    let asker = PeerAsker::start(&pki.config("client", "site"), wake()).unwrap();
    let daemon = TestDaemon::start(&pki);
    assert_eq!(xids(&answer_to(&asker, daemon.address()).unwrap()), [1]);
    let gone = daemon.address();
    drop(daemon);
    let error = answer_to(&asker, gone).unwrap_err();
    assert!(error.contains("refused"), "{error}");
    let trusting_others = PeerAsker::start(&pki.config("client", "other"), wake()).unwrap();
    let daemon = TestDaemon::start(&pki);
    let error = answer_to(&trusting_others, daemon.address()).unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

/// A server of the site's that answers with these bytes, and then hangs up.
fn answering(pki: &Pki, name: &str, answer: Vec<u8>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, tls) = (listener.local_addr().unwrap(), Arc::new(pki.identity(name, "site").serving().unwrap()));
    let work = move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_err() {
                return;
            }
            request.extend(byte);
        }
        let _ = stream.write_all(&answer).and_then(|()| stream.flush());
    };
    (address, std::thread::spawn(work))
}

#[test]
fn an_answer_that_is_cut_off_too_large_or_a_clients_is_none() {
    let Some(pki) = Pki::new("an_answer_that_is_cut_off_too_large_or_a_clients_is_none") else { return };
    let asker = PeerAsker::start(&pki.config("client", "site"), wake()).unwrap();
    let head = |length: usize| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").into_bytes()
    };
    let (address, server) = answering(&pki, "server", [head(1000), vec![b'x'; 100]].concat());
    let cut_off = answer_to(&asker, address).unwrap_err();
    server.join().unwrap();
    assert!(!cut_off.is_empty());
    let large = crate::evidence::MAX_ANSWER + 1;
    let (address, server) = answering(&pki, "server", [head(large), vec![b'x'; large]].concat());
    let too_large = answer_to(&asker, address).unwrap_err();
    server.join().unwrap();
    assert!(too_large.contains("length limit exceeded"), "{too_large}");
    let (address, server) = answering(&pki, "client", Vec::new());
    let no_server = answer_to(&asker, address).unwrap_err();
    server.join().unwrap();
    assert!(no_server.contains("certificate"), "a client's certificate makes no server: {no_server}");
}

#[test]
fn a_certificate_names_the_addresses_that_it_has_and_no_others() {
    let Some(pki) = Pki::new("a_certificate_names_the_addresses_that_it_has_and_no_others") else { return };
    let certificate = pki.identity("client", "site").certificate().unwrap();
    let names = |address: &str| tls::names(&certificate, address.parse().unwrap());
    assert_eq!((names("10.1.0.1"), names("10.1.0.2"), names("::1")), (true, false, false));
}
