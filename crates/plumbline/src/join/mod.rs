//! `plumbline join`: reads the data of client and server about the same requests, and prints the story as text or JSON. `diagnose::ends` draws the
//! conclusions.
//!
//! ```text
//!  client's bundle ─── client.rs ──> ClientEnd ──┐
//!                                                ├── diagnose::ends::join ──> EndsStory ──> report.rs ──> JSON, text.rs
//!  server's bundle, or recording ── server.rs ──> ServerEnd ──┘
//! ```

mod client;
mod lines;
mod report;
mod server;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use anyhow::{Context, Result};
use diagnose::ends::{self, EndsStory};
use lines::{Open, explained, opened};
use report::EndAbout;

pub use report::JoinReport;
pub use text::print;

/// Joins the two files.
///
/// # Errors
///
/// When one of the files cannot be read, or the files do not belong together.
pub fn join(client: &Path, server: &Path) -> Result<JoinReport> {
    let (incident, end) = client::read(&|| opened(client)).map_err(|error| explained(client, error))?;
    let (client_about, client) = (EndAbout { file: client.display().to_string(), incident }, end);
    let (server_about, server) = server::read(server)?;
    let story = ends::join(&client, &server)?;
    Ok(JoinReport::new(&story, (client_about, &client), (server_about, &server)))
}

/// The largest unpacked answer of a server, bytes: as many requests as a flight recorder has.
const ANSWER: u64 = 32 << 20;

/// Joins an incident's bundle with the answers of its server, which are bundles, too.
///
/// # Errors
///
/// When the bundle or an answer cannot be read, or they do not belong together.
pub fn join_answers(bundle: Open<'_>, answers: &[Vec<u8>]) -> Result<(EndsStory, JoinReport)> {
    let (incident, client) = client::read(bundle).context("the incident's own bundle cannot be read")?;
    let opens: Vec<_> =
        answers.iter().map(|answer| || -> Result<Box<dyn std::io::Read>> { Ok(Box::new(&**answer)) }).collect();
    let opens: Vec<Open<'_>> = opens.iter().map(|open| open as Open<'_>).collect();
    let read = server::of_bundles(&opens, ANSWER);
    let (asked, server) = read.context("what the server has answered cannot be read")?;
    let story = ends::join(&client, &server)?;
    let client_about = EndAbout { file: String::new(), incident };
    let report =
        JoinReport::new(&story, (client_about, &client), (EndAbout { file: String::new(), incident: asked }, &server));
    Ok((story, report))
}
