//! The difference of the two hosts' clocks, from pairs of requests. A request came to the server after the client sent it, and was executed before
//! the client had the answer. So each pair allows an interval of differences, and the intervals of genuine pairs have a difference in common.

use super::WallNanos;
use crate::units::MS;

/// Tolerance for the drift and adjustment of clocks, and for rounding, nanoseconds.
const SLACK: WallNanos = (5 * MS) as WallNanos;

/// The differences (the server's clock less the client's) that one pair allows, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    pub least: WallNanos,
    pub most: WallNanos,
}

impl Allowed {
    /// `client`: when the client sent the request, and when it had the answer. `server`: when the server had the request, and when the request was
    /// executed.
    pub fn of(client: (WallNanos, WallNanos), server: (WallNanos, WallNanos)) -> Self {
        let (least, most) = (server.1.saturating_sub(client.1), server.0.saturating_sub(client.0));
        // If the server had the request for longer than the client waited, the ends of the interval are swapped; that contradiction is judged
        // elsewhere.
        Self { least: least.min(most).saturating_sub(SLACK), most: most.max(least).saturating_add(SLACK) }
    }

    fn allows(&self, difference: WallNanos) -> bool {
        (self.least..=self.most).contains(&difference)
    }
}

/// The difference that most pairs allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    pub difference: WallNanos,
}

impl Offset {
    /// `None` without pairs.
    pub fn of(pairs: &[Allowed]) -> Option<Self> {
        // At the same value, a start sorts before an end.
        let mut edges: Vec<(WallNanos, bool)> = Vec::with_capacity(pairs.len() * 2);
        for pair in pairs {
            edges.push((pair.least, false));
            edges.push((pair.most, true));
        }
        edges.sort_unstable();
        let (mut open, mut most, mut best) = (0_usize, 0, None);
        for (index, (at, is_end)) in edges.iter().enumerate() {
            if *is_end {
                open = open.saturating_sub(1);
                continue;
            }
            open += 1;
            if open > most {
                most = open;
                // The middle of the interval that all open pairs allow.
                let end = edges.get(index + 1).map_or(*at, |(end, _)| *end);
                best = Some(Self { difference: at.saturating_add(end.saturating_sub(*at) / 2) });
            }
        }
        best
    }

    pub fn fits(self, pair: &Allowed) -> bool {
        pair.allows(self.difference)
    }
}
