//! How much longer than normal each phase took, and why operations waited before they were sent.

use model::Event;

use super::{
    no_cpu::{KNOWN, NoCpu},
    scene::{JIFFY, Scene, covered, flight, overlap, rest, stretch, union, unread},
};
use crate::units::span;

/// If late answers were outstanding for at least this share of the queueing time, the operations waited for credits.
const COVERED: f64 = 0.6;
/// The least share of the extra time that is put in words: a queueing discipline always holds packets for microseconds.
const WORTH_SAYING: f64 = 0.01;
/// If late answers were outstanding for at most this share of the queueing time, they are not why operations queued.
const UNCOVERED: f64 = 0.2;

/// Time beyond normal, nanoseconds, summed over the judged operations.
#[derive(Debug, Default)]
pub(super) struct Excess {
    pub queue: u64,
    /// In this host's queueing discipline, as far as known; not part of `wire`.
    pub local: u64,
    /// With the answer unread in this host's socket; not part of `wire`.
    pub unread: u64,
    /// While the requester was ready to run and had no CPU; not part of `wire`.
    pub starved: u64,
    pub wire: u64,
    pub deliver: u64,
    /// In none of the phases.
    rest: u64,
    /// All time between sending and receiving, normal or not.
    flights: u64,
    operations: u64,
    /// How many of the operations have a normal.
    normal: u64,
}

impl Excess {
    pub fn of(scene: &Scene) -> Self {
        let mut sum = Self::default();
        let starved = Starved::of(scene);
        for event in &scene.judged {
            let (normal, phases) = (scene.normal(event), event.phases);
            let queue = if phases.queue <= JIFFY { 0 } else { phases.queue };
            add(&mut sum.queue, queue.saturating_sub(normal.queue));
            let extra = phases.wire.saturating_sub(normal.wire);
            let unread = unread(event).min(extra);
            let local = scene.local(event).min(extra - unread);
            let starved = starved.part(event, extra).min(extra - unread - local);
            add(&mut sum.unread, unread);
            add(&mut sum.local, local);
            add(&mut sum.starved, starved);
            add(&mut sum.wire, extra - unread - local - starved);
            add(&mut sum.deliver, phases.deliver.saturating_sub(normal.deliver));
            add(&mut sum.rest, rest(event).saturating_sub(normal.rest));
            add(&mut sum.flights, phases.wire);
            sum.operations += 1;
            sum.normal += u64::from(normal.is_known());
        }
        sum
    }

    /// Shares in all extra time; zero if there is none.
    pub fn shares(&self) -> Shares {
        let all = [self.queue, self.local, self.unread, self.starved, self.wire, self.deliver, self.rest];
        let all = all.iter().map(|part| *part as f64).sum::<f64>();
        let share = |part: u64| if all > 0.0 { part as f64 / all } else { 0.0 };
        Shares {
            queue: share(self.queue),
            local: share(self.local),
            unread: share(self.unread),
            starved: share(self.starved),
            wire: share(self.wire),
            deliver: share(self.deliver),
            rest: share(self.rest),
        }
    }

    /// The share of the time between sending and receiving that is beyond normal, 0 to 1.
    pub fn share_of_flights(&self) -> f64 {
        (self.local + self.unread + self.starved + self.wire) as f64 / self.flights.max(1) as f64
    }

    /// Whether most of the operations have a normal to be compared with.
    pub fn has_normal(&self) -> bool {
        self.normal * 2 > self.operations
    }

    /// Where the extra time passed. `count`: the slow operations, of which only the slowest may be judged.
    pub fn sentence(&self, count: u64) -> Option<String> {
        let shares = self.shares();
        let part = |time: u64, share: f64| format!("{} ({:.0} %)", span(time / self.operations.max(1)), share * 100.0);
        let whose = match self.operations < count {
            true => format!("of each of the {} slowest", self.operations),
            false => "per operation".to_owned(),
        };
        let mut text = format!(
            "Of the extra time {whose}, {} passed before sending, {} between sending and receiving, {} in delivery",
            part(self.queue, shares.queue),
            part(self.wire, shares.wire),
            part(self.deliver, shares.deliver)
        );
        if shares.local >= WORTH_SAYING {
            text.push_str(&format!(", {} in this host's queueing discipline", part(self.local, shares.local)));
        }
        if shares.unread >= WORTH_SAYING {
            text.push_str(&format!(
                ", {} in this host's socket until a thread read the answer",
                part(self.unread, shares.unread)
            ));
        }
        if shares.starved >= WORTH_SAYING {
            text.push_str(&format!(", {} while the requester had no CPU", part(self.starved, shares.starved)));
        }
        if self.rest > 0 {
            text.push_str(&format!(", {} elsewhere", part(self.rest, shares.rest)));
        }
        (self.operations > 0).then_some(text + ".")
    }
}

/// The parts' shares of all extra time, 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    pub queue: f64,
    pub local: f64,
    pub unread: f64,
    pub starved: f64,
    pub wire: f64,
    pub deliver: f64,
    rest: f64,
}

/// For how long the requesters of the judged operations had no CPU while requests were on the wire.
///
/// Clients of SMB and NFS send in the thread that asks, which may lose its CPU in the middle of that. A thread that waits
/// for an answer is not ready to run.
struct Starved<'a> {
    scene: &'a Scene<'a>,
    /// The share of the time on the wire where it is known; 0 if it is known of too little.
    share: f64,
}

impl<'a> Starved<'a> {
    fn of(scene: &'a Scene) -> Self {
        let (mut starved, mut known, mut all) = (0, 0, 0);
        for event in &scene.judged {
            add(&mut all, event.phases.wire);
            if let Some(part) = known_part(scene, event) {
                add(&mut starved, part);
                add(&mut known, event.phases.wire);
            }
        }
        let is_enough = known > 0 && known as f64 >= all as f64 * KNOWN;
        Self { scene, share: if is_enough { starved as f64 / known as f64 } else { 0.0 } }
    }

    /// The part of `extra`, nanoseconds. An operation of which nothing is known is taken to be like the others.
    fn part(&self, event: &Event, extra: u64) -> u64 {
        known_part(self.scene, event).unwrap_or((extra as f64 * self.share) as u64)
    }
}

/// For how long, nanoseconds, the requester had no CPU between sending and receiving, at least. `None` if that is not
/// known, or the thread had other operations under way: then it did not only send and wait.
fn known_part(scene: &Scene, event: &Event) -> Option<u64> {
    let during = u64::from(event.progress.as_ref()?.requester?.during_us?) * 1_000;
    let is_beside = |other: &&&Event| {
        other.requester.tid == event.requester.tid
            && other.identity() != event.identity()
            && overlap(stretch(other), stretch(event)) > 0
    };
    let is_alone = !scene.during.iter().any(|other| is_beside(&other));
    is_alone.then(|| during.saturating_sub(event.phases.queue.saturating_add(event.phases.deliver)))
}

/// Why operations waited before they were sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QueueCause {
    /// They waited no longer than the clock's granularity.
    None,
    /// This host's threads had no CPU to send the operations, or to read the answers before them.
    NoCpu,
    /// This host: late answers were outstanding for only this share of the queueing time.
    Client(f64),
    /// Operations whose answers were late used up the credits, for this share of the queueing time.
    Wire(f64),
    /// Late answers were outstanding for this share of the queueing time, which is neither little nor most of it.
    Unclear(f64),
}

impl QueueCause {
    pub fn of(scene: &Scene, excess: &Excess, no_cpu: NoCpu) -> Self {
        if excess.queue == 0 {
            return Self::None;
        }
        let covered = covered_by_late_answers(scene);
        // Callers without a CPU do not make answers late.
        if no_cpu.of_receivers() || (no_cpu.is_seen() && covered < COVERED) {
            return Self::NoCpu;
        }
        if covered >= COVERED {
            Self::Wire(covered)
        } else if covered <= UNCOVERED {
            Self::Client(covered)
        } else {
            Self::Unclear(covered)
        }
    }

    pub fn is_client(self) -> bool {
        matches!(self, Self::Client(_) | Self::NoCpu)
    }

    pub fn is_wire(self) -> bool {
        matches!(self, Self::Wire(_))
    }

    pub fn sentence(self) -> Option<String> {
        let (covered, conclusion) = match self {
            Self::None | Self::NoCpu => return None,
            Self::Client(covered) => (covered, "this host itself made the requests wait"),
            Self::Wire(covered) => (covered, "the requests waited because answers were late"),
            Self::Unclear(covered) => (covered, "whether the requests waited for that reason is not known"),
        };
        Some(format!(
            "For {:.0} % of the time before sending, late answers were outstanding on the connection: {conclusion}.",
            covered * 100.0
        ))
    }
}

/// The share of the judged operations' queueing time during which a late answer was outstanding, 0 to 1.
fn covered_by_late_answers(scene: &Scene) -> f64 {
    let flights = union(scene.answered_late().into_iter().map(flight).collect());
    let (mut queued, mut late) = (0.0, 0.0);
    for event in scene.judged.iter().filter(|event| event.phases.queue > JIFFY) {
        let (from, to) = (event.start, flight(event).0);
        queued += event.phases.queue as f64;
        late += covered(&flights, (from, to)) as f64;
    }
    if queued > 0.0 { late / queued } else { 0.0 }
}

fn add(sum: &mut u64, part: u64) {
    *sum = sum.saturating_add(part);
}
