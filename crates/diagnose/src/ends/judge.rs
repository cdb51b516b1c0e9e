//! Attributes the time of requests to the client, the network or the server when both ends are known.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};

use model::{Cause, Layer};

use super::{
    ClientEnd, ClientRequest, EndsStory, EndsTimes, EndsVerdict, JoinedOperation, JoinedRequest, ServedRequest,
    ServerEnd,
    pairing::{Pair, Paired},
};
use crate::{
    order,
    units::{counted, span, were},
    verdict::served,
};

/// A layer is to blame if it has at least this share of the extra time, the time beyond the usual.
const DOMINANT: f64 = 0.6;
/// If at least this share of the incident's requests was found at the server, the found requests stand for all.
const SUFFICIENT: f64 = 0.8;
/// Below this share, the found requests say nothing about the others.
const TOO_FEW: f64 = 0.3;
/// If more than this share of the client's requests contradict the server's, nothing is proven.
const CONTRADICTORY: f64 = 0.05;
/// Fewer requests than this prove nothing.
const LEAST: u64 = 3;
/// Time for which the client itself kept requests or answers is not the network's. If this time exceeds this share of the network's, the verdict is
/// not proven.
const KEPT: f64 = 0.1;
/// If packets lay in the client's queueing discipline at the end of this share of requests, the client's part of the time is not known.
const QUEUED: f64 = 0.25;
/// The highest confidence of an unproven verdict, and of a proven one.
const MOST_UNPROVEN: f64 = 0.85;
const MOST_PROVEN: f64 = 0.99;
/// A verdict with less confidence names no layer.
const NAMED: f64 = 0.8;
/// At least this many earlier requests of an operation show its usual times.
const ENOUGH: usize = 8;
/// The path became longer if even the fastest requests took at least this share of the median time on the network.
const EVEN: f64 = 0.5;

pub(super) fn judge(client: &ClientEnd, server: &ServerEnd, paired: Paired<'_>) -> EndsStory {
    let mut joined: Vec<_> = paired.pairs.iter().map(joined).collect();
    joined.sort_by_key(|request| (Reverse(request.times.all()), request.start, request.key));
    let found = joined.len() as u64;
    let sum = joined.iter().fold(EndsTimes::default(), |sum, request| sum.plus(request.times));
    let times = sum.mean(found);
    let usual = usual(client, server, &paired);
    let notes = notes(client, server, &paired);
    let verdict = verdict(&Material { client, server, paired: &paired, joined: &joined, times, usual });
    EndsStory {
        asked: paired.asked + paired.resent,
        operations: by_operation(&joined),
        joined,
        times,
        usual,
        clock_offset: paired.offset.difference,
        verdict,
        notes,
    }
}

fn joined(pair: &Pair<'_>) -> JoinedRequest {
    JoinedRequest {
        key: pair.key,
        operation: pair.client.operation.clone(),
        start: pair.client.start,
        times: times_of(pair.client, pair.server),
    }
}

/// Splits the time on the wire. The server's times, and the time for which the client kept the request or its answer, are not the network's. Both are
/// only claims, so their sum is limited to the time on the wire.
fn times_of(client: &ClientRequest, server: &ServedRequest) -> EndsTimes {
    let mut left = client.wire;
    let mut take = |wanted: u64| {
        let taken = wanted.min(left);
        left -= taken;
        taken
    };
    let (waited, executed, sent) = (take(server.waited), take(server.executed), take(server.sent));
    let (held, unread) = (take(client.held), take(client.unread));
    EndsTimes { queue: client.queue, held, network: left, waited, executed, sent, unread, deliver: client.deliver }
}

fn by_operation(joined: &[JoinedRequest]) -> Vec<JoinedOperation> {
    let mut by_name: BTreeMap<&str, (u64, EndsTimes)> = BTreeMap::new();
    for request in joined {
        let (found, times) = by_name.entry(&request.operation).or_default();
        (*found, *times) = (*found + 1, times.plus(request.times));
    }
    let mut all: Vec<_> = by_name.into_iter().collect();
    all.sort_by_key(|(name, (_, times))| (Reverse(times.all()), *name));
    let operation = |(name, (found, times)): (&str, (u64, EndsTimes))| JoinedOperation {
        operation: name.to_owned(),
        found,
        times: times.mean(found),
    };
    all.into_iter().map(operation).collect()
}

/// Where the same operations spent their time before the incident, on average. The time for which the client then kept requests is not known; it was
/// short, and counts as 0. `None` if one of the ends does not know the usual time of an operation.
fn usual(client: &ClientEnd, server: &ServerEnd, paired: &Paired<'_>) -> Option<EndsTimes> {
    let begin = client.requests.iter().map(|request| request.start).min()?.saturating_add(paired.offset.difference);
    let mine: HashSet<_> = paired.pairs.iter().map(|pair| (pair.server.client, pair.server.xid)).collect();
    let mut served: BTreeMap<&str, Vec<&ServedRequest>> = BTreeMap::new();
    let is_before = |request: &&ServedRequest| {
        request.start < begin
            && paired.clients.contains(&request.client)
            && !mine.contains(&(request.client, request.xid))
    };
    for request in server.requests.iter().filter(is_before) {
        served.entry(&request.operation).or_default().push(request);
    }
    let (mut sum, mut count) = (EndsTimes::default(), 0);
    for pair in &paired.pairs {
        let wire = *client.usual_wire.get(&pair.client.operation)?;
        let before = served.get(pair.server.operation.as_str()).filter(|before| before.len() >= ENOUGH)?;
        let median = |of: fn(&ServedRequest) -> u64| {
            order::median(before.iter().map(|request| of(request)).collect()).unwrap_or(0)
        };
        let (waited, executed, sent) = (median(|one| one.waited), median(|one| one.executed), median(|one| one.sent));
        let on_server = waited.saturating_add(executed).saturating_add(sent);
        let network = wire.saturating_sub(on_server);
        sum = sum.plus(EndsTimes { network, waited, executed, sent, ..EndsTimes::default() });
        count += 1;
    }
    (count > 0).then(|| sum.mean(count))
}

struct Material<'a> {
    client: &'a ClientEnd,
    server: &'a ServerEnd,
    paired: &'a Paired<'a>,
    joined: &'a [JoinedRequest],
    times: EndsTimes,
    usual: Option<EndsTimes>,
}

/// Finds the layer with most of the extra time, and the reasons for which that layer is not proven.
fn verdict(material: &Material<'_>) -> EndsVerdict {
    let Material { paired, joined, times, usual, .. } = material;
    let found = joined.len() as u64;
    let coverage = found as f64 / paired.asked.max(1) as f64;
    let mut because = vec![format!(
        "The server has seen {found} of {} of the incident ({:.0} %).",
        counted(paired.asked, "request"),
        coverage * 100.0
    )];
    because.push(sentence(times));
    because.extend(usual.map(|usual| format!("Usually: {}", figures(&usual))));
    if coverage < TOO_FEW {
        because.push("That is too few to judge the whole incident.".to_owned());
        return EndsVerdict { because, ..EndsVerdict::default() };
    }
    let extra = times.less(usual.unwrap_or_default());
    let share = |time: u64| time as f64 / extra.all().max(1) as f64;
    let shares = [
        (Layer::Client, share(extra.client())),
        (Layer::Network, share(extra.network)),
        (Layer::Server, share(extra.server())),
    ];
    let most = shares.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let Some((layer, share)) = most.filter(|(_, share)| *share >= DOMINANT) else {
        because
            .push("Neither the client, nor the server, nor the network between them took most of the time.".to_owned());
        return EndsVerdict { because, ..EndsVerdict::default() };
    };
    let doubts = doubts(material, layer, coverage);
    let proven = doubts.is_empty();
    because.extend(doubts);
    let margin = (share - DOMINANT) / (1.0 - DOMINANT);
    let sure = NAMED + (MOST_PROVEN - NAMED) * margin.clamp(0.0, 1.0);
    let confidence = if proven { sure } else { sure.min(MOST_UNPROVEN) * coverage.min(1.0) };
    let confidence = (confidence * 100.0).round() / 100.0;
    if confidence < NAMED || (layer == Layer::Network && hides_the_client(material)) {
        because.push(format!(
            "The {} took most of the time, but this is not certain enough to name it as the cause.",
            layer.name()
        ));
        return EndsVerdict { because, ..EndsVerdict::default() };
    }
    let cause = match layer {
        Layer::Client => client_cause(&extra),
        Layer::Network => network_cause(joined),
        Layer::Server => server_cause(times, usual.as_ref(), &extra, &mut because),
        Layer::Unknown => None,
    };
    because.extend(cause.map(|cause| format!("Cause: {}.", cause.describe())));
    EndsVerdict { layer, confidence, proven, cause, because }
}

/// Why a verdict is not proven, one sentence each.
fn doubts(material: &Material<'_>, layer: Layer, coverage: f64) -> Vec<String> {
    let Material { client, server, paired, joined, times, .. } = material;
    let mut doubts = Vec::new();
    let found = joined.len() as u64;
    if coverage < SUFFICIENT || found < LEAST {
        doubts.push("Too few of the incident's requests were found at the server for a proof.".to_owned());
    }
    if client.version != server.version {
        doubts.push("The two ends ran different versions of Plumbline, so nothing is proven.".to_owned());
    }
    let contradictory = contradictory(paired);
    let count: u64 = contradictory.iter().map(|(count, _)| count).sum();
    if count as f64 > paired.asked as f64 * CONTRADICTORY {
        doubts.extend(contradictory.into_iter().map(|(_, said)| format!("{said}.")));
    }
    if layer != Layer::Network {
        return doubts;
    }
    let kept = times.held.saturating_add(times.unread);
    if kept as f64 > times.network as f64 * KEPT {
        doubts.push(format!(
            "The client itself delayed the requests or their answers by {}: in its send queues, or unread in its socket.",
            span(kept)
        ));
    }
    if client.held_events > 0 {
        doubts.push(format!(
            "Meanwhile the client itself held back or dropped segments ({}); how long each request waited for that is not known.",
            counted(client.held_events, "event")
        ));
    }
    if queued(paired) {
        doubts.push(
            "Packets lay in the client's queueing discipline: part of the network's time may be the client's."
                .to_owned(),
        );
    }
    if paired.resent as f64 > (paired.asked + paired.resent) as f64 * QUEUED {
        doubts.push(format!("{} left out: sent again, or not answered.", were(paired.resent, "request")));
    }
    doubts
}

/// The numbers of requests that were left out because they do not fit the server's, and why.
fn contradictory(paired: &Paired<'_>) -> Vec<(u64, String)> {
    let kinds = [
        (paired.too_long, "the server says that it had them for longer than the client waited"),
        (paired.ambiguous, "several requests of the server have their numbers"),
        (paired.others, "the server's requests with their numbers are other operations, or of another time"),
    ];
    let told = |(count, why)| (count, format!("{} left out: {why}", were(count, "request")));
    kinds.into_iter().filter(|(count, _)| *count > 0).map(told).collect()
}

/// Whether the time for which the client may have kept requests could be most of the network's apparent time.
fn hides_the_client(material: &Material<'_>) -> bool {
    material.client.held_events > 0 && material.client.held_events >= material.joined.len() as u64
        || queued(material.paired)
}

fn queued(paired: &Paired<'_>) -> bool {
    let behind = paired.pairs.iter().filter(|pair| pair.client.queued_behind && pair.client.held == 0).count();
    behind > 0 && behind as f64 >= paired.pairs.len() as f64 * QUEUED
}

fn sentence(times: &EndsTimes) -> String {
    format!("On average a request took {}: {}", span(times.all()), figures(times))
}

fn figures(times: &EndsTimes) -> String {
    format!(
        "{} on the client, {} on the network, and {} on the server ({} until a thread took it, {} until it was executed, {} until the answer was sent).",
        span(times.client()),
        span(times.network),
        span(times.server()),
        span(times.waited),
        span(times.executed),
        span(times.sent)
    )
}

fn client_cause(extra: &EndsTimes) -> Option<Cause> {
    let parts = [
        (Cause::Queue, extra.queue),
        (Cause::OwnQueue, extra.held),
        (Cause::Receiver, extra.unread),
        (Cause::Delivery, extra.deliver),
    ];
    largest(&parts, extra.client())
}

/// If the path became longer, all requests take longer. Otherwise the path loses segments or is too narrow: these times do not show which.
fn network_cause(joined: &[JoinedRequest]) -> Option<Cause> {
    let mut times: Vec<_> = joined.iter().map(|request| request.times.network).collect();
    times.sort_unstable();
    let at =
        |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied();
    let (best, middle) = (at(0.1)?, at(0.5)?);
    (best as f64 >= middle as f64 * EVEN).then_some(Cause::LongerPath)
}

fn server_cause(
    times: &EndsTimes,
    usual: Option<&EndsTimes>,
    extra: &EndsTimes,
    because: &mut Vec<String>,
) -> Option<Cause> {
    let parts = [(Cause::NoThread, extra.waited), (Cause::SlowExecution, extra.executed)];
    let cause = largest(&parts, extra.server())?;
    if cause == Cause::NoThread && usual.is_some_and(|usual| served::became_slow(times.executed, usual.executed)) {
        because.push(served::THREADS_BUSY.to_owned());
        return Some(Cause::SlowExecution);
    }
    Some(cause)
}

/// The part that has more than half of `all`; `None` if no part has.
fn largest(parts: &[(Cause, u64)], all: u64) -> Option<Cause> {
    let (cause, time) = parts.iter().max_by_key(|(_, time)| *time)?;
    (*time > all / 2).then_some(*cause)
}

fn notes(client: &ClientEnd, server: &ServerEnd, paired: &Paired<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if client.version != server.version {
        notes.push(format!(
            "the client's Plumbline was {}, the server's {}: what one of them counts may differ; upgrade the older one",
            client.version, server.version
        ));
    }
    if client.addresses.is_empty() {
        notes.push(
            "the client's bundle does not say its addresses: its requests were looked for among those of all clients"
                .to_owned(),
        );
    }
    for (end, incomplete) in [("client", client.incomplete), ("server", server.incomplete)] {
        if incomplete {
            notes.push(format!(
                "the {end}'s file is not whole, or operations were lost there: some requests may be missing"
            ));
        }
    }
    notes.extend(contradictory(paired).into_iter().map(|(_, said)| said));
    if paired.resent > 0 {
        notes.push(format!("{} left out: sent again, or not answered", were(paired.resent, "request")));
    }
    notes
}
