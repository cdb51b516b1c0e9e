//! Which layer lost the time: client, network or server. A verdict is `unknown` rather than wrong.
//!
//! The verdict compares each phase of the slow operations with the recent normal of the same operation. Three kinds of
//! extra time belong to the client: time before sending (unless the queue was long because answers were late), time
//! after receiving, and time in this host's own queueing discipline. [`wire`] bounds the network's part of the
//! remaining extra time on the wire. A layer is named only if even the bound that favours it least says so.

mod acks;
mod arrivals;
mod calls;
mod ceph;
mod conclude;
mod connection;
mod daemon;
mod drops;
mod excess;
mod failure;
mod history;
mod interface;
mod load;
mod no_cpu;
mod normals;
mod overtaken;
mod own_mtu;
mod own_reset;
mod own_window;
mod path;
mod proxy;
mod reroute;
mod reset;
mod scene;
mod sending;
pub(crate) mod served;
mod siblings;
mod unreachable;
mod wire;

use model::{Cause, Event, Layer, PhasesMs, Verdict};

use crate::{
    long_term::LongTerm,
    units::{MS, counted, span},
};
use conclude::{Candidate, are_passed_on, conclude, share_with_proxy};
pub use drops::{has_telling_text, is_of_connections};
use excess::{Excess, QueueCause, Shares};
use load::Burst;
use no_cpu::NoCpu;
use overtaken::Overtaken;
use own_mtu::OwnMtu;
use own_window::OwnWindow;
use reroute::NewRoute;
use scene::{JUDGED, SEEN, Scene, flight, unread};
use wire::WireSplit;

/// The share of the extra time from which one side dominates.
const DOMINANT: f64 = 0.6;
/// The share of the wire's extra time from which the network, or the server, is to blame.
const HALF: f64 = 0.5;
/// From this share of the extra time on, late delivery makes the arrival times of the answers doubtful.
const LATE_DELIVERY: f64 = 0.25;
/// The highest confidence when retransmissions are the evidence: they do not tell the path from the server's host.
const MOST_BY_RETRANSMISSION: f64 = 0.75;
/// The highest confidence when round trips are the only evidence of a longer path: delayed acknowledgements, or this
/// host's own queueing discipline, can look the same.
const MOST_BY_ROUND_TRIPS: f64 = 0.85;
/// The highest confidence when reordering is the evidence of loss: a path can reorder segments without losing any.
const MOST_BY_ORDER: f64 = 0.9;
/// The highest confidence when only some round trips are long: a server's host that pauses repeatedly looks the same.
const MOST_BY_SOME_ROUND_TRIPS: f64 = 0.75;
/// The highest confidence without a known normal: the server may always take as long for such requests (large writes).
const MOST_WITHOUT_NORMAL: f64 = 0.75;
/// The highest confidence when the server's receive window limited sending: a middlebox may have rewritten the window.
/// A window that is closed altogether is reported by the probe `connections`.
const MOST_BY_WINDOW: f64 = 0.7;
/// So many needless timeouts show that the path, or the server's host, held segments or acknowledgements: sends were not acknowledged in time, but had
/// arrived.
const SOME_TIMEOUTS: u32 = 2;
/// The highest confidence in a slow service if the path, or the server's host, held segments or acknowledgements.
const MOST_IF_HELD: f64 = 0.6;
/// If at least this many slow operations began after the last event of their connection, they have a cause of their own.
const ENOUGH_LATER: usize = 10;
/// A healthy server takes less than this for a request, plus `NS_PER_BYTE` for each of its bytes (20 MB a second).
const SLOW_ANYWAY: u64 = 100 * MS;
/// The same, if the server answers operations of another kind as fast as ever meanwhile.
const SLOW_BESIDE_OTHERS: u64 = 30 * MS;
const NS_PER_BYTE: f64 = 50.0;
/// The probability that the server's host was paused, if its clock stood still.
const PAUSED: f64 = 0.9;
/// The probability that this host's own load is the cause, if the server serves several times as much as before.
const BUSY: f64 = 0.85;
/// The probability that answers were late because the threads that take them had no CPU, if that alone can be half of
/// the extra time.
const RECEIVERS: f64 = 0.85;
/// The probability that this host's receive window is the cause, if the answers fill it.
const SMALL_WINDOW: f64 = 0.88;
/// The probability that this host's new route is the cause, if the path is longer since it changed.
const NEW_ROUTE: f64 = 0.85;
/// ... and if the server seems to be slow since it changed.
const BY_NEW_ROUTE: f64 = 0.6;
/// The probability that the path of one connection is the cause, if the server is as fast as ever on others.
const ONE_PATH: f64 = 0.85;
/// If fewer than this share of the operations meanwhile were as fast as normal, the threads that read answers read all of them late.
const FEW: f64 = 0.4;
/// The probability that an undecided wire fault is the network's or the server's; the rest is for causes that are not
/// considered.
const SURE_OF_WIRE: f64 = 0.9;

/// Judges the events that broke a rule of this kind (a `KIND` of a detector).
///
/// `events`: the anomalous events. `around`: the flight recorder's operations of the last seconds, and those events of the same server's connections
/// for which [`is_of_connections`] holds. `elsewhere`: if `events` are slow requests to one server, the requests over other connections to other
/// mounts of that server. `long_term`: the learned normals of this host.
pub fn judge(kind: &str, events: &[Event], around: &[Event], elsewhere: &[Event], long_term: &LongTerm) -> Verdict {
    let all_failed = || !events.is_empty() && events.iter().all(|event| event.flags.failed);
    match kind {
        crate::error::KIND | crate::expression::KIND if served::are_served(events) && all_failed() => {
            served::of_errors(events)
        }
        crate::error::KIND => failure::of_errors(events, around),
        crate::stall::KIND => failure::of_stalls(events, around, long_term),
        crate::connection::KIND => connection::of_happenings(events, around),
        crate::expression::KIND if all_failed() => failure::of_errors(events, around),
        // All other kinds are about slow operations.
        _ => of_slow(events, around, elsewhere, long_term),
    }
}

/// The verdict about connections. If it is `unknown`, the verdict on slow operations that began after the last of these `events`, if the cause is the
/// receive window: a new connection may have a smaller one than the connection before. Other causes are not certain: a backlog is also slow.
pub fn judge_delayed(
    verdict: Verdict,
    events: &[Event],
    delayed: &[Event],
    around: &[Event],
    long_term: &LongTerm,
) -> Verdict {
    if verdict.layer != Layer::Unknown {
        return verdict;
    }
    let last = events.iter().map(Event::end).max().unwrap_or(0);
    let is_later = |event: &&Event| event.start >= last && !event.flags.in_flight;
    let later: Vec<_> = delayed.iter().filter(is_later).cloned().collect();
    if later.len() < ENOUGH_LATER {
        return verdict;
    }
    let of_later = self::verdict(&later, around, long_term);
    if of_later.cause != Some(Cause::OwnWindow) {
        return verdict;
    }
    let because = verdict.because.into_iter().chain(of_later.because).collect();
    Verdict { because, ..of_later }
}

/// Judges slow operations by the operations around them.
///
/// `slow`: the anomalous events. `around`: the flight recorder's operations of the last seconds, fast and slow; these
/// may lack thread and file names. Both may be in any order. `long_term`: the learned normals, used where the recorder
/// holds too little.
pub fn verdict(slow: &[Event], around: &[Event], long_term: &LongTerm) -> Verdict {
    of_slow(slow, around, &[], long_term)
}

fn of_slow(slow: &[Event], around: &[Event], elsewhere: &[Event], long_term: &LongTerm) -> Verdict {
    if served::are_served(slow) {
        return served::verdict(slow, around);
    }
    let Some(mut scene) = Scene::of(slow, around, long_term) else {
        return Verdict::unknown("There was no slow operation to judge.");
    };
    if !scene.remote {
        return calls::verdict(&scene, slow, around);
    }
    if daemon::is_served(scene.slowest.operation) {
        return daemon::verdict(&scene, slow, around);
    }
    if scene.judged.is_empty() {
        return Verdict::unknown(format!("{} The probe could not split their time into phases.", scene.summary()));
    }
    scene.beside = elsewhere.iter().collect();
    scene.beside.sort_by_key(|event| event.end());
    Judgement::of(&scene).verdict(around)
}

/// The figures from which one scene is judged.
struct Judgement<'a> {
    scene: &'a Scene<'a>,
    excess: Excess,
    no_cpu: NoCpu,
    /// Why operations waited before they were sent.
    queue: QueueCause,
    /// The split of the wire time: of the late answers if these made the operations queue, else of the slow operations.
    split: WireSplit,
}

impl<'a> Judgement<'a> {
    fn of(scene: &'a Scene<'a>) -> Self {
        let excess = Excess::of(scene);
        let no_cpu = NoCpu::of(&scene.during);
        let queue = QueueCause::of(scene, &excess, no_cpu);
        let mut late = if queue.is_wire() { scene.answered_late() } else { scene.judged.clone() };
        late.truncate(JUDGED);
        let split = WireSplit::of(scene, &late);
        Self { scene, excess, no_cpu, queue, split }
    }

    fn verdict(&self, around: &[Event]) -> Verdict {
        let mut because = vec![self.scene.summary()];
        because.extend(ceph::sentences(&self.scene.judged, around));
        if self.scene.proxied {
            because.push(proxy::sentence(&self.excess, self.scene.judged.len() as u64));
        } else {
            because.extend(self.excess.sentence(self.scene.count));
        }
        because.extend(self.queue.sentence());
        let candidates = self.candidates(&mut because);
        let candidates = share_with_proxy(are_passed_on(self.scene.judged.iter().copied()), candidates, &mut because);
        because.extend(self.scene.others());
        let mut verdict = conclude(candidates, because, self.phases());
        let suspects = |layer| verdict.alternatives.iter().any(|other| other.layer == layer);
        if verdict.layer == Layer::Unknown
            && [Layer::Network, Layer::Server].into_iter().all(suspects)
            && !self.is_stamped()
            && let Some(last) = verdict.because.last_mut()
        {
            last.push_str(
                " On Linux 6.14 and newer, Plumbline on this host also measures when the request was acknowledged.",
            );
        }
        verdict
    }

    /// Whether the kernel timestamped the sends of a judged operation.
    fn is_stamped(&self) -> bool {
        self.scene.judged.iter().any(|event| event.stamped().is_some())
    }

    /// The possible causes with their probabilities. Appends the sentences that support them to `because`.
    fn candidates(&self, because: &mut Vec<String>) -> Vec<Candidate> {
        let Shares { queue, local, unread, starved, wire, deliver, .. } = self.excess.shares();
        let queue_is = |is: bool| if is { queue } else { 0.0 };
        let client = local + unread + starved + deliver + queue_is(self.queue.is_client());
        let wire = wire + queue_is(self.queue.is_wire());
        let no_cpu = self.no_cpu.is_seen();
        because.extend(self.no_cpu.sentence());
        because.extend(self.scene.own_queue());
        because.extend(self.scene.not_sent());
        let is_seen = local + unread + starved >= SEEN || (no_cpu && client >= HALF);
        if client >= DOMINANT || (is_seen && !self.scene.proxied) {
            // By how much the client's share exceeds the required least share, scaled to 0 to 1.
            let margin = ((client - SEEN) / (1.0 - SEEN)).clamp(0.0, 1.0);
            let cause = self.client_cause();
            let is_sure = self.excess.has_normal() || self.scene.is_answered_at_once();
            let most = if cause == Cause::Queue && !is_sure { MOST_WITHOUT_NORMAL } else { 1.0 };
            let likely = self.confidence(Layer::Client, margin).min(most);
            return vec![(cause, likely), (self.server_cause(), (1.0 - likely) * wire)];
        }
        if self.scene.proxied {
            if wire >= DOMINANT {
                because.push(proxy::IN_LIBCEPHFS.to_owned());
            }
            return Vec::new();
        }
        let drops = self.scene.drops.as_ref().filter(|_| wire >= SEEN);
        // An interface's counters do not say whose packets it dropped.
        if let Some(drops) = drops.filter(|drops| !drops.are_of_interface() || self.overtaken().is_none()) {
            because.push(drops.sentence());
            return drops.candidates(Some(self.server_cause()));
        }
        // A healthy server may take long for a burst, but not for each of a few operations.
        let burst = Burst::of(self.scene).filter(|burst| !burst.may_be_chance() || !self.is_slow_anyway());
        because.extend(burst.as_ref().map(Burst::sentence));
        let two_at_once = no_cpu && client >= SEEN;
        if (wire < DOMINANT || two_at_once) && burst.is_none() {
            because.push(if two_at_once {
                "Much of the extra time passed on this host, and much beyond it.".to_owned()
            } else {
                "No phase took enough of the extra time to name a cause.".to_owned()
            });
            let (network, server) = if two_at_once { self.split.odds() } else { (0.5, 0.5) };
            return vec![
                (self.client_cause(), client),
                (self.network_cause(), wire * network),
                (self.server_cause(), wire * server),
            ];
        }
        if let Some(window) = OwnWindow::of(self.scene).filter(|_| burst.is_none()) {
            because.push(window.sentence());
            return vec![(Cause::OwnWindow, SMALL_WINDOW), (self.server_cause(), (1.0 - SMALL_WINDOW) / 2.0)];
        }
        if let Some(paused) = self.paused() {
            because.push(format!(
                "The server answers as fast as before, but its timestamps lag by {} more: the server's clock stood still for that time.",
                span(paused)
            ));
            return vec![(Cause::Paused, PAUSED), (self.network_cause(), (1.0 - PAUSED) / 2.0)];
        }
        because.extend(self.split.sentences());
        if burst.is_none()
            && let Some(overtaken) = self.overtaken()
        {
            because.push(overtaken.sentence());
            let likely = self.confidence(Layer::Server, (overtaken.share() - HALF) / (1.0 - HALF));
            return vec![(self.server_cause(), likely), (self.network_cause(), (1.0 - likely) / 2.0)];
        }
        let [judged, during, before] =
            [&self.scene.judged, &self.scene.during, &self.scene.before].map(|events| events.iter().copied());
        if let Some(mtu) = OwnMtu::of(judged, during, before).filter(|_| burst.is_none()) {
            because.push(mtu.sentence());
            return mtu.candidates(self.server_cause());
        }
        if self.receivers_may_be_why() {
            because.push("The threads that take answers had no CPU for at least half of the extra time.".to_owned());
            // These threads take all answers of a connection. If many answers came in time, the server may be late with the others.
            let likely = if self.scene.fast_share() < FEW { RECEIVERS } else { HALF };
            return vec![(Cause::NoCpu, likely), (self.server_cause(), (1.0 - likely) * SURE_OF_WIRE)];
        }
        let says_since_when = self.scene.judged.iter().any(|event| event.network.min_rtt_us > 0);
        let is_late = deliver >= LATE_DELIVERY && !says_since_when;
        if is_late {
            because.push(
                "Delivery on this host was late too, so answers may have come earlier than they were seen.".into(),
            );
        }
        let (layer, share) = if is_late { (Layer::Unknown, 0.0) } else { self.split.layer() };
        if let Some(siblings) = self.scene.spared_siblings.filter(|_| layer != Layer::Network) {
            because.push(siblings.sentence());
            return vec![(self.network_cause(), ONE_PATH), (self.server_cause(), (1.0 - ONE_PATH) / 2.0)];
        }
        let margin = ((share - HALF) / (1.0 - HALF)).clamp(0.0, 1.0);
        let likely = self.confidence(layer, margin);
        match layer {
            // A burst makes a queue on the path, too: `7.3/burst-write`.
            _ if burst.is_some() && (layer != Layer::Network || share < DOMINANT || self.split.is_only_saturated()) => {
                vec![(Cause::Burst, BUSY), (self.server_cause(), (1.0 - BUSY) / 2.0)]
            }
            Layer::Network => {
                if let Some(new_route) = self.longer_by_new_route() {
                    because.push(new_route.sentence());
                    return vec![(Cause::OwnRoute, NEW_ROUTE), (self.network_cause(), (1.0 - NEW_ROUTE) / 2.0)];
                }
                let most = if self.split.by_retransmission() {
                    MOST_BY_RETRANSMISSION
                } else if self.split.by_order() {
                    MOST_BY_ORDER
                } else if self.split.by_some_round_trips() {
                    MOST_BY_SOME_ROUND_TRIPS
                } else if self.split.by_round_trips() {
                    MOST_BY_ROUND_TRIPS
                } else {
                    1.0
                };
                let likely = likely.min(most);
                let other = if self.split.by_retransmission() { Cause::HostGone } else { self.server_cause() };
                vec![(self.network_cause(), likely), (other, (1.0 - likely) / 2.0)]
            }
            Layer::Server => {
                // The rest is the server's. Without a normal, it is not known how much of the rest is usual.
                let most = if self.excess.has_normal() || self.is_slow_anyway() { 1.0 } else { MOST_WITHOUT_NORMAL };
                let by_window = if self.split.is_for_want_of_window() { MOST_BY_WINDOW } else { 1.0 };
                let mut likely = likely.min(most).min(by_window);
                let timeouts = history::needless_timeouts(self.scene);
                if timeouts >= SOME_TIMEOUTS {
                    because.push(format!(
                        "TCP's retransmission timer ran out {} although the server had the segments: the path, or the server's host, held segments or \
                         acknowledgements. A service that is slow does not.",
                        counted(timeouts.into(), "time")
                    ));
                    likely = likely.min(MOST_IF_HELD);
                }
                if let Some(smoothed) = history::smoothed_beyond_delays(self.scene).filter(|_| !self.is_stamped()) {
                    because.push(format!(
                        "TCP's smoothed round trip was {}. Delayed acknowledgements alone do not make it so long: the path, or the server's host, held segments \
                         or acknowledgements.",
                        span(smoothed)
                    ));
                    likely = likely.min(MOST_IF_HELD);
                }
                // A new route that delays requests looks like a slow server that delays its acknowledgements.
                if let Some(new_route) = &self.scene.new_route
                    && self.split.round_trip_is_longer_by(MS)
                {
                    because.push(new_route.sentence());
                    return vec![(Cause::OwnRoute, BY_NEW_ROUTE), (self.server_cause(), (1.0 - BY_NEW_ROUTE) / 2.0)];
                }
                vec![(self.server_cause(), likely), (self.network_cause(), (1.0 - likely) / 2.0)]
            }
            _ => {
                let (network, server) = self.split.odds();
                vec![
                    (self.network_cause(), network * wire * SURE_OF_WIRE),
                    (self.server_cause(), server * wire * SURE_OF_WIRE),
                    (self.client_cause(), client),
                ]
            }
        }
    }

    /// This host's new route, if the path became longer with it. Losses may have another cause.
    fn longer_by_new_route(&self) -> Option<&NewRoute> {
        let is_longer = matches!(self.network_cause(), Cause::LongerPath | Cause::NarrowPath);
        self.scene.new_route.as_ref().filter(|_| is_longer)
    }

    /// Later requests that were answered first, if they prove that the server had the slow ones for half of the time.
    fn overtaken(&self) -> Option<Overtaken> {
        if self.scene.slowest.connection == 0 {
            return None;
        }
        let overtaken = Overtaken::of(&self.scene.judged, self.scene.during.iter().copied());
        Some(overtaken).filter(|overtaken| overtaken.share() >= HALF)
    }

    /// Whether the threads that read answers had no CPU for at least half of the extra time.
    fn receivers_may_be_why(&self) -> bool {
        self.no_cpu.of_receivers() && self.no_cpu.receivers_part(self.excess.share_of_flights()) >= HALF
    }

    /// Whether the mean time on the wire exceeds what a healthy server can take for all that it answers meanwhile.
    fn is_slow_anyway(&self) -> bool {
        let bytes = self
            .scene
            .mean(|event| self.scene.arrivals.within(flight(event)).iter().map(|other| other.event.bytes).sum());
        let least = if self.split.spares_a_kind() { SLOW_BESIDE_OTHERS } else { SLOW_ANYWAY };
        self.scene.mean(|event| event.phases.wire) >= (least as f64) + bytes * NS_PER_BYTE
    }

    /// For how long the clock of the server's host stood still, nanoseconds, if that explains the time on the wire.
    fn paused(&self) -> Option<u64> {
        let wire = self.scene.mean(|event| event.phases.wire) as u64;
        let longest = self.scene.judged.iter().map(|event| event.phases.wire).max().unwrap_or(0);
        self.scene.stood_still.filter(|paused| (wire / 2..=longest.saturating_add(longest / 4)).contains(paused))
    }

    /// The client's cause: no CPU, or the part of this host with most of the extra time.
    fn client_cause(&self) -> Cause {
        let Shares { queue, local, unread, starved, deliver, .. } = self.excess.shares();
        let queue = if self.queue.is_client() { queue } else { 0.0 };
        if self.no_cpu.is_seen() && queue + unread + starved + deliver > local {
            return Cause::NoCpu;
        }
        let not_sent = !self.scene.is_queued() && self.scene.judged.iter().any(|event| self.scene.was_not_sent(event));
        let own = if not_sent { Cause::OwnInterface } else { Cause::OwnQueue };
        let parts = [(Cause::Queue, queue), (own, local), (Cause::Receiver, unread), (Cause::Delivery, deliver)];
        parts.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(Cause::Queue, |(cause, _)| cause)
    }

    fn network_cause(&self) -> Cause {
        self.split.network_cause()
    }

    fn server_cause(&self) -> Cause {
        if self.split.spares_a_kind() { Cause::SlowOperation } else { Cause::SlowServer }
    }

    /// The confidence in `layer`, 0 to 1, from `margin` (how clear the shares are, 0 to 1), the number of operations judged,
    /// whether their normal is known, and this connection's share of the slow time.
    fn confidence(&self, layer: Layer, margin: f64) -> f64 {
        let samples = match self.scene.judged.len() {
            0..=1 => 0.85,
            2 => 0.9,
            3..=9 => 0.97,
            _ => 1.0,
        };
        let is_known = self.excess.has_normal() || self.scene.path.longer().is_some_and(|path| path.normal.is_some());
        let normal = if is_known || layer == Layer::Server && self.is_slow_anyway() { 1.0 } else { 0.92 };
        (0.8 + 0.17 * margin) * samples * normal * (0.8 + 0.2 * self.scene.share)
    }

    fn phases(&self) -> PhasesMs {
        let mean = |time: fn(&Event) -> u64| self.scene.mean(time) / 1e6;
        let own = self.scene.mean(|event| self.scene.local(event)) / 1e6;
        let stamped = self.scene.judged.iter().any(|event| event.stamped().is_some());
        let wire = self
            .scene
            .mean(|event| event.phases.wire.saturating_sub(self.scene.local(event)).saturating_sub(unread(event)))
            / 1e6;
        let network = if self.scene.proxied {
            None
        } else if self.queue.is_wire() {
            WireSplit::of(self.scene, &self.scene.judged).network_ms()
        } else {
            self.split.network_ms()
        };
        let rounded = |ms: f64| (ms * 1_000.0).round() / 1_000.0;
        PhasesMs {
            queue: Some(rounded(mean(|event| event.phases.queue))),
            send: (stamped || own > 0.0).then(|| rounded(own)),
            network: network.map(rounded),
            server: network.map(|network| rounded((wire - network).max(0.0))),
            deliver: Some(rounded(mean(|event| event.phases.deliver.saturating_add(unread(event))))),
        }
    }
}

impl Scene<'_> {
    pub(super) fn summary(&self) -> String {
        let (count, time) = (self.count, self.time);
        let mut text = format!("{} took {} on average", counted(count, "slow operation"), span(time / count.max(1)));
        if let Some((normal, is_recent)) = self.normal_of_slowest() {
            let (duration, count) = (span(normal.duration), normal.count);
            text.push_str(&if is_recent {
                format!(" instead of {duration} (median of {count} before)")
            } else {
                format!(" instead of {duration} (median of {count} in the last hours of activity)")
            });
        } else {
            text.push_str("; the normal duration of such operations is not known");
        }
        text + "."
    }

    /// The sentence about this host's queueing discipline, where sends are not stamped.
    fn own_queue(&self) -> Option<String> {
        let own = self.path.longer().map_or(0, |path| path.own);
        let longer = (own > 0).then(|| format!("Round trips became {} longer", span(own)));
        let busy = self.held_back().map(|sending| {
            let percent = sending.busy_percent();
            format!("Data was on its way to the server, and not acknowledged, for {percent:.0} % of the time of slow operations")
        });
        let seen = longer.filter(|_| busy.is_none()).or(busy)?;
        let queued = self.queued * 100.0;
        Some(format!(
            "{seen}, and when {queued:.0} % of the slow operations ended, packets waited in the queueing discipline of this connection's interface."
        ))
    }

    /// The sentence about requests that this host could not send.
    fn not_sent(&self) -> Option<String> {
        let held = self.judged.iter().filter(|event| self.was_not_sent(event)).filter_map(|event| event.stamped());
        let (count, longest) = held.fold((0, 0), |(count, longest), timing| (count + 1, timing.held.max(longest)));
        (count > 0 && !self.is_queued()).then(|| {
            format!(
                "TCP held {} back for up to {}, although the server's window was open and sent data was acknowledged at once: this host could not send.",
                counted(count, "request"),
                span(longest)
            )
        })
    }

    /// The sentence about slow operations on other connections.
    fn others(&self) -> Option<String> {
        (self.elsewhere > 0).then(|| {
            format!(
                "The verdict is about the connection with {:.0} % of the slow operations' time; slow operations were on {} more.",
                self.share * 100.0,
                counted(self.elsewhere, "connection")
            )
        })
    }
}
