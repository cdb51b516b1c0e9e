//! Splits the time on the wire into the network's part and the server's, as far as that can be proved.
//!
//! Every operation has a lower and an upper bound of the network's time. They come from:
//! - A round trip measured during the operation's flight. The peer may delay an acknowledgement by 40 ms, or send it
//!   with the answer if that is ready first. So the network's time is at most the round trip, and at least 50 ms less.
//! - Stamps of the operation's own sends (BPF timestamping). The lower bound is the time until the acknowledgement,
//!   less its possible delay; the upper bound is that time and the time in TCP's own queue. Stamps show a request that
//!   was lost and sent again, but not a lost answer.
//! - Another operation that was sent and answered during the flight. TCP keeps the order, so the network was no slower
//!   until then.
//! - Other kinds of operations that stayed fast meanwhile. They do not count if segments were lost: a loss can hit one
//!   operation and spare the next.
//! - The path (`path`). If it became longer, each round trip that the operation may have taken is longer. If it is as
//!   short as before, the network's part is next to nothing.
//! - Repeated retransmissions, with answers between, during the operations with most of the time: the path loses
//!   segments.
//! - Segments of answers out of order during the operations with most of the time, and hardly any before: the path
//!   loses other segments.
//! - A saturated path (`sending`): the network's part is the share of the time for which the connection was busy. Data
//!   that did not fit the server's window waited for the server.
//! - Retransmissions during a silence. The silence that they can explain may be the network's; it is proved if there
//!   are as many as the silence needs. A path that loses requests may also lose answers, which this host cannot see:
//!   then all of the wire time may be the network's.
//!
//! Where nothing is known, the bounds are zero and all of the wire time. Such operations are taken to be like the
//! operations with evidence if these have most of the time; else the verdict is unknown.

use model::{Cause, Direction, Event, Layer, Nanos, Operation, SendTiming};

use super::{
    DOMINANT, HALF,
    arrivals::Arrival,
    history::{ACK_DELAY, ConnectionHistory},
    path::{Path, PathState},
    scene::{Scene, flight, unread},
    sending::Sending,
};
use crate::{
    order::median,
    turns::{more_turns, more_windows, turns},
    units::{MS, counted, span},
};

/// A longer path, or a late server, is the fault if it explains at least this share of the extra time on the wire.
const WORTH_A_FAULT: f64 = 0.3;
/// The least share of the extra time for "nearly all".
const NEARLY_ALL: f64 = 0.9;
/// A mean time per operation that is beyond all jitter, nanoseconds.
const LATE_FOR_CERTAIN: u64 = 5 * MS;

/// The network's part of the wire time over some operations.
#[derive(Debug, Default)]
pub(super) struct WireSplit {
    /// The sum of the wire time beyond normal, and the bounds of the network's part in it; nanoseconds.
    excess: u64,
    low: u64,
    high: u64,
    operations: u64,
    /// The number of operations without evidence, and their part of `excess` (all of it is also in `high`),
    /// nanoseconds.
    silent: u64,
    unsaid: u64,
    /// The sum of the means of both bounds of the network's part in the whole wire time, nanoseconds.
    network: f64,
    /// The median of the least round trips of the operations' flights, nanoseconds.
    round_trip: Option<u64>,
    /// The median round trip before, else the learned one; nanoseconds.
    normal_round_trip: Option<u64>,
    /// A kind of operation that stayed fast meanwhile, and its median wire time, nanoseconds.
    witness: Option<(Operation, u64)>,
    /// Most segments retransmitted during one flight; `None` if the count before is not known.
    retransmitted: Option<u32>,
    /// The longest time without an answer on the connection while segments were retransmitted, nanoseconds.
    silence: u64,
    /// The part of `low` from operations whose retransmissions prove it.
    by_retransmission: u64,
    /// The extremes over the requests whose sends were stamped, and the number of these requests.
    stamped: Option<(SendTiming, u32)>,
    path: Option<Path>,
    /// The path is as short as before.
    as_ever: bool,
    /// The server's timestamps can be compared with this host's clock.
    timestamps: bool,
    /// Lost segments explain most of the time.
    loses: bool,
    /// Lost segments of answers explain most of the time.
    loses_answers: bool,
    /// What TCP counted while it sent.
    sending: Option<Sending>,
    /// Most operations of the slow kinds were not late meanwhile.
    comes_and_goes: bool,
    /// The part of `low` during which late answers were on their way, nanoseconds.
    late: u64,
}

impl WireSplit {
    /// Splits the wire time of `events`, which are all of the scene's connection.
    pub fn of(scene: &Scene, events: &[&Event]) -> Self {
        let history = ConnectionHistory::of(scene, events);
        let path = if let PathState::Longer(path) = scene.path { Some(path) } else { None };
        let mut split = Self { retransmitted: Some(0), path, loses: history.loses, ..Self::default() };
        split.loses_answers = history.loses_answers;
        (split.as_ever, split.timestamps) = (matches!(scene.path, PathState::AsEver(_)), scene.clocks.is_some());
        let mut round_trips = Vec::new();
        split.normal_round_trip = history.normal_round_trip;
        split.witness = history.witness;
        split.comes_and_goes = history.comes_and_goes;
        // Data that waits in this host's own queueing discipline is unacknowledged, too.
        let own_queue = scene.is_queued() && events.iter().all(|event| event.stamped().is_none());
        let held_here = own_queue && scene.sending.is_some_and(|sending| sending.is_busy());
        split.sending = scene.sending.filter(|_| !own_queue);
        for event in events {
            let bounds = history.bounds(event);
            let normal = scene.normal(event);
            let own = scene.local(event).saturating_add(unread(event));
            let excess = event.phases.wire.saturating_sub(normal.wire).saturating_sub(own);
            let usual = split.normal_round_trip.unwrap_or(normal.wire).min(normal.wire);
            let usual_low =
                split.normal_round_trip.map_or(0, |sample| sample.min(normal.wire).saturating_sub(ACK_DELAY));
            let mut low = bounds.low.saturating_sub(usual).min(excess);
            let mut high = bounds.high.saturating_sub(usual_low).min(excess);
            // Where segments were sent again, round trips do not cover the time between.
            if let PathState::AsEver(more) = scene.path
                && !history.lossy
                && bounds.retransmitted == Some(0)
            {
                // TCP may have held the request back for a window, or needed more windows than usual. Some operations
                // may have taken more round trips, but not all.
                let held = event.stamped().map_or(0, |timing| timing.held);
                let usual_turn = split.normal_round_trip.unwrap_or(0);
                let again =
                    if history.comes_and_goes { more_turns } else { more_windows }(event.bytes, usual_turn, excess);
                high = high.min(more.saturating_mul(turns(event.bytes)).saturating_add(held).saturating_add(again));
            }
            if let Some(path) = path {
                let meanwhile = || scene.arrivals.within(flight(event));
                let is_filled = path.is_filled && meanwhile().iter().any(Arrival::is_large_answer);
                low = low.max(path.least_part(event).min(excess));
                high = high.max(if is_filled { excess } else { path.part(event).min(excess) });
            }
            if held_here {
                high = excess;
            }
            if let Some(sending) = split.sending {
                if sending.is_saturated() {
                    // Only the small request of a read goes to the server, so a busy way to the server proves nothing
                    // about a read.
                    high = high.max(sending.busy_part(excess));
                    let is_written = event.operation.direction() == Some(Direction::Written);
                    low = if is_written && !sending.is_clear { low.max(sending.busy_part(excess)) } else { low };
                } else if path.is_none() {
                    high = high.min(excess - sending.window_part(excess));
                    low = low.min(high);
                }
            }
            let late = bounds.late.min(excess);
            (low, high) = (low.max(late), high.max(late));
            split.late = split.late.saturating_add(late);
            split.excess = split.excess.saturating_add(excess);
            split.low = split.low.saturating_add(low);
            split.high = split.high.saturating_add(high);
            split.operations += 1;
            if low == 0 && high >= excess {
                split.silent += 1;
                split.unsaid = split.unsaid.saturating_add(excess);
            }
            let least = if low > 0 { low.saturating_add(usual) } else { bounds.low };
            split.network += (least as f64 + high as f64 + usual_low as f64) / 2.0;
            split.retransmitted = split.retransmitted.zip(bounds.retransmitted).map(|(a, b)| a.max(b));
            split.silence = split.silence.max(bounds.silence);
            if bounds.by_retransmission {
                split.by_retransmission = split.by_retransmission.saturating_add(low);
            }
            round_trips.extend(bounds.round_trip);
            if let Some(timing) = event.stamped() {
                let (all, count) = split.stamped.map_or((timing, 0), |(all, count)| (extremes(all, timing), count));
                split.stamped = Some((all, count + 1));
            }
        }
        split.round_trip = median(round_trips);
        split
    }

    /// The layer at fault, and its proven share of all extra wire time, 0 to 1; `Unknown` and 0 if none is proved.
    pub fn layer(&self) -> (Layer, f64) {
        let (network, server) = self.shares();
        let said = 1.0 - self.unsaid as f64 / self.excess.max(1) as f64;
        // A fault that comes and goes may be in the path, in this host's queue or in the server's host. Few round trips
        // are measured during such a fault.
        let enough = if self.comes_and_goes { DOMINANT } else { HALF };
        match (network >= HALF, server >= enough) {
            (true, false) => (Layer::Network, network * said),
            // A longer path is one fault. It is likelier to explain more than is proved than to coincide with a second
            // fault, of the server.
            (false, _) if self.longer_path().is_some() && network >= WORTH_A_FAULT => (Layer::Network, HALF),
            (false, true) => (Layer::Server, server * said),
            // The same holds for a path that answers fill: how long each answer took to pass it is not known.
            (false, false) if self.may_be_filled() => (Layer::Network, HALF),
            // A server that is slow for certain is likelier to have all of the time than to be slow while the same path
            // takes one round trip more.
            _ if self.is_certainly_late() && server >= WORTH_A_FAULT => (Layer::Server, HALF),
            _ => (Layer::Unknown, 0.0),
        }
    }

    /// Whether answers queue on the path for certain, and that explains nearly all of the time.
    fn may_be_filled(&self) -> bool {
        self.longer_path().is_some_and(|path| path.is_filled) && self.high as f64 >= self.excess as f64 * NEARLY_ALL
    }

    /// Whether the server has at least [`LATE_FOR_CERTAIN`] of an operation for certain, all operations are late, and
    /// nothing speaks for the network.
    fn is_certainly_late(&self) -> bool {
        let least = self.excess.saturating_sub(self.high) / self.operations.max(1);
        self.as_ever && self.low == 0 && !self.comes_and_goes && least >= LATE_FOR_CERTAIN
    }

    /// The mean network time per operation, milliseconds; `None` if no layer is proved.
    pub fn network_ms(&self) -> Option<f64> {
        (self.layer().0 != Layer::Unknown).then(|| self.network / self.operations.max(1) as f64 / 1e6)
    }

    /// Whether retransmissions are most of the evidence against the network. If most round trips were long on a
    /// saturated path, the server's host was up.
    pub fn by_retransmission(&self) -> bool {
        let is_there = self.is_saturated() && self.round_trip_is_longer_by(2 * ACK_DELAY);
        !self.is_lossy() && !is_there && self.by_retransmission > self.low / 2
    }

    /// Whether most round trips were longer than normal by at least this, nanoseconds.
    pub fn round_trip_is_longer_by(&self, more: Nanos) -> bool {
        let least = self.normal_round_trip.unwrap_or(0).saturating_add(more);
        self.round_trip.is_some_and(|sample| sample >= least)
    }

    /// Whether lost segments, of requests or of answers, explain most of the time.
    fn is_lossy(&self) -> bool {
        self.loses || self.loses_answers
    }

    /// Whether segments of answers out of order are the only evidence of loss.
    pub fn by_order(&self) -> bool {
        self.loses_answers && !self.loses
    }

    /// Whether round trips, or TCP's counts, are the only evidence against the network.
    pub fn by_round_trips(&self) -> bool {
        let by_path = self.longer_path().is_some_and(|path| path.back.is_none_or(|back| back == 0));
        (by_path || (self.is_saturated() && self.path.is_none())) && self.stamped.is_none()
    }

    /// Whether the fault comes and goes, without losses and without a longer way back. A server's host that pauses
    /// makes some round trips long, too.
    pub fn by_some_round_trips(&self) -> bool {
        self.comes_and_goes
            && !self.is_lossy()
            && !self.is_late()
            && self.path.and_then(|path| path.back).unwrap_or(0) == 0
    }

    /// Whether late answers explain at least half of the time, although the path is not longer throughout.
    fn is_late(&self) -> bool {
        self.longer_path().is_none() && self.late as f64 >= self.excess as f64 * HALF
    }

    /// The probabilities of the network and of the server if neither is proved; they add up to 1.
    pub fn odds(&self) -> (f64, f64) {
        let excess = self.excess.max(1) as f64;
        let (low, high) = (self.low as f64 / excess, self.high as f64 / excess);
        let network = (low + high) / 2.0;
        (network, 1.0 - network)
    }

    /// The cause to name if the network is at fault.
    pub fn network_cause(&self) -> Cause {
        match self.path {
            _ if self.is_lossy() || self.by_retransmission() => Cause::Loss,
            Some(path) if path.is_narrow || path.is_filled => Cause::NarrowPath,
            _ if self.is_late() => Cause::NarrowPath,
            // A saturated path is narrow, unless the way back became longer, too.
            _ if self.is_only_saturated() => Cause::NarrowPath,
            _ => Cause::LongerPath,
        }
    }

    /// Whether the path was saturated.
    fn is_saturated(&self) -> bool {
        self.sending.is_some_and(|sending| sending.is_saturated())
    }

    /// Whether the peer's window limited sending for most of the time.
    pub fn is_for_want_of_window(&self) -> bool {
        self.sending.is_some_and(|sending| sending.is_for_want_of_window())
    }

    /// Whether saturation is the path's only fault.
    pub fn is_only_saturated(&self) -> bool {
        self.is_saturated() && !self.loses && self.path.and_then(|path| path.back).unwrap_or(0) == 0
    }

    /// Whether another kind of operation was as fast as ever meanwhile.
    pub fn spares_a_kind(&self) -> bool {
        self.witness.is_some()
    }

    /// The path, if it became longer for certain.
    fn longer_path(&self) -> Option<Path> {
        self.path.filter(|path| path.is_certain())
    }

    /// The sentences that state the evidence and the bounds.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let Some(path) = self.longer_path() {
            let (now, which) = (
                span(path.now),
                if path.is_only_proven() { "at least a third of the round trips" } else { "most round trips" },
            );
            said.push(match path.normal {
                Some(normal) => {
                    format!("The path became longer: {which} took {now} or more, {} before.", span(normal))
                }
                None => {
                    format!("The path is long: {which} took {now} or more; what they took before is not known.")
                }
            });
            if path.is_only_proven() {
                said.push(
                    "Answers that arrived after a request was sent did not acknowledge that request: either the request or the answer was still on its way."
                        .to_owned(),
                );
            }
            if let Some(back) = path.back.filter(|back| *back > 0) {
                said.push(format!("By the server's timestamps, the way back became {} longer.", span(back)));
                if path.is_filled {
                    said.push("Large answers were late by varying times: they queue on the way back.".to_owned());
                }
            } else if path.own == 0 && self.stamped.is_none() {
                said.push(
                    "This host's own queueing discipline may hold the packets back; measuring that takes Linux 6.14 or newer."
                        .to_owned(),
                );
            }
        } else if let Some(round_trip) = self.round_trip {
            let before = self.normal_round_trip.map(|sample| format!(" ({} before)", span(sample))).unwrap_or_default();
            said.push(format!(
                "The connection's round trip was {}{before}. It may include a delayed acknowledgement of up to 50 ms.",
                span(round_trip)
            ));
            if self.as_ever {
                said.push(if self.timestamps {
                    "By the server's timestamps, the way back is as short as before.".to_owned()
                } else {
                    "Most round trips were as short as before.".to_owned()
                });
            }
        } else {
            said.push("The connection's round-trip time is not known.".to_owned());
        }
        said.push(match self.retransmitted {
            None => "How many segments were retransmitted meanwhile is not known.".to_owned(),
            Some(0) => "Nothing was retransmitted meanwhile.".to_owned(),
            Some(count) => format!(
                "{} while there was no answer for up to {}.",
                counted(count.into(), "segment")
                    + if count == 1 { " was retransmitted" } else { " were retransmitted" },
                span(self.silence)
            ),
        });
        if let Some((timing, count)) = self.stamped {
            said.push(format!(
                "The kernel timestamped {}: up to {} in TCP's queue, up to {} in this host's queueing discipline, then acknowledged after {}{}.",
                counted(count.into(), "request"),
                span(timing.held),
                span(timing.local),
                if timing.least == timing.most {
                    span(timing.most)
                } else {
                    format!("{} to {}", span(timing.least), span(timing.most))
                },
                match timing.retransmitted {
                    0 => String::new(),
                    times => format!(", retransmitted {}", counted(times.into(), "time")),
                }
            ));
        }
        said.extend(self.sending.and_then(|sending| sending.sentence()));
        if let Some((operation, wire)) = self.witness {
            said.push(format!("{} took only {} on the same connection meanwhile.", operation.name(), span(wire)));
        }
        if self.is_late() {
            said.push(format!(
                "By the server's timestamps, answers were on their way for {} longer than usual, by varying amounts: answers queue on the path.",
                span(self.late / self.operations.max(1))
            ));
        }
        if self.loses {
            said.push(
                "TCP retransmitted segments repeatedly while other operations were answered: the path loses segments."
                    .into(),
            );
        }
        if self.loses_answers {
            said.push(
                "During at least half of the time on the wire, segments of answers arrived out of order, and more often than before: the path loses \
                 segments of answers."
                    .into(),
            );
        }
        if self.by_retransmission() {
            said.push(
                "TCP's retransmission timeouts account for that time: the path, or the server's host, was unreachable."
                    .into(),
            );
        }
        if self.silent > 0 && self.layer().0 != Layer::Unknown {
            said.push(format!(
                "There is no evidence for {} of the operations; the verdict treats them like the others.",
                self.silent
            ));
        }
        let mean = |sum: u64| span(sum / self.operations.max(1));
        let (low, high, excess) = (mean(self.low), mean(self.high), mean(self.excess));
        if self.excess > 0 {
            said.push(if low == excess {
                format!("All of the {excess} of extra time on the wire is the network's.")
            } else if self.high == 0 {
                format!("All of the {excess} of extra time on the wire is the server's.")
            } else if low == high {
                format!("Of the {excess} of extra time on the wire, {low} is the network's and the rest is the server's.")
            } else {
                format!("Of the {excess} of extra time on the wire, between {low} and {high} is the network's and the rest is the server's.")
            });
        }
        said
    }

    /// The proven shares of the network and of the server in the extra time of the operations with evidence; zero if
    /// these have less than half of the extra time.
    fn shares(&self) -> (f64, f64) {
        let said = self.excess.saturating_sub(self.unsaid);
        if said == 0 || said < self.unsaid {
            return (0.0, 0.0);
        }
        let said = said as f64;
        (self.low as f64 / said, self.excess.saturating_sub(self.high) as f64 / said)
    }
}

fn extremes(one: SendTiming, other: SendTiming) -> SendTiming {
    SendTiming {
        sends: one.sends.saturating_add(other.sends),
        local: one.local.max(other.local),
        held: one.held.max(other.held),
        least: one.least.min(other.least),
        most: one.most.max(other.most),
        retransmitted: one.retransmitted.saturating_add(other.retransmitted),
        unacknowledged: one.unacknowledged.max(other.unacknowledged),
        gap: one.gap || other.gap,
    }
}
