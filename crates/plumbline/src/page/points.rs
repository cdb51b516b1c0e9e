//! Operations as points of a drawing: when each was asked for and how long it took. There are never more than a drawing bears.

use std::cmp::Reverse;

use model::{EventLine, Histogram};

/// Points of a drawing. Beyond, points so near each other that they would cover each other become one, the slowest.
pub const MOST: usize = 2_000;
/// How finely the time is divided to begin with, when points are thinned.
const COLUMNS: i128 = 512;

/// What took most of a slow operation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shade {
    /// The rule did not count it.
    Fast,
    /// Waiting before it was sent.
    Queue,
    /// This host's queueing discipline and TCP's own queue.
    Send,
    /// The network or the server: which, nobody stamped.
    Wire,
    /// Between the driver and the acknowledgement.
    Network,
    /// What remains of the time until the answer was received.
    Server,
    /// From the arrival of the answer to the caller.
    Deliver,
    /// Its probe knows no phases.
    Whole,
}

impl Shade {
    /// Each that a slow operation can have, in the order of time.
    pub const SLOW: [Self; 7] =
        [Self::Queue, Self::Send, Self::Wire, Self::Network, Self::Server, Self::Deliver, Self::Whole];

    /// Of a slow operation.
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

    /// Its class in the style sheet.
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
pub struct Point {
    /// When it was asked for, microseconds since 1970.
    pub at: i64,
    /// How long it took, nanoseconds; of one in flight, so far.
    pub took: u64,
    /// What took most of it.
    pub shade: Shade,
    /// It failed, or had not returned.
    pub failed: bool,
}

/// At most [`MOST`] points, of however many were added.
#[derive(Debug, Default)]
pub struct Points {
    points: Vec<Point>,
    added: u64,
}

impl Points {
    /// Adds one.
    pub fn add(&mut self, point: Point) {
        self.added += 1;
        self.points.push(point);
        if self.points.len() >= 2 * MOST {
            self.thin();
        }
    }

    /// How many were added.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Those that are left, in no particular order.
    pub fn thinned(&mut self) -> &[Point] {
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

    /// Of each column of time and step of latency, keeps the slowest: of the failed, of the slow, and of the others.
    fn keep_slowest(&mut self, columns: i128) {
        let times = || self.points.iter().map(|point| i128::from(point.at));
        let (Some(from), Some(to)) = (times().min(), times().max()) else { return };
        let column = |point: &Point| (i128::from(point.at) - from) * columns / (to - from + 1);
        let bin =
            |point: &Point| (column(point), Histogram::bucket_of(point.took), point.shade != Shade::Fast, point.failed);
        self.points.sort_unstable_by_key(|point| (bin(point), Reverse(point.took)));
        self.points.dedup_by(|one, other| bin(one) == bin(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_slowest_the_failed_and_the_bound() {
        let mut points = Points::default();
        let fast = Point { at: 0, took: 0, shade: Shade::Fast, failed: false };
        for n in 0..100_000_i64 {
            points.add(Point { at: n * 1_000, took: 100_000 + (n as u64 * 7_919) % 900_000, ..fast });
            if n == 5_000 {
                points.add(Point { at: n, took: 300_000_000, shade: Shade::Server, ..fast });
                points.add(Point { at: n, took: 150_000, failed: true, ..fast });
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
        let mut points = Points::default();
        for n in 0..50_000_u64 {
            let at = if n % 2 == 0 { i64::MIN } else { i64::MAX };
            points.add(Point { at, took: n << 30, shade: Shade::Whole, failed: n % 3 == 0 });
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
