//! The slowest calls, each as a tree with the operations below it, and when each of these was under way.

use maud::{Markup, html};
use model::{CallLine, ChildLine, Level};

use super::units::of_ms;

/// The most calls that are shown, and the most operations below each.
const CALLS: usize = 20;
const CHILDREN: usize = 32;
/// By how much an operation may seem to outlast the one above it, milliseconds: the recorder's error.
const ROUNDING_MS: f64 = 0.003;

/// The table; empty without calls.
pub fn markup(calls: &[CallLine<'_>]) -> Markup {
    if calls.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "Slowest calls, and what ran below them" }
        div.wide { table {
            tr { th { "call" } th { "process" } th { "file" } th { "when" } th.n { "after" } th.n { "took" } th { "status" } }
            @for CallLine { event: call, below } in calls.iter().take(CALLS) {
                tr {
                    td { strong { (call.operation) } } td { (call.comm) } td { (call.file) } td {} td.n {} td.n { (of_ms(call.duration_ms)) }
                    td { (call.errno.as_deref().unwrap_or_default()) }
                }
                @if let Some(below) = below {
                    (children(&below.children, below.children_count, call.duration_ms))
                    (meanwhile(&below.meanwhile, below.meanwhile_count, call.duration_ms))
                    @if below.children_incomplete {
                        tr { td.muted colspan="7" { "operations may be missing: not seen, or overwritten in the flight recorder" } }
                    }
                }
            }
        } }
    }
}

fn children(listed: &[ChildLine<'_>], all: usize, of: f64) -> Markup {
    let depths = depths(listed);
    html! {
        @for (child, depth) in listed.iter().zip(depths).take(CHILDREN) { (row(child, &format!("{}└", "\u{2003}".repeat(depth)), of)) }
        (left_out(listed, all, "└"))
    }
}

fn meanwhile(listed: &[ChildLine<'_>], all: usize, of: f64) -> Markup {
    html! {
        @for child in listed.iter().take(CHILDREN) { (row(child, "meanwhile", of)) }
        (left_out(listed, all, "meanwhile"))
    }
}

fn left_out(listed: &[ChildLine<'_>], all: usize, mark: &str) -> Markup {
    let rest = all.saturating_sub(listed.len().min(CHILDREN));
    html! { @if rest > 0 { tr { td.muted colspan="7" { (mark) " and " (rest) " shorter ones" } } } }
}

/// An operation below a call that took `of` milliseconds.
fn row(child: &ChildLine<'_>, mark: &str, of: f64) -> Markup {
    html! {
        tr {
            td.below { (mark) " " (child.operation) } td {} td {} td { (when(child, of)) } td.n { (after(child.after_ms)) }
            td.n { (of_ms(child.duration_ms)) }
            td { @if child.in_flight { "in flight" } @else { (child.status.as_deref().unwrap_or_default()) } }
        }
    }
}

/// A line from when it was asked for until it ended, of a width that is the call's time.
fn when(child: &ChildLine<'_>, of: f64) -> Markup {
    let place = |ms: f64| (ms / of.max(1e-6) * 100.0).clamp(0.0, 100.0);
    let (from, to) = (place(child.after_ms), place(child.after_ms + child.duration_ms));
    html! {
        svg.when viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect x=(format!("{:.1}", from.min(99.0))) width=(format!("{:.1}", (to - from).max(1.0))) height="8" {}
        }
    }
}

/// The depth of each operation in the tree, in the order of their starts. An operation is below the last one of a higher layer that was under way
/// until the operation was answered.
fn depths(children: &[ChildLine<'_>]) -> Vec<usize> {
    let level = |child: &ChildLine<'_>| probes::protocol(&child.protocol).map(|protocol| protocol.level);
    let mut under_way: Vec<(f64, Option<Level>, usize)> = Vec::new();
    let depth = |child: &ChildLine<'_>| {
        let end = child.after_ms + child.duration_ms;
        let answered = end - child.deliver_ms.unwrap_or_default();
        let level = level(child);
        let is_above = |above: &&(f64, Option<Level>, usize)| {
            above.1.is_some() && above.1 < level && above.0 + ROUNDING_MS >= answered
        };
        under_way.retain(|above| above.0 + ROUNDING_MS >= child.after_ms);
        let depth = under_way.iter().rev().find(is_above).map_or(0, |above| above.2 + 1);
        under_way.push((end, level, depth));
        depth
    };
    children.iter().map(depth).collect()
}

/// The time from the call's start; negative for an operation that began before.
fn after(ms: f64) -> String {
    if ms < 0.0 { format!("−{}", of_ms(-ms)) } else { of_ms(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(protocol: &'static str, after_ms: f64, duration_ms: f64) -> ChildLine<'static> {
        ChildLine { protocol: protocol.into(), after_ms, duration_ms, ..ChildLine::default() }
    }

    #[test]
    fn an_operation_is_below_the_one_of_a_higher_layer_that_waited_for_it() {
        let all = [
            child("syscalls", 0.1, 50.0),
            child("vfs", 0.2, 40.0),
            child("smb", 0.3, 10.0),
            child("smb", 5.0, 30.0),
            child("vfs", 45.0, 2.0),
            child("smb", 46.0, 100.0), // readahead: nobody waited
            child("what a newer version has", 60.0, 1.0),
        ];
        assert_eq!(depths(&all), [0, 1, 2, 2, 1, 0, 0]);
    }

    #[test]
    fn a_request_that_is_tidied_up_later_is_below_what_had_its_answer() {
        let late = ChildLine { deliver_ms: Some(3.0), ..child("smb", 1.0, 11.0) };
        assert_eq!(depths(&[child("vfs", 0.5, 9.0), late]), [0, 1]);
    }
}
