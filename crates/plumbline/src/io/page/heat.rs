//! The heat map: the bytes of each group of processes over time.

use diagnose::counted;
use maud::{Markup, html};

use super::{
    charts::{LABELS, WIDTH, at, row_name},
    course::Parts,
    groups::{MOST_GROUPS, MOST_MEMBERS, ProgramGroup, groups, left_out, name},
};
use crate::io::{
    layers::LayerDepth,
    rows::size,
    summary::{IoSummary, ProcessSummary},
};

const ROW: f64 = 16.0;

/// A row: the group, and its bytes in each part of the time.
struct HeatRow {
    name: String,
    cells: Vec<f64>,
}

pub fn heat_map(summary: &IoSummary, parts: &Parts) -> Markup {
    let depth = summary.main_depth();
    let bytes = |process: &ProcessSummary| {
        process.course.iter().filter(|(_, at, _)| *at == depth).map(|(.., bytes)| bytes).sum()
    };
    let groups = groups(summary, bytes);
    let row = |pid: u32, process: &ProcessSummary| HeatRow {
        name: name(pid, process),
        cells: cells(summary, process, depth, parts),
    };
    let members = |group: &ProgramGroup<'_>| -> Vec<HeatRow> {
        group.members.iter().take(MOST_MEMBERS).map(|(pid, process)| row(*pid, process)).collect()
    };
    let sum = |group: &ProgramGroup<'_>| {
        let mut cells = vec![0.0; parts.count];
        for (_, process) in &group.members {
            add(summary, process, depth, parts, &mut cells);
        }
        HeatRow { name: group.name.clone(), cells }
    };
    let shown = || groups.iter().take(MOST_GROUPS);
    html! {
        h2 id="heat" { "Heat map" }
        p.muted { "Bytes " (depth.phrase()) " over time, by group of processes: reads and writes together." }
        (rows(&shown().map(sum).collect::<Vec<_>>(), parts))
        @if groups.len() > MOST_GROUPS { p.muted { "and " (counted((groups.len() - MOST_GROUPS) as u64, "group")) " that moved less" } }
        @for group in shown().filter(|group| group.members.len() > 1) {
            details {
                summary { "Each of " (group.name) }
                (rows(&members(group), parts))
                (left_out(group.members.len()))
            }
        }
    }
}

fn cells(summary: &IoSummary, process: &ProcessSummary, depth: LayerDepth, parts: &Parts) -> Vec<f64> {
    let mut cells = vec![0.0; parts.count];
    add(summary, process, depth, parts, &mut cells);
    cells
}

fn add(summary: &IoSummary, process: &ProcessSummary, depth: LayerDepth, parts: &Parts, cells: &mut [f64]) {
    for (look, _, bytes) in process.course.iter().filter(|(_, at, _)| *at == depth) {
        if let Some(look) = summary.course.get(*look) {
            parts.spread(look, *bytes as f64, cells);
        }
    }
}

fn rows(rows: &[HeatRow], parts: &Parts) -> Markup {
    let most = rows.iter().flat_map(|row| &row.cells).copied().fold(1.0, f64::max);
    let height = ROW * rows.len() as f64;
    // The strength grows with the square root, so that small amounts are visible beside large ones.
    let strength = |bytes: f64| format!("{:.2}", 0.12 + 0.88 * (bytes / most).sqrt());
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", height + 48.0)) role="img" {
            @for (row, HeatRow { name, cells }) in rows.iter().enumerate() {
                @let y = row as f64 * ROW;
                (row_name(name, y + 12.0))
                rect.ground x=(at(LABELS)) y=(at(y)) width=(at(WIDTH - LABELS - 20.0)) height=(at(ROW - 1.0)) {}
                @for (part, bytes) in cells.iter().enumerate().filter(|(_, bytes)| **bytes >= 0.5) {
                    @let (x, width) = parts.column(part);
                    rect.heat opacity=(strength(*bytes)) x=(at(x)) y=(at(y)) width=(format!("{width:.2}")) height=(at(ROW - 1.0)) {
                        title { (size(*bytes as u64)) }
                    }
                }
            }
            (parts.axis(height, height))
            (scale(most, parts.seconds, height + 28.0, strength))
        }
        "\n"
    }
}

/// The legend of the shades.
fn scale(most: f64, seconds: f64, y: f64, strength: impl Fn(f64) -> String) -> Markup {
    let steps = [1.0 / 64.0, 1.0 / 16.0, 0.25, 1.0];
    html! {
        text.faint x=(at(LABELS - 8.0)) y=(at(y + 12.0)) text-anchor="end" { (format!("bytes in {seconds:.2} s")) }
        @for (step, share) in steps.iter().enumerate() {
            @let x = LABELS + step as f64 * 130.0;
            rect.heat opacity=(strength(most * share)) x=(at(x)) y=(at(y)) width="24" height="15" {}
            text.faint x=(at(x + 30.0)) y=(at(y + 12.0)) { (size((most * share) as u64)) }
        }
    }
}
