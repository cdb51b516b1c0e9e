//! From an HTTP request to its answer (RFC 9112): one page, and short words for everything else.

use crate::{Format, PageSource};

/// A request to read something.
pub struct ReadRequest<'a> {
    /// What: a path, and what is behind the `?`.
    pub target: &'a str,
    /// False: the head of the answer will do.
    pub with_body: bool,
    headers: std::str::Split<'a, &'static str>,
}

/// What a request wants to read; the answer, if it wants something else. `head` is all before the empty line.
///
/// # Errors
///
/// The whole answer to what is no such request.
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

/// The whole answer to a request for a page.
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

/// What is said to a request whose end does not come.
pub fn too_long() -> Vec<u8> {
    plain("431 Request Header Fields Too Large", "the request is too long\n", true)
}

/// An answer in words.
pub fn plain(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    whole(status, "text/plain; charset=utf-8", allow, body.as_bytes().to_vec(), with_body)
}

/// An answer. `more`: further lines of its head, each with its end.
pub fn whole(status: &str, content_type: &str, more: &str, mut body: Vec<u8>, with_body: bool) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
    );
    if !with_body {
        body.clear();
    }
    // In place: a second copy of a large page would be one too many.
    body.splice(..0, head.bytes());
    body
}
