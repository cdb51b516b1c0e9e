//! A recording as one self-contained page: no script, no network, printable. `maud` escapes all values.

mod axis;
mod charts;
mod cost;
mod course;
mod groups;
mod heat;
mod layers;
mod pattern;
mod tables;

use diagnose::span;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use model::Direction;

use super::{record::IoHeader, rows::size, summary::IoSummary};

const STYLE: &str = include_str!("style.css");

/// The sections in their order, with the ids and names of the list at the top.
const SECTIONS: &[(&str, &str)] = &[
    ("cost", "Share of the run time"),
    ("counts", "Operations"),
    ("sizes", "Access sizes"),
    ("pattern", "Access pattern"),
    ("files", "Files"),
    ("layers", "File systems and layers"),
    ("processes", "Processes"),
    ("time", "Throughput"),
    ("heat", "Heat map"),
    ("slowest", "Slowest files"),
    ("operations", "Every operation"),
];

/// The page of a recording. `whole`: whether the recording is complete.
pub fn page(header: &IoHeader, summary: &IoSummary, whole: bool) -> String {
    let title = match header.command.as_slice() {
        [] => format!("I/O on {}", header.host),
        command => format!("I/O of {}", command.join(" ")),
    };
    let title = shortened(&title, 160);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                // The style is our own and contains nothing from a recording.
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (run(header, summary))
                (warnings(summary, whole))
                @if summary.operations.is_empty() {
                    p { "There was no I/O on the measured file systems." }
                } @else {
                    (body(header, summary))
                }
            }
        }
        "\n"
    };
    page.into_string()
}

fn body(header: &IoHeader, summary: &IoSummary) -> Markup {
    let parts = course::Parts::of(&summary.course);
    html! {
        (tiles(summary))
        nav { @for (id, name) in SECTIONS { a href=(format!("#{id}")) { (name) } " " } }
        (cost::cost(summary))
        (cost::counts(summary))
        (layers::sizes(summary))
        (pattern::pattern(header, summary))
        (layers::layers(header, summary))
        (groups::time_by_process(summary))
        (course::over_time(summary, &parts))
        (heat::heat_map(summary, &parts))
        (tables::slowest(header, summary))
        (tables::operations(summary))
    }
}

/// What was recorded, where and when.
fn run(header: &IoHeader, summary: &IoSummary) -> Markup {
    let ranks = summary.ranks();
    let started = header.started.split('.').next().unwrap_or_default().replace('T', " ");
    html! {
        p {
            (header.host) " · Linux " (header.kernel) " · from " (started) " UTC for " (span((summary.seconds() * 1e9) as u64))
            " · " (summary.processes.len()) " processes with I/O"
            @if ranks > 0 { ", " (ranks) " MPI ranks" }
            " · layers: " (header.layers.join(", "))
            @if let Some(code) = summary.end.as_ref().and_then(|end| end.status) { " · exit code " (code) }
        }
    }
}

fn warnings(summary: &IoSummary, whole: bool) -> Markup {
    let mut warnings = Vec::new();
    if !whole {
        warnings.push("The recording has no end: it was cut off, or is still being made.".to_owned());
    }
    if summary.not_understood > 0 {
        warnings.push(format!("{} entries are of operations that this version does not know.", summary.not_understood));
    }
    let losses = summary.end.iter().flat_map(|end| &end.losses);
    warnings.extend(losses.map(|(cause, lost)| format!("{cause}: {lost} operations.")));
    html! { @for warning in warnings { p.warning { (warning) } } }
}

/// The figures that come first.
fn tiles(summary: &IoSummary) -> Markup {
    let depth = summary.main_depth();
    let moved = |direction| {
        let of = summary.transfers.iter().filter(|((other, _, way), _)| *other == depth && *way == direction);
        of.map(|(_, amounts)| amounts.bytes).sum::<u64>()
    };
    let of_depth =
        || summary.operations.iter().filter(|((_, other, ..), _)| *other == depth).map(|(_, amounts)| amounts);
    let calls: u64 = of_depth().map(|amounts| amounts.count).sum();
    let errors: u64 = of_depth().map(|amounts| amounts.errors).sum();
    let (all, small) = summary.smaller_than(depth, 1 << 16);
    let mut tiles = vec![
        (size(moved(Direction::Read)), "read".to_owned()),
        (size(moved(Direction::Written)), "written".into()),
        (calls.to_string(), format!("{} ({errors} failed)", depth.calls())),
    ];
    if let Some(cost) = cost::LayerCost::of(summary, depth) {
        let share = format!("{:.1} %", cost.percent.iter().sum::<f64>());
        tiles.push((share, format!("of the run time in them, mean of {}", cost.processes)));
    }
    tiles.push((percent(small, all), "of reads and writes below 64 KiB".into()));
    html! { div.tiles { @for (figure, what) in tiles { div { b { (figure) } (what) } } } }
}

/// The legend of the colours.
fn key() -> Markup {
    html! { p.key { i.read {} "read" i.written {} "written" } }
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".into() } else { format!("{:.0} %", part as f64 * 100.0 / all as f64) }
}

fn percent_of_time(ns: u64, seconds: f64) -> String {
    if seconds > 0.0 { format!("{:.1} %", ns as f64 / 1e7 / seconds) } else { "-".into() }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.into() } else { text.chars().take(most).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use probes::Transfers;

    use super::*;
    use crate::io::{
        files::FileUse,
        record::{End, IoEntry, IoInterval, IoLine},
    };

    #[test]
    fn a_hostile_name_stays_text_and_an_empty_recording_says_so() {
        let hostile = "<script>alert(1)</script>".to_owned();
        let header =
            IoHeader { command: vec![hostile.clone()], layers: vec!["syscalls".into()], ..IoHeader::default() };
        assert!(page(&header, &IoSummary::default(), true).contains("There was no I/O on the measured file systems."));
        let entry = |pid| IoEntry {
            layer: "syscalls".into(),
            op: "write".into(),
            fstype: hostile.clone(),
            mount: hostile.clone(),
            pid,
            comm: hostile.clone(),
            job: hostile.clone(),
            rank: None,
            calls: 1,
            bytes: 4096,
            errors: 0,
            ns: 1_000_000,
            sizes: vec![(12, 1)],
            latencies: vec![(40, 1)],
        };
        let mut summary = IoSummary::default();
        summary.add(IoLine::Interval(IoInterval { at_s: 1.0, seconds: 1.0, entries: vec![entry(1), entry(2)] }));
        let file = FileUse {
            mount: hostile.clone(),
            file: hostile.clone(),
            written: Transfers { calls: 1, bytes: 4096, ..Transfers::default() },
            ..FileUse::default()
        };
        summary.add(IoLine::End(End { files: vec![file], ..End::default() }));
        let page = page(&header, &summary, false);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && page.contains("cut off"), "{page}");
        assert!(!page.contains("http"), "nothing comes from elsewhere");
        for (section, _) in SECTIONS {
            assert!(page.contains(&format!("<h2 id=\"{section}\">")), "{section}");
        }
    }
}
