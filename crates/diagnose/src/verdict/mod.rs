//! Where the time was lost: client, network or server; or unknown, which is better than wrong.
//!
//! The slow operations are compared, phase by phase, with the same operation's recent normal. What exceeds it before
//! sending and after receiving is the client's, unless the queue was long because answers were late, and so is what its own
//! queueing discipline held back; what exceeds it on the wire else is split in [`wire`] into bounds of the network's part. A layer is named only if even the bound in its
//! disfavour says so.

mod connection;
mod excess;
mod failure;
mod path;
mod proxy;
mod scene;
mod wire;

use model::{Event, Layer, Level, PhasesMs, Verdict};

use crate::{
    units::{counted, span},
    window::slower_first,
};
use excess::{Excess, QueueCause, Shares};
use path::Path;
use scene::{JUDGED, Scene, local};
use wire::Split;

/// The share of the extra time from which one side dominates.
const DOMINANT: f64 = 0.6;
/// The share of the wire's extra time from which it is the network's, or the server's.
const HALF: f64 = 0.5;
/// From this share of the extra time on, a late delivery casts doubt on when the answers really came.
const LATE_DELIVERY: f64 = 0.25;
/// Retransmissions show that nothing got through, not who is to blame for that: the path or the server's whole host.
const MOST_BY_RETRANSMISSION: f64 = 0.75;
/// A round trip without stamps begins in front of this host's own queueing discipline.
const MOST_WITHOUT_STAMPS: f64 = 0.75;

/// Judges what broke a rule of this kind.
///
/// `events`: what was anomalous. `around`: the flight recorder, every operation of the last seconds up to now.
pub fn judge(kind: &str, events: &[Event], around: &[Event]) -> Verdict {
    match kind {
        crate::error::KIND => failure::of_errors(events),
        crate::stall::KIND => failure::of_stalls(events, around),
        crate::connection::KIND => connection::of_happenings(events, around),
        // All others are about what takes long.
        _ => verdict(events, around),
    }
}

/// Judges slow operations by what happened around them.
///
/// `slow`: the events that were anomalous. `around`: the flight recorder, every operation of the last seconds up to now,
/// fast ones and the slow ones included; its events may lack thread and file names. Neither needs an order.
pub fn verdict(slow: &[Event], around: &[Event]) -> Verdict {
    let Some(scene) = Scene::of(slow, around) else {
        return Verdict::unknown("There was no slow operation to judge.");
    };
    if !scene.remote {
        let requests = requests_below(slow, around);
        if !requests.is_empty() {
            let mut verdict = verdict(&requests, around);
            verdict
                .because
                .insert(0, format!("{} Judged by the requests to the server that took most of that.", scene.summary()));
            return verdict;
        }
        return Verdict::unknown(format!(
            "{} This probe sees how long an operation took, not where: whether the file system, its daemon or a server \
             behind it was slow is not known.",
            scene.summary()
        ));
    }
    if scene.judged.is_empty() {
        return Verdict::unknown(format!("{} The probe could not split their time into phases.", scene.summary()));
    }
    Judgement::of(&scene).verdict()
}

/// The requests to servers that were under way for at least half of one of the slowest of these calls, which are on the same mounts.
fn requests_below(calls: &[Event], around: &[Event]) -> Vec<Event> {
    let mut calls: Vec<_> = calls.iter().collect();
    calls.sort_by(|a, b| slower_first(a, b));
    calls.truncate(JUDGED);
    let most_of = |request: &Event, call: &Event| {
        let together = request.end().min(call.end()).saturating_sub(request.start.max(call.start));
        together >= call.duration / 2
    };
    let requests = around.iter().filter(|event| event.operation.level() == Level::Request);
    let slow = requests.filter(|event| !event.operation.waits_by_design());
    slow.filter(|request| calls.iter().any(|call| most_of(request, call))).cloned().collect()
}

/// The figures of one scene.
struct Judgement<'a> {
    scene: &'a Scene<'a>,
    excess: Excess,
    /// Why operations queued, if that matters.
    queue: QueueCause,
    /// The path, if it became longer.
    path: Option<Path>,
    /// The wire's part, of the slow operations or of those that kept them queued.
    split: Split,
}

impl<'a> Judgement<'a> {
    fn of(scene: &'a Scene<'a>) -> Self {
        let excess = Excess::of(scene);
        let queue = QueueCause::of(scene, &excess);
        let mut late = if queue.is_wire() { scene.answered_late() } else { scene.judged.clone() };
        late.truncate(JUDGED);
        let path = Path::longer(scene);
        let split = Split::of(scene, path, &late);
        Self { scene, excess, queue, path, split }
    }

    fn verdict(&self) -> Verdict {
        let mut because = vec![self.scene.summary()];
        if self.scene.proxied {
            because.push(proxy::sentence(&self.excess, self.scene.judged.len() as u64));
        } else {
            because.extend(self.excess.sentence());
        }
        because.extend(self.queue.sentence());
        let (layer, share) = self.layer(&mut because);
        because.extend(self.scene.others());
        let confidence = if layer == Layer::Unknown { 0.0 } else { self.confidence(layer, share) };
        Verdict { layer, confidence, because, phases_ms: self.phases() }
    }

    /// The layer, and the share of the time that speaks for it.
    fn layer(&self, because: &mut Vec<String>) -> (Layer, f64) {
        let Shares { queue, local, wire, deliver, .. } = self.excess.shares();
        let client = local + deliver + if self.queue.is_client() { queue } else { 0.0 };
        let wire = wire + if self.queue.is_wire() { queue } else { 0.0 };
        if client >= DOMINANT {
            return (Layer::Client, client);
        }
        if wire < DOMINANT {
            because.push("No phase holds enough of the extra time to be blamed.".to_owned());
            return (Layer::Unknown, 0.0);
        }
        if self.scene.proxied {
            because.push(proxy::IN_LIBCEPHFS.to_owned());
            return (Layer::Unknown, 0.0);
        }
        because.extend(self.split.sentences());
        if deliver >= LATE_DELIVERY {
            because.push(
                "Delivery on this host was late too, so answers may have come earlier than they were seen.".into(),
            );
            return (Layer::Unknown, 0.0);
        }
        self.split.layer()
    }

    /// From how clear the shares are, how many operations there are, and whether their normal is known.
    fn confidence(&self, layer: Layer, share: f64) -> f64 {
        let least = if layer == Layer::Client { DOMINANT } else { HALF };
        let margin = ((share - least) / (1.0 - least)).clamp(0.0, 1.0);
        let samples = match self.scene.judged.len() {
            0..=1 => 0.6,
            2 => 0.7,
            3..=9 => 0.9,
            _ => 1.0,
        };
        let normal = if self.excess.has_normal() { 1.0 } else { 0.75 };
        let confidence = (0.5 + 0.45 * margin) * samples * normal * (0.5 + 0.5 * self.scene.share);
        let most = match layer {
            Layer::Network if self.split.by_retransmission() => MOST_BY_RETRANSMISSION,
            Layer::Network if self.split.may_be_own_queue() => MOST_WITHOUT_STAMPS,
            _ => 1.0,
        };
        (confidence.min(most) * 100.0).round() / 100.0
    }

    fn phases(&self) -> PhasesMs {
        let mean = |time: fn(&Event) -> u64| self.scene.mean(time) / 1e6;
        let stamped = self.scene.judged.iter().any(|event| event.transit.is_some());
        let wire = mean(|event| event.phases.wire - local(event));
        let split = || Split::of(self.scene, self.path, &self.scene.judged).network_ms();
        let network = if self.scene.proxied { None } else { split() };
        let rounded = |ms: f64| (ms * 1_000.0).round() / 1_000.0;
        PhasesMs {
            queue: Some(rounded(mean(|event| event.phases.queue))),
            send: stamped.then(|| rounded(mean(local))),
            network: network.map(rounded),
            server: network.map(|network| rounded((wire - network).max(0.0))),
            deliver: Some(rounded(mean(|event| event.phases.deliver))),
        }
    }
}

impl Scene<'_> {
    fn summary(&self) -> String {
        let (count, time) = (self.count, self.time);
        let mut text = format!("{} took {} on average", counted(count, "slow operation"), span(time / count.max(1)));
        if let Some((normal, samples)) = self.normal_duration() {
            text.push_str(&format!(", {} before (median of {samples})", span(normal)));
        } else {
            text.push_str("; how long they take normally is not known");
        }
        text + "."
    }

    /// What is said of slow operations elsewhere.
    fn others(&self) -> Option<String> {
        (self.elsewhere > 0).then(|| {
            format!(
                "Judged by the connection with {:.0} % of the slow time; {} more had slow operations.",
                self.share * 100.0,
                counted(self.elsewhere, "connection")
            )
        })
    }
}
