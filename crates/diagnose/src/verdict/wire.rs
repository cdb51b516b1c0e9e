//! Time on the wire, split into the network's and the server's as far as that can be proved.
//!
//! For every operation there are a lower and an upper bound of the network's time:
//! - A round-trip sample taken during its flight. The peer may hold an acknowledgement back for 40 ms and sends it with
//!   the answer if that is ready first, so the network's time lies between the sample less 50 ms and the sample.
//! - Stamps of its own send (BPF timestamping): likewise between what the acknowledgement took, less what it may have been
//!   delayed by, and that with the time in TCP's own queue. A request that was lost and sent again shows; a lost answer does not.
//! - Another operation that was sent and answered during its flight: TCP keeps the order, so the network was no slower.
//! - Other kinds of operations that stayed fast meanwhile. Not if segments were lost: that can hit one and spare the next.
//! - A path that became longer, as all round trips of the connection say (`path`): each round trip that the operation may have taken.
//! - Retransmissions while nobody was answered: as much silence as they can stand for may be the network's, and is, if
//!   they are as many as the silence needs. A path that loses requests may lose answers, and of that nothing is seen
//!   here: then all of the wire time may be the network's.
//!
//! Where nothing is known the bounds are zero and all of the wire time. Operations of which that is so are taken to be like the
//! others, if most of the time is the others'; else the verdict is unknown.

use std::collections::{BTreeMap, BTreeSet};

use model::{Event, Layer, Nanos, Operation, Transit};

use super::{
    HALF,
    path::Path,
    scene::{Scene, flight, local, median},
};
use crate::units::{MS, counted, span};

/// How much of a round-trip sample can be the peer's delayed acknowledgement: 40 ms on Linux, and some scheduling.
pub(super) const ACK_DELAY: u64 = 50 * MS;
/// Linux's least retransmission timeout (TCP_RTO_MIN).
const LEAST_RTO: u64 = 200 * MS;
/// The least wait before a tail loss probe, and some scheduling.
const PROBE: u64 = 20 * MS;
/// Other kinds of operations must be at least this many to speak for the network.
const WITNESSES: usize = 3;

/// The network's part of the wire time over some operations.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// Wire time beyond normal, nanoseconds, summed; the bounds of the network's part in it.
    excess: u64,
    low: u64,
    high: u64,
    operations: u64,
    /// The operations of which nothing is known, and their part of `excess`: all of it is in `high` as well.
    silent: u64,
    unsaid: u64,
    /// Mean of the bounds over the whole wire time, summed.
    network: f64,
    /// Least round-trip sample of each operation's flight.
    round_trip: Option<u64>,
    /// Round-trip samples before.
    normal_round_trip: Option<u64>,
    /// The kind of operation that stayed fast meanwhile, and its median wire time.
    witness: Option<(Operation, u64)>,
    /// Most segments retransmitted during one flight; `None` if the count before is not known.
    retransmitted: Option<u32>,
    /// Longest time without any answer on the connection while segments were retransmitted.
    silence: u64,
    /// Part of `low` that only the retransmissions account for.
    by_retransmission: u64,
    /// The extremes of the requests whose sends were stamped, and how many these are.
    stamped: Option<(Transit, u32)>,
    /// The path, if it became longer.
    path: Option<Path>,
}

impl Split {
    /// Splits the wire time of `events`, which are all of the scene's connection.
    pub fn of(scene: &Scene, path: Option<Path>, events: &[&Event]) -> Self {
        let line = Line::of(scene, events);
        let mut split = Self { retransmitted: Some(0), path, ..Self::default() };
        let mut round_trips = Vec::new();
        split.normal_round_trip = median(scene.before.iter().filter_map(|event| round_trip(event)).collect());
        split.witness = line.witness;
        for event in events {
            let bounds = line.bounds(event);
            let normal = scene.normal(event);
            let excess = event.phases.wire.saturating_sub(normal.wire).saturating_sub(local(event));
            let usual = split.normal_round_trip.unwrap_or(normal.wire).min(normal.wire);
            let usual_low =
                split.normal_round_trip.map_or(0, |sample| sample.min(normal.wire).saturating_sub(ACK_DELAY));
            let mut low = bounds.low.saturating_sub(usual).min(excess);
            let mut high = bounds.high.saturating_sub(usual_low).min(excess);
            if let Some(path) = path {
                let part = path.part(event).min(excess);
                low = if path.is_certain { low.max(part) } else { low };
                high = high.max(part);
            }
            split.excess = split.excess.saturating_add(excess);
            split.low = split.low.saturating_add(low);
            split.high = split.high.saturating_add(high);
            split.operations += 1;
            if low == 0 && high >= excess {
                split.silent += 1;
                split.unsaid = split.unsaid.saturating_add(excess);
            }
            split.network += (bounds.low as f64 + bounds.high as f64) / 2.0;
            split.retransmitted = split.retransmitted.zip(bounds.retransmitted).map(|(a, b)| a.max(b));
            split.silence = split.silence.max(bounds.silence);
            if bounds.by_retransmission {
                split.by_retransmission = split.by_retransmission.saturating_add(low);
            }
            round_trips.extend(bounds.round_trip);
            if let Some(transit) = event.transit {
                let (all, count) = split.stamped.map_or((transit, 0), |(all, count)| (extremes(all, transit), count));
                split.stamped = Some((all, count + 1));
            }
        }
        split.round_trip = median(round_trips);
        split
    }

    /// The layer and its proven share of all extra wire time.
    pub fn layer(&self) -> (Layer, f64) {
        let (network, server) = self.shares();
        let said = 1.0 - self.unsaid as f64 / self.excess.max(1) as f64;
        match (network >= HALF, server >= HALF) {
            (true, false) => (Layer::Network, network * said),
            // A longer path is a fault already: that the server has another one is less likely than that the path explains more than is known.
            (false, true) if self.longer_path().is_none() => (Layer::Server, server * said),
            _ => (Layer::Unknown, 0.0),
        }
    }

    /// Mean network time per operation, milliseconds, if the split is decided.
    pub fn network_ms(&self) -> Option<f64> {
        (self.layer().0 != Layer::Unknown).then(|| self.network / self.operations.max(1) as f64 / 1e6)
    }

    /// Whether most of what speaks against the network are retransmissions.
    pub fn by_retransmission(&self) -> bool {
        self.by_retransmission > self.low / 2
    }

    /// Whether the path became longer, and this host's own queueing discipline may be the part that did.
    pub fn may_be_own_queue(&self) -> bool {
        self.longer_path().is_some() && self.stamped.is_none()
    }

    /// The path, if it became longer for certain.
    fn longer_path(&self) -> Option<Path> {
        self.path.filter(|path| path.is_certain)
    }

    /// The figures.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let Some(path) = self.longer_path() {
            let now = span(path.now);
            said.push(match path.normal {
                Some(normal) => format!(
                    "The path became longer: nine of ten round trips of the connection took {now} or more, {} before.",
                    span(normal)
                ),
                None => format!(
                    "The path is long: nine of ten round trips of the connection took {now} or more; what they took before is not known."
                ),
            });
            if self.may_be_own_queue() {
                said.push(
                    "Whether it is this host's own queueing discipline that holds packets back is not known: Linux 6.14 and newer stamp what is sent."
                        .to_owned(),
                );
            }
        } else if let Some(round_trip) = self.round_trip {
            let before = self.normal_round_trip.map(|sample| format!(" ({} before)", span(sample))).unwrap_or_default();
            said.push(format!(
                "The connection's round trip was {}{before}; a delayed acknowledgement can be up to 50 ms of it.",
                span(round_trip)
            ));
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
        if let Some((transit, count)) = self.stamped {
            said.push(format!(
                "Stamped {}: in TCP's queue for up to {}, in this host's queueing discipline up to {}, acknowledged {} later{}.",
                counted(count.into(), "request"),
                span(transit.held),
                span(transit.local),
                if transit.least == transit.most {
                    span(transit.most)
                } else {
                    format!("{} to {}", span(transit.least), span(transit.most))
                },
                match transit.retransmitted {
                    0 => String::new(),
                    times => format!(", sent again {}", counted(times.into(), "time")),
                }
            ));
        }
        if let Some((operation, wire)) = self.witness {
            said.push(format!("{} took only {} on the same connection meanwhile.", operation.name(), span(wire)));
        }
        if self.by_retransmission() {
            said.push(
                "So many retransmissions take that long: the path, or the server's whole host, was unreachable.".into(),
            );
        }
        if self.silent > 0 && self.layer().0 != Layer::Unknown {
            said.push(format!("Nothing is known of {} of the operations: taken to be like the others.", self.silent));
        }
        let mean = |sum: u64| span(sum / self.operations.max(1));
        let (low, high, excess) = (mean(self.low), mean(self.high), mean(self.excess));
        said.push(if low == high {
            format!("The network's part of the {excess} extra on the wire is {low}, the rest the server's.")
        } else {
            format!("The network's part of the {excess} extra on the wire is between {low} and {high}, the rest the server's.")
        });
        said
    }

    /// What is proved of the operations that say something, if they are most: the network's share, and the server's.
    fn shares(&self) -> (f64, f64) {
        let said = self.excess.saturating_sub(self.unsaid);
        if said == 0 || said < self.unsaid {
            return (0.0, 0.0);
        }
        let said = said as f64;
        (self.low as f64 / said, self.excess.saturating_sub(self.high) as f64 / said)
    }
}

/// What bounds the network's part in one operation.
struct Bounds {
    low: u64,
    high: u64,
    round_trip: Option<u64>,
    /// `None` if not known.
    retransmitted: Option<u32>,
    silence: u64,
    by_retransmission: bool,
}

/// The connection's history, ordered for looking things up.
struct Line<'a> {
    /// When answers were received, ascending.
    answers: Vec<Nanos>,
    /// Counts of retransmitted segments by the time they were read, ascending.
    retransmits: Vec<(Nanos, u32)>,
    during: &'a [&'a Event],
    witness: Option<(Operation, u64)>,
    /// The path lost segments while the slow operations lasted, and may have lost answers.
    lossy: bool,
}

impl<'a> Line<'a> {
    fn of(scene: &'a Scene, events: &[&Event]) -> Self {
        let all = || scene.before.iter().chain(&scene.during);
        let mut answers: Vec<_> = all().filter(|event| answered(event)).map(|event| flight(event).1).collect();
        answers.sort_unstable();
        let mut retransmits: Vec<_> =
            all().filter(|event| event.network.known).map(|event| (event.end(), event.network.retransmits)).collect();
        retransmits.sort_unstable();
        let mut line =
            Self { answers, retransmits, during: &scene.during, witness: witness(scene, events), lossy: false };
        line.lossy = line.retransmitted_again() || line.during.iter().any(|event| line.fits_a_loss(event));
        if line.lossy {
            line.witness = None;
        }
        line
    }

    fn bounds(&self, event: &Event) -> Bounds {
        let (sent, received) = flight(event);
        let within = self.during.iter().filter(|other| flight(other).1 >= sent && flight(other).1 <= received);
        let round_trip = within.clone().filter_map(|other| round_trip(other)).min();
        let nested = within.filter(|other| answered(other) && flight(other).0 >= sent).map(|other| other.phases.wire);
        let mut high = event.phases.wire;
        if !self.lossy {
            high = nested.chain(round_trip).fold(high, u64::min);
        }
        // A round trip as TCP takes it begins in front of the queueing discipline.
        let mut low = round_trip.map_or(0, |sample| sample.saturating_sub(ACK_DELAY).saturating_sub(local(event)));
        if let Some(transit) = event.transit {
            low = low.max(transit.least.saturating_sub(ACK_DELAY));
            if !self.lossy {
                high = high.min(transit.held.saturating_add(transit.most).max(low));
            }
        }
        let (at_least, at_most) = self.retransmitted(event, sent);
        let silence = self.silence(sent, received);
        let mut by_retransmission = false;
        if at_most == 0 || !event.network.known {
            high = self.witness.map_or(high, |(_, wire)| high.min(wire));
        } else {
            high = high.max(possible(at_most, silence, event));
            by_retransmission = proven(at_least, silence, event);
            low = if by_retransmission { low.max(silence) } else { low };
        }
        Bounds {
            low: low.min(high),
            high,
            round_trip,
            retransmitted: (at_least == at_most).then_some(at_most),
            silence: if at_most > 0 { silence } else { 0 },
            by_retransmission,
        }
    }

    /// Whether segments were retransmitted again before the next answer came, which no loss probe explains.
    fn retransmitted_again(&self) -> bool {
        let from = self.during.first().map_or(0, |event| event.end());
        let first = self.retransmits.partition_point(|(time, _)| *time < from).saturating_sub(1);
        let counts = self.retransmits.get(first..).unwrap_or_default();
        counts.windows(2).any(|pair| matches!(pair, [(_, before), (_, now)] if now.saturating_sub(*before) > 1))
    }

    /// Whether nobody was answered during an operation's flight for as long as the loss of what was retransmitted takes.
    fn fits_a_loss(&self, event: &Event) -> bool {
        let (sent, received) = flight(event);
        if received.saturating_sub(sent) < LEAST_RTO {
            return false;
        }
        let (silence, count) = (self.silence(sent, received), self.retransmitted(event, sent).0);
        silence >= LEAST_RTO && possible(count, silence, event) == silence
    }

    /// How many segments were retransmitted between sending and the end: at least and at most.
    fn retransmitted(&self, event: &Event, sent: Nanos) -> (u32, u32) {
        if !event.network.known {
            return (0, u32::MAX);
        }
        let now = event.network.retransmits;
        let earlier = self.retransmits.partition_point(|(time, _)| *time <= sent).checked_sub(1);
        match earlier.and_then(|index| self.retransmits.get(index)) {
            Some((_, before)) if *before <= now => (now - before, now - before),
            // A new socket counts from zero: there was a reconnection, and nothing is known of the old one's end.
            Some(_) => (0, u32::MAX),
            None => (0, now),
        }
    }

    /// The longest time without an answer between two times.
    fn silence(&self, sent: Nanos, received: Nanos) -> u64 {
        let first = self.answers.partition_point(|time| *time <= sent);
        let (mut last, mut longest) = (sent, 0);
        let answers = self.answers.iter().skip(first).take_while(|time| **time < received).copied();
        for time in answers.chain([received]) {
            longest = longest.max(time.saturating_sub(last));
            last = time;
        }
        longest
    }
}

fn extremes(one: Transit, other: Transit) -> Transit {
    Transit {
        sends: one.sends.saturating_add(other.sends),
        local: one.local.max(other.local),
        held: one.held.max(other.held),
        least: one.least.min(other.least),
        most: one.most.max(other.most),
        retransmitted: one.retransmitted.saturating_add(other.retransmitted),
        unacknowledged: one.unacknowledged.max(other.unacknowledged),
    }
}

/// The most silence that retransmissions can stand for. The timeout doubles with each, and the last may have waited in
/// vain; a silence shorter than the first timeout is a loss probe's, which waits for two round trips.
fn possible(retransmissions: u32, silence: u64, event: &Event) -> u64 {
    let smoothed = u64::from(event.network.srtt_us) * 1_000;
    let waited = if retransmissions > 0 && silence < LEAST_RTO {
        3 * smoothed + PROBE
    } else {
        (LEAST_RTO + smoothed).saturating_mul((1 << (retransmissions.min(20) + 1)) - 1)
    };
    if retransmissions > 0 { silence.min(waited) } else { 0 }
}

/// Whether the retransmissions leave nothing else to blame: the last of them ended the silence. One alone may have been
/// a loss probe that only overtook a delayed acknowledgement.
fn proven(retransmissions: u32, silence: u64, event: &Event) -> bool {
    let timeout = LEAST_RTO + u64::from(event.network.srtt_us) * 1_000;
    let waited = timeout.saturating_mul((1 << retransmissions.min(20)) - 1);
    retransmissions > 1 && silence >= LEAST_RTO && silence <= waited.saturating_add(waited / 4)
}

/// The fastest kind of operation that was never slow meanwhile, by its median.
fn witness(scene: &Scene, events: &[&Event]) -> Option<(Operation, u64)> {
    let slow: BTreeSet<_> = events.iter().chain(&scene.judged).map(|event| event.operation).collect();
    let mut kinds = BTreeMap::<Operation, Vec<u64>>::new();
    for event in scene.during.iter().filter(|event| answered(event) && !slow.contains(&event.operation)) {
        kinds.entry(event.operation).or_default().push(event.phases.wire);
    }
    kinds
        .into_iter()
        .filter(|(_, wires)| wires.len() >= WITNESSES)
        .filter_map(|(operation, wires)| Some((operation, median(wires)?)))
        .min_by_key(|(_, wire)| *wire)
}

/// An answer came over the network: one that never went there proves nothing.
pub(super) fn answered(event: &Event) -> bool {
    !event.flags.unanswered && event.phases.wire > 0
}

pub(super) fn round_trip(event: &Event) -> Option<u64> {
    (event.network.known && event.network.rtt_us > 0).then(|| u64::from(event.network.rtt_us) * 1_000)
}
