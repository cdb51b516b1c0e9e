//! Operations as points of the timeline: their start and their duration. The number of points is bounded.

use std::cmp::Reverse;

use model::{EventLine, Histogram};

/// The most points of a drawing. If there are more, only the slowest of points that would cover each other is kept.
pub const MOST: usize = 2_000;
/// The number of columns into which the time is divided at first, when points are thinned.
const COLUMNS: i128 = 512;

/// The colour of a point: the phase that took most of a slow operation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shade {
    /// Not slow by the rule.
    Fast,
    /// The time before the request was sent.
    Queue,
    /// The time in TCP's own queue and this host's queueing discipline.
    Send,
    /// Network or server, which cannot be told apart without stamps.
    Wire,
    /// From the driver to the acknowledgement.
    Network,
    /// The rest of the time until the answer was received.
    Server,
    /// From the arrival of the answer to the caller.
    Deliver,
    /// The probe knows no phases.
    Whole,
}

impl Shade {
    /// The shades of slow operations, in the order of the phases.
    pub const SLOW: [Self; 7] =
        [Self::Queue, Self::Send, Self::Wire, Self::Network, Self::Server, Self::Deliver, Self::Whole];

    /// The shade of a slow operation.
    pub fn of(line: &EventLine<'_>) -> Self {
        let (Some(queue), Some(wire), Some(deliver)) = (line.queue_ms, line.wire_ms, line.deliver_ms) else {
            return Self::Whole;
        };
        let mut parts = vec![(Self::Queue, queue), (Self::Deliver, deliver)];
        match line.ack_least_ms.filter(|_| line.sends.is_some_and(|sends| sends > 0)) {
            None => parts.push((Self::Wire, wire)),
            Some(network) => {
                let send = line.sends_local_ms.unwrap_or(0.0) + line.sends_held_ms.unwrap_or(0.0);
                parts.extend([(Self::Send, send), (Self::Network, network), (Self::Server, wire - send - network)]);
            }
        }
        let most = parts.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        most.map_or(Self::Whole, |(shade, _)| shade)
    }

    /// The shade's class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Queue => "queue",
            Self::Send => "send",
            Self::Wire => "wire",
            Self::Network => "network",
            Self::Server => "server",
            Self::Deliver => "deliver",
            Self::Whole => "whole",
        }
    }

    /// The phase in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Fast => "other operations",
            Self::Queue => "waiting in the client",
            Self::Send => "this host's send queue",
            Self::Wire => "network or server",
            Self::Network => "network",
            Self::Server => "server",
            Self::Deliver => "from arrival to the caller",
            Self::Whole => "slow, phases not known",
        }
    }
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlotPoint {
    /// When it began, microseconds since 1970.
    pub at: i64,
    /// Its duration, nanoseconds; so far, if it is in flight.
    pub took: u64,
    /// The phase that took most of its time.
    pub shade: Shade,
    /// It failed, or has not returned.
    pub failed: bool,
}

/// A bounded collection of points.
#[derive(Debug, Default)]
pub struct PlotPoints {
    points: Vec<PlotPoint>,
    added: u64,
}

impl PlotPoints {
    /// Adds a point.
    pub fn add(&mut self, point: PlotPoint) {
        self.added += 1;
        self.points.push(point);
        if self.points.len() >= 2 * MOST {
            self.thin();
        }
    }

    /// How many points were added.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// At most [`MOST`] points, in no particular order.
    pub fn thinned(&mut self) -> &[PlotPoint] {
        self.thin();
        &self.points
    }

    fn thin(&mut self) {
        let mut columns = COLUMNS;
        while self.points.len() > MOST && columns > 0 {
            self.keep_slowest(columns);
            columns /= 2;
        }
    }

    /// Divides the points by column of time and step of latency, and by failed and slow. Keeps the slowest of each
    /// group.
    fn keep_slowest(&mut self, columns: i128) {
        let times = || self.points.iter().map(|point| i128::from(point.at));
        let (Some(from), Some(to)) = (times().min(), times().max()) else { return };
        let column = |point: &PlotPoint| (i128::from(point.at) - from) * columns / (to - from + 1);
        let bin = |point: &PlotPoint| {
            (column(point), Histogram::bucket_of(point.took), point.shade != Shade::Fast, point.failed)
        };
        self.points.sort_unstable_by_key(|point| (bin(point), Reverse(point.took)));
        self.points.dedup_by(|one, other| bin(one) == bin(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_slowest_the_failed_and_the_bound() {
        let mut points = PlotPoints::default();
        let fast = PlotPoint { at: 0, took: 0, shade: Shade::Fast, failed: false };
        for n in 0..100_000_i64 {
            points.add(PlotPoint { at: n * 1_000, took: 100_000 + (n as u64 * 7_919) % 900_000, ..fast });
            if n == 5_000 {
                points.add(PlotPoint { at: n, took: 300_000_000, shade: Shade::Server, ..fast });
                points.add(PlotPoint { at: n, took: 150_000, failed: true, ..fast });
            }
        }
        assert_eq!(points.added(), 100_002);
        let left = points.thinned();
        assert!((200..=MOST).contains(&left.len()), "{}", left.len());
        assert_eq!(left.iter().map(|point| point.took).max(), Some(300_000_000));
        assert_eq!(left.iter().filter(|point| point.failed).count(), 1);
        let (first, last) = (left.iter().map(|point| point.at).min(), left.iter().map(|point| point.at).max());
        assert!(first < Some(1_000_000) && last > Some(99_000_000), "all of the time is there");
    }

    #[test]
    fn a_hostile_bundle_cannot_have_more() {
        let mut points = PlotPoints::default();
        for n in 0..50_000_u64 {
            let at = if n % 2 == 0 { i64::MIN } else { i64::MAX };
            points.add(PlotPoint { at, took: n << 30, shade: Shade::Whole, failed: n % 3 == 0 });
        }
        assert!(points.thinned().len() <= MOST);
    }

    #[test]
    fn an_operation_has_the_colour_of_what_took_most_of_it() {
        let of = |queue, wire, deliver| EventLine {
            queue_ms: Some(queue),
            wire_ms: Some(wire),
            deliver_ms: Some(deliver),
            ..EventLine::default()
        };
        assert_eq!(
            [of(9.0, 1.0, 1.0), of(1.0, 9.0, 1.0), of(1.0, 1.0, 9.0)].map(|line| Shade::of(&line)),
            [Shade::Queue, Shade::Wire, Shade::Deliver]
        );
        let stamped = |local, least| EventLine {
            sends: Some(1),
            sends_local_ms: Some(local),
            ack_least_ms: Some(least),
            ..of(1.0, 100.0, 1.0)
        };
        let stamped = [stamped(60.0, 1.0), stamped(1.0, 60.0), stamped(1.0, 1.0)];
        assert_eq!(stamped.map(|line| Shade::of(&line)), [Shade::Send, Shade::Network, Shade::Server]);
        assert_eq!(Shade::of(&EventLine::default()), Shade::Whole);
    }
}
