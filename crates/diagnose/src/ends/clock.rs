//! The difference of the two clocks, as far as pairs of requests tell. A request came to the server after it was sent, and was executed before its answer arrived: so
//! each pair allows an interval of differences, and pairs of the same requests have one in common.

use super::WallNanos;
use crate::units::MS;

/// Clocks drift and are set, and times are rounded.
const SLACK: WallNanos = (5 * MS) as WallNanos;

/// The differences (the server's clock less the client's) that one pair allows, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    pub least: WallNanos,
    pub most: WallNanos,
}

impl Allowed {
    /// `client`: when the client sent a request, and when it had the answer. `server`: when the server had the request, and when it
    /// was executed.
    pub fn of(client: (WallNanos, WallNanos), server: (WallNanos, WallNanos)) -> Self {
        let (least, most) = (server.1.saturating_sub(client.1), server.0.saturating_sub(client.0));
        // If the server was longer than the client waited, which is judged elsewhere, the interval is turned round.
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
    /// `None` of none.
    pub fn of(pairs: &[Allowed]) -> Option<Self> {
        // A begin counts before an end at the same place.
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
                // The middle of the stretch that all of these allow.
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
