//! What only requests to the daemons of a Ceph cluster show: which daemon was slow, how the other daemons answered meanwhile, and what the cluster's
//! map says about a metadata server.

use std::collections::BTreeMap;

use model::{Cause, CephDaemon, CephRequest, CephState, Detail, Event, Nanos};

use super::conclude::Candidate;
use crate::units::{counted, span};

/// The name of a wait for capabilities.
const CAPS_WAIT: &str = "CAPS_WAIT";
/// The states in which a metadata server takes over a rank (`CEPH_MDS_STATE_REPLAY` to `CEPH_MDS_STATE_CLIENTREPLAY` of
/// include/linux/ceph/ceph_fs.h), by number.
const TAKES_OVER: [(i8, &str); 5] =
    [(8, "replay"), (9, "resolve"), (10, "reconnect"), (11, "rejoin"), (12, "clientreplay")];
/// At most this many daemons that answered other requests are named.
const NAMED: usize = 2;
/// The probability that a metadata server is the reason why its requests do not return, if the cluster's own map says that it is out of service.
const OUT_OF_SERVICE: f64 = 0.9;
/// The same probability if the monitors say that they hear nothing from it, and its host acknowledges what is sent.
const LAGGY: f64 = 0.9;
/// The probability that a client was shut out by the cluster, if the client's own flag or an OSD's answer says so.
const SHUT_OUT: f64 = 0.9;

fn of(event: &Event) -> Option<&CephRequest> {
    if let Detail::Ceph(ceph) = &event.detail { Some(ceph) } else { None }
}

/// `mds.0 (10.0.0.1:6801)`
fn name(ceph: &CephRequest) -> String {
    ceph.address.map_or_else(|| ceph.daemon.to_string(), |address| format!("{} ({address})", ceph.daemon))
}

/// The sentences about the daemon of slow requests, and about the other daemons that answered meanwhile. `judged`: the slow requests of one
/// connection. `around`: all other requests.
pub(super) fn sentences(judged: &[&Event], around: &[Event]) -> Vec<String> {
    let Some((event, ceph)) = judged.iter().find_map(|event| Some((*event, of(event)?))) else { return Vec::new() };
    if ceph.daemon == CephDaemon::Unknown {
        return Vec::new();
    }
    let mut said = vec![format!("The slow requests went to {}.", name(ceph))];
    let waits = judged.iter().filter(|event| event.operation.name() == CAPS_WAIT).count();
    if waits * 2 > judged.len() {
        said.push(CAPS.to_owned());
    }
    let from = judged.iter().map(|event| event.start).min().unwrap_or(0);
    let to = judged.iter().map(|event| event.end()).max().unwrap_or(Nanos::MAX);
    said.extend(others(event, ceph.daemon, (from, to), around));
    said
}

const CAPS: &str = "The client waits for capabilities. The metadata server grants them when other clients have given them back, so a client that holds one \
     may be the reason.";

/// What other daemons of the same mount answered during the slow request.
fn others(slow: &Event, daemon: CephDaemon, (from, to): (Nanos, Nanos), around: &[Event]) -> Option<String> {
    let mut answers = BTreeMap::<CephDaemon, (u64, u64)>::new();
    let is_beside = |event: &&Event| {
        let is_of_mount = event.mount == slow.mount && event.operation.protocol() == slow.operation.protocol();
        is_of_mount && event.start >= from && event.end() <= to
    };
    for event in around.iter().filter(is_beside).filter(|event| !event.flags.unanswered && !event.flags.in_flight) {
        // The flight recorder has only the number of the connection.
        let other = of(event).map_or(CephDaemon::Unknown, |ceph| ceph.daemon);
        let other = if other == CephDaemon::Unknown { CephDaemon::of_connection(event.connection) } else { other };
        if other != CephDaemon::Unknown && other != daemon {
            let (count, time) = answers.entry(other).or_default();
            (*count, *time) = (*count + 1, time.saturating_add(event.phases.wire));
        }
    }
    let mut answers: Vec<_> = answers.into_iter().collect();
    answers.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    answers.truncate(NAMED);
    let said = |(other, (count, time)): (CephDaemon, (u64, u64))| {
        format!("{other} answered {} in {} on average", counted(count, "request"), span(time / count.max(1)))
    };
    let said: Vec<_> = answers.into_iter().map(said).collect();
    (!said.is_empty()).then(|| format!("Meanwhile {}.", said.join(", and ")))
}

/// The errno by which an OSD refuses a client that the cluster has shut out (`EBLOCKLISTED` of include/linux/ceph/rados.h: `ESHUTDOWN`).
const BLOCKLISTED: u32 = 108;
const LOST: &str = "The cluster has blocklisted this client: the client's session is lost, and so is data that it had not written yet.";

/// What failures alone show, if one of them is the cluster's answer to a client that it has shut out.
pub(super) fn of_errors(failed: &[Event]) -> Option<(Vec<Candidate>, String)> {
    let is_refusal = |event: &Event| of(event).is_some() && !event.flags.unanswered && event.status == BLOCKLISTED;
    failed.iter().any(is_refusal).then(|| (vec![(Cause::SessionLost, SHUT_OUT)], LOST.to_owned()))
}

/// What the state of the oldest request in flight alone shows: its possible causes, if any follow, and sentences.
pub(super) fn of_stall(oldest: &Event) -> Option<(Vec<Candidate>, Vec<String>)> {
    let ceph = of(oldest)?;
    if ceph.daemon == CephDaemon::Unknown {
        let reason = if oldest.operation.name().starts_with("OSD_") {
            "The client has not sent the oldest request to an OSD yet: the cluster has no OSD for it, or has paused such requests. \
             `ceph health detail` shows which."
        } else {
            "The client has not sent the oldest request to a metadata server yet: no server is active for it, or the client has no session with that \
             server. `ceph fs status` shows which."
        };
        return Some((Vec::new(), vec![reason.to_owned()]));
    }
    let mut because = vec![format!("The oldest request went to {}.", name(ceph))];
    if oldest.operation.name() == CAPS_WAIT {
        because.push(CAPS.to_owned());
    }
    let Some(state) = ceph.state else { return Some((Vec::new(), because)) };
    let (candidates, reason) = judge(ceph.daemon, state);
    because.extend(reason);
    Some((candidates, because))
}

fn judge(daemon: CephDaemon, state: CephState) -> (Vec<Candidate>, Option<String>) {
    if state.blocklisted {
        return (vec![(Cause::SessionLost, SHUT_OUT)], Some(LOST.to_owned()));
    }
    if matches!(daemon, CephDaemon::Mds(_)) {
        if let Some((_, state)) = TAKES_OVER.iter().find(|(number, _)| *number == state.mds) {
            let reason = format!(
                "By the cluster's map, {daemon} is not active yet (up:{state}): another metadata server is taking over the rank."
            );
            return (vec![(Cause::Frozen, OUT_OF_SERVICE)], Some(reason));
        }
        if state.laggy && state.connected && state.unacknowledged_ms == 0 {
            let reason =
                format!("The monitors get no beacons from {daemon} (laggy), although its host acknowledges sent data.");
            return (vec![(Cause::Frozen, LAGGY)], Some(reason));
        }
        if state.laggy {
            return (Vec::new(), Some(format!("The monitors get no beacons from {daemon} (laggy).")));
        }
    }
    if !state.connected {
        let reason = format!("There is no connection to {daemon} now; the client tries to set it up again.");
        return (Vec::new(), Some(reason));
    }
    (Vec::new(), None)
}
