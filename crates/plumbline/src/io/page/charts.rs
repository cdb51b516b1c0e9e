//! Bars and columns as inline SVG. Widths are in units of a drawing 960 wide, which the browser scales.

use diagnose::span;
use model::SIZES;

use crate::{io::rows::size, view::report::escape};

const WIDTH: f64 = 960.0;
/// Where bars begin, and how long the longest is.
const LABELS: f64 = 200.0;
const LONGEST: f64 = 480.0;
const ROW: f64 = 24.0;

/// The parts of a bar, in this order.
const CLASSES: [&str; 3] = ["read", "written", "other"];

/// A bar of parts that lie behind one another, with a name in front and figures behind.
pub struct Bar {
    name: String,
    parts: Vec<(u64, String)>,
    note: String,
}

impl Bar {
    /// Bytes read and written.
    pub fn of_bytes(name: &str, bytes: [u64; 2]) -> Self {
        let parts: Vec<_> = bytes.iter().map(|bytes| (*bytes, size(*bytes))).collect();
        let said = parts.iter().filter(|(bytes, _)| *bytes > 0).map(|(_, text)| text.as_str());
        Self { name: name.into(), note: said.collect::<Vec<_>>().join(" + "), parts }
    }

    /// Nanoseconds spent in reading, in writing and in everything else.
    pub fn of_times(name: &str, ns: [u64; 3], note: &str) -> Self {
        let parts = ns.iter().map(|ns| (*ns, span(*ns))).collect();
        Self { name: name.into(), parts, note: format!("{}: {note}", span(ns.iter().sum())) }
    }

    fn total(&self) -> u64 {
        self.parts.iter().map(|(part, _)| part).sum()
    }
}

/// As much of a name as there is room for in front of a bar.
pub fn shortened(name: &str) -> String {
    if name.chars().count() <= 30 { name.into() } else { name.chars().take(29).chain(['…']).collect() }
}

/// One below the other, to one scale: the longest possible one stands for `most`, or for the greatest here.
pub fn bars(html: &mut String, bars: &[Bar], most: Option<u64>) {
    let most = most.or_else(|| bars.iter().map(Bar::total).max()).unwrap_or(0).max(1) as f64;
    let height = ROW * bars.len() as f64 + 4.0;
    html.push_str(&format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n"));
    for (row, bar) in bars.iter().enumerate() {
        let y = ROW * row as f64 + 2.0;
        html.push_str(&format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}<title>{}</title></text>",
            LABELS - 8.0,
            y + 15.0,
            escape(&shortened(&bar.name)),
            escape(&bar.name)
        ));
        let mut x = LABELS;
        for ((part, text), class) in bar.parts.iter().zip(CLASSES).filter(|((part, _), _)| *part > 0) {
            // What is there is seen, however little it is.
            let width = (*part as f64 / most * LONGEST).max(1.0);
            html.push_str(&format!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\"><title>{} {}</title></rect>",
                class,
                escape(text)
            ));
            x += width;
        }
        html.push_str(&format!(
            "<text class=\"faint\" x=\"{:.1}\" y=\"{}\">{}</text>\n",
            x + 8.0,
            y + 14.0,
            escape(&bar.note)
        ));
    }
    html.push_str("</svg>\n");
}

/// A column for each power of two that occurs, and those between: accesses that read and that wrote, one on the other.
pub fn columns(html: &mut String, read: &[u64; SIZES], written: &[u64; SIZES]) {
    const HEIGHT: f64 = 130.0;
    /// DiskQuota for a size.
    const NAMED: f64 = 54.0;
    let totals: Vec<u64> = read.iter().zip(written).map(|(read, written)| read + written).collect();
    let (Some(first), Some(last)) = (totals.iter().position(|n| *n > 0), totals.iter().rposition(|n| *n > 0)) else {
        return;
    };
    let most = totals.iter().max().copied().unwrap_or(1).max(1) as f64;
    // Never so few columns that one fills the page.
    let (first, last) = (first.saturating_sub(1), (last + 1).min(SIZES - 1));
    let width = (WIDTH / (last - first + 1) as f64).min(70.0);
    html.push_str(&format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n", HEIGHT + 44.0));
    html.push_str(&format!("<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{0}\" y2=\"{0}\"/>", HEIGHT + 20.0));
    for (column, index) in (first..=last).enumerate() {
        let x = column as f64 * width;
        let mut y = HEIGHT + 20.0;
        let counts = [read.get(index).copied().unwrap_or(0), written.get(index).copied().unwrap_or(0)];
        for (count, class) in counts.into_iter().zip(CLASSES).filter(|(count, _)| *count > 0) {
            let height = (count as f64 / most * HEIGHT).max(1.0);
            y -= height;
            html.push_str(&format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{count} {class}, {} to {}</title></rect>",
                x + 3.0,
                width - 6.0,
                size(1 << index),
                size(2 << index)
            ));
        }
        let middle = x + width / 2.0;
        let total: u64 = counts.iter().sum();
        if total > 0 {
            html.push_str(&format!(
                "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{total}</text>",
                y - 4.0
            ));
        }
        // Narrow ones are named in turn, else the names run into each other.
        if width >= NAMED || column % 2 == 0 {
            html.push_str(&format!(
                "<text class=\"faint\" x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                HEIGHT + 36.0,
                size(1 << index)
            ));
        }
    }
    html.push_str("</svg>\n<p class=\"muted\">each column: from its size up to twice that</p>\n");
}
