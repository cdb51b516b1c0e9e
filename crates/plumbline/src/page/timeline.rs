//! The timeline of all operations around the incident: their start on the x axis, their duration on a logarithmic y
//! axis.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{
    chart::{self, BOTTOM, HEIGHT, LEFT, Latencies, RIGHT, TOP, WIDTH},
    material::PageMaterial,
    points::{PlotPoint, Shade},
    units::{grouped, micros, of_ms, time_of_day},
};

/// The number of slowest operations that have a tooltip.
const TOLD: usize = 12;
/// The approximate number of marks on the time axis.
const MARKS: i64 = 7;

/// The drawing's axes: the times from left to right, microseconds since 1970, and the scale of latencies.
struct Frame {
    from: i64,
    to: i64,
    latencies: Latencies,
}

impl Frame {
    fn x(&self, at: i64) -> f64 {
        let part = (at.saturating_sub(self.from)) as f64 / (self.to.saturating_sub(self.from)).max(1) as f64;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, nanos: u64) -> f64 {
        HEIGHT - BOTTOM - self.latencies.part(nanos) * (HEIGHT - TOP - BOTTOM)
    }

    /// Round times for the marks, microseconds since 1970, and the decimals of a second to show.
    fn times(&self) -> (Vec<i64>, usize) {
        const STEPS: [i64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
        const LONG: [i64; 8] = [15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000];
        let wanted = (self.to.saturating_sub(self.from) / 1_000 / MARKS).max(1);
        let step = STEPS.into_iter().chain(LONG).find(|step| *step >= wanted).unwrap_or(wanted);
        let apart = step.saturating_mul(1_000).max(1);
        let first = self.from.div_euclid(apart).saturating_add(1).saturating_mul(apart);
        let times = (0..=2 * MARKS).map(|n| first.saturating_add(n.saturating_mul(apart)));
        let decimals = match step {
            ..10 => 3,
            10..100 => 2,
            100..1_000 => 1,
            _ => 0,
        };
        (times.take_while(|at| *at <= self.to).collect(), decimals)
    }
}

/// The drawing with its legend and caption; empty without operations.
pub fn markup(material: &mut PageMaterial) -> Markup {
    let added = material.points.added();
    let points = material.points.thinned();
    let times = || points.iter().map(|point| point.at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return Markup::default() };
    let window = material.window;
    let (from, to) = (window.map_or(first, |(from, _)| from.min(first)), window.map_or(last, |(_, to)| to.max(last)));
    // The margin keeps points off the edges.
    let margin = to.saturating_sub(from) / 50;
    let took = || points.iter().map(|point| point.took);
    let (least, most) = (took().min().unwrap_or_default(), took().max().unwrap_or_default());
    let frame = Frame {
        from: from.saturating_sub(margin),
        to: to.saturating_add(margin),
        latencies: Latencies::new(least / 4 * 3, most.saturating_add(most / 2)),
    };
    let (marks, decimals) = frame.times();
    let bottom = HEIGHT - BOTTOM;
    let shades: Vec<Shade> =
        Shade::SLOW.into_iter().filter(|shade| points.iter().any(|point| point.shade == *shade)).collect();
    let (has_fast, has_failed) =
        (points.iter().any(|point| point.shade == Shade::Fast), points.iter().any(|point| point.failed));
    html! {
        h2 { "Every operation around the incident" }
        ul.legend {
            @if has_fast { li { span.key.fast {} (Shade::Fast.label()) } }
            @for shade in &shades { li { span class={ "key " (shade.class()) } {} (shade.label()) } }
            @if has_failed { li { span.cross { "×" } "failed, or not returned" } }
            @if window.is_some() { li { span.key.window {} "the incident" } }
            @for (what, count) in counts(&material.happenings) { li { span.key.happening {} (what) " (" (grouped(count)) ")" } }
        }
        div.wide { svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label="Operations by time and latency" {
            @if let Some((from, to)) = window {
                @let (left, right) = (frame.x(from), frame.x(to));
                rect.window x=(chart::at(left)) y=(TOP) width=(chart::at((right - left).max(2.0))) height=(bottom - TOP) {}
            }
            @for nanos in frame.latencies.ticks() {
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(chart::at(frame.y(nanos))) y2=(chart::at(frame.y(nanos))) {}
                text x=(LEFT - 8.0) y=(chart::at(frame.y(nanos) + 4.0)) text-anchor="end" { (diagnose::span(nanos)) }
            }
            @for at in marks {
                line.grid x1=(chart::at(frame.x(at))) x2=(chart::at(frame.x(at))) y1=(bottom) y2=(bottom + 5.0) {}
                text x=(chart::at(frame.x(at))) y=(bottom + 18.0) text-anchor="middle" { (time_of_day(at, decimals)) }
            }
            line.axis x1=(LEFT) x2=(WIDTH - RIGHT) y1=(bottom) y2=(bottom) {}
            text x=(WIDTH - RIGHT) y=(HEIGHT - 4.0) text-anchor="end" { "start (UTC)" }
            text x="0" y="0" transform=(format!("translate(12 {}) rotate(-90)", (TOP + bottom) / 2.0)) text-anchor="middle" { "duration" }
            @if !material.happenings.is_empty() { path.happening d=(ticks(&frame, &material.happenings)) {} }
            @if has_fast { path.dots.fast d=(dots(&frame, points, Shade::Fast)) {} }
            @for shade in &shades { path class={ "dots slow " (shade.class()) } d=(dots(&frame, points, *shade)) {} }
            @if has_failed { path.crosses d=(crosses(&frame, points)) {} }
            @for line in material.slowest.iter().take(TOLD) {
                @if let Some(at) = micros(&line.time) {
                    circle.told cx=(chart::at(frame.x(at))) cy=(chart::at(frame.y((line.duration_ms.max(0.0) * 1e6) as u64))) r="6" {
                        title { (time_of_day(at, 3)) " " (line.operation) " took " (of_ms(line.duration_ms)) }
                    }
                }
            }
        } }
        p.muted {
            @if (points.len() as u64) < added {
                (grouped(points.len() as u64)) " of " (grouped(added)) " operations are drawn: where dots would overlap, only the slowest. "
            } @else { "All " (grouped(added)) " operations that the bundle has of this mount and probe. " }
            @if material.elsewhere > 0 { "Operations of other mounts or probes that are left out: " (grouped(material.elsewhere)) ". " }
            @if material.unreadable > 0 { "Lines of the bundle that could not be read: " (grouped(material.unreadable)) ". " }
            "The colour of a slow operation shows the phase that took most of its time."
        }
    }
}

/// The dots of one shade as a single path: lines of length zero with round ends.
fn dots(frame: &Frame, points: &[PlotPoint], shade: Shade) -> String {
    let of = points.iter().filter(|point| point.shade == shade);
    of.map(|point| format!("M{:.1},{:.1}h0", frame.x(point.at), frame.y(point.took))).collect()
}

/// The events of connections as a path of short marks at the upper edge.
fn ticks(frame: &Frame, happenings: &[(i64, String)]) -> String {
    happenings.iter().map(|(at, _)| format!("M{:.1},{TOP}v14", frame.x(*at))).collect()
}

/// The number of events of each kind.
fn counts(happenings: &[(i64, String)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    happenings.iter().for_each(|(_, what)| *counts.entry(what.as_str()).or_default() += 1);
    counts
}

fn crosses(frame: &Frame, points: &[PlotPoint]) -> String {
    let failed = points.iter().filter(|point| point.failed);
    failed
        .map(|point| format!("M{:.1},{:.1}l8,8m0,-8l-8,8", frame.x(point.at) - 4.0, frame.y(point.took) - 4.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_axis_has_some_round_marks_whatever_the_span() {
        for span in [5_000, 300_000, 2_500_000, 45_000_000, 86_400_000_000] {
            let frame = Frame { from: 1_000_123, to: 1_000_123 + span, latencies: Latencies::new(1, 1) };
            let (marks, _) = frame.times();
            assert!((2..=2 * MARKS as usize + 1).contains(&marks.len()), "{span}: {marks:?}");
        }
        let hostile = Frame { from: i64::MIN, to: i64::MAX, latencies: Latencies::new(0, u64::MAX) };
        assert!(hostile.times().0.len() <= 15 && hostile.x(i64::MAX).is_finite());
    }
}
