//! Metrics: their description, the formats in which Prometheus receives them, an HTTP server for one page, and a parser of the page. Plumbline and
//! libcephfsd share this crate.

mod accept;
mod answer;
mod family;
mod http;
mod native;
mod protobuf;
mod text;

use model::Histogram;

pub use accept::Format;
pub use answer::{ReadRequest, plain, read_request, whole};
pub use family::{Family, FamilyKind, LabelName, MetricUnit, Point, PointValue};
pub use http::{HttpServer, Responder};
pub use native::Native;
pub use protobuf::{ReadFamily, ReadPoint, ReadValue, read};

/// The source of the page at `/metrics`.
pub trait PageSource: Send + Sync {
    /// The name of the server, for use in a sentence.
    fn name(&self) -> &'static str;
    /// The page; `None`: the page cannot be made now.
    fn page(&self, format: Format) -> Option<Vec<u8>>;
    /// Called when the last client has disconnected.
    fn rest(&self) {}
}

/// Upper bounds of the classic histogram's buckets: powers of two, from 2^14 ns (16 us; a cache answered faster operations) to 2^34 ns (17 s).
const CLASSIC: std::ops::RangeInclusive<u32> = 14..=34;

/// The page of metrics.
pub fn page<L: LabelName>(families: &[Family<'_, L>], format: Format) -> Vec<u8> {
    match format {
        Format::Text => text::write(families, false),
        Format::OpenMetrics => text::write(families, true),
        Format::Protobuf => protobuf::write(families),
    }
}

/// The classic histogram: how many operations took less than a bound, in nanoseconds, for each of [`CLASSIC`].
fn classic(histogram: &Histogram) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut buckets = histogram.buckets.iter().enumerate().peekable();
    let mut sum = 0;
    CLASSIC.map(move |exponent| {
        let bound = 1 << exponent;
        while let Some((_, count)) = buckets.next_if(|(index, _)| Histogram::lower_bound(*index) < bound) {
            sum += count;
        }
        (bound, sum)
    })
}

/// Nanoseconds as seconds.
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_buckets_are_sums_of_ours() {
        let mut histogram = Histogram::default();
        for duration in [5, (1 << 14) - 1, 1 << 14, 20_000, 1 << 20, (1 << 34) - 1, 1 << 34, u64::MAX >> 8] {
            histogram.add(duration, 0, false);
        }
        let counts: Vec<_> = classic(&histogram)
            .filter(|(bound, _)| [1 << 14, 1 << 15, 1 << 20, 1 << 21, 1 << 34].contains(bound))
            .collect();
        assert_eq!(counts, [(1 << 14, 2), (1 << 15, 4), (1 << 20, 4), (1 << 21, 5), (1 << 34, 6)]);
    }
}
