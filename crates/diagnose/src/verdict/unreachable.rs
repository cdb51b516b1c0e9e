//! What ICMP errors mean for a verdict (`TCP_UNREACHABLE`, docs/connections.md): segments did not get through, and the sender of the error knows more
//! than this host. If the server's own host sent the error, that host is up and refuses. If a router's filter or a router without a route sent the
//! error, the path is at fault. A router that cannot reach the server's host is the last one before it: the host may be gone, or the last link cut.

use model::Cause;

use super::conclude::{Candidate, UNREACHABLE};

/// The probability that the server's host refuses, or that the path is at fault, if the sender of an ICMP error says so: a middlebox may send an
/// error in another host's name.
const SURE_OF_SERVER: f64 = 0.86;
const SURE_OF_PATH: f64 = 0.86;
/// The probability that this host's own filter refuses, if it says so itself.
const SURE_OF_OWN: f64 = 0.88;

/// Prefixes of status names: the server's own address sent the error, or this host did.
const SERVER: &str = "SERVER_";
const OWN: &str = "OWN_";
const HOST: &str = "HOST_UNREACHABLE";

/// Whether an error with this status name tells anything about the path. If this host reports that its next hop does not answer, a host may be gone,
/// or the path may be cut at the next hop: other evidence tells more.
pub(super) fn tells(status: &str) -> bool {
    status.strip_prefix(OWN) != Some(HOST)
}

/// The causes that an error with this status name means, with their probabilities.
pub(super) fn candidates(status: &str) -> Vec<Candidate> {
    if status.starts_with(SERVER) {
        return vec![(Cause::Refused, SURE_OF_SERVER), (Cause::NoPath, (1.0 - SURE_OF_SERVER) / 2.0)];
    }
    match status.strip_prefix(OWN) {
        Some(_) => vec![(Cause::OwnDrops, SURE_OF_OWN)],
        None if status == HOST => UNREACHABLE.to_vec(),
        None => vec![(Cause::NoPath, SURE_OF_PATH), (Cause::HostGone, (1.0 - SURE_OF_PATH) / 2.0)],
    }
}

/// The sentence about errors with this status name. `errors`: their number, in words. `sender`: the sender of one of them.
pub(super) fn sentence(status: &str, errors: &str, sender: Option<&str>) -> String {
    let code = status.trim_start_matches(SERVER).trim_start_matches(OWN);
    let by = sender.map_or_else(|| "by another host".to_owned(), |sender| format!("by {sender}"));
    let came = |by: &str| format!("{errors} for the connection arrived ({code}), sent {by}");
    if status.starts_with(SERVER) {
        return format!(
            "{}: the server's host is up, and the host or its firewall refuses the packets.",
            came("by the server's own address")
        );
    }
    if status.starts_with(OWN) {
        return format!(
            "{}: this host's own firewall or one of its routes refuses the packets.",
            came("by this host itself")
        );
    }
    let meaning = match code {
        HOST => {
            "that router is up, but does not reach the server's host. Whether that host is down, or the last link before it is cut, is not known"
        }
        "NET_UNREACHABLE" => "that router has no route to the server's network",
        "TIME_EXCEEDED" => "the packets ran in a routing loop",
        _ => "a firewall on the path refuses what is sent to the server",
    };
    format!("{}: {meaning}.", came(&by))
}
