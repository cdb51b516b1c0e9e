//! The course over time: looks are spread over parts of the run; throughput at each layer.

use maud::{Markup, html};
use model::Direction;

use super::{
    axis::{Axis, AxisUnit},
    charts::{LABELS, WIDTH, at, axis_below, axis_beside},
};
use crate::io::{
    layers::LayerDepth,
    rows::size,
    summary::{IntervalBytes, IoSummary},
};

/// The most parts into which time is divided.
const PARTS: usize = 120;

/// Equal parts of the recorded time: no more than looks, so that each part overlaps a look.
pub struct Parts {
    pub count: usize,
    /// The length of a part, seconds.
    pub seconds: f64,
}

impl Parts {
    pub fn of(course: &[IntervalBytes]) -> Self {
        let count = course.len().clamp(1, PARTS);
        let end = course.last().map_or(0.0, |look| look.end_s);
        Self { count, seconds: (end / count as f64).max(1e-9) }
    }

    /// Spreads the amount of a look over the parts that it covers, in proportion to the common time.
    pub fn spread(&self, look: &IntervalBytes, amount: f64, parts: &mut [f64]) {
        let end = self.seconds * self.count as f64;
        let to = look.end_s.clamp(0.0, end);
        let from = (look.end_s - look.lasted_s).clamp(0.0, to);
        let part_of = |moment: f64| ((moment / self.seconds) as usize).min(self.count - 1);
        let (first, last) = (part_of(from), part_of(to));
        let lasted = to - from;
        for index in first..=last {
            let Some(part) = parts.get_mut(index) else { continue };
            let begins = self.seconds * index as f64;
            // The last part ends where the look ends, so that nothing is lost by rounding.
            let ends = if index == last { to } else { begins + self.seconds };
            let common = (ends - begins.max(from)).max(0.0);
            *part += if lasted > 0.0 { amount * common / lasted } else { amount };
        }
    }

    fn bytes(&self, summary: &IoSummary, depth: LayerDepth, way: Direction) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for look in &summary.course {
            if let Some(bytes) = look.bytes.get(&(depth, way)) {
                self.spread(look, *bytes as f64, &mut sums);
            }
        }
        sums
    }

    /// The position and the width of a part in a drawing.
    pub fn column(&self, part: usize) -> (f64, f64) {
        let width = (WIDTH - LABELS - 20.0) / self.count as f64;
        (LABELS + part as f64 * width, (width - 0.5).max(0.5))
    }

    /// A time axis, seconds since the start, below a drawing.
    pub fn axis(&self, top: f64, bottom: f64) -> Markup {
        let axis = Axis::ending_at(AxisUnit::Time, self.seconds * self.count as f64 * 1e9, 8);
        axis_below(&axis, WIDTH - LABELS - 20.0, top, bottom)
    }
}

pub fn over_time(summary: &IoSummary, parts: &Parts) -> Markup {
    html! {
        h2 id="time" { "Throughput over time" }
        (super::key())
        @for depth in LayerDepth::ALL {
            @let bytes = [Direction::Read, Direction::Written].map(|way| parts.bytes(summary, *depth, way));
            @if bytes.iter().flatten().any(|bytes| *bytes > 0.0) {
                h3 { "Bytes " (depth.phrase()) }
                (throughput(&bytes, parts))
            }
        }
        p.muted {
            "Times are since the start of the recording. An operation counts when it ends. The operations of a sample are spread evenly over the time since \
             the sample before."
        }
    }
}

fn throughput(bytes: &[Vec<f64>; 2], parts: &Parts) -> Markup {
    const HEIGHT: f64 = 90.0;
    const TOP: f64 = 10.0;
    let rates: Vec<[f64; 2]> =
        bytes[0].iter().zip(&bytes[1]).map(|(read, written)| [read / parts.seconds, written / parts.seconds]).collect();
    let axis = Axis::new(AxisUnit::BytesPerSecond, rates.iter().map(|rates| rates.iter().sum()).fold(0.0, f64::max), 4);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", TOP + HEIGHT + 24.0)) role="img" {
            (axis_beside(&axis, TOP, HEIGHT))
            (parts.axis(TOP + HEIGHT, TOP + HEIGHT))
            @for (part, rates) in rates.iter().enumerate() {
                @let (x, width) = parts.column(part);
                @let heights = rates.map(|rate| axis.place(rate) * HEIGHT);
                @if rates[0] > 0.0 {
                    rect.read x=(at(x)) y=(at(TOP + HEIGHT - heights[0])) width=(at(width)) height=(at(heights[0])) {
                        title { "read " (size(rates[0] as u64)) "/s" }
                    }
                }
                @if rates[1] > 0.0 {
                    rect.written x=(at(x)) y=(at(TOP + HEIGHT - heights[0] - heights[1])) width=(at(width)) height=(at(heights[1])) {
                        title { "written " (size(rates[1] as u64)) "/s" }
                    }
                }
            }
        }
        "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn looks(lengths: &[f64]) -> Vec<IntervalBytes> {
        let mut end_s = 0.0;
        let look = |lasted_s: &f64| {
            end_s += lasted_s;
            IntervalBytes { end_s, lasted_s: *lasted_s, bytes: BTreeMap::new() }
        };
        lengths.iter().map(look).collect()
    }

    proptest! {
        /// Whatever the interval, and however many looks there are; the last one is shorter, as where a command ends.
        #[test]
        fn a_steady_rate_gives_equal_parts(interval in 0.01_f64..100.0, count in 1_usize..700, last in 0.001_f64..1.0) {
            const RATE: f64 = 100.0 * 1024.0 * 1024.0;
            let mut lengths = vec![interval; count];
            lengths.push(interval * last);
            let course = looks(&lengths);
            let parts = Parts::of(&course);
            let mut sums = vec![0.0; parts.count];
            course.iter().for_each(|look| parts.spread(look, RATE * look.lasted_s, &mut sums));
            for sum in &sums {
                prop_assert!((sum / parts.seconds / RATE - 1.0).abs() < 1e-6, "{} looks of {}: {:?}", count, interval, sums);
            }
        }

        /// Whatever each look has found, and however long it lasted.
        #[test]
        fn no_byte_is_lost_or_added(found in prop::collection::vec((0.0_f64..20.0, 0_u64..1 << 40), 1..400)) {
            let course = looks(&found.iter().map(|(lasted, _)| *lasted).collect::<Vec<_>>());
            let parts = Parts::of(&course);
            let mut sums = vec![0.0; parts.count];
            course.iter().zip(&found).for_each(|(look, (_, bytes))| parts.spread(look, *bytes as f64, &mut sums));
            let all: u64 = found.iter().map(|(_, bytes)| bytes).sum();
            prop_assert!((sums.iter().sum::<f64>() - all as f64).abs() <= all as f64 * 1e-9 + 1e-3);
        }
    }

    #[test]
    fn a_look_counts_where_it_was_and_nowhere_else() {
        let course = looks(&[1.0, 1.0, 1.0, 1.0]);
        let parts = Parts::of(&course);
        let mut sums = vec![0.0; parts.count];
        parts.spread(&IntervalBytes { end_s: 2.5, lasted_s: 1.0, bytes: BTreeMap::new() }, 100.0, &mut sums);
        assert_eq!(sums, [0.0, 50.0, 50.0, 0.0]);
    }
}
