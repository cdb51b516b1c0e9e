//! The slowest system calls, each with the operations below it.

use maud::{Markup, html};
use model::{CallLine, ChildLine};

use super::units::of_ms;

/// The most calls that are shown, and the most operations below each.
const CALLS: usize = 20;
const CHILDREN: usize = 32;

/// The table; empty without calls.
pub fn markup(calls: &[CallLine<'_>]) -> Markup {
    if calls.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "Slowest system calls, and what ran below them" }
        div.wide { table {
            tr { th { "call" } th { "process" } th { "file" } th.n { "after" } th.n { "took" } th { "status" } }
            @for CallLine { event: call, below } in calls.iter().take(CALLS) {
                tr {
                    td { strong { (call.operation) } } td { (call.comm) } td { (call.file) } td.n {} td.n { (of_ms(call.duration_ms)) }
                    td { (call.errno.as_deref().unwrap_or_default()) }
                }
                @if let Some(below) = below {
                    (children(&below.children, below.children_count, "└"))
                    (children(&below.meanwhile, below.meanwhile_count, "meanwhile"))
                    @if below.children_incomplete {
                        tr { td.muted colspan="6" { "more may be missing: they were not seen, or are overwritten by now" } }
                    }
                }
            }
        } }
    }
}

fn children(listed: &[ChildLine<'_>], all: usize, mark: &str) -> Markup {
    let rest = all.saturating_sub(listed.len().min(CHILDREN));
    html! {
        @for child in listed.iter().take(CHILDREN) {
            tr {
                td { (mark) " " (child.operation) } td {} td {} td.n { (after(child.after_ms)) } td.n { (of_ms(child.duration_ms)) }
                td { @if child.in_flight { "in flight" } @else { (child.status.as_deref().unwrap_or_default()) } }
            }
        }
        @if rest > 0 { tr { td.muted colspan="6" { (mark) " and " (rest) " shorter ones" } } }
    }
}

/// The time from the call's start; negative for an operation that began before.
fn after(ms: f64) -> String {
    if ms < 0.0 { format!("−{}", of_ms(-ms)) } else { of_ms(ms) }
}
