//! The phases in which the mean slow operation spent its time.

use maud::{Markup, html};
use model::PhasesMs;

use super::units::of_ms;

/// A phase in words.
fn label(phase: &str) -> &'static str {
    match phase {
        "queue" => "waiting in the client",
        "send" => "this host's send queue",
        "network" => "network",
        "server" => "server",
        "deliver" => "from arrival to the caller",
        _ => "elsewhere",
    }
}

/// A bar and a legend of the phases with their shares; empty if no phase is known.
pub fn markup(phases: &PhasesMs) -> Markup {
    let known: Vec<(&str, f64)> =
        phases.named().into_iter().filter_map(|(name, ms)| Some((name, ms.filter(|ms| *ms > 0.0)?))).collect();
    let total: f64 = known.iter().map(|(_, ms)| ms).sum();
    if total <= 0.0 || !total.is_finite() {
        return Markup::default();
    }
    let percent = |ms: f64| ms / total * 100.0;
    let unknown = phases.named().into_iter().filter(|(_, ms)| ms.is_none()).map(|(name, _)| label(name));
    let unknown: Vec<&str> = unknown.collect();
    html! {
        h2 { "Where the time of a slow operation went" }
        div.bar { @for (name, ms) in &known { span class=(name) style=(format!("width:{:.1}%", percent(*ms))) {} } }
        ul.legend { @for (name, ms) in &known {
            li { span class={ "key " (name) } {} (label(name)) ": " strong { (of_ms(*ms)) } " (" (format!("{:.0}", percent(*ms))) " %)" }
        } }
        p.muted {
            "The mean of the slow operations, phase by phase."
            @if !unknown.is_empty() { " Not known: " (unknown.join(", ")) "." }
        }
    }
}
