//! How long operations took before and during the incident: two histograms over the same buckets.

use maud::{Markup, html};
use model::{BUCKETS, Histogram, quantile_index};

use super::{
    chart::{self, HEIGHT, LEFT, Latencies, RIGHT, TOP, WIDTH},
    units::grouped,
};

/// The least number of operations for a median.
const ENOUGH: u64 = 5;

/// Before and during the incident.
#[derive(Debug, Default)]
pub struct Distributions {
    pub before: Histogram,
    pub during: Histogram,
}

impl Distributions {
    /// The drawing; empty without operations.
    pub fn markup(&self) -> Markup {
        if self.before.count + self.during.count == 0 {
            return Markup::default();
        }
        let counts =
            |bucket: usize| [&self.before, &self.during].map(|of| of.buckets.get(bucket).copied().unwrap_or(0));
        let used = (0..BUCKETS).filter(|bucket| counts(*bucket) != [0, 0]);
        let (first, last) = used.fold((BUCKETS, 0), |(first, last), bucket| (first.min(bucket), last.max(bucket)));
        let scale = Latencies::new(Histogram::lower_bound(first), Histogram::lower_bound(last + 1));
        let x = |nanos: u64| LEFT + scale.part(nanos) * (WIDTH - LEFT - RIGHT);
        let half = (HEIGHT - TOP - chart::BOTTOM) / 2.0;
        let middle = TOP + half;
        let rows = [("before", &self.before, -1.0), ("during", &self.during, 1.0)];
        html! {
            h2 { "How long operations took" }
            div.wide { svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label="Two histograms of latency, before and during the incident" {
                @for nanos in scale.ticks() {
                    line.grid x1=(chart::at(x(nanos))) x2=(chart::at(x(nanos))) y1=(TOP) y2=(HEIGHT - chart::BOTTOM) {}
                    text x=(chart::at(x(nanos))) y=(HEIGHT - chart::BOTTOM + 16.0) text-anchor="middle" { (diagnose::span(nanos)) }
                }
                @for (class, of, way) in rows {
                    @let most = of.buckets.iter().copied().max().unwrap_or(0).max(1);
                    @for (bucket, count) in of.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
                        @let (low, high) = (Histogram::lower_bound(bucket), Histogram::lower_bound(bucket + 1));
                        @let height = *count as f64 / most as f64 * (half - 14.0);
                        rect class=(class) x=(chart::at(x(low))) width=(chart::at((x(high) - x(low) - 1.0).max(1.0)))
                            y=(chart::at(if way < 0.0 { middle - height } else { middle })) height=(chart::at(height.max(1.0))) {
                            title { (class) ": " (grouped(*count)) " of " (grouped(of.count)) " took " (diagnose::span(low)) " to " (diagnose::span(high)) }
                        }
                    }
                    text.name x="8" y=(chart::at(middle + way * half / 2.0)) { (class) }
                    text x="8" y=(chart::at(middle + way * half / 2.0 + 15.0)) { (grouped(of.count)) }
                }
                line.axis x1=(LEFT) x2=(WIDTH - RIGHT) y1=(middle) y2=(middle) {}
                text x=(WIDTH - RIGHT) y=(HEIGHT - 4.0) text-anchor="end" { "time that an operation took, logarithmic" }
            } }
            p.muted {
                "Each half is scaled to its own highest bar. Median before: " (median(&self.before)) "; during: " (median(&self.during)) ". "
                "The daemon keeps every operation of the seconds before the incident was noticed and of the time after it, and slow ones only in between, so fast operations may be missing from the lower half."
            }
        }
    }
}

/// The middle of the bucket with the median, nanoseconds, which is within an eighth of the median. `None` if there are
/// too few operations.
fn middle(of: &Histogram) -> Option<u64> {
    let bucket = quantile_index(&of.buckets, 0.5).filter(|_| of.count >= ENOUGH)?;
    let (low, high) = (Histogram::lower_bound(bucket), Histogram::lower_bound(bucket + 1));
    Some(low + high.saturating_sub(low) / 2)
}

fn median(of: &Histogram) -> String {
    middle(of).map_or_else(|| "not known".to_owned(), |median| format!("about {}", diagnose::span(median)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_within_its_bucket() {
        let mut distribution = Histogram::default();
        assert_eq!(middle(&distribution), None);
        (0..100).for_each(|n| distribution.add(if n < 40 { 1_000_000 } else { 200_000_000 }, 0, false));
        let median = middle(&distribution).unwrap();
        assert!((175_000_000..225_000_000).contains(&median), "{median}");
    }
}
