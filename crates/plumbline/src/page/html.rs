//! The HTML of the whole page, part by part.

use maud::{Markup, PreEscaped, html};
use model::Incident;

use super::{NamesShown, calls, headline, losses, material::PageMaterial, phases, tables, timeline, units::moment};

/// The style of pages: for a screen of any size and brightness, and for paper.
pub const STYLE: &str = include_str!("style.css");

/// Makes the page from the material of a bundle.
pub fn page(material: &mut PageMaterial, names: NamesShown) -> String {
    let timeline = timeline::markup(material);
    let PageMaterial { incident, distributions, normal, connections, slowest, evidence, .. } = &*material;
    let page = html! {
        (PreEscaped("<!doctype html>"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (incident.id) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                @if names == NamesShown::Redacted {
                    p.note { "Names are replaced by tokens: a token stands for the same name wherever it is on this page." }
                }
                h1 { (headline::sentence(incident, normal)) }
                (headline::state(incident))
                (headline::verdict(incident))
                (parts(&incident.also))
                (timeline)
                (phases::markup(&incident.verdict.phases_ms))
                (because(&incident.verdict.because))
                (distributions.markup())
                (connections.markup())
                (tables::slowest(slowest))
                (tables::changed(&incident.changed))
                (tables::waited(&incident.waited))
                (calls::markup(&incident.calls))
                (tables::rankings(incident))
                (evidence.markup())
                (about(incident))
            }
        }
    };
    page.into_string()
}

fn because(because: &[String]) -> Markup {
    html! {
        @if !because.is_empty() { h2 { "Why" } ul { @for sentence in because.iter().take(50) { li { (sentence) } } } }
    }
}

/// What other rules saw of it.
fn parts(also: &[String]) -> Markup {
    html! {
        @if !also.is_empty() { p { "Part of this incident:" } ul { @for part in also.iter().take(50) { li { (part) } } } }
    }
}

fn about(incident: &Incident) -> Markup {
    let Incident { id, anomaly, host, .. } = incident;
    let noticed = if anomaly.observed.is_empty() { "–" } else { &anomaly.observed };
    let rows = [
        ("Incident", id.as_str()),
        ("Rule", &anomaly.name),
        ("Rule text", &anomaly.rule),
        ("Observed", noticed),
        ("Limit", &anomaly.limit),
        ("Noticed last", &moment(&incident.detected)),
        ("Host", &host.name),
        ("Kernel", &host.kernel),
        ("Plumbline", &host.plumbline),
    ]
    .map(|(name, text)| (name, text.to_owned()));
    html! {
        h2 { "About" }
        table.about {
            @for (name, text) in rows.iter().filter(|(_, text)| !text.is_empty()) { tr { th { (name) } td { (text) } } }
            @for (key, value) in incident.labels.iter().take(50) { tr { th { "Label" } td { (key) ": " (value) } } }
            tr { th { "Losses" } td { (losses::sentences(&incident.losses).join(" ")) } }
        }
    }
}
