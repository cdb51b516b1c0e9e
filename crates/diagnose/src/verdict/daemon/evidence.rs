//! What the looks at a FUSE daemon say together: whether it waited for a server, for the network, or for itself.

use std::{collections::BTreeSet, sync::Arc};

use model::{Cause, DaemonConnection, DaemonLook, Nanos};

use super::super::{
    FEW, MOST_BY_ROUND_TRIPS,
    conclude::{Candidate, UNREACHABLE, share_with_proxy},
    history::{ACK_DELAY, LOSSES},
};
use super::sight::{DaemonSight, WaitedFor, is_far, us};
use crate::{
    order::median,
    units::{MS, SECOND, counted, span},
};

/// The share of the conclusive looks that must agree, and the share of all looks that must be conclusive.
const AGREE: f64 = 0.8;
const SAY: f64 = 0.2;
/// The probability from a single look. Several looks are worth more: see [`by_count`].
const LONE: f64 = 0.7;
/// A single look that shows a wait of at least this, nanoseconds, counts as several, since it covers all of that time.
const LONG: Nanos = SECOND;
/// The probability that is divided among the causes if the looks do not agree.
const UNDECIDED: f64 = 0.75;
/// The server's part of this probability if an answer may have come: servers hang more often than daemons do.
const SERVER_OR_DAEMON: f64 = 0.45;
/// At least this many looks at unread answers show that the daemon reads answers late.
const UNREAD: usize = 3;
/// A thread lacks a CPU if it waits for one for at least this share of the time.
const NO_CPU: f64 = 0.5;

/// Retransmissions may explain the slow requests if their number is at least this share of the number of requests.
const EXPLAIN: f64 = 0.5;
/// ... and explain none of them if it is less than this share.
const NO_LOSS: f64 = 0.1;

/// What is known of the slow requests themselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlowRequests {
    /// How many there are.
    pub count: u64,
    /// How long the daemon took for one on average, nanoseconds.
    pub wire: Nanos,
    /// The share of requests of the same kinds that a server answered fast meanwhile.
    pub fast: f64,
    /// For requests in flight, whether no other request was answered meanwhile; else `None`.
    pub silent: Option<bool>,
}

impl SlowRequests {
    /// The fault of a server that has not answered these requests: it is slow, or frozen if it answers nothing at all.
    fn unanswered(self) -> Cause {
        if self.silent == Some(true) { Cause::Frozen } else { Cause::SlowServer }
    }
}

/// The looks during slow requests, and how many of them showed each state.
pub(super) struct LookEvidence<'a> {
    sights: &'a [DaemonSight],
    waiting: Vec<WaitedFor>,
    server: usize,
    acknowledgement: usize,
    sent_again: usize,
    reader: usize,
    not_sent: usize,
    server_or_daemon: usize,
}

impl<'a> LookEvidence<'a> {
    pub fn of(sights: &'a [DaemonSight]) -> Self {
        let waiting: Vec<_> = sights.iter().map(DaemonSight::waiting).collect();
        let count = |is: fn(&WaitedFor) -> bool| waiting.iter().filter(|one| is(one)).count();
        Self {
            server: count(|one| matches!(one, WaitedFor::Server(_))),
            acknowledgement: count(|one| *one == WaitedFor::Acknowledgement),
            sent_again: count(|one| *one == WaitedFor::SentAgain),
            reader: count(|one| *one == WaitedFor::Reader),
            not_sent: count(|one| *one == WaitedFor::NotSent),
            server_or_daemon: count(|one| *one == WaitedFor::ServerOrDaemon),
            sights,
            waiting,
        }
    }

    /// The causes with their probabilities, and the sentences that support them.
    pub fn candidates(&self, slow: SlowRequests, because: &mut Vec<String>) -> Vec<Candidate> {
        because.push(self.sentence());
        because.extend(self.connection_sentence());
        let decisive = self.server + self.acknowledgement + self.sent_again + self.reader + self.not_sent;
        // A look that leaves open whether the server or the daemon has the request does not contradict that the server has it.
        let say = decisive + if self.server > 0 { self.server_or_daemon } else { 0 };
        let is_most = |count: usize| {
            count > 0 && count as f64 >= decisive as f64 * AGREE && say as f64 >= self.sights.len() as f64 * SAY
        };
        if let Some(loss) = self.of_loss(slow, because) {
            return share_with_proxy(self.ends_here(), loss, because);
        }
        if let Some(starved) = self.of_starved(because) {
            return starved;
        }
        if is_most(self.server) {
            let candidates = self.of_server(slow, because);
            return share_with_proxy(self.ends_here(), candidates, because);
        }
        if is_most(self.acknowledgement + self.sent_again) {
            let candidates = self.of_network(slow.wire, because);
            return share_with_proxy(self.ends_here(), candidates, because);
        }
        if is_most(self.reader) || is_most(self.not_sent) {
            return self.of_daemon(because);
        }
        if decisive == 0 && self.server_or_daemon > 0 {
            because.push(
                "So the server may not have answered, or the daemon has the answer and has not passed it on."
                    .to_owned(),
            );
            return vec![(slow.unanswered(), SERVER_OR_DAEMON), (Cause::FuseDaemon, UNDECIDED - SERVER_OR_DAEMON)];
        }
        because.push("So the looks do not agree on what the daemon waited for.".to_owned());
        let share = |count: usize| count as f64 / decisive.max(1) as f64 * UNDECIDED;
        vec![
            (Cause::SlowServer, share(self.server)),
            (Cause::LongerPath, share(self.acknowledgement)),
            (Cause::Loss, share(self.sent_again)),
            (Cause::FuseDaemon, share(self.reader + self.not_sent)),
        ]
    }

    /// The cause if segments were lost often enough to explain the slow requests. A server that has acknowledged a request may have answered it.
    fn of_loss(&self, slow: SlowRequests, because: &mut Vec<String>) -> Option<Vec<Candidate>> {
        let is_lossy = |one: &DaemonConnection| one.resent > one.needless || one.out_of_order > 0;
        let lossy = || self.sights.iter().filter(|sight| sight.look.tcp.iter().any(is_lossy));
        let answered = lossy().filter(|sight| sight.look.tcp.iter().any(|one| one.received > 0)).count();
        let times = lossy().count();
        // All looks but the last must show answers: the last answer may be under way.
        if times < LOSSES || answered + 1 < LOSSES || (self.lost() as f64) < slow.count as f64 * EXPLAIN {
            return None;
        }
        because.push(format!(
            "Before {times} of the looks, segments had been retransmitted or had arrived out of order, with answers in between: the path loses segments."
        ));
        Some(vec![(Cause::Loss, by_count(times)), (Cause::HostGone, 0.05)])
    }

    /// How many segments were sent again or came out of order.
    fn lost(&self) -> u64 {
        self.connections().map(|one| u64::from(one.resent) + u64::from(one.out_of_order)).sum()
    }

    /// Answers lay in the socket, and a thread that could have read them had no CPU. Such a daemon also stops in the middle of sending a request: the
    /// server acknowledges the first part, and waits for the rest. So these looks are no evidence of a slow server.
    fn of_starved(&self, because: &mut Vec<String>) -> Option<Vec<Candidate>> {
        if self.reader < UNREAD || (self.reader as f64) < self.sights.len() as f64 * SAY || !self.has_no_cpu() {
            return None;
        }
        because.push(self.no_cpu_sentence());
        because.push("So answers were there, and the daemon had no CPU to take them.".to_owned());
        let likely = by_count(self.reader);
        Some(vec![(Cause::NoCpu, likely), (Cause::SlowServer, (1.0 - likely) / 2.0)])
    }

    /// All sent data was acknowledged, and no answer has arrived.
    fn of_server(&self, slow: SlowRequests, because: &mut Vec<String>) -> Vec<Candidate> {
        if self.has_no_cpu() {
            because.push(self.no_cpu_sentence());
            return vec![(Cause::SlowServer, 0.45), (Cause::NoCpu, 0.4)];
        }
        let far = self.sights.iter().filter(|sight| sight.look.tcp.iter().any(is_far)).count();
        if far as f64 > self.sights.len() as f64 * (1.0 - AGREE) {
            because.push("But round trips are longer than before, too.".to_owned());
            return vec![(Cause::SlowServer, 0.5), (Cause::LongerPath, 0.35)];
        }
        if self.lost() as f64 > slow.count as f64 * NO_LOSS {
            because.push("But segments were retransmitted or arrived out of order: answers may get lost.".to_owned());
            return vec![(Cause::SlowServer, 0.5), (Cause::Loss, 0.35)];
        }
        if slow.silent == Some(false) {
            because.push(
                "Other requests were answered meanwhile: the server or the daemon may be late with this request only."
                    .to_owned(),
            );
            return vec![(Cause::SlowOperation, 0.6), (Cause::FuseDaemon, 0.2)];
        }
        if slow.fast >= FEW {
            because.push(format!(
                "But {:.0} % of such requests were answered at once meanwhile: a path that loses answers looks the same.",
                slow.fast * 100.0
            ));
            return vec![(Cause::SlowServer, 0.6), (Cause::Loss, 0.2)];
        }
        because.push(
            "So the server's host has the requests, and its service, or the store behind it, has not answered."
                .to_owned(),
        );
        let longest =
            self.waiting.iter().filter_map(|one| if let WaitedFor::Server(long) = one { Some(*long) } else { None });
        let count = if longest.max() >= Some(LONG) { self.server.max(3) } else { self.server };
        let likely = by_count(count).min(if self.knows_round_trip() { 1.0 } else { LONE });
        vec![(slow.unanswered(), likely), (Cause::NoPath, (1.0 - likely) / 2.0)]
    }

    /// Sent data was not acknowledged.
    fn of_network(&self, wire: Nanos, because: &mut Vec<String>) -> Vec<Candidate> {
        if let Some(candidates) = self.of_own_queue(because) {
            return candidates;
        }
        let is_silent = |one: &DaemonConnection| one.resending > 0 && u64::from(one.acknowledged_ms) * MS >= SECOND;
        if self.connections().any(is_silent) {
            because.push("Nothing has arrived from the server for a second or more. Either the network is cut, or the server's host is down: this host \
                 cannot tell which.".to_owned());
            return UNREACHABLE.to_vec();
        }
        // When a path becomes longer, TCP retransmits once before it has measured the new round trip (RFC 6298, 5.5).
        if self.sent_again as f64 > (self.acknowledgement + self.sent_again) as f64 * (1.0 - AGREE) {
            return vec![(Cause::Loss, 0.55), (Cause::HostGone, 0.25)];
        }
        let trips = |one: fn(&DaemonConnection) -> u32| {
            let used = self.connections().filter(|one| one.unacknowledged > 0);
            median(used.map(|connection| us(one(connection))).collect()).unwrap_or(0)
        };
        let (now, least) = (trips(|one| one.rtt_us), trips(|one| one.min_rtt_us));
        if now.saturating_mul(2) < wire || now <= ACK_DELAY {
            because.push("The round trip explains less than half of that time.".to_owned());
            return vec![(Cause::LongerPath, 0.4), (Cause::SlowServer, 0.3)];
        }
        because.push(format!(
            "The round trip of {} explains that time; the shortest round trip of the last minutes was {}.",
            span(now),
            span(least)
        ));
        if least == 0 || now <= least.saturating_add(ACK_DELAY) {
            because.push(
                "Whether the path was shorter before is not known: this connection has had no shorter round trip."
                    .to_owned(),
            );
            return vec![(Cause::LongerPath, 0.75), (Cause::SlowServer, 0.1)];
        }
        let likely = by_count(self.acknowledgement).min(MOST_BY_ROUND_TRIPS);
        vec![(Cause::LongerPath, likely), (Cause::SlowServer, (1.0 - likely) / 2.0)]
    }

    /// Packets waited in this host's own queueing discipline whenever data was not acknowledged. Otherwise a look finds the queueing discipline
    /// empty, since a look takes only a moment.
    fn of_own_queue(&self, because: &mut Vec<String>) -> Option<Vec<Candidate>> {
        let is_late = |waiting: WaitedFor| matches!(waiting, WaitedFor::Acknowledgement | WaitedFor::SentAgain);
        let late: Vec<_> = self.sights.iter().zip(&self.waiting).filter(|(_, waiting)| is_late(**waiting)).collect();
        let own = |sight: &DaemonSight| sight.look.tcp.iter().map(|one| one.own_queue).max().unwrap_or(0);
        let held: Vec<_> = late.iter().map(|(sight, _)| u64::from(own(sight))).filter(|packets| *packets > 0).collect();
        if held.is_empty() || (held.len() as f64) < late.len() as f64 * AGREE {
            return None;
        }
        let (times, packets) = (held.len(), median(held).unwrap_or(0));
        because.push(format!(
            "At {times} of these looks, packets waited in the queueing discipline of the interface that sends the data (median: {packets} packets)."
        ));
        let likely = by_count(times).min(MOST_BY_ROUND_TRIPS);
        Some(vec![(Cause::OwnQueue, likely), (Cause::LongerPath, (1.0 - likely) / 2.0)])
    }

    /// Nothing was sent since the slow requests began, or data that arrived was not read.
    fn of_daemon(&self, because: &mut Vec<String>) -> Vec<Candidate> {
        if self.has_no_cpu() {
            because.push(self.no_cpu_sentence());
            let likely = by_count(self.sights.len());
            return vec![(Cause::NoCpu, likely), (Cause::FuseDaemon, 1.0 - likely)];
        }
        if self.reader >= self.not_sent {
            because.push("So answers were there, and the daemon did not take them.".to_owned());
            return vec![(Cause::FuseDaemon, by_count(self.reader)), (Cause::SlowServer, 0.05)];
        }
        if self.sights.iter().all(|sight| sight.look.running > 0) {
            because.push("So the daemon spent the time computing.".to_owned());
            return vec![(Cause::FuseDaemon, by_count(self.not_sent)), (Cause::SlowServer, 0.05)];
        }
        because.push(
            "The daemon may have asked earlier, or wait for something else; `ss -tip` shows its connections."
                .to_owned(),
        );
        vec![(Cause::FuseDaemon, 0.5), (Cause::SlowServer, 0.3)]
    }

    fn connections(&self) -> impl Iterator<Item = &DaemonConnection> {
        self.sights.iter().flat_map(|sight| &sight.look.tcp)
    }

    /// Whether all connections lead to programs of this host: a tunnel, for instance.
    fn ends_here(&self) -> bool {
        self.connections().all(|one| one.peer.is_some_and(|peer| peer.ip().is_loopback()))
    }

    /// Whether the round trip of any of the daemon's connections is known.
    fn knows_round_trip(&self) -> bool {
        self.connections().any(|one| one.min_rtt_us > 0)
    }

    fn has_no_cpu(&self) -> bool {
        has_no_cpu(self.sights.iter().map(|sight| &sight.look))
    }

    fn no_cpu_sentence(&self) -> String {
        no_cpu_sentence(self.sights.iter().map(|sight| &sight.look))
    }

    fn sentence(&self) -> String {
        let said = [
            (self.server, "all sent data was acknowledged, and the answer had not arrived"),
            (
                self.acknowledgement,
                "data stayed unacknowledged for longer than a server delays acknowledgements, or the path was longer than before",
            ),
            (self.sent_again, "data had been retransmitted and was not acknowledged"),
            (self.reader, "data that had arrived was not read"),
            (self.not_sent, "nothing had been sent to a server since the request was asked"),
            (
                self.server_or_daemon,
                "all sent data was acknowledged, and data that may be the answer had arrived in the same clock tick",
            ),
        ];
        let said: Vec<_> =
            said.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("in {count}, {what}")).collect();
        let looks = counted(self.sights.len() as u64, "look");
        let what = if said.is_empty() { "none shows what the daemon waited for".to_owned() } else { said.join("; ") };
        format!("Of {looks} at the daemon's connections during slow requests: {what}.")
    }

    /// The newest figures of the connection that was used last.
    fn connection_sentence(&self) -> Option<String> {
        let newest = self.sights.first()?;
        let one = newest.look.tcp.first()?;
        let peer = one.peer.map_or_else(|| "a server".to_owned(), |peer| peer.to_string());
        let peers: BTreeSet<_> = newest.look.tcp.iter().filter_map(|one| one.peer).collect();
        let more = if peers.len() > 1 {
            format!(" ({} in all)", counted(peers.len() as u64, "server address"))
        } else {
            String::new()
        };
        Some(format!(
            "The connection of process {} to {peer}{more}: round trip {}, shortest {}; at the last look, data had last been sent {} ago, acknowledged {} \
             ago and received {} ago.",
            one.pid,
            span(us(one.rtt_us)),
            span(us(one.min_rtt_us)),
            milliseconds(one.sent_ms),
            milliseconds(one.acknowledged_ms),
            milliseconds(one.received_ms)
        ))
    }
}

/// Whether a thread of the daemon or its helpers waited for a CPU for most of the time between looks.
pub(super) fn has_no_cpu<'l>(looks: impl Iterator<Item = &'l Arc<DaemonLook>>) -> bool {
    let (waited, all) = cpu_wait(looks);
    all > 0 && waited as f64 >= all as f64 * NO_CPU
}

pub(super) fn no_cpu_sentence<'l>(looks: impl Iterator<Item = &'l Arc<DaemonLook>>) -> String {
    let (waited, all) = cpu_wait(looks);
    format!(
        "A thread of the daemon, or of its helper, was ready to run and had no CPU for {} of {}.",
        span(waited),
        span(all)
    )
}

fn cpu_wait<'l>(looks: impl Iterator<Item = &'l Arc<DaemonLook>>) -> (Nanos, Nanos) {
    looks.fold((0, 0), |(waited, all), look| (waited + look.no_cpu.min(look.since), all + look.since))
}

/// The probability from this many looks that agree.
fn by_count(count: usize) -> f64 {
    match count {
        0 => 0.0,
        1 => LONE,
        2 => 0.8,
        3 | 4 => 0.86,
        _ => 0.9,
    }
}

fn milliseconds(ms: u32) -> String {
    span(u64::from(ms) * MS)
}
