//! Finds the client's requests among the server's.

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

/// At most this many addresses are named in a refusal.
const NAMED: usize = 4;
/// At least this share of the pairs must fit one difference of the clocks.
const MOST_FIT: f64 = 0.9;
/// If more than this share of the requests is doubtful, that is no coincidence: the ends are refused.
const FEW: f64 = 0.1;
/// Both ends round their times, so the server may seem to have had a request for longer than the client waited: by `LONGER` nanoseconds and one part
/// in `LONGER_SHARE` of the wait.
const LONGER: u64 = MS;
const LONGER_SHARE: u64 = 50;

/// A request that both ends have seen.
pub(super) struct Pair<'a> {
    pub key: RequestKey,
    pub client: &'a ClientRequest,
    pub server: &'a ServedRequest,
}

/// The requests that both ends have seen, and how many others were left out.
pub(super) struct Paired<'a> {
    pub pairs: Vec<Pair<'a>>,
    /// Number of the client's requests that were sent once and answered.
    pub asked: u64,
    /// Left out because they were sent again or not answered.
    pub resent: u64,
    /// Left out because the server says that it had them for longer than the client waited.
    pub too_long: u64,
    /// Left out because several of the server's requests have the same number.
    pub ambiguous: u64,
    /// Left out because the server's request with the same number is of another operation or another time.
    pub others: u64,
    pub offset: Offset,
    /// The client numbers that were taken for this client's.
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

/// The client numbers under which the server knows the client.
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

/// Operations that a client of NFS version 4 sends as COMPOUNDs that look alike to the server, by the server's name for them.
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

/// Whether both names can stand for the same operation.
fn is_same(client: &str, server: &str) -> bool {
    let alike = |(name, others): &(&str, &[&str])| *name == server && others.contains(&client);
    client == server || ALIKE.iter().any(alike)
}

fn allowed(pair: &Pair<'_>) -> Allowed {
    let sent = add(pair.client.start, pair.client.queue);
    let executed = add(pair.server.start, until_executed(pair.server));
    Allowed::of((sent, add(sent, pair.client.wire)), (pair.server.start, executed))
}

/// For how long the server had a request until it was executed, nanoseconds. The time of sending is left out: the client may have the answer while
/// the server's thread, which may be interrupted, is still returning from the send.
fn until_executed(request: &ServedRequest) -> u64 {
    request.waited.saturating_add(request.executed)
}

/// By how much the server's time exceeds the client's wait, nanoseconds; 0 if rounding explains the difference.
fn longer_by(pair: &Pair<'_>) -> u64 {
    let had = until_executed(pair.server);
    let most = pair.client.wire.saturating_add(pair.client.wire / LONGER_SHARE).saturating_add(LONGER);
    if had > most { had.saturating_sub(pair.client.wire) } else { 0 }
}

/// The gap between the client's and the server's requests, nanoseconds; 0 if their times overlap.
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
