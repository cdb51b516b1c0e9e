//! How it went over time: throughput at each layer, and a heat map of the processes.

use std::collections::BTreeMap;

use model::Direction;

use super::{charts, name};
use crate::{
    io::{
        layers::Depth,
        rows::size,
        summary::{Look, Process, Summary},
    },
    view::report::escape,
};

const WIDTH: f64 = 960.0;
const LABELS: f64 = 200.0;
/// Time is cut into so many parts at most.
const PARTS: usize = 120;
/// Rows of the heat map.
const MOST_PROCESSES: usize = 40;

pub fn over_time(html: &mut String, summary: &Summary) {
    html.push_str("<h2 id=\"time\">Over time</h2>\n");
    html.push_str(super::KEY);
    let parts = Parts::of(summary);
    for depth in Depth::ALL {
        let bytes = [Direction::Read, Direction::Written].map(|way| parts.sum(summary, *depth, way));
        if bytes.iter().flatten().any(|bytes| *bytes > 0.0) {
            throughput(html, depth.phrase(), &bytes, &parts);
        }
    }
    let depth = summary.main_depth();
    html.push_str(&format!("<h3>Heat map <span class=\"muted\">bytes {}, by process</span></h3>\n", depth.phrase()));
    heat(html, summary, depth, &parts);
}

/// Looks put together, so that there are not too many.
struct Parts {
    count: usize,
    seconds: f64,
}

impl Parts {
    fn of(summary: &Summary) -> Self {
        let count = summary.course.len().clamp(1, PARTS);
        Self { count, seconds: summary.seconds() / count as f64 }
    }

    /// Which of them a moment belongs to. What a look has found came before its end.
    fn part(&self, look: &Look) -> usize {
        let middle = look.end_s - look.lasted_s / 2.0;
        ((middle / self.seconds.max(1e-9)) as usize).min(self.count - 1)
    }

    fn sum(&self, summary: &Summary, depth: Depth, way: Direction) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for look in &summary.course {
            if let Some(sum) = sums.get_mut(self.part(look)) {
                *sum += look.bytes.get(&(depth, way)).copied().unwrap_or(0) as f64;
            }
        }
        sums
    }

    /// The seconds below a drawing.
    fn axis(&self, html: &mut String, y: f64) {
        let total = self.seconds * self.count as f64;
        for step in 0..=4 {
            let (x, anchor) =
                (LABELS + (WIDTH - LABELS) * f64::from(step) / 4.0, ["start", "middle", "middle", "middle", "end"]);
            let anchor = anchor.get(step as usize).unwrap_or(&"middle");
            let seconds = total * f64::from(step) / 4.0;
            let decimals = usize::from(total < 40.0);
            html.push_str(&format!(
                "<text class=\"faint\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{seconds:.decimals$} s</text>"
            ));
        }
    }
}

fn throughput(html: &mut String, title: &str, bytes: &[Vec<f64>; 2], parts: &Parts) {
    const HEIGHT: f64 = 60.0;
    let rates: Vec<[f64; 2]> = bytes[0]
        .iter()
        .zip(&bytes[1])
        .map(|(read, written)| [read / parts.seconds.max(1e-9), written / parts.seconds.max(1e-9)])
        .collect();
    let most = rates.iter().map(|rates| rates.iter().sum::<f64>()).fold(1.0, f64::max);
    let width = (WIDTH - LABELS) / parts.count as f64;
    html.push_str(&format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">", HEIGHT + 26.0));
    html.push_str(&format!(
        "<text x=\"{0}\" y=\"24\" text-anchor=\"end\">{title}</text><text class=\"faint\" x=\"{0}\" y=\"42\" text-anchor=\"end\">at most {1}/s</text>",
        LABELS - 8.0,
        size(most as u64)
    ));
    html.push_str(&format!(
        "<line class=\"grid\" x1=\"{LABELS}\" x2=\"{WIDTH}\" y1=\"{0}\" y2=\"{0}\"/>",
        HEIGHT + 6.0
    ));
    for (part, rates) in rates.iter().enumerate() {
        let mut y = HEIGHT + 6.0;
        for (rate, class) in rates.iter().zip(["read", "written"]).filter(|(rate, _)| **rate > 0.0) {
            let height = (rate / most * HEIGHT).max(0.5);
            y -= height;
            html.push_str(&format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{height:.1}\"><title>{class} {}/s</title></rect>",
                LABELS + part as f64 * width,
                (width - 0.5).max(0.5),
                size(*rate as u64)
            ));
        }
    }
    parts.axis(html, HEIGHT + 20.0);
    html.push_str("</svg>\n");
}

fn heat(html: &mut String, summary: &Summary, depth: Depth, parts: &Parts) {
    const ROW: f64 = 16.0;
    let mut rows: Vec<(u32, &Process, BTreeMap<usize, u64>, u64)> = Vec::new();
    for (pid, process) in &summary.processes {
        let mut cells = BTreeMap::new();
        for (look, _, bytes) in process.course.iter().filter(|(_, other, _)| *other == depth) {
            if let Some(look) = summary.course.get(*look) {
                *cells.entry(parts.part(look)).or_default() += bytes;
            }
        }
        let total = cells.values().sum();
        if total > 0 {
            rows.push((*pid, process, cells, total));
        }
    }
    rows.sort_by_key(|(pid, _, _, total)| (std::cmp::Reverse(*total), *pid));
    let rest = rows.len().saturating_sub(MOST_PROCESSES);
    rows.truncate(MOST_PROCESSES);
    // Those who do the same begin one after the other: their numbers put them next to each other.
    rows.sort_by_key(|(pid, ..)| *pid);
    let most = rows.iter().flat_map(|(_, _, cells, _)| cells.values()).max().copied().unwrap_or(1).max(1) as f64;
    let width = (WIDTH - LABELS) / parts.count as f64;
    let height = ROW * rows.len() as f64;
    html.push_str(&format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">", height + 20.0));
    for (row, (pid, process, cells, total)) in rows.iter().enumerate() {
        let y = row as f64 * ROW;
        let label = charts::shortened(&name(*pid, process));
        html.push_str(&format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}<title>{}</title></text>",
            LABELS - 8.0,
            y + 12.0,
            escape(&label),
            size(*total)
        ));
        html.push_str(&format!(
            "<rect fill=\"currentColor\" opacity=\".05\" x=\"{LABELS}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>",
            WIDTH - LABELS,
            ROW - 1.0
        ));
        for (part, bytes) in cells {
            // By the root, so that what is small is seen beside what is large.
            let strength = 0.12 + 0.88 * (*bytes as f64 / most).sqrt();
            html.push_str(&format!(
                "<rect fill=\"#b04a4a\" opacity=\"{strength:.2}\" x=\"{:.1}\" y=\"{y}\" width=\"{:.2}\" height=\"{}\"><title>{}</title></rect>",
                LABELS + *part as f64 * width,
                (width - 0.5).max(0.5),
                ROW - 1.0,
                size(*bytes)
            ));
        }
        html.push('\n');
    }
    parts.axis(html, height + 15.0);
    html.push_str("</svg>\n");
    html.push_str(&format!("<p class=\"muted\">the darkest: {} in {:.2} s", size(most as u64), parts.seconds));
    if rest > 0 {
        html.push_str(&format!("; and {rest} processes that moved less"));
    }
    html.push_str("</p>\n");
}
