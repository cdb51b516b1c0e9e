//! From an HTTP request to its answer (RFC 9112): one page, and short words for everything else.

use crate::{Format, PageSource};

/// A GET or HEAD request.
pub struct ReadRequest<'a> {
    /// The requested path, and the query after the `?`.
    pub target: &'a str,
    /// False: the client wants only the head of the answer.
    pub with_body: bool,
    headers: std::str::Split<'a, &'static str>,
}

/// Parses a request to read a page. `head` is everything before the empty line.
///
/// # Errors
///
/// If the request is anything else: the complete answer to it.
pub fn read_request(head: &str) -> Result<ReadRequest<'_>, Vec<u8>> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(plain("400 Bad Request", "this is not an HTTP request\n", true));
    };
    if !version.starts_with("HTTP/1.") {
        return Err(plain("400 Bad Request", "this is not an HTTP/1.x request\n", true));
    }
    let with_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Err(plain("405 Method Not Allowed", "use GET or HEAD: other methods are not supported\n", true)),
    };
    Ok(ReadRequest { target, with_body, headers: lines })
}

/// The complete answer to a request for a page.
pub fn answer(head: &str, source: &dyn PageSource) -> Vec<u8> {
    let ReadRequest { target, with_body, headers } = match read_request(head) {
        Ok(request) => request,
        Err(answer) => return answer,
    };
    match target.split(['?', '#']).next() {
        Some("/metrics") => {}
        Some("/") => {
            let said = format!("This is {}. Its metrics are at /metrics\n", source.name());
            return plain("200 OK", &said, with_body);
        }
        _ => return plain("404 Not Found", "the metrics are at /metrics\n", with_body),
    }
    let accept: Vec<_> = headers
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("accept"))
        .map(|(_, value)| value)
        .collect();
    let format = Format::wanted(&accept.join(","));
    let Some(page) = source.page(format) else {
        return plain("503 Service Unavailable", "the daemon is busy; try again in a moment\n", with_body);
    };
    whole("200 OK", format.content_type(), "", page, with_body)
}

/// The answer to a request that is longer than the server accepts.
pub fn too_long() -> Vec<u8> {
    plain("431 Request Header Fields Too Large", "the request is too long\n", true)
}

/// An answer in plain text.
pub fn plain(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    whole(status, "text/plain; charset=utf-8", allow, body.as_bytes().to_vec(), with_body)
}

/// A complete answer. `more`: additional header lines, each with its line end.
pub fn whole(status: &str, content_type: &str, more: &str, mut body: Vec<u8>, with_body: bool) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
    );
    if !with_body {
        body.clear();
    }
    // Inserts the head in place: copying a large page would double the memory.
    body.splice(..0, head.bytes());
    body
}
