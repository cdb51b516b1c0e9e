//! The slowest files, and a row for every operation.

use diagnose::span;
use maud::{Markup, html};

use crate::{
    io::{record::IoHeader, rows::size, summary::IoSummary},
    view::event::known_ms,
};

/// The most rows of the table of operations.
const MOST_OPERATIONS: usize = 200;

pub fn slowest(header: &IoHeader, summary: &IoSummary) -> Markup {
    let files = summary.end.as_ref().map_or(&[][..], |end| &end.slowest);
    let ms = |ms: f64| span((ms * 1e6) as u64);
    html! {
        h2 id="slowest" { "Slowest files" }
        p.muted { "Operations of " (header.slow_ms) " ms or more." }
        @if files.is_empty() {
            p { "None." }
        } @else {
            div.wide { table {
                tr {
                    th { "file" } th { "mount" } th { "layer" } th.n { "slow calls" } th.n { "total" } th.n { "longest" } th { "the longest was" }
                    th.n { "bytes" }
                }
                @for file in files {
                    tr {
                        td { code { (file.file) } } td { (file.mount) } td { (file.layer) } td.n { (file.calls) } td.n { (ms(file.total_ms)) }
                        td.n { (ms(file.longest_ms)) } td { (file.op) } td.n { (size(file.bytes)) }
                    }
                }
            } }
        }
    }
}

pub fn operations(summary: &IoSummary) -> Markup {
    let rest = summary.operations.len().saturating_sub(MOST_OPERATIONS);
    html! {
        h2 id="operations" { "Every operation" }
        div.wide { table {
            tr {
                th { "mount" } th { "layer" } th { "operation" } th.n { "calls" } th.n { "bytes" } th.n { "failed" } th.n { "total ms" }
                th.n { "mean ms" } th.n { "median ms" } th.n { "99 % below ms" } th.n { "longest ms" }
            }
            @for ((mount, _, layer, op), amounts) in summary.operations.iter().take(MOST_OPERATIONS) {
                @let known = summary.known_durations(mount, layer, op);
                tr {
                    td { (mount) } td { (layer) } td { (op) } td.n { (amounts.count) } td.n { (amounts.bytes) } td.n { (amounts.errors) }
                    td.n { (known_ms(Some(amounts.sum))) } td.n { (known_ms(amounts.sum.checked_div(amounts.count))) }
                    td.n { (known_ms(amounts.quantile_knowing(0.5, known))) } td.n { (known_ms(amounts.quantile_knowing(0.99, known))) }
                    td.n { (known_ms(known.map(|(_, longest)| longest))) }
                }
            }
        } }
        @if rest > 0 { p.muted { "and " (rest) " more rows" } }
        p.muted {
            "The median and the 99th percentile are accurate to 25 %: histograms have four buckets in each power of two. The longest duration is known only \
             of slow operations (see above)."
        }
    }
}
