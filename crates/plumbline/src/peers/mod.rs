//! What daemons of clients and servers tell each other: a client that has an incident asks the server's daemon what it served to this client meanwhile.
//!
//! ```text
//!  client's daemon                                      server's daemon
//!    an incident begins, goes on                          flight recorder
//!      └─> ask.rs ── GET /served?seconds=45, TLS 1.3 ──> serve.rs ── whose is the address? too often? ── exchange ──> daemon's loop
//!    evidence/server_side.rs <── a small bundle ──────────┘
//! ```
//!
//! Both prove by a certificate of the site's own authority who they are ([`tls`]). A host is told about the addresses that are its own: the one that it asks
//! from, and those that its certificate names. Nothing can be changed by a question, and everything about one is bounded.

mod ask;
mod limit;
mod serve;
#[cfg(test)]
mod tests;
mod tls;

pub use ask::{PeerAnswer, PeerAsker, PeerQuestion};
pub use serve::{ServedNow, serve};

/// The longest time that one question is about, seconds: what a flight recorder has of a quiet server, and more than of a busy one.
pub const LONGEST: u32 = 120;
/// The page that answers.
const PATH: &str = "/served";
/// The most addresses that one question names.
const MAX_CLIENTS: usize = 16;
