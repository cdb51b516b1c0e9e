//! The exchange between daemons: a client with an incident asks the server's daemon what the server has served to this client during that time.
//!
//! ```text
//!  client's daemon                                      server's daemon
//!    an incident begins, goes on                          flight recorder
//!      └─> ask.rs ── GET /served?seconds=45, TLS 1.3 ──> serve.rs ── whose is the address? too often? ── exchange ──> daemon's loop
//!    evidence/server_side.rs <── a small bundle ──────────┘
//! ```
//!
//! Both daemons identify themselves by a certificate of the site's own authority ([`tls`]). A host gets data only about its own addresses: the one
//! from which it asks, and those in its certificate. A question cannot change anything, and all resources that it uses are limited.

mod ask;
mod limit;
mod serve;
#[cfg(test)]
mod tests;
mod tls;

pub use ask::{PeerAnswer, PeerAsker, PeerQuestion};
pub use serve::{ServedNow, serve};

/// The longest time that a question can cover, seconds. On a quiet server, the flight recorder holds this much; on a busy one, less.
pub const LONGEST: u32 = 120;
/// The path of the answer.
const PATH: &str = "/served";
/// The most addresses in a question.
const MAX_CLIENTS: usize = 16;
