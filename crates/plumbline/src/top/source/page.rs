//! Gets the metrics page from a running daemon: one HTTP request, with limits of time and size.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use exposition::Format;

/// From the request to the end of the answer. A busy daemon answers with an error after 3 s.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for the connection.
const TO_CONNECT: Duration = Duration::from_secs(2);
/// The most bytes of an answer: three times the largest page with the greatest `max_series`.
const LONGEST: usize = 8 << 20;

/// The body of `http://ADDRESS/metrics`, in the protobuf format.
///
/// # Errors
///
/// When there is no answer in time, or the answer is not such a page.
pub fn get(address: SocketAddr) -> Result<Vec<u8>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut stream = TcpStream::connect_timeout(&address, TO_CONNECT)?;
    stream.set_write_timeout(Some(TO_CONNECT))?;
    let accept = Format::Protobuf.content_type();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).context("cannot ask")?;
    body(read(&mut stream, deadline)?)
}

/// Reads until the other end closes the connection.
fn read(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>> {
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no answer within {} s", TIMEOUT.as_secs());
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // EAGAIN: the socket's time limit is over.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("the answer broke off"),
        }
        ensure!(answer.len() <= LONGEST, "an answer of more than {} MiB is no page of a daemon", LONGEST >> 20);
    }
}

/// The body of an answer, if it is a page in the requested format.
fn body(mut answer: Vec<u8>) -> Result<Vec<u8>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { bail!("the answer is not HTTP") };
    let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default()).into_owned();
    answer.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let field = |name: &str| {
        let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    match status.split(' ').nth(1) {
        Some("200") => {}
        Some("503") => bail!("the daemon is busy"),
        _ => bail!("the answer is `{}`", model::text::printable(status.as_bytes())),
    }
    ensure!(
        field("content-type").is_some_and(|kind| kind.starts_with("application/vnd.google.protobuf")),
        "this is not a Plumbline daemon: it does not offer the protobuf format"
    );
    let length = field("content-length").and_then(|length| length.parse::<usize>().ok());
    ensure!(length.is_none_or(|length| length == answer.len()), "the answer broke off");
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answer(head: &str, body: &[u8]) -> Vec<u8> {
        [head.as_bytes(), b"\r\n\r\n", body].concat()
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.google.protobuf; x\r\nContent-Length: 3";

    #[test]
    fn only_a_whole_page_in_the_right_format_is_taken() {
        assert_eq!(body(answer(OK, b"abc")).unwrap(), b"abc");
        for (bad, why) in [
            (answer(OK, b"ab"), "broke off"),
            (answer("HTTP/1.1 503 Service Unavailable", b""), "busy"),
            (answer("HTTP/1.1 404 \x1b[2J", b""), "404 \\x1b[2J"),
            (answer("HTTP/1.1 200 OK\r\nContent-Type: text/plain", b"x 1\n"), "not a Plumbline daemon"),
            (b"SSH-2.0-OpenSSH\r\n".to_vec(), "the answer is not HTTP"),
        ] {
            let error = body(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        });
        let error = get(address).unwrap_err().to_string();
        assert!(error.contains("more than 8 MiB"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn nobody_there_is_an_error_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(format!("{:#}", get(address).unwrap_err()).contains("refused"));
    }
}
