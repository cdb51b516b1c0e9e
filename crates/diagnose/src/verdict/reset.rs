//! Who sent the resets that ended or refused connections: the server's host, or a host on the path in its name.
//!
//! Each router reduces a packet's time to live by one (IPv6: hop limit; RFC 791 3.1, RFC 8200 3). So the segments of one host arrive with one value,
//! and those of a firewall in front of it with another.

use model::{Cause, Connection, Detail, Event, Nanos, RESET_REFUSED, RESET_WITH_ACK};

use super::conclude::Candidate;

pub(super) const RESET: &str = "TCP_RESET";
pub(super) const CONNECTED: &str = "TCP_CONNECTED";

/// The probability that a host on the path ended connections by resets from another distance than the server's segments.
const ANOTHER_DISTANCE: f64 = 0.88;
/// ... that it refused new ones: where the server's addresses are translated, the translating host refuses while the
/// service behind it is stopped.
const REFUSED_FROM_ANOTHER: f64 = 0.6;
/// The probability that the server closed connections whose resets came from its distance and acknowledge data.
const OWN_SOCKET: f64 = 0.85;

/// What resets show of their sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// Another host than the server.
    OnPath {
        /// The time to live of a reset.
        reset: u8,
        /// The time to live of the server's own segments.
        server: u8,
        /// Whether the host only refused new connections.
        refused: bool,
    },
    /// The server's host, which knew the connection.
    Server,
    /// A host at the server's distance, which did not know the connection.
    Stranger,
    /// Not known.
    Anybody,
}

/// A segment with which a server accepted a connection.
struct Accepted<'a> {
    at: Nanos,
    by: &'a Connection,
}

impl Sender {
    /// The sender of all of these resets. `around`: other events of the same mounts.
    pub(super) fn of(resets: &[&Event], around: &[Event]) -> Self {
        // Refused connections are weaker evidence, and follow after a connection was reset.
        let ended: Vec<_> = resets.iter().copied().filter(|reset| status(reset) != Some(RESET_REFUSED)).collect();
        let telling = if ended.is_empty() { resets } else { &ended };
        let accepted = around.iter().filter(|event| event.operation.name() == CONNECTED);
        let accepted: Vec<_> =
            accepted.filter_map(|event| Some(Accepted { at: event.start, by: detail(event)? })).collect();
        let mut senders = telling.iter().map(|reset| Self::of_one(reset, &accepted));
        let first = senders.next().unwrap_or(Self::Anybody);
        let agree = |sender| match (first, sender) {
            (Self::OnPath { .. }, Self::OnPath { .. }) => true,
            (one, other) => one == other,
        };
        if senders.all(agree) { first } else { Self::Anybody }
    }

    /// Compares a reset with the segments that accepted this connection and the next one to the same server: in between,
    /// the server's address may have moved to another host, or the path may have changed.
    fn of_one(reset: &Event, accepted: &[Accepted<'_>]) -> Self {
        let Some(about) = detail(reset).filter(|about| about.ttl > 0) else { return Self::Anybody };
        let next = accepted
            .iter()
            .filter(|next| next.at >= reset.start && next.by.ttl > 0 && next.by.server() == about.server())
            .min_by_key(|next| next.at);
        let known = [next.map_or(0, |next| next.by.ttl), about.server_ttl];
        let refused = status(reset) == Some(RESET_REFUSED);
        match known.into_iter().find(|ttl| *ttl > 0) {
            Some(server) if !known.contains(&about.ttl) => Self::OnPath { reset: about.ttl, server, refused },
            None => Self::Anybody,
            Some(_) if refused => Self::Anybody,
            Some(_) if status(reset) == Some(RESET_WITH_ACK) => Self::Server,
            Some(_) => Self::Stranger,
        }
    }

    /// The possible causes.
    pub(super) fn candidates(self) -> [Candidate; 2] {
        let rest = |likely: f64| (1.0 - likely) / 2.0;
        match self {
            Self::OnPath { refused: true, .. } => [(Cause::PathReset, REFUSED_FROM_ANOTHER), (Cause::Closed, 0.3)],
            Self::OnPath { .. } => [(Cause::PathReset, ANOTHER_DISTANCE), (Cause::Closed, rest(ANOTHER_DISTANCE))],
            Self::Server => [(Cause::Closed, OWN_SOCKET), (Cause::PathReset, rest(OWN_SOCKET))],
            Self::Stranger => [(Cause::Closed, 0.6), (Cause::PathReset, 0.3)],
            Self::Anybody => [(Cause::Closed, 0.65), (Cause::PathReset, 0.25)],
        }
    }

    /// The sentences that support the causes. `resets`: their number, in words.
    pub(super) fn because(self, resets: &str) -> Vec<String> {
        let arrived = format!("{resets} came from the server's address");
        match self {
            Self::OnPath { reset, server, refused } => vec![
                format!("{arrived}, with a time to live of {reset}. The server's own segments arrive with {server}."),
                if refused {
                    "They refused new connections: a firewall or a gateway sent them in the server's name, or a host that translates the server's address, \
                     while the service behind it was stopped."
                        .to_owned()
                } else {
                    "So a host on the path sent the resets in the server's name: a firewall or a gateway.".to_owned()
                },
            ],
            Self::Server => vec![format!(
                "{arrived}, with the time to live of the server's own segments, and with an acknowledgement: the server knew the connection, and ended it."
            )],
            Self::Stranger => vec![
                format!(
                    "{arrived}, with the time to live of the server's own segments, but without an acknowledgement: the server did not know the connection."
                ),
                "The server was restarted, or its address moved; or a gateway on the path has forgotten the connection, and changed its addresses or ports."
                    .to_owned(),
            ],
            Self::Anybody => vec![
                format!("{arrived}: nothing listens on the server's port, or the server gave the connection up."),
                "A firewall or gateway on the path may also send a reset in the server's name.".to_owned(),
            ],
        }
    }
}

fn detail(event: &Event) -> Option<&Connection> {
    if let Detail::Connection(connection) = &event.detail { Some(connection) } else { None }
}

fn status(event: &Event) -> Option<&'static str> {
    (event.operation.protocol().status_name)(event.status)
}
