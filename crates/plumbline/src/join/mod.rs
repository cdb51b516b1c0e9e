//! `plumbline join`: reads what the two ends of requests have left, and tells their story as text or JSON. What is concluded is `diagnose::ends`.
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

use anyhow::Result;
use diagnose::ends;

pub use report::JoinReport;
pub use text::print;

/// Joins the two files.
///
/// # Errors
///
/// When one of them cannot be read, or they do not belong together.
pub fn join(client: &Path, server: &Path) -> Result<JoinReport> {
    let (client_about, client) = client::read(client)?;
    let (server_about, server) = server::read(server)?;
    let story = ends::join(&client, &server)?;
    Ok(JoinReport::new(&story, (client_about, &client), (server_about, &server)))
}
