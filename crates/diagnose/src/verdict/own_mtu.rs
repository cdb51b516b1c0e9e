//! Whether an MTU that is set on this host's route makes the segments small.
//!
//! A smaller MTU needs more packets for the same data, and a path, a firewall or a host may take the same time for each packet whatever its size. The kernel
//! keeps an MTU that somebody has set (`ip route ... mtu N`) apart from one that the path has reported (RFC 1191).

use model::{Cause, Direction, Event};

use super::conclude::Candidate;
use crate::order::median;

/// An MTU is small below this, bytes: the least MTU of IPv6 (RFC 8200 5), which every tunnel leaves.
const SMALL: u64 = 1280;
/// Without a comparison with larger segments before, it is small below this: IPv4 hosts take packets of this size at least (RFC 1122 3.3.2).
const ALWAYS_SMALL: u64 = 576;
/// Segments became small if they were at least so many times as large before.
const LARGER: u64 = 2;
/// The headers of IPv4 and TCP with timestamps, and some other options: bytes.
const HEADERS: u64 = 60;
/// A request has many packets if it takes at least so many segments.
const MANY: u64 = 8;
/// Such requests must have at least this share of the time on the wire: others wait behind them.
const PART: f64 = 0.25;
/// The probability that the MTU of this host's route is the cause.
const SMALL_SEGMENTS: f64 = 0.86;

/// The sizes of segments, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnMtu {
    route_mtu: u64,
    now: u64,
    /// The largest before, if the segments became small.
    before: Option<u64>,
}

impl OwnMtu {
    /// `None` if the MTU is not small (below [`ALWAYS_SMALL`] it is, whatever segments were before), if no MTU of this host explains the size of most
    /// segments, or if few large requests were sent. `slow`: the slow operations. `meanwhile`: all operations while these were under way. `before`: earlier
    /// ones of the same connection.
    pub fn of<'a>(
        slow: impl Iterator<Item = &'a Event>,
        meanwhile: impl Iterator<Item = &'a Event>,
        before: impl Iterator<Item = &'a Event>,
    ) -> Option<Self> {
        let size = |event: &'a Event| {
            let socket = event.socket()?;
            (socket.mss > 0).then_some((u64::from(socket.mss), u64::from(socket.route_mtu)))
        };
        let slow: Vec<_> = slow.filter_map(size).collect();
        let own = slow.iter().filter(|(mss, mtu)| mss < mtu && *mtu <= mss + HEADERS).copied();
        let (own_mss, own_mtu): (Vec<_>, Vec<_>) = own.unzip();
        let is_most = own_mss.len() * 2 > slow.len();
        let (now, route_mtu) = median(own_mss).zip(median(own_mtu)).filter(|_| is_most)?;
        let before = before.filter_map(size).map(|(mss, _)| mss).max().filter(|before| now * LARGER <= *before);
        let is_small = route_mtu < if before.is_some() { SMALL } else { ALWAYS_SMALL };
        let (mut large, mut all) = (0.0, 0.0);
        for event in meanwhile {
            let is_large = event.operation.direction() == Some(Direction::Written) && event.bytes >= now * MANY;
            all += event.phases.wire as f64;
            large += if is_large { event.phases.wire as f64 } else { 0.0 };
        }
        (is_small && large > 0.0 && large >= all * PART).then_some(Self { route_mtu, now, before })
    }

    /// `server`: the server's cause.
    pub fn candidates(self, server: Cause) -> Vec<Candidate> {
        let other = (1.0 - SMALL_SEGMENTS) / 2.0;
        vec![(Cause::OwnMtu, SMALL_SEGMENTS), (Cause::NarrowPath, other), (server, other)]
    }

    pub fn sentence(self) -> String {
        let before = self.before.map_or(String::new(), |before| format!(" instead of {before}"));
        format!(
            "This host's route to the server has an MTU of {} bytes, so TCP sends segments of at most {} bytes{before}.",
            self.route_mtu, self.now
        )
    }
}
