//! Reads the client's data of the slow requests of an incident from the client's bundle.

use std::{collections::BTreeMap, net::IpAddr};

use anyhow::Result;
use diagnose::ends::{ClientEnd, ClientRequest};
use model::{EventLine, Host, Incident, ProbeLosses, text::printable};

use super::lines::{BYTES, Open, each_line, nanos, wall};

/// The probe whose requests a server sees, too.
const PROBE: &str = "nfs";
/// Events of segments that this host itself held back or dropped.
const HELD: [&str; 3] = ["TCP_HELD", "TCP_DROPPED", "TCP_NOT_SENT"];
const CONNECTIONS: &str = "connections";
/// Such an event delays requests that begin up to this long after it, nanoseconds.
const BEFORE: i64 = 1_000_000_000;
/// The least number of requests of an operation for its usual times.
const ENOUGH: usize = 8;
/// The most requests that are read; an incident has fewer.
const MOST: usize = 100_000;

/// Reads the bundle. Returns the incident's id and the client's data.
///
/// # Errors
///
/// When the file is not a bundle, or is damaged.
pub fn read(open: Open<'_>) -> Result<(String, ClientEnd)> {
    let (mut requests, mut before, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let read = each_line(open, BYTES, |line, is_slow| {
        let Some(start) = wall(&line.time) else { return };
        if line.probe == CONNECTIONS && HELD.contains(&&*line.operation) {
            held.push(start);
        } else if line.probe == PROBE && is_slow {
            if requests.len() < MOST {
                requests.extend(request(&line, start));
            }
        } else if line.probe == PROBE
            && !line.unanswered
            && !line.in_flight
            && let Some(wire) = line.wire_ms
        {
            before.push((start, line.operation.into_owned(), nanos(Some(wire))));
        }
    })?;
    let incident = read.incident;
    let first = requests.iter().map(|request: &ClientRequest| request.start).min().unwrap_or(0);
    let last = requests.iter().map(|request| request.start).max().unwrap_or(0);
    held.sort_unstable();
    held.dedup();
    let held_events = held.iter().filter(|at| (first.saturating_sub(BEFORE)..=last).contains(*at)).count() as u64;
    let losses = losses_of(&incident, PROBE);
    let end = ClientEnd {
        host: name(&incident.host),
        version: printable(incident.host.plumbline.as_bytes()),
        addresses: addresses(&incident.host),
        usual_wire: usual(before.into_iter().filter(|(start, _, _)| *start < first)),
        held_events,
        incomplete: read.unreadable > 0 || losses.ring_full > 0,
        requests,
    };
    Ok((printable(incident.id.as_bytes()), end))
}

fn request(line: &EventLine<'_>, start: i64) -> Option<ClientRequest> {
    Some(ClientRequest {
        xid: u32::try_from(line.xid?).ok()?,
        operation: line.operation.clone().into_owned(),
        start,
        queue: nanos(line.queue_ms),
        wire: nanos(line.wire_ms),
        deliver: nanos(line.deliver_ms),
        held: nanos(line.sends_local_ms).saturating_add(nanos(line.sends_held_ms)),
        unread: nanos(line.unread_ms),
        queued_behind: line.own_queue.is_some_and(|packets| packets > 0),
        resent: line.resent.unwrap_or(0),
        // If the probe could not split the time, it says nothing about the network.
        unanswered: line.unanswered || line.in_flight || line.wire_ms.is_none(),
    })
}

fn usual(before: impl Iterator<Item = (i64, String, u64)>) -> BTreeMap<String, u64> {
    let mut by_name: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    before.for_each(|(_, operation, wire)| by_name.entry(operation).or_default().push(wire));
    let median = |(operation, mut times): (String, Vec<u64>)| {
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied().filter(|_| times.len() >= ENOUGH)?;
        Some((operation, middle))
    };
    by_name.into_iter().filter_map(median).collect()
}

/// The losses of a probe.
pub fn losses_of(incident: &Incident, probe: &str) -> ProbeLosses {
    let found = incident.losses.probes.iter().find(|(name, _)| name == probe);
    found.map(|(_, losses)| *losses).unwrap_or_default()
}

/// The host's name, safe to print.
pub fn name(host: &Host) -> String {
    printable(host.name.as_bytes())
}

fn addresses(host: &Host) -> Vec<IpAddr> {
    let address = |text: &String| text.split('/').next()?.parse().ok();
    host.addresses.iter().filter_map(address).collect()
}
