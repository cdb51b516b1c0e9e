//! Bars and columns as inline SVG. Widths are in units of a drawing 960 wide, which the browser scales.

use maud::{Markup, html};
use model::SIZES;

use super::axis::{Axis, AxisUnit};
use crate::io::rows::size;

pub const WIDTH: f64 = 960.0;
/// The start of drawings, after the names of their rows or ticks.
pub const LABELS: f64 = 200.0;
/// The length of the longest bar; its figures follow it.
const LONGEST: f64 = 480.0;
const ROW: f64 = 24.0;
/// The most characters of a row's name.
const NAME: usize = 30;

/// The parts of a bar, in this order.
const CLASSES: [&str; 3] = ["read", "written", "other"];

/// A bar of several parts, with a name before it and figures after it.
pub struct Bar {
    pub name: String,
    /// The amounts of reading, writing and everything else, in the axis' unit, each with its text.
    pub parts: [(f64, String); 3],
    pub note: String,
}

impl Bar {
    /// The sum of all parts.
    pub fn total(&self) -> f64 {
        self.parts.iter().map(|(part, _)| part).sum()
    }
}

/// A coordinate with few digits.
pub fn at(place: f64) -> String {
    format!("{place:.1}")
}

/// A row's name, cut to its space; the whole name is the tooltip.
pub fn row_name(name: &str, y: f64) -> Markup {
    let short: String =
        if name.chars().count() <= NAME { name.into() } else { name.chars().take(NAME - 1).chain(['…']).collect() };
    html! { text x=(at(LABELS - 8.0)) y=(at(y)) text-anchor="end" { (short) title { (name) } } }
}

/// An axis with ticks below a drawing that begins at [`LABELS`], with lines through the drawing.
pub fn axis_below(axis: &Axis, width: f64, top: f64, bottom: f64) -> Markup {
    html! {
        @for (place, name) in axis.ticks() {
            @let x = at(LABELS + place * width);
            line.grid x1=(x) x2=(x) y1=(at(top)) y2=(at(bottom + 4.0)) {}
            text.faint x=(x) y=(at(bottom + 17.0)) text-anchor="middle" { (name) }
        }
    }
}

/// An axis with ticks before a drawing that begins at [`LABELS`], with lines through the drawing.
pub fn axis_beside(axis: &Axis, top: f64, height: f64) -> Markup {
    html! {
        @for (place, name) in axis.ticks() {
            @let y = top + height * (1.0 - place);
            line.grid x1=(at(LABELS - 4.0)) x2=(at(WIDTH)) y1=(at(y)) y2=(at(y)) {}
            text.faint x=(at(LABELS - 8.0)) y=(at(y + 4.0)) text-anchor="end" { (name) }
        }
    }
}

/// Bars one below the other, to one scale: up to `most`, or to the greatest bar.
pub fn bars(bars: &[Bar], unit: AxisUnit, most: Option<f64>) -> Markup {
    let greatest = bars.iter().map(Bar::total).fold(most.unwrap_or(0.0), f64::max);
    let axis = Axis::new(unit, greatest, 5);
    let height = ROW * bars.len() as f64 + 2.0;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", height + 24.0)) role="img" {
            (axis_below(&axis, LONGEST, 0.0, height))
            text.faint x=(at(LABELS - 24.0)) y=(at(height + 17.0)) text-anchor="end" { (unit.word()) }
            @for (row, bar) in bars.iter().enumerate() {
                (one_bar(bar, &axis, ROW * row as f64 + 2.0))
            }
        }
        "\n"
    }
}

fn one_bar(bar: &Bar, axis: &Axis, y: f64) -> Markup {
    let mut x = LABELS;
    let mut parts = Vec::new();
    for ((part, said), class) in bar.parts.iter().zip(CLASSES).filter(|((part, _), _)| *part > 0.0) {
        // Every amount is visible, however small it is.
        let width = (axis.place(*part) * LONGEST).max(1.0);
        parts.push((class, said, x, width));
        x += width;
    }
    html! {
        (row_name(&bar.name, y + 14.0))
        @for (class, said, x, width) in parts {
            rect class=(class) x=(at(x)) y=(at(y)) width=(at(width)) height="18" { title { (class) " " (said) } }
        }
        text.faint x=(at(x + 8.0)) y=(at(y + 14.0)) { (bar.note) }
    }
}

/// A column for each power of two from the least to the greatest that occurs, with reads and writes stacked.
pub fn columns(read: &[u64; SIZES], written: &[u64; SIZES]) -> Markup {
    const HEIGHT: f64 = 130.0;
    const TOP: f64 = 20.0;
    /// The space for a size below its column.
    const NAMED: f64 = 54.0;
    let totals: Vec<u64> = read.iter().zip(written).map(|(read, written)| read + written).collect();
    let (Some(first), Some(last)) = (totals.iter().position(|n| *n > 0), totals.iter().rposition(|n| *n > 0)) else {
        return html! {};
    };
    let axis = Axis::new(AxisUnit::Count, totals.iter().max().copied().unwrap_or(1) as f64, 4);
    // Enough columns that a single one does not fill the page.
    let (first, last) = (first.saturating_sub(1), (last + 1).min(SIZES - 1));
    let width = ((WIDTH - LABELS) / (last - first + 1) as f64).min(70.0);
    let foot = TOP + HEIGHT;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", foot + 40.0)) role="img" {
            text.faint x=(at(LABELS - 8.0)) y="8" text-anchor="end" { "accesses" }
            (axis_beside(&axis, TOP, HEIGHT))
            @for (column, index) in (first..=last).enumerate() {
                @let x = LABELS + column as f64 * width;
                @let counts = [read, written].map(|counts| counts.get(index).copied().unwrap_or(0));
                @let said = format!("{} to {}", size(1 << index), size(2 << index));
                @let heights = counts.map(|count| if count == 0 { 0.0 } else { (axis.place(count as f64) * HEIGHT).max(1.0) });
                @if counts[0] > 0 {
                    rect.read x=(at(x + 3.0)) y=(at(foot - heights[0])) width=(at(width - 6.0)) height=(at(heights[0])) {
                        title { (counts[0]) " read, " (said) }
                    }
                }
                @if counts[1] > 0 {
                    rect.written x=(at(x + 3.0)) y=(at(foot - heights[0] - heights[1])) width=(at(width - 6.0)) height=(at(heights[1])) {
                        title { (counts[1]) " written, " (said) }
                    }
                }
                // Of narrow columns, only every second one is named, so that names do not overlap.
                @if width >= NAMED || column % 2 == 0 {
                    text.faint x=(at(x + width / 2.0)) y=(at(foot + 16.0)) text-anchor="middle" { (size(1 << index)) }
                }
            }
            text.faint x=(at(LABELS)) y=(at(foot + 34.0)) { "bytes in one access: each column from its size up to twice that" }
        }
        "\n"
    }
}
