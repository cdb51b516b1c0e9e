//! Which request of the client is which of the server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use model::Served;

use super::{
    ClientEnd, ClientRequest, EndsRefusal, RequestKey, ServedRequest, ServerEnd,
    clock::{Allowed, Offset},
};
use crate::units::MS;

/// Addresses that a refusal names.
const NAMED: usize = 4;
/// Of the pairs, so many must fit one difference of the clocks.
const MOST_FIT: f64 = 0.9;
/// More doubtful ones than this share of all are no coincidence.
const FEW: f64 = 0.1;
/// The server may seem to have had a request for so much longer than the client waited: both ends round their times.
const LONGER: u64 = MS;
const LONGER_SHARE: u64 = 50;

/// A request that both have seen.
pub(super) struct Pair<'a> {
    pub key: RequestKey,
    pub client: &'a ClientRequest,
    pub server: &'a ServedRequest,
}

/// The requests that both have seen, and what is wrong with the others.
pub(super) struct Paired<'a> {
    pub pairs: Vec<Pair<'a>>,
    /// Requests of the client that count: those that were answered and sent once.
    pub asked: u64,
    /// Left out: sent again or not answered.
    pub resent: u64,
    /// The server says that it had them for longer than the client waited.
    pub too_long: u64,
    /// Several of the server's can be it.
    pub ambiguous: u64,
    /// The number is the same and the operation, or the time, is another.
    pub others: u64,
    pub offset: Offset,
    /// The clients' numbers that were taken for this client.
    pub clients: BTreeSet<u32>,
}

pub(super) fn pair<'a>(client: &'a ClientEnd, server: &'a ServerEnd) -> Result<Paired<'a>, EndsRefusal> {
    let clients = numbers_of(client, server)?;
    let mut served: HashMap<(u32, u32), Vec<&ServedRequest>> = HashMap::new();
    for request in server.requests.iter().filter(|request| clients.contains(&request.client)) {
        served.entry((request.client, request.xid)).or_default().push(request);
    }
    let counts = |request: &&ClientRequest| request.resent == 0 && !request.unanswered;
    let wanted: Vec<_> = client.requests.iter().filter(counts).collect();
    let (asked, resent) = (wanted.len() as u64, (client.requests.len() - wanted.len()) as u64);
    let (mut pairs, mut ambiguous, mut others) = (Vec::new(), 0, 0);
    for request in wanted {
        let of_client = |number: &u32| served.get(&(*number, request.xid)).map(|found| (*number, found));
        let found: Vec<_> = clients.iter().filter_map(of_client).collect();
        match found.as_slice() {
            [] => {}
            [(number, one)] if one.len() == 1 => {
                let Some(one) = one.first().copied() else { continue };
                if is_same(&request.operation, &one.operation) {
                    let key = RequestKey::Rpc { client: *number, xid: request.xid };
                    pairs.push(Pair { key, client: request, server: one });
                } else {
                    others += 1;
                }
            }
            _ => ambiguous += 1,
        }
    }
    if ambiguous as f64 > asked as f64 * FEW {
        return Err(EndsRefusal::TwoClients { ambiguous, asked });
    }
    let allowed: Vec<_> = pairs.iter().map(allowed).collect();
    let Some(offset) = Offset::of(&allowed) else {
        return Err(EndsRefusal::NothingCommon { asked: client.requests.len() as u64, apart: apart(client, server) });
    };
    let all = pairs.len();
    let mut fitting = allowed.iter().map(|pair| offset.fits(pair));
    pairs.retain(|_| fitting.next().unwrap_or(false));
    if (pairs.len() as f64) < all as f64 * MOST_FIT {
        return Err(EndsRefusal::OtherTimes { fitting: pairs.len() as u64, all: all as u64 });
    }
    others += (all - pairs.len()) as u64;
    let (all, by) = (pairs.len() as u64, pairs.iter().map(longer_by).max().unwrap_or(0));
    pairs.retain(|pair| longer_by(pair) == 0);
    let too_long = all - pairs.len() as u64;
    if too_long as f64 > all as f64 * FEW {
        return Err(EndsRefusal::TooLong { requests: too_long, all, by });
    }
    Ok(Paired { pairs, asked, resent, too_long, ambiguous, others, offset, clients })
}

/// The numbers by which the server has the client.
fn numbers_of(client: &ClientEnd, server: &ServerEnd) -> Result<BTreeSet<u32>, EndsRefusal> {
    let seen: BTreeMap<u32, u64> = server.requests.iter().fold(BTreeMap::new(), |mut seen, request| {
        *seen.entry(request.client).or_default() += 1;
        seen
    });
    if client.addresses.is_empty() {
        return Ok(seen.into_keys().collect());
    }
    let mine: BTreeSet<_> = client.addresses.iter().map(|address| Served::client_number(*address)).collect();
    let both: BTreeSet<_> = mine.into_iter().filter(|number| seen.contains_key(number)).collect();
    if !both.is_empty() {
        return Ok(both);
    }
    let mut most: Vec<_> = seen.into_iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = |(number, _): &(u32, u64)| {
        Served::address(*number).map_or_else(|| format!("client {number:#x}"), |address| address.to_string())
    };
    let served = most.iter().take(NAMED).map(shown).collect();
    let is_worth_saying = |address: &&IpAddr| !address.is_loopback();
    Err(EndsRefusal::Strangers {
        addresses: client.addresses.iter().filter(is_worth_saying).copied().collect(),
        served,
    })
}

/// Operations that a client of version 4 asks for by a COMPOUND that does not tell them apart, by the server's name.
const ALIKE: &[(&str, &[&str])] = &[
    (
        "GETATTR",
        &["SERVER_CAPS", "STATFS", "PATHCONF", "FSINFO", "GETACL", "FS_LOCATIONS", "FSID_PRESENT", "GET_LEASE_TIME"],
    ),
    ("GETFH", &["FSID_PRESENT"]),
    ("SETATTR", &["SETACL"]),
    ("LOOKUP", &["FS_LOCATIONS"]),
    ("LOOKUP_ROOT", &["GET_LEASE_TIME"]),
    ("OPEN", &["OPEN_NOATTR"]),
    ("CREATE", &["SYMLINK", "MKDIR", "MKNOD"]),
    ("DEALLOCATE", &["ZERO_RANGE"]),
    ("FSSTAT", &["STATFS"]),
];

/// Whether the client's operation can be the server's.
fn is_same(client: &str, server: &str) -> bool {
    let alike = |(name, others): &(&str, &[&str])| *name == server && others.contains(&client);
    client == server || ALIKE.iter().any(alike)
}

fn allowed(pair: &Pair<'_>) -> Allowed {
    let sent = add(pair.client.start, pair.client.queue);
    let executed = add(pair.server.start, until_executed(pair.server));
    Allowed::of((sent, add(sent, pair.client.wire)), (pair.server.start, executed))
}

/// For how long the server had a request until it was executed, nanoseconds. The time of sending says nothing of the client's: the answer may
/// arrive while the server's thread, which others may interrupt, is still returning from it.
fn until_executed(request: &ServedRequest) -> u64 {
    request.waited.saturating_add(request.executed)
}

/// By how much the server says that it had the request for longer than can be, nanoseconds; 0: it can be.
fn longer_by(pair: &Pair<'_>) -> u64 {
    let had = until_executed(pair.server);
    let most = pair.client.wire.saturating_add(pair.client.wire / LONGER_SHARE).saturating_add(LONGER);
    if had > most { had.saturating_sub(pair.client.wire) } else { 0 }
}

/// How far the times of both are apart, nanoseconds; 0 if they overlap.
fn apart(client: &ClientEnd, server: &ServerEnd) -> u64 {
    let bounds = |times: Vec<i64>| Some((times.iter().min().copied()?, times.iter().max().copied()?));
    let client = bounds(client.requests.iter().map(|request| request.start).collect());
    let server = bounds(server.requests.iter().map(|request| request.start).collect());
    let (Some(client), Some(server)) = (client, server) else { return 0 };
    let gap = client.0.saturating_sub(server.1).max(server.0.saturating_sub(client.1));
    u64::try_from(gap).unwrap_or(0)
}

fn add(at: i64, span: u64) -> i64 {
    at.saturating_add(i64::try_from(span).unwrap_or(i64::MAX))
}
