//! From an HTTP request to its answer (RFC 9112): one page, and short words for everything else.

use crate::{Format, PageSource};

/// The whole answer to a request, of which `head` is all before the empty line.
pub fn answer(head: &str, source: &dyn PageSource) -> Vec<u8> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return plain("400 Bad Request", "this is no HTTP request\n", true);
    };
    if !version.starts_with("HTTP/1.") {
        return plain("400 Bad Request", "this is no HTTP/1 request\n", true);
    }
    let with_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return plain("405 Method Not Allowed", "GET is all there is\n", true),
    };
    match target.split(['?', '#']).next() {
        Some("/metrics") => {}
        Some("/") => {
            let said = format!("This is {}. Its metrics are at /metrics\n", source.name());
            return plain("200 OK", &said, with_body);
        }
        _ => return plain("404 Not Found", "the metrics are at /metrics\n", with_body),
    }
    let accept: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("accept"))
        .map(|(_, value)| value)
        .collect();
    let format = Format::wanted(&accept.join(","));
    let Some(page) = source.page(format) else {
        return plain("503 Service Unavailable", "the daemon is busy; try again in a moment\n", with_body);
    };
    whole("200 OK", format.content_type(), page, with_body)
}

/// What is said to a request whose end does not come.
pub fn too_long() -> Vec<u8> {
    plain("431 Request Header Fields Too Large", "the request is too long\n", true)
}

fn plain(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    whole(status, "text/plain; charset=utf-8", body.as_bytes().to_vec(), with_body)
}

fn whole(status: &str, content_type: &str, mut body: Vec<u8>, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    if !with_body {
        body.clear();
    }
    // In place: a second copy of a large page would be one too many.
    body.splice(..0, head.bytes());
    body
}
